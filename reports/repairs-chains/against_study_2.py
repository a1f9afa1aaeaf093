"""DAPO - GRPO of each repair in each block, beside study-2's, whose base policies and seeds are the same.

    python reports/repairs-chains/against_study_2.py

Mean avg@2 over the evaluations after half of what both runs have of a clock, in points. The change is repair - study-2 within blocks, with a
t interval. Looked at after the study was read; corrected for nothing. Needs numpy.
"""

import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "golden/stats"))

from records import Study, block_differences, t_interval  # noqa: E402

CLOCKS = {"generated-tokens": "generated tokens", "flops": "FLOPs", "updates": "updates"}


def differences(study, grid, clock):
    metric = {"source": "evaluation-mean", "set": "checked-chains", "statistic": "avg-at-k", "clock": clock, "from_share": 0.5}
    return 100 * block_differences(study, {"arm": f"{grid}/dapo", "reference": f"{grid}/grpo", "metric": metric})


def interval(values):
    return "{:+.1f} [{:.1f}, {:.1f}]".format(*t_interval(values, 0.95))


def main():
    before, after = Study(HERE.parent / "study-2"), Study(HERE)
    for clock, words in CLOCKS.items():
        first = differences(before, "factorial", clock)
        print(f"\nEqual {words:18}", *(f"{seed:>6}" for seed in before.seeds), "   mean                  change")
        print(f"{'study-2':24}", *(f"{points:+6.1f}" for points in first), f"   {interval(first)}")
        for grid in ("safeguards", "no-warm-up", "long"):
            of_repair = differences(after, grid, clock)
            print(f"{grid:24}", *(f"{points:+6.1f}" for points in of_repair), f"   {interval(of_repair):21} {interval(of_repair - first)}")


if __name__ == "__main__":
    main()
