"""Two measurements side by side: python benches/reference/compare.py OURS.json THEIRS.json

OURS is what `dapo bench throughput --json` wrote, THEIRS what speed.py wrote for the same batches. Prints rows
of a Markdown table (weights, rows, tokens a second; those of the others, and ours by theirs; the limit of
the memory's bandwidth, and ours by it), and a line for an update.
"""

import json
import sys


def main():
    ours, theirs = (json.load(open(path)) for path in sys.argv[1:])
    for at, one in enumerate(ours["generation"]):
        rate, limit = one["tokens_per_second"], one["bandwidth_limit"]
        cells = [ours["weights"], str(one["batch"]), f"{rate:.1f}"]
        for name in ["transformers", "llama.cpp"]:
            if name in theirs:
                other = theirs[name][at]["tokens_per_second"]
                cells.append(f"{other:.1f} ({rate / other:.2f})")
        cells.append(f"{limit:.1f} ({rate / limit:.0%})")
        print("| " + " | ".join(cells) + " |")
    if ours["training"] and "torch_training" in theirs:
        one, other = ours["training"], theirs["torch_training"]
        rate, flops = one["tokens_per_second"], one["flops"] / 1e12
        print(f"update: {rate:.0f} tokens/s, {rate / other['tokens_per_second']:.2f} times PyTorch's, {flops:.2f} TFLOP/s")


if __name__ == "__main__":
    main()
