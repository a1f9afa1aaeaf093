"""A rollout step of a real model beside TRL's GRPOTrainer, and generation beside transformers' `generate`, in turn on the processor:

    python benches/reference/smollm2.py DAPO MODEL [--problems word-problems] [--before OTHER] [--out FILE] ...

Run it in the repository's root. DAPO is the binary, OTHER an earlier one that takes its turn, too; MODEL is a folder
of Hugging Face with a chat template (`./justw smollm2` makes one) that ends its responses by itself; --problems is an embedded task of `dapo data prepare`, or JSON lines
with "question" and "answer". The Python needs torch, transformers, datasets, pyarrow and trl. Both sides train on the same 8 problems: 8 responses each
of at most 48 tokens at temperature 1, and 2 updates of 32; the policy of a repetition is always MODEL. Groups whose responses are all
right or all wrong have no gradient: dapo passes them forward only, TRL backward too. Generation makes
responses of one length after random prompts. Prints medians of the rounds; FILE gets every round with the machine's facts.
"""

import argparse
import importlib.metadata
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from rollout_step import keeping_to, problems, trl

PROMPTS, GROUP, MINI_BATCH, UPDATES, MOST_TOKENS = 8, 8, 32, 2, 48
PROMPT_TOKENS = 35


def experiment(scratch, rows):
    """The step as an experiment on these problems. One response of the development set is sampled: there must be a set."""
    for name, part in [("train", rows[:PROMPTS]), ("dev", rows[PROMPTS:])]:
        lines = [json.dumps({"question": it["prompt"], "answer": it["answer"]}) for it in part]
        (scratch / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    path = scratch / "step.toml"
    path.write_text(f"""
name = "beside-trl"
numerics = "fast"
extends = "{pathlib.Path('experiments/dapo.toml').resolve()}"
inputs.data = {{ kind = "files", train = "train.jsonl", dev = "dev.jsonl", test = [] }}
prompt.template = "chat"
rollout = {{ prompts_per_round = {PROMPTS}, group_size = {GROUP}, max_prompt_tokens = 256, max_response_tokens = {MOST_TOKENS} }}
training = {{ prompts_per_step = {PROMPTS}, mini_batch_rollouts = {MINI_BATCH} }}
dapo.dynamic_sampling.kind = "none"
dapo.overlong.punishment.kind = "none"
execution = {{ pass_tokens = 2560 }}
evaluation = {{ every_steps = 0, samples = {{ dev = 1 }} }}
""")
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dapo")
    parser.add_argument("model")
    parser.add_argument("--problems", default="word-problems")
    parser.add_argument("--before", help="an earlier binary")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="timed steps of a round, after one that is not timed")
    parser.add_argument("--new-tokens", type=int, default=MOST_TOKENS, help="length of the responses that are generated alone")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--instructions", choices=["avx2", "avx512"], help="both sides keep to this set")
    parser.add_argument("--out")
    args = parser.parse_args()
    environment = keeping_to(args.instructions)
    binaries = {"dapo": args.dapo} | ({"before": args.before} if args.before else {})
    rounds, threads = [], ["--threads", str(args.threads)]

    def run(*command):
        return subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout

    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        if args.problems.endswith(".jsonl"):
            lines = map(json.loads, pathlib.Path(args.problems).read_text().strip().split("\n"))
            rows = [{"prompt": it["question"], "answer": str(it["answer"])} for it in lines]
        else:
            run(args.dapo, "data", "prepare", args.problems, "--out", scratch / "data")
            rows = problems(scratch / "data" / "train.parquet")
        rows = rows[:: len(rows) // (PROMPTS + 1)][: PROMPTS + 1]
        step = experiment(scratch, rows)
        for number in range(args.rounds):
            found = {}
            for name, binary in binaries.items():
                out = scratch / "bench.json"
                run(binary, "bench", step, "--model", args.model, "--repetitions", str(args.steps), *threads, "--out", out)
                bench = json.loads(out.read_text())
                found[name] = {"step_seconds": phase(bench, "rollout_step")["seconds"]["median"], "bench": bench}
                found[name]["response_tokens"] = bench["workload"]["response_tokens"] / bench["workload"]["rollouts"]
            chats = [it | {"prompt": [{"role": "user", "content": it["prompt"]}]} for it in rows[:PROMPTS]]
            settings = {"model": args.model, "rows": chats, "group": GROUP, "mini_batch": MINI_BATCH, "updates": UPDATES}
            made = trl(environment, **settings, most_tokens=MOST_TOKENS, steps=args.steps, threads=args.threads)
            found["reference"] = {"step_seconds": statistics.median(made["seconds"])} | made
            work = ["--model", args.model, "--prompt-tokens", str(PROMPT_TOKENS), "--new-tokens", str(args.new_tokens), "--repetitions", "1"]
            for batch in ["64", "1"]:
                for name, binary in binaries.items():
                    made = json.loads(run(binary, "bench", "throughput", *work, "--batch", batch, *threads, "--json"))
                    found[name][f"generation_{batch}"] = made["generation"][0]["tokens_per_second"]
                speed = str(pathlib.Path(__file__).with_name("speed.py"))
                made = json.loads(run(sys.executable, speed, *work, "--batch", batch, *threads))
                found["reference"][f"generation_{batch}"] = made["transformers"][0]["tokens_per_second"]
            rounds.append(found)
            print(f"round {number + 1}: " + ", ".join(f"{name} {it['step_seconds']:.2f} s" for name, it in found.items()), file=sys.stderr)
    report(args, rounds)


def phase(bench, name):
    return next(it for it in bench["phases"] if it["name"] == name)


def median(values):
    """None where nothing was measured: responses that were too short to be timed."""
    values = [it for it in values if it is not None]
    return statistics.median(values) if values else None


def cell(value, ratio):
    return "not measured" if value is None else f"{value:.2f}" if ratio is None else f"{value:.2f} ({ratio:.2f} ×)"


def report(args, rounds):
    measured = ["step_seconds", "response_tokens", "generation_64", "generation_1"]
    medians = {who: {what: median(it[who][what] for it in rounds) for what in measured} for who in rounds[0]}
    ratios = {}
    for who, values in medians.items():
        pairs = {what: (values[what], medians["reference"][what]) for what in measured}
        pairs["step_seconds"] = pairs["step_seconds"][::-1]
        ratios[who] = {what: a / b if a and b else None for what, (a, b) in pairs.items()}
    bench = rounds[-1]["dapo"]["bench"]
    if args.out:
        versions = {it: importlib.metadata.version(it) for it in ["torch", "transformers", "trl"]}
        whole = {"environment": bench["environment"], "packages": versions, "arguments": vars(args)}
        whole |= {"medians": medians, "ratios": ratios, "rounds": rounds}
        pathlib.Path(args.out).write_text(json.dumps(whole, indent=1) + "\n")
    words = {
        "step_seconds": "rollout step, s",
        "response_tokens": "tokens of a response",
        "generation_64": "generation, 64 rows, tokens/s",
        "generation_1": "generation, 1 row, tokens/s",
    }
    cpu, parameters = bench["environment"].get("cpu"), bench["workload"]["parameters"]
    print(f"{cpu}, {args.threads} threads, {args.instructions or 'every instruction set'}, {parameters} parameters")
    shown = {"dapo": "dapo", "before": "dapo before", "reference": "TRL, transformers"}
    print("| | " + " | ".join(shown[who] for who in medians) + " |\n" + "|---" * (len(medians) + 1) + "|")
    for what in measured:
        cells = [cell(it[what], ratios[who][what]) for who, it in medians.items()]
        print(f"| {words[what]} | " + " | ".join(cells) + " |")
    update = phase(bench, "update")
    share, limit = update["limit_seconds"] / update["seconds"]["median"], bench["gemm_gflops"][-1]
    print(f"update: {share:.0%} of the limit of this machine's matrix product ({limit:.0f} GFLOP/s)")


if __name__ == "__main__":
    main()
