"""A Qwen2 folder as a GGUF file for llama.cpp: python benches/reference/to_gguf.py --model DIR --dtype float32 --out FILE

The same numbers under llama.cpp's names, without a tokenizer: what is timed reads token ids. Needs the
packages gguf, torch and safetensors.
"""

import argparse
import json
import pathlib

import gguf
import torch
from safetensors.torch import load_file

NAMES = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
}
OUTSIDE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def named(name):
    if name in OUTSIDE:
        return OUTSIDE[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{NAMES[rest]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    folder = pathlib.Path(args.model)
    config = json.loads((folder / "config.json").read_text())
    rope = config.get("rope_parameters") or config
    writer = gguf.GGUFWriter(args.out, "qwen2")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    for path in sorted(folder.glob("*.safetensors")):
        for name, tensor in load_file(path).items():
            # Vectors stay in f32, as llama.cpp's own converter has it.
            if tensor.dim() == 1 or args.dtype == "float32":
                writer.add_tensor(named(name), tensor.float().numpy())
                continue
            bits = tensor.to(torch.bfloat16).view(torch.int16).numpy()
            kind = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(named(name), bits, raw_shape=bits.shape, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(args.out)


if __name__ == "__main__":
    main()
