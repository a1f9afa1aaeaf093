"""Trains with verl's main_ppo what `dapo engine render verl` wrote beside this file: python train.py [OVERRIDE ...]

overrides.txt has the overrides; train.parquet has the prompts in the order of training. Written here by verl:

rollouts/N.jsonl            the responses that rollout step N trained on
logs/K.jsonl                the metrics of each step, by the K-th process
checkpoints/global_step_N/  weights and state after step N; a later process goes on from the newest

and by this script:

versions.json               of Python and of verl's packages
"""

import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

here = pathlib.Path(__file__).resolve().parent
PACKAGES = []
VERSIONS = ""


def lines_of(path):
    """JSON keeps other ends of lines than the newline, such as U+2028, as they are."""
    return [line for line in path.read_text().split("\n") if line]


def end_with(parent):
    """Ends these processes when the harness that started them is gone."""
    while pathlib.Path(f"/proc/{parent}").exists():
        time.sleep(1)
    os.killpg(os.getpgid(0), signal.SIGTERM)


def same_prompts(overrides):
    """verl must make the harness's token ids of each prompt."""
    import pyarrow.parquet
    from transformers import AutoTokenizer

    value = lambda name: json.loads(next(it.split("=", 1)[1] for it in overrides if it.startswith(name + "=")))
    tokenizer = AutoTokenizer.from_pretrained(value("actor_rollout_ref.model.path"))
    template = value("actor_rollout_ref.model.custom_chat_template") or tokenizer.chat_template
    rows = pyarrow.parquet.read_table(here / "train.parquet", columns=["prompt", "extra_info"]).to_pylist()
    messages = {row["extra_info"]["index"]: row["prompt"] for row in rows}
    for line in lines_of(here / "prompts.jsonl"):
        prompt = json.loads(line)
        chat = messages[prompt["problem"]]
        text = tokenizer.apply_chat_template(chat, chat_template=template, add_generation_prompt=True, tokenize=False)
        if tokenizer(text, add_special_tokens=False)["input_ids"] != prompt["tokens"]:
            sys.exit(f"problem {prompt['problem']}: transformers gives its prompt other token ids than the harness")


def whole_steps():
    """How many steps have their responses and their line in a log, from the first one on."""
    lines = [line for path in (here / "logs").glob("*.jsonl") for line in lines_of(path)]
    lines = [json.loads(line) for line in lines if line.endswith("}")]
    # Validation has own lines: of step 0 and of the resumed step.
    trained = lambda line: any(not key.startswith("val") and key != "timing_s/testing" for key in line["data"])
    logged = {line["step"] for line in lines if trained(line)}
    step = 0
    while step + 1 in logged and (here / f"rollouts/{step + 1}.jsonl").exists():
        step += 1
    return step


def newest_checkpoint():
    """The newest one whose steps are all whole. verl writes a checkpoint before the step's responses and its line: where it
    was ended between them, it goes on from the checkpoint before."""
    marker, whole = here / "checkpoints/latest_checkpointed_iteration.txt", whole_steps()
    newest = int(marker.read_text()) if marker.exists() else 0
    if newest <= whole:
        return newest
    saved = (int(path.parent.name.rsplit("_", 1)[1]) for path in here.glob("checkpoints/global_step_*/data.pt"))
    step = max((step for step in saved if step <= whole), default=0)
    print(f"verl was ended after the checkpoint of step {newest} and before its log: it goes on from step {step}", flush=True)
    if step:
        partial = marker.with_suffix(".partial")
        partial.write_text(str(step))
        partial.rename(marker)
    else:
        marker.unlink()
    return step


def note_versions():
    """Unless the harness that started this process has noted them."""
    path = here / "versions.json"
    if not path.exists():
        command = [sys.executable, "-c", VERSIONS, *PACKAGES]
        path.write_text(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def forget_after(step):
    """Removes what an ended process wrote after the checkpoint that this one goes on from."""
    for path in (here / "rollouts").glob("*.jsonl"):
        if int(path.stem) > step:
            path.unlink()
    for path in (here / "logs").glob("*.jsonl"):
        lines = [line for line in lines_of(path) if line.endswith("}")]
        kept = [line + "\n" for line in lines if json.loads(line)["step"] <= step]
        partial = path.with_suffix(".partial")
        partial.write_text("".join(kept))
        partial.rename(path)


def main():
    if "DAPO_PARENT" in os.environ:
        threading.Thread(target=end_with, args=[os.environ["DAPO_PARENT"]], daemon=True).start()
    lock = open(here / "train.lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)  # waits for the end of an earlier process
    lines = lines_of(here / "overrides.txt")
    overrides = [line.replace("{folder}", str(here)) for line in lines if not line.startswith("#")]
    same_prompts(overrides)
    forget_after(newest_checkpoint())
    note_versions()
    (here / "started").touch()
    (here / "logs").mkdir(exist_ok=True)
    log = here / f"logs/{len(list((here / 'logs').glob('*.jsonl'))) + 1}.jsonl"
    # verl's processes on other machines see this environment alone.
    log_path = f'+ray_kwargs.ray_init.runtime_env.env_vars.VERL_FILE_LOGGER_PATH="{log}"'
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *overrides, log_path, *sys.argv[1:]]
    sys.exit(subprocess.call(command, env={**os.environ, "VERL_FILE_LOGGER_PATH": str(log)}))


main()
