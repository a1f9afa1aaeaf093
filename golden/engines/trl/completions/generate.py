"""A small GRPO run of TRL 1.16.0 (torch 2.11.0) with `log_completions`, on a policy that answers at random:
`python generate.py FOLDER`, whose files stand here."""
import json, pathlib, shutil, sys
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, decoders
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer

words = ["<pad>", "<eos>", "Answer:", "1", "2", "3", "4"] + [f"q{n}" for n in range(4)]
core = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<pad>"))
core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")
torch.manual_seed(0)
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(words), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
    num_attention_heads=2, num_key_value_heads=2, eos_token_id=1, pad_token_id=0, bos_token_id=None))
answers = {f"q{n} Answer:": str(n + 1) for n in range(4)}


def correctness(prompts, completions, **_):
    return [1.0 if text.split()[:1] == [answers[prompt]] else -1.0 for prompt, text in zip(prompts, completions)]


out = pathlib.Path(sys.argv[1])
config = GRPOConfig(output_dir=str(out / "run"), max_steps=2, per_device_train_batch_size=16, num_generations=4,
    max_completion_length=4, log_completions=True, logging_steps=1, report_to="none", use_cpu=True, bf16=False,
    save_steps=2, seed=1, temperature=1.0)
trainer = GRPOTrainer(model=model, processing_class=tokenizer, reward_funcs=correctness, args=config,
    train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in answers] * 8))
trainer.train()
for path in sorted((out / "run").glob("completions/*.parquet")):
    shutil.copy(path, out / path.name)
shutil.copy(out / "run/checkpoint-2/trainer_state.json", out / "trainer_state.json")
kept = ["num_generations", "scale_rewards", "max_completion_length", "mask_truncated_completions", "reward_weights"]
(out / "config.json").write_text(json.dumps({key: getattr(config, key) for key in kept}, indent=2) + "\n")
(out / "answers.jsonl").write_text("".join(json.dumps({"prompt": p, "answer": a}) + "\n" for p, a in answers.items()))
