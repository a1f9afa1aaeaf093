"""A rollout step of TRL's GRPOTrainer beside those of `dapo bench`, in turn: the same base policy, prompts, group size,
updates and length limit, on the processor.

    python benches/reference/rollout_step.py DAPO [--rounds 3] [--threads 2] [--instructions avx2]

Run it in the repository's root. DAPO is the binary; the Python needs torch, transformers, datasets and trl. With
--instructions both sides keep to that instruction set. Prints each round, and medians with ratios.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

BASE = "golden/mini-aime/base"
MOST_TOKENS = 140
# A step in the trainer's words: 32 prompts of 8 responses, 4 updates of 64.
GROUP, MINI_BATCH, UPDATES = 8, 64, 4


def problems(path):
    """Questions and answers of a prepared file."""
    import pyarrow.parquet as parquet

    table = parquet.read_table(path).to_pylist()
    return [{"prompt": it["prompt"][0]["content"], "answer": it["reward_model"]["ground_truth"]} for it in table]


def trl_steps(model, rows, group, mini_batch, updates, most_tokens, steps, threads):
    """Seconds of each rollout step of TRL, the first left out. A prompt is a text, or a list of messages for the chat template."""
    import re
    import resource
    import time

    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(threads)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model)
    tokenizer.padding_side = "left"
    answer_line = re.compile(r"Answer: ?(-?\d+)")

    def reward(completions, answer, **_):
        completions = [it if isinstance(it, str) else it[0]["content"] for it in completions]
        found = [answer_line.findall(completion[-300:]) for completion in completions]
        return [1.0 if it and it[-1] == right else -1.0 for it, right in zip(found, answer)]

    class Clock(TrainerCallback):
        def __init__(self):
            self.started, self.seconds = time.perf_counter(), []

        def on_step_end(self, args, state, control, **_):
            if state.global_step % updates == 0:
                now = time.perf_counter()
                self.seconds.append(now - self.started)
                self.started = now

    clock = Clock()
    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=mini_batch,
        steps_per_generation=updates,
        gradient_accumulation_steps=1,
        num_generations=group,
        max_completion_length=most_tokens,
        temperature=1.0,
        beta=0.0,
        epsilon=0.2,
        epsilon_high=0.28,
        loss_type="dapo",
        # The policy stays what it is, and so do the lengths of its responses.
        learning_rate=0.0,
        weight_decay=0.1,
        max_grad_norm=1.0,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=20,
        max_steps=updates * (steps + 1),
        save_strategy="no",
        report_to=[],
        gradient_checkpointing=False,
        seed=1,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        processing_class=tokenizer,
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_list(rows),
        callbacks=[clock],
    )
    trainer.train()
    lengths = [it["completions/mean_length"] for it in trainer.state.log_history if "completions/mean_length" in it]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": clock.seconds[1:], "response_tokens": statistics.mean(lengths), "peak_memory_bytes": peak}


def trl(environment, **settings):
    """`trl_steps` in a process of its own."""
    command = [sys.executable, __file__, "--trl"]
    made = subprocess.run(command, check=True, env=environment, input=json.dumps(settings), stdout=subprocess.PIPE, text=True)
    result = next(it for it in made.stdout.splitlines() if it.startswith("RESULT "))
    return json.loads(result.removeprefix("RESULT "))


def keeping_to(instructions):
    """The environment in which both sides keep to an instruction set; that of this process where none is named."""
    if not instructions:
        return dict(os.environ)
    library = {"avx2": "AVX2", "avx512": "AVX512"}[instructions]
    one_dnn = {"avx2": "AVX2", "avx512": "AVX512_CORE"}[instructions]
    ours = {"DAPO_INSTRUCTIONS": instructions}
    theirs = {"ATEN_CPU_CAPABILITY": instructions, "MKL_ENABLE_INSTRUCTIONS": library, "ONEDNN_MAX_CPU_ISA": one_dnn}
    return dict(os.environ) | ours | theirs


def dapo(binary, scratch, numerics, threads, environment):
    """`dapo bench` on the same policy: its report."""
    experiment = scratch / f"{numerics}.toml"
    base = pathlib.Path("experiments/bench.toml").resolve()
    experiment.write_text(
        f'name = "beside-trl"\nnumerics = "{numerics}"\nextends = "{base}"\n[rollout]\nmax_response_tokens = {MOST_TOKENS}\n'
    )
    out = scratch / f"{numerics}.json"
    command = [binary, "bench", experiment, "--model", BASE, "--threads", str(threads), "--out", out]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads(out.read_text())


def main():
    if sys.argv[1:] == ["--trl"]:
        print("RESULT " + json.dumps(trl_steps(**json.load(sys.stdin))))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dapo")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--instructions", choices=["avx2", "avx512"])
    args = parser.parse_args()
    environment = keeping_to(args.instructions)
    seconds = {"fast": [], "exact": [], "TRL": []}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        subprocess.run([args.dapo, "data", "prepare", "mini-aime", "--out", scratch / "data"], check=True, capture_output=True)
        rows = problems(scratch / "data" / "train.parquet")
        for number in range(1, args.rounds + 1):
            line = []
            for numerics in ["fast", "exact"]:
                report = dapo(args.dapo, scratch, numerics, args.threads, environment)
                step = next(it for it in report["phases"] if it["name"] == "rollout_step")["seconds"]["median"]
                seconds[numerics].append(step)
                tokens = report["workload"]["response_tokens"] / report["workload"]["rollouts"]
                line.append(f"{numerics} {step:.3f} s ({tokens:.1f} tokens a response)")
            settings = {"model": BASE, "rows": rows, "group": GROUP, "mini_batch": MINI_BATCH, "updates": UPDATES}
            settings |= {"most_tokens": MOST_TOKENS, "steps": args.steps, "threads": args.threads}
            result = trl(environment, **settings)
            step = statistics.median(result["seconds"])
            seconds["TRL"].append(step)
            line.append(f"TRL {step:.3f} s ({result['response_tokens']:.1f})")
            print(f"round {number}: " + ", ".join(line), flush=True)
    theirs = statistics.median(seconds["TRL"])
    print("| | seconds a rollout step | times TRL's speed |\n|---|---|---|")
    for name, all_seconds in seconds.items():
        step = statistics.median(all_seconds)
        print(f"| {name} | {step:.3f} | {theirs / step:.2f} |")


if __name__ == "__main__":
    main()
