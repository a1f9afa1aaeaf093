"""Trains with TRL's GRPOTrainer what `dapo engine render trl` wrote beside this file: python train.py, or for N processes
accelerate launch --num_processes N train.py

config.yaml has the settings of GRPOConfig, and under `harness.` those of this script; prompts.jsonl has
the prompts in the order of training. Written here, each file in one step:

rollouts/step-N-rank-R.jsonl  every response of rollout step N: its token ids, and the score by `dapo data grade`
log.jsonl                     a line an update: what TRL logs
policies/step-N/              the weights after rollout step N
trainer/checkpoint-U/         TRL's own checkpoint after update U; a later process goes on from the newest
versions.json                 of Python and of TRL's packages
"""

import fcntl
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import torch
import yaml
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.rewards import get_soft_overlong_punishment

here = pathlib.Path(__file__).resolve().parent
PACKAGES = []
VERSIONS = ""


def lines_of(path):
    """JSON keeps other ends of lines than the newline, such as U+2028, as they are."""
    return [line for line in path.read_text().split("\n") if line]


settings = yaml.safe_load((here / "config.yaml").read_text())
own = {name.removeprefix("harness."): settings.pop(name) for name in list(settings) if name.startswith("harness.")}
prompts = [json.loads(line) for line in lines_of(here / "prompts.jsonl")]
torch.set_num_threads(own["threads"])
rank = int(os.environ.get("RANK", "0"))
updates = settings["steps_per_generation"] // settings["gradient_accumulation_steps"]


def end_with(parent):
    """Ends this process when the harness that started it is gone."""
    while pathlib.Path(f"/proc/{parent}").exists():
        time.sleep(1)
    os._exit(1)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.rename(path)


def asked():
    """What a program of the user's is told of each problem beside the response; a rule reads the ground truth alone."""
    lines = lines_of(here / "asked.jsonl") if own["verifier"].endswith(".json") else []
    return {line.pop("problem"): line for line in map(json.loads, lines)}


of_problem = asked()


def graded(completions, completion_ids, index):
    prefix = own.get("response_prefix", "")
    lines = []
    for text, ids, i in zip(completions, completion_ids, index):
        problem = of_problem.get(prompts[i]["problem"], {"ground_truth": prompts[i]["answer"]})
        lines.append(json.dumps({**problem, "response": prefix + text, "completion_ids": ids}))
    command = [own["program"], "grade", "/dev/stdin", "--verifier", own["verifier"].replace("{folder}", str(here))]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"dapo data grade: {done.stderr.strip()}")
    return [json.loads(line)["score"] for line in done.stdout.split("\n") if line]


def correctness(prompts, completions, completion_ids, index, trainer_state, **_):
    scores = graded(completions, completion_ids, index)
    step = trainer_state.global_step // updates + 1
    rows = zip(index, completions, completion_ids, scores)
    lines = [json.dumps({"prompt": i, "text": t, "tokens": ids, "score": s}) for i, t, ids, s in rows]
    write(here / f"rollouts/step-{step:06}-rank-{rank}.jsonl", "\n".join(lines) + "\n")
    return scores


class Record(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        if rank == 0 and "loss" in logs:
            finite = {k: v if isinstance(v, (int, float)) and math.isfinite(v) else None for k, v in logs.items()}
            with open(here / "log.jsonl", "a") as file:
                file.write(json.dumps({"update": state.global_step, "values": finite}) + "\n")

    def on_step_end(self, args, state, control, model=None, **_):
        step, rest = divmod(state.global_step, updates)
        if rest == 0 and rank == 0 and step in own["policies"]:
            folder = here / f"policies/step-{step:06}"
            partial = folder.with_name(f".{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            model.save_pretrained(partial)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        control.should_save = rest == 0 and step in own["checkpoints"]
        return control


def newest_checkpoint():
    found = (here / "trainer").glob("checkpoint-*/trainer_state.json")  # TRL writes this file last
    return max((int(path.parent.name.split("-")[1]) for path in found), default=0)


def note_versions():
    """Unless the harness that started this process has noted them."""
    path = here / "versions.json"
    if not path.exists():
        command = [sys.executable, "-c", VERSIONS, *PACKAGES]
        path.write_text(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def forget_after(update):
    """Removes what an ended process wrote after the checkpoint that this one goes on from."""
    log = here / "log.jsonl"
    lines = [line for line in (lines_of(log) if log.exists() else []) if line.endswith("}")]
    kept = [line for line in lines if json.loads(line)["update"] <= update]
    write(log, "".join(line + "\n" for line in kept))
    for folder in ("rollouts", "policies"):
        for path in (here / folder).glob("step-*"):
            if int(path.name.split("-")[1].split(".")[0]) > update // updates:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def main():
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes != own["processes"]:
        start = f"accelerate launch --num_processes {own['processes']} train.py"
        sys.exit(f"config.yaml is for {own['processes']} processes, and {processes} run; start them with: {start}")
    if "DAPO_PARENT" in os.environ:
        threading.Thread(target=end_with, args=[os.environ["DAPO_PARENT"]], daemon=True).start()
    lock = open(here / f"train-{rank}.lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)  # waits for the end of an earlier process
    tokenizer = AutoTokenizer.from_pretrained(own["model"], padding_side="left")
    for prompt in prompts:
        if tokenizer(prompt["prompt"])["input_ids"] != prompt["tokens"]:
            sys.exit(f"problem {prompt['problem']}: transformers gives its prompt other token ids than the harness")
    rows = [{"prompt": p["prompt"], "index": i} for i, p in enumerate(prompts)]
    model = AutoModelForCausalLM.from_pretrained(own["model"], dtype=torch.float32)
    config = GRPOConfig(output_dir=str(here / "trainer"), disable_tqdm=True, **settings)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=config.learning_rate,
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        weight_decay=config.weight_decay,
    )
    rates = own["learning_rates"]
    share = lambda update: rates[min(update // updates, len(rates) - 1)] / config.learning_rate
    rewards = [correctness]
    if "overlong_cache_tokens" in own:
        rewards.append(get_soft_overlong_punishment(config.max_completion_length, own["overlong_cache_tokens"]))
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=rewards,
        args=config,
        train_dataset=Dataset.from_list(rows),
        callbacks=[Record()],
        optimizers=(optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, share)),
    )
    if sorted(trainer.eos_token_ids) != own["stop_tokens"]:
        sys.exit(f"TRL stops at the tokens {trainer.eos_token_ids}, the harness at {own['stop_tokens']}")
    update = newest_checkpoint()
    if rank == 0:
        forget_after(update)
        note_versions()
        (here / "started").touch()
    trainer.accelerator.wait_for_everyone()
    trainer.train(resume_from_checkpoint=str(here / f"trainer/checkpoint-{update}") if update else None)


main()
