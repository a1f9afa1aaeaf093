"""Whether policies of signed sums still compute: shares over the attempts of all rollouts of a rollout step.

    python golden/stats/attempts.py STUDY

Reads the rollouts of STUDY/runs (`dapo ablate --out STUDY`), which are not committed; needs polars. For the first, the tenth and the last
rollout step, the mean over the runs of each arm: attempts whose every sum is right; answered responses whose last attempt has a
wrong sum; attempts that repeat the signs of an earlier one of their response.
"""

import collections
import pathlib
import re
import sys

import polars as pl

STEP = re.compile(r"([+-])(\d+)=(-?\d+)")


def computed_right(attempt):
    """`7-3=4+5=9`: whether each step follows from the one before."""
    first = re.match(r"(\d+)(?=[+-])", attempt)
    if not first:
        return False
    value = int(first[1])
    for sign, number, result in STEP.findall(attempt):
        if value + int(sign + number) != int(result):
            return False
        value = int(result)
    return True


def shares(file):
    right, repeated, attempts, misled, answered = 0, 0, 0, 0, 0
    for response in pl.read_parquet(file, columns=["response"])["response"]:
        search, has_answer, _ = response.partition("Answer")
        seen = set()
        verdicts = []
        # An attempt ends in its result and the target, `=9:11;`, or `.` after the last one; what was cut off is none.
        for attempt in re.findall(r"([^;.]*):-?\d+[;.]", search):
            signs = tuple(sign for sign, _, _ in STEP.findall(attempt))
            repeated += signs in seen
            seen.add(signs)
            verdicts.append(computed_right(attempt))
        right += sum(verdicts)
        attempts += len(verdicts)
        if has_answer and verdicts and search.endswith("."):
            answered += 1
            misled += not verdicts[-1]
    return [100 * right / attempts, 100 * misled / max(1, answered), 100 * repeated / attempts]


arms = collections.defaultdict(list)
for run in sorted(pathlib.Path(sys.argv[1], "runs").iterdir()):
    files = sorted((run / "rollouts").glob("*.parquet"))
    arms[run.name.split("-seed")[0]].append([shares(files[at]) for at in (0, 9, -1)])

print(f"{'shares in %, rollout steps 1, 10 and last':42} {'computed right':>21} {'misled answers':>21} {'repeated':>21}")
for arm, runs in arms.items():
    mean = [[sum(run[at][what] for run in runs) / len(runs) for at in range(3)] for what in range(3)]
    print(f"{arm:42}", *("".join(f"{it:7.1f}" for it in row) for row in mean))
