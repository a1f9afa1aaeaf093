"""Whether policies of signed sums still compute: shares over the attempts of all rollouts of a rollout step.

    python golden/stats/attempts.py STUDY

Reads the rollouts of STUDY/runs (`dapo ablate --out STUDY`), which are not committed; needs polars. For the first, the tenth and the last
rollout step, the mean over the runs of each arm: attempts whose every sum is right; of the responses that end their search as
successful and answer, those whose last attempt has a wrong sum, and those in which that sum gives the target; attempts that
repeat the signs of an earlier one of their response; the first of these in the runs with least and most of it in the last step.
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
    right, repeated, attempts, misled, forged, answered = 0, 0, 0, 0, 0, 0
    for response in pl.read_parquet(file, columns=["response"])["response"]:
        search, has_answer, _ = response.partition("Answer")
        seen = set()
        verdicts = []
        # An attempt ends in its result and the target, `=9:11;`, or `.` after the last one; what was cut off is none.
        for attempt, target in re.findall(r"([^;.]*):(-?\d+)[;.]", search):
            signs = tuple(sign for sign, _, _ in STEP.findall(attempt))
            repeated += signs in seen
            seen.add(signs)
            verdicts.append(computed_right(attempt))
        right += sum(verdicts)
        attempts += len(verdicts)
        if has_answer and verdicts and search.endswith("."):
            answered += 1
            misled += not verdicts[-1]
            forged += not verdicts[-1] and attempt.endswith("=" + target)
    of_answers = [100 * count / max(1, answered) for count in (misled, forged)]
    return [100 * right / attempts, *of_answers, 100 * repeated / attempts]


arms = collections.defaultdict(list)
for run in sorted(pathlib.Path(sys.argv[1], "runs").iterdir()):
    files = sorted((run / "rollouts").glob("*.parquet"))
    arms[run.name.split("-seed")[0]].append([shares(files[at]) for at in (0, 9, -1)])

columns = ["computed right", "answer, wrong sum", "that gives target", "repeated"]
print(f"{'%, rollout steps 1, 10, last':28}", *(f"{name:>21}" for name in [*columns, "right, single runs"]))
for arm, runs in arms.items():
    mean = [[sum(run[at][what] for run in runs) / len(runs) for at in range(3)] for what in range(len(columns))]
    right = [run[-1][0] for run in runs]
    single = f"{min(right):.0f} to {max(right):.0f}"
    print(f"{arm:28}", *("".join(f"{it:7.1f}" for it in row) for row in mean), f"{single:>21}")
