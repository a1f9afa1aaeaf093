"""How fast transformers (and llama.cpp, where its package is) does what `dapo bench throughput` measures.

    python benches/reference/speed.py --model DIR --batch 1,8,32 --threads 2
    python benches/reference/speed.py --model DIR --device cuda --dtype bfloat16 --batch 256 --train-rows 64

Same weights, same lengths, random token ids, temperature 1, no token ends a response; the reading of
prompts is timed apart and taken off, the fastest of the repetitions counts. A training step is a
forward and backward pass in micro-batches of --pass-tokens, no layer computed twice, the norm of the
gradient, and one step of torch's AdamW on f32 weights. Needs torch and transformers; llama.cpp needs
a GGUF file of the same weights (--gguf) and the package llama-cpp-python. Prints JSON.
"""

import argparse
import json
import time

import torch
from transformers import AutoModelForCausalLM


def best(repetitions, run):
    return min(run() for _ in range(repetitions))


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(device, run):
    wait(device)
    started = time.perf_counter()
    run()
    wait(device)
    return time.perf_counter() - started


def generation(model, device, batch, args):
    ids = torch.randint(0, model.config.vocab_size, (batch, args.prompt_tokens), device=device)
    mask = torch.ones_like(ids)

    def run(tokens):
        with torch.inference_mode():
            model.generate(
                input_ids=ids,
                attention_mask=mask,
                do_sample=True,
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                min_new_tokens=tokens,
                max_new_tokens=tokens,
                pad_token_id=0,
            )

    first = best(args.repetitions, lambda: timed(device, lambda: run(1)))
    whole = best(args.repetitions, lambda: timed(device, lambda: run(args.new_tokens)))
    rate = batch * (args.new_tokens - 1) / (whole - first)
    return {"batch": batch, "first_token_seconds": first, "tokens_per_second": rate}


def training(model, device, args):
    length = args.prompt_tokens + args.new_tokens
    rows = torch.randint(0, model.config.vocab_size, (args.train_rows, length), device=device)
    size = max(1, args.pass_tokens // length)
    model.train()
    parameters = list(model.parameters())
    master = [p.detach().clone().float().requires_grad_(True) for p in parameters]
    optimizer = torch.optim.AdamW(master, lr=0.0)

    def step():
        sums = [torch.zeros_like(p) for p in master]
        for part in rows.split(size):
            logits = model(input_ids=part[:, :-1], use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(
                logits[:, args.prompt_tokens - 1 :].float().flatten(0, 1),
                part[:, args.prompt_tokens :].flatten(),
                reduction="sum",
            )
            for total, gradient in zip(sums, torch.autograd.grad(loss, parameters)):
                total.add_(gradient)
        for weight, gradient in zip(master, sums):
            weight.grad = gradient
        torch.nn.utils.clip_grad_norm_(master, 1.0)
        optimizer.step()
        with torch.no_grad():
            for parameter, weight in zip(parameters, master):
                parameter.copy_(weight)

    seconds = best(args.repetitions, lambda: timed(device, step))
    return {"rows": args.train_rows, "tokens_per_second": args.train_rows * length / seconds}


def llama_cpp(args, batch):
    """Tokens a second of a batch of sequences, decoded together by llama.cpp."""
    import llama_cpp
    import numpy

    parameters = llama_cpp.llama_model_default_params()
    model = llama_cpp.llama_model_load_from_file(args.gguf.encode(), parameters)
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = batch * (args.prompt_tokens + args.new_tokens)
    settings.n_batch = max(batch * args.prompt_tokens, 512)
    settings.n_ubatch = settings.n_batch
    settings.n_seq_max = batch
    settings.n_threads = settings.n_threads_batch = args.threads
    # Keys and values in the type of the others, not in half of it.
    settings.type_k = settings.type_v = 0
    context = llama_cpp.llama_init_from_model(model, settings)
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    random = numpy.random.default_rng(1)

    def reserved(count):
        """A batch of `count` tokens of each sequence; the last of each gives logits."""
        work = llama_cpp.llama_batch_init(batch * count, 0, 1)
        work.n_tokens = batch * count
        for at in range(batch * count):
            work.n_seq_id[at] = 1
            work.seq_id[at][0] = at // count
            work.logits[at] = at % count == count - 1
        return work

    def decode(work, tokens, start):
        """Each sequence's next token, [sequences, 1], from position `start` on."""
        shape = (tokens.size,)
        numpy.ctypeslib.as_array(work.token, shape=shape)[:] = tokens.ravel()
        positions = start + numpy.arange(tokens.shape[1], dtype=numpy.int32)
        numpy.ctypeslib.as_array(work.pos, shape=shape)[:] = numpy.tile(positions, batch)
        assert llama_cpp.llama_decode(context, work) == 0
        logits = numpy.ctypeslib.as_array(llama_cpp.llama_get_logits(context), shape=(batch, vocabulary))
        return numpy.argmax(logits + random.gumbel(size=logits.shape), axis=1)[:, None]

    first, next_ones = reserved(args.prompt_tokens), reserved(1)

    def run():
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        tokens = decode(first, random.integers(0, vocabulary, (batch, args.prompt_tokens)), 0)
        started = time.perf_counter()
        for step in range(args.new_tokens - 1):
            tokens = decode(next_ones, tokens, args.prompt_tokens + step)
        return time.perf_counter() - started

    seconds = best(args.repetitions, run)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return {"batch": batch, "tokens_per_second": batch * (args.new_tokens - 1) / seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--gguf", help="the same weights for llama.cpp")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--batch", default="1,8,32")
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--train-rows", type=int, default=0)
    parser.add_argument("--pass-tokens", type=int, default=16384)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    batches = [int(batch) for batch in args.batch.split(",")]
    found = {"torch": torch.__version__}
    if args.gguf:
        found["llama.cpp"] = [llama_cpp(args, batch) for batch in batches]
    device = torch.device(args.device)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=getattr(torch, args.dtype))
    model = model.to(device)
    # No token ends a response.
    model.generation_config.eos_token_id = None
    found["transformers"] = [generation(model, device, batch, args) for batch in batches]
    if args.train_rows:
        found["torch_training"] = training(model, device, args)
    if device.type == "cuda":
        found["peak_device_bytes"] = torch.cuda.max_memory_allocated()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
