"""Tiny Qwen2, Qwen3 and Llama checkpoints as transformers writes them, with logits and greedy
generations.

    python golden/qwen2/generate.py [CASE ...]     # once with golden/requirements.txt,
                                                   # once with golden/requirements-transformers4.txt

Each run writes the cases that name the major version of the transformers it finds as
their writer, and for the other cases only `config-transformers<major>.json`, so that a
reader of both config formats can be tested on the same model. Rerunning changes no byte
(with one thread, on the same kind of machine).
"""

import copy
import json
import pathlib
import sys

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from json_text import compact, f32

HERE = pathlib.Path(__file__).parent
MAJOR = int(transformers.__version__.split(".")[0])
NEW_TOKENS = 20

# name: who writes it, shape, end-of-sequence ids as one number or as a list
CASES = {
    "tied-4-heads-2-kv-theta-1e4": dict(
        writer=5, seed=11, hidden=32, ffn=48, layers=2, heads=4, kv_heads=2, vocab=33,
        theta=1e4, tied=True, eos_list=False,
    ),
    "untied-4-heads-4-kv-theta-1e6": dict(
        writer=5, seed=12, hidden=32, ffn=40, layers=2, heads=4, kv_heads=4, vocab=40,
        theta=1e6, tied=False, eos_list=True,
    ),
    "untied-6-heads-1-kv-theta-1e4": dict(
        writer=5, seed=13, hidden=48, ffn=56, layers=2, heads=6, kv_heads=1, vocab=29,
        theta=1e4, tied=False, eos_list=False,
    ),
    # Several files with an index, in bfloat16; the logits are those of these weights in float32.
    "sharded-bf16": dict(
        writer=5, seed=16, hidden=32, ffn=48, layers=3, heads=4, kv_heads=2, vocab=33,
        theta=1e6, tied=True, eos_list=False, dtype="bfloat16", shard="16KB",
    ),
    "qwen3": dict(
        family="Qwen3", writer=5, seed=17, hidden=32, ffn=48, layers=2, heads=4, kv_heads=2,
        vocab=31, theta=1e6, tied=True, eos_list=False, head_dim=16,
    ),
    "llama": dict(
        family="Llama", writer=5, seed=18, hidden=32, ffn=40, layers=2, heads=4, kv_heads=2,
        vocab=37, theta=5e5, tied=False, eos_list=False,
    ),
    # Scaled rotary embedding: some frequencies stay, some are stretched, some lie between.
    "llama3-rope": dict(
        family="Llama", writer=5, seed=19, hidden=64, ffn=40, layers=2, heads=2, kv_heads=1,
        vocab=37, theta=1e4, tied=False, eos_list=False, positions=256,
        rope=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=32),
    ),
    "yarn": dict(
        writer=5, seed=20, hidden=64, ffn=40, layers=2, heads=2, kv_heads=1, vocab=37,
        theta=1e4, tied=False, eos_list=False, positions=128,
        rope=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32,
                  beta_fast=4.0),
    ),
    "tied-4-heads-2-kv-theta-1e6-transformers-4": dict(
        writer=4, seed=15, hidden=32, ffn=48, layers=3, heads=4, kv_heads=2, vocab=27,
        theta=1e6, tied=True, eos_list=True,
    ),
}
LENGTHS = (12, 7, 1)
PROMPT_LENGTHS = (5, 1, 9, 3)


def family(case):
    return case.get("family", "Qwen2")


def model_class(case):
    return getattr(transformers, f"{family(case)}ForCausalLM")


def build(case):
    """A model whose every parameter is random: biases and norm weights too, which
    transformers would start at 0 and 1, where a loader that drops them goes unnoticed."""
    settings = dict(
        vocab_size=case["vocab"], hidden_size=case["hidden"], intermediate_size=case["ffn"],
        num_hidden_layers=case["layers"], num_attention_heads=case["heads"],
        num_key_value_heads=case["kv_heads"], max_position_embeddings=case.get("positions", 64),
        tie_word_embeddings=case["tied"], rms_norm_eps=1e-6,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )
    if "head_dim" in case:
        settings["head_dim"] = case["head_dim"]
    if MAJOR >= 5:
        settings["rope_parameters"] = {"rope_type": "default", "rope_theta": case["theta"],
                                       **case.get("rope", {})}
        settings["dtype"] = "float32"
    else:
        settings["rope_theta"] = case["theta"]
        settings["rope_scaling"] = case.get("rope")
        settings["torch_dtype"] = "float32"
    config = getattr(transformers, f"{family(case)}Config")(**settings)
    config._attn_implementation = "eager"
    model = model_class(case)(config).float().eval()
    generator = torch.Generator().manual_seed(case["seed"])
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("norm.weight") or "layernorm" in name:
                parameter.copy_(1 + 0.2 * noise)
            elif name.endswith("bias"):
                parameter.copy_(0.5 * noise)
            else:
                # Louder blocks than embeddings, or a tied head repeats its input.
                gain = 0.5 if "embed" in name or "lm_head" in name else 1.2
                parameter.copy_(noise * (gain / parameter.shape[-1] ** 0.5))
            if case.get("dtype") == "bfloat16":  # not the frequencies, which stay in float32
                parameter.copy_(parameter.bfloat16().float())
    return model, generator


def random_ids(lengths, vocab, generator):
    return [torch.randint(vocab, (length,), generator=generator).tolist() for length in lengths]


def greedy(model, prompt, eos):
    """Response ids, the end-of-sequence token included, and the smallest gap between the
    best and the second-best logit on the way."""
    out = model.generate(
        torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=eos, pad_token_id=0,
        output_logits=True, return_dict_in_generate=True,
    )
    best = torch.stack(out.logits).squeeze(1).topk(2, dim=-1).values
    return out.sequences[0, len(prompt):].tolist(), (best[:, 0] - best[:, 1]).min().item()


def choose_eos(model, prompts, as_list):
    """End-of-sequence ids that stop at least one prompt midway and leave one running."""
    free = [greedy(model, prompt, None)[0] for prompt in prompts]
    candidates = [
        (token,) if not as_list else (token, other)
        for response in free for token in response[3:-3]
        for other in (range(1) if not as_list else sorted({t for r in free for t in r} - {token}))
    ]
    for eos in candidates:
        ends = [next((i for i, t in enumerate(r) if t in eos), None) for r in free]
        used = {r[i] for r, i in zip(free, ends) if i is not None}
        if None in ends and len(used) == len(eos) and any(i is not None and i >= 3 for i in ends):
            return list(eos) if as_list else eos[0]
    sys.exit(f"no token stops one prompt and leaves another running: choose another seed {free}")


def generate(name, case):
    folder = HERE / name
    model, generator = build(case)
    sequences = random_ids(LENGTHS, case["vocab"], generator)
    prompts = random_ids(PROMPT_LENGTHS, case["vocab"], generator)
    eos = choose_eos(model, prompts, case["eos_list"])
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=eos, pad_token_id=0, do_sample=True, temperature=0.7, top_p=0.8, top_k=20)
    model.config.eos_token_id = eos if isinstance(eos, int) else eos[0]
    if "shard" in case:
        stored = copy.deepcopy(model).bfloat16()  # its parameters lose nothing more
        stored.save_pretrained(folder, safe_serialization=True, max_shard_size=case["shard"])
    else:
        model.save_pretrained(folder, safe_serialization=True)

    for file in folder.glob("*.safetensors"):
        file.chmod(0o644)
    with torch.no_grad():
        logits = [model(torch.tensor([ids])).logits[0] for ids in sequences]
        double = model_class(case).from_pretrained(
            folder, attn_implementation="eager", dtype="float32").double().eval()
        wide = [double(torch.tensor([ids])).logits[0] for ids in sequences]
        del double
    check_sensitivity(name, case, folder, sequences[0], logits[0])
    noise = max((a.double() - b).abs().max().item() for a, b in zip(logits, wide))
    assert noise < 2e-6, f"{name}: float32 noise {noise} is too near the tolerance"

    runs = []
    for prompt in prompts:
        response, gap = greedy(model, prompt, eos)
        assert gap > 1e-3, f"{name}: a tie within {gap}; choose another seed"
        stops = {eos} if isinstance(eos, int) else set(eos)
        stopped = response[-1] in stops
        assert stopped or len(response) == NEW_TOKENS
        runs.append({"prompt_ids": prompt, "response_ids": response,
                     "finish": "stop" if stopped else "length"})
    assert {run["finish"] for run in runs} == {"stop", "length"}
    expected = {
        "provenance": {
            "command": "python golden/qwen2/generate.py", "seed": case["seed"],
            "torch": torch.__version__, "transformers": transformers.__version__,
            "dtype": "float32", "attention": "eager", "threads": 1,
            "largest_difference_to_float64": noise,
        },
        "logits": [{"input_ids": ids, "logits": [f32(row) for row in rows]}
                   for ids, rows in zip(sequences, logits)],
        "greedy": {"max_new_tokens": NEW_TOKENS, 
                   "eos_token_ids": eos if isinstance(eos, list) else [eos], "runs": runs},
    }
    (folder / "expected.json").write_text(compact(expected))
    size = max(row.abs().max().item() for row in logits)
    print(f"{name}: eos {eos}, lengths {[len(r['response_ids']) for r in runs]}, "
          f"largest logit {size:.2f}, f32 noise {noise:.1e}")


def check_sensitivity(name, case, folder, ids, logits):
    """What a wrong reader would do must move the logits far beyond the tolerance of 1e-5."""
    settings = json.loads((folder / "config.json").read_text())
    wrong_theta = 1e10 / case["theta"]
    if MAJOR >= 5:
        theta = {"rope_parameters": {**settings["rope_parameters"], "rope_theta": wrong_theta}}
    else:
        theta = {"rope_theta": wrong_theta}
    changes = {"RoPE theta": theta, "epsilon": {"rms_norm_eps": 1e-5}}
    if "rope" in case:
        changes["plain RoPE"] = {"rope_parameters": {"rope_type": "default", "rope_theta": case["theta"]}}
    changes |= {"Qwen2": {"bias": {}}, "Qwen3": {"norm": {}}}.get(family(case), {})
    for what, change in changes.items():
        config = getattr(transformers, f"{family(case)}Config")(**{**settings, **change})
        wrong = model_class(case).from_pretrained(
            folder, config=config, attn_implementation="eager", dtype="float32").eval()
        with torch.no_grad():
            if what == "bias":
                wrong.model.layers[0].self_attn.k_proj.bias.zero_()
            if what == "norm":
                wrong.model.layers[0].self_attn.k_norm.weight.fill_(1)
            moved = (wrong(torch.tensor([ids])).logits[0] - logits).abs().max().item()
        assert moved > 1e-4, f"{name}: a wrong {what} moves the logits by {moved} only"


def main():
    torch.set_num_threads(1)
    chosen = sys.argv[1:] or list(CASES)
    for name, case in ((name, CASES[name]) for name in chosen):
        (HERE / name).mkdir(exist_ok=True)
        if case["writer"] == MAJOR:
            generate(name, case)
        elif (HERE / name / "expected.json").exists():
            model, _ = build(case)
            eos = json.loads((HERE / name / "expected.json").read_text())["greedy"]["eos_token_ids"]
            model.config.eos_token_id = eos[0]
            model.config.architectures = [f"{family(case)}ForCausalLM"]
            model.config.to_json_file(HERE / name / f"config-transformers{MAJOR}.json")
        else:
            print(f"{name}: needs transformers {case['writer']} first")


if __name__ == "__main__":
    main()
