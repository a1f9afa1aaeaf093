"""How the cost of generation and of an update grows with tokens, batch, width and layers:

    python benches/cost.py DAPO [--threads 2]

Random policies of the embedded benchmark's shape (hidden 128, feed-forward 384, 4 layers, heads of 32) are timed by
`dapo bench throughput`, one size changed at a time; prints a Markdown table with the slope of log seconds over log size.
"""

import argparse
import array
import json
import math
import pathlib
import random
import struct
import subprocess
import tempfile

AXES = {
    "tokens": [32, 64, 128, 256],
    "batch": [32, 64, 128, 256, 512],
    "width": [64, 128, 256, 512],
    "layers": [2, 4, 8, 16],
}
USUAL = {"tokens": 64, "batch": 128, "width": 128, "layers": 4}
PROMPT, VOCABULARY = 16, 26


def write_policy(folder, width, layers):
    heads, inner = width // 32, 3 * width
    kv_heads = heads // 2
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": VOCABULARY,
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 512,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "torch_dtype": "float32",
    }
    shapes = {"model.embed_tokens.weight": [VOCABULARY, width], "model.norm.weight": [width]}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        shapes |= {at + "input_layernorm.weight": [width], at + "post_attention_layernorm.weight": [width]}
        for name, rows in [("q", width), ("k", 32 * kv_heads), ("v", 32 * kv_heads)]:
            shapes |= {at + f"self_attn.{name}_proj.weight": [rows, width], at + f"self_attn.{name}_proj.bias": [rows]}
        shapes |= {at + "self_attn.o_proj.weight": [width, width], at + "mlp.down_proj.weight": [width, inner]}
        shapes |= {at + "mlp.gate_proj.weight": [inner, width], at + "mlp.up_proj.weight": [inner, width]}
    draws, header, data = random.Random(1), {}, array.array("f")
    for name, shape in sorted(shapes.items()):
        first = 4 * len(data)
        scale = 0.0 if len(shape) == 1 else 0.02
        norm = 1.0 if name.endswith("norm.weight") else 0.0
        data.extend(norm + scale * draws.gauss(0, 1) if scale else norm for _ in range(math.prod(shape)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [first, 4 * len(data)]}
    text = json.dumps(header).encode()
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data.tobytes())


def slope(sizes, seconds):
    """Of the line through log seconds over log sizes, by least squares."""
    x, y = [math.log(it) for it in sizes], [math.log(it) for it in seconds]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y)) / sum((a - mx) ** 2 for a in x)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dapo")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    print("| | sizes | generation, s | exponent | update, s | exponent |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        for axis, sizes in AXES.items():
            generation, update = [], []
            for size in sizes:
                at = USUAL | {axis: size}
                folder = pathlib.Path(scratch) / f"{at['width']}-{at['layers']}"
                if not folder.exists():
                    write_policy(folder, at["width"], at["layers"])
                command = [args.dapo, "bench", "throughput", "--model", folder, "--batch", str(at["batch"])]
                command += ["--train-rows", str(at["batch"]), "--new-tokens", str(at["tokens"]), "--prompt-tokens", str(PROMPT)]
                command += ["--threads", str(args.threads), "--pass-tokens", "1024", "--json"]
                made = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                generation.append(at["batch"] * (at["tokens"] - 1) / made["generation"][0]["tokens_per_second"])
                training = made["training"]
                update.append(training["tokens"] / training["tokens_per_second"])
            texts = [", ".join(f"{it:.4f}" for it in all_seconds) for all_seconds in (generation, update)]
            slopes = [f"{slope(sizes, all_seconds):.2f}" for all_seconds in (generation, update)]
            print(f"| {axis} | {', '.join(map(str, sizes))} | {texts[0]} | {slopes[0]} | {texts[1]} | {slopes[1]} |", flush=True)


if __name__ == "__main__":
    main()
