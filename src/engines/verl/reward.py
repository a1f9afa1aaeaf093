"""The arm's verifier for verl: `dapo data grade`, one process that answers response after response."""

import atexit
import json
import os
import subprocess
import threading

_lock = threading.Lock()
_graders = {}


def _grader(program, verifier):
    """The process of this one: a fork starts its own. It ends when its standard input does."""
    key = (os.getpid(), program, verifier)
    grader = _graders.get(key)
    if grader is None or grader.poll() is not None:
        command = [program, "grade", "/dev/stdin", "--verifier", verifier, "--follow"]
        grader = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        atexit.register(grader.stdin.close)
        _graders[key] = grader
    return grader


def compute_score(
    data_source, solution_str, ground_truth, extra_info=None, *, program, verifier, response_prefix="", **_
):
    line = json.dumps({"response": response_prefix + solution_str, "ground_truth": ground_truth})
    with _lock:
        grader = _grader(program, verifier)
        try:
            grader.stdin.write(line + "\n")
            grader.stdin.flush()
            answer = grader.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise RuntimeError(f"dapo data grade: {grader.communicate()[1].strip()}")
    graded = json.loads(answer)
    return {"score": graded["score"], "acc": graded["acc"]}
