"""Does a checkpoint that this project saved mean the same to transformers?

    python golden/qwen2/check_saved.py RUN/checkpoints/step-000040 [--dapo target/debug/dapo]

Loads the folder in transformers (float32), asks `dapo model score` about the same sequences,
and compares log-probs and entropies. One prefix is followed by every token of the
vocabulary, which compares the whole row of logits up to its constant. Exit code 1 when
they differ by more than the tolerance. Needs golden/requirements.txt; run by hand, no
test depends on it.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import torch
import transformers


def reference(model, prompt, response):
    """Log-probs of the response's tokens and the entropy at each, in nats."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1: -1].double()
    rows = logits.log_softmax(-1)
    chosen = rows[torch.arange(len(response)), torch.tensor(response)]
    return chosen.tolist(), (-(rows.exp() * rows).sum(-1)).tolist()


def cases(vocab, context):
    """Random pairs of several lengths, then one prefix with every possible next token."""
    generator = torch.Generator().manual_seed(5)
    draw = lambda n: torch.randint(vocab, (n,), generator=generator).tolist()
    longest = min(context - 8, 160)
    pairs = [(draw(p), draw(r)) for p, r in [(1, 1), (1, 9), (8, 1), (5, 30), (24, longest - 24)] if r > 0]
    prefix = draw(12)
    return pairs + [(prefix, [token]) for token in range(min(vocab, 1000))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=pathlib.Path, help="a checkpoint folder in the Hugging Face layout")
    parser.add_argument("--dapo", default="target/debug/dapo", help="the binary")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    args = parser.parse_args()

    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    model.eval()
    problems = {kind: sorted(map(str, names)) for kind, names in report.items() if names}
    if problems:
        sys.exit(f"transformers did not load {args.model} cleanly: {problems}")
    if (args.model / "tokenizer.json").exists():
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
        assert len(tokenizer) <= model.config.vocab_size, "the tokenizer has more tokens than the model"

    pairs = cases(model.config.vocab_size, model.config.max_position_embeddings)
    lines = "".join(json.dumps({"prompt_ids": p, "response_ids": r}) + "\n" for p, r in pairs)
    answer = subprocess.run([args.dapo, "model", "score", "--model", str(args.model)],
                            input=lines, capture_output=True, text=True)
    if answer.returncode != 0:
        sys.exit(f"dapo model score failed with exit code {answer.returncode}: {answer.stderr.strip()}")
    scores = [json.loads(line) for line in answer.stdout.strip().split("\n")]
    assert len(scores) == len(pairs), f"{len(scores)} answers for {len(pairs)} sequences"

    worst = {"log_probs": 0.0, "entropy": 0.0}
    for (prompt, response), score in zip(pairs, scores):
        for name, expected in zip(worst, reference(model, prompt, response)):
            assert len(score[name]) == len(expected), f"{name}: {len(score[name])} values for {len(expected)} tokens"
            for ours, theirs in zip(score[name], expected):
                worst[name] = max(worst[name], abs(ours - theirs) / max(1.0, abs(theirs)))
    print(f"{args.model}: {len(pairs)} sequences, transformers {transformers.__version__}, "
          f"largest relative difference {worst['log_probs']:.1e} in log-probs, {worst['entropy']:.1e} in entropy")
    if not max(worst.values()) <= args.tolerance:
        sys.exit(f"more than the tolerance of {args.tolerance}")


if __name__ == "__main__":
    main()
