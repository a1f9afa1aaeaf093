"""A Qwen2.5 folder of real size with random weights: python benches/reference/random_model.py --size 0.5b --out DIR

Needs torch and transformers. There is no tokenizer in it: what is timed reads token ids.
"""

import argparse

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

# hidden, intermediate, layers, heads, kv heads, vocabulary, tied
SIZES = {
    "0.8m": (128, 384, 4, 4, 2, 26, True),
    "0.5b": (896, 4864, 24, 14, 2, 151936, True),
    "1.5b": (1536, 8960, 28, 12, 2, 151936, True),
    "7b": (3584, 18944, 28, 28, 4, 152064, False),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    hidden, inner, layers, heads, kv_heads, vocabulary, tied = SIZES[args.size]
    config = Qwen2Config(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=vocabulary,
        tie_word_embeddings=tied,
        max_position_embeddings=32768,
        rope_theta=1e6,
        use_sliding_window=False,
    )
    torch.manual_seed(1)
    torch.set_default_dtype(getattr(torch, args.dtype))
    Qwen2ForCausalLM(config).save_pretrained(args.out)
    print(args.out)


if __name__ == "__main__":
    main()
