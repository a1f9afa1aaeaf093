"""Writes what verl leaves of one rollout step, with verl's own functions, on real responses:

    dump.py DAPO OUT      in a Python that has verl 0.9.1

The responses are the base policy's (`dapo model generate`), put into mixed groups; scores have verl's length
penalty; the numbers of the updates are made up, since no card made them.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from verl.trainer.ppo.v1.trainer_base import PPOTrainer
from verl.utils.tracking import FileLogger

here = pathlib.Path(__file__).resolve().parent
dapo, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
LIMIT, CACHE, GROUPS, SIZE = 48, 16, 4, 4


def run(*arguments, text=None):
    return subprocess.run([dapo, *arguments], input=text, capture_output=True, text=True, check=True).stdout


run("engine", "render", "verl", here / "dapo.toml", "--out", out, "--gpus-per-node", "1")
prompts = [json.loads(line) for line in (out / "prompts.jsonl").read_text().splitlines()]
with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
    file.write("".join(json.dumps({"prompt": it["prompt"]}) + "\n" for it in prompts))
    file.flush()
    model = here / "../../mini-aime/base"
    lines = run("model", "generate", "--model", model, "--prompts", file.name, "-n", "64", "--max-tokens", str(LIMIT))
groups = {}
for line in map(json.loads, lines.splitlines()):
    groups.setdefault(line["prompt"], []).append(line)
rows = []
for index, members in groups.items():
    prompt = prompts[index]
    graded = run(
        "grade", "/dev/stdin",
        text="".join(json.dumps({"response": it["text"], "ground_truth": prompt["answer"]}) + "\n" for it in members),
    )
    scores = [json.loads(line)["score"] for line in graded.splitlines()]
    pairs = list(zip(members, scores))
    correct, wrong = ([it for it in pairs if (it[1] > 0) == wanted] for wanted in (True, False))
    chosen = (correct[:2] + wrong)[:SIZE]
    if correct and wrong and len(rows) < GROUPS * SIZE:
        rows += [(f"group-{index}_{sample}_0", prompt, it, score) for sample, (it, score) in enumerate(chosen)]
assert len(rows) == GROUPS * SIZE, f"only {len(rows)} rows of mixed groups"
tokens = [len(it["response_ids"]) for _, _, it, _ in rows]
penalty = lambda length: min(-(length - (LIMIT - CACHE)) / CACHE, 0)
shaped = [score + penalty(length) for (_, _, _, score), length in zip(rows, tokens)]
PPOTrainer._write_generations(
    [prompt["prompt"] for _, prompt, _, _ in rows],
    [it["text"] for _, _, it, _ in rows],
    [prompt["answer"] for _, prompt, _, _ in rows],
    shaped,
    {"uid": [uid for uid, _, _, _ in rows]},
    str(out / "rollouts"),
    1,
)
(out / "logs").mkdir()
import os

os.environ["VERL_FILE_LOGGER_PATH"] = str(out / "logs/1.jsonl")
logger = FileLogger("dapo", "golden")
logger.log({"val-core/dev/acc/mean@1": 0.25}, step=0)
logger.log(
    {
        "actor/grad_norm": 0.5, "actor/entropy": 0.4, "actor/pg_loss": 0.01, "actor/pg_clipfrac": 0.02,
        "actor/pg_clipfrac_lower": 0.0, "actor/ppo_kl": 0.001, "actor/lr": 2e-4,
        "critic/score/mean": sum(shaped) / len(shaped), "response_length/mean": sum(tokens) / len(tokens),
        "response_length/max": max(tokens), "training/filter_groups/evicted_samples": 3,
        "training/filter_groups/discarded_surplus_samples": 1, "training/rollout_probs_diff_mean": 0.002,
        "timing_s/step": 1.5,
    },
    step=1,
)
logger.finish()
for name in ["overrides.txt", "train.parquet", "val.parquet", "train.py", "reward.py", "launch.sh"]:
    (out / name).unlink()
