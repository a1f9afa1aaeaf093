"""The arm's verifier for verl: `dapo data grade`, one process that answers response after response."""

import atexit
import functools
import json
import os
import pathlib
import subprocess
import threading

_lock = threading.Lock()
_graders = {}


@functools.cache
def _asked():
    """What a program of the user's is told of each problem beside the response; a rule reads the ground truth alone."""
    # JSON keeps other ends of lines than the newline, such as U+2028, as they are.
    lines = (pathlib.Path(__file__).parent / "asked.jsonl").read_text().split("\n")
    return {asked.pop("problem"): asked for asked in map(json.loads, filter(None, lines))}


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
    of_problem = _asked()[extra_info["index"]] if verifier.endswith(".json") else {"ground_truth": ground_truth}
    line = json.dumps({**of_problem, "response": response_prefix + solution_str})
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
    if "error" in graded:
        raise RuntimeError(f"dapo data grade: {graded['error']}")
    return {"score": graded["score"], "acc": graded["acc"]}
