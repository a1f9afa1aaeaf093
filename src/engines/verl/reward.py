"""The arm's verifier for verl: `dapo grade` on one response."""

import json
import subprocess


def compute_score(data_source, solution_str, ground_truth, extra_info=None, *, program, verifier, **_):
    line = json.dumps({"response": solution_str, "ground_truth": ground_truth})
    command = [program, "grade", "/dev/stdin", "--verifier", verifier]
    done = subprocess.run(command, input=line, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"dapo grade: {done.stderr.strip()}")
    graded = json.loads(done.stdout)
    return {"score": graded["score"], "acc": graded["acc"]}
