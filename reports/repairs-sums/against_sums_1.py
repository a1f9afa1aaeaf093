"""DAPO - GRPO of each repair in each block, beside sums-1's, whose base policies and seeds are the same; and falls of accuracy.

    python reports/repairs-sums/against_sums_1.py

Mean avg@2 over the evaluations after half of what both runs have of a clock, in points. The change is repair - sums-1 within blocks, with a
t interval. Then accuracy after the last step, and how often it fell by more than 10 points between evaluations (the first prediction asks
that of safeguards-sums). Looked at after the study was read, but for those falls; corrected for nothing. Needs numpy.
"""

import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "golden/stats"))

from records import Study, accuracy, block_differences, t_interval  # noqa: E402

CLOCKS = {"generated-tokens": "generated tokens", "flops": "FLOPs", "updates": "updates"}
GRIDS = ["safeguards-sums", "rate-3e-5", "rate-5e-5"]


def differences(study, grid, clock):
    metric = {"source": "evaluation-mean", "set": "signed-sums", "statistic": "avg-at-k", "clock": clock, "from_share": 0.5}
    return 100 * block_differences(study, {"arm": f"{grid}/dapo", "reference": f"{grid}/grpo", "metric": metric})


def interval(values):
    return "{:+.1f} [{:.1f}, {:.1f}]".format(*t_interval(values, 0.95))


def curve(cell):
    return [100 * accuracy(it) for it in cell["evaluations"] if it["set"] == "signed-sums"]


def main():
    before, after = Study(HERE.parent / "sums-1"), Study(HERE)
    first_grid = next(arm.split("/")[0] for arm, _ in before.cells if arm.endswith("/dapo"))
    for clock, words in CLOCKS.items():
        first = differences(before, first_grid, clock)
        print(f"\nEqual {words:18}", *(f"{seed:>6}" for seed in before.seeds), "   mean                  change")
        print(f"{'sums-1':24}", *(f"{points:+6.1f}" for points in first), f"   {interval(first)}")
        for grid in GRIDS:
            of_repair = differences(after, grid, clock)
            print(f"{grid:24}", *(f"{points:+6.1f}" for points in of_repair), f"   {interval(of_repair):21} {interval(of_repair - first)}")
    print("\nAfter the last step       " + "".join(f"{seed:>7}" for seed in before.seeds) + "    mean   falls, runs with one   largest ratio")
    for study, grid in [(before, first_grid)] + [(after, grid) for grid in GRIDS]:
        for arm in ("grpo", "dapo"):
            curves = [curve(study.cells[f"{grid}/{arm}", seed]) for seed in study.seeds]
            falls = [sum(one - two > 10 for one, two in zip(values, values[1:])) for values in curves]
            ratios = [max(study.cells[f"{grid}/{arm}", seed]["metrics"]["loss/ratio_max"]) for seed in study.seeds]
            ends = [values[-1] for values in curves]
            print(f"{grid + '/' + arm:26}" + "".join(f"{value:7.1f}" for value in ends) + f" {np.mean(ends):7.1f} {sum(falls):6}, {sum(map(bool, falls))} of {len(falls)} {max(ratios):16.3g}")


if __name__ == "__main__":
    main()
