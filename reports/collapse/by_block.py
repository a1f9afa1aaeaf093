"""Entropy, clipping and accuracy of each block, for what the registration predicts and the report has as means alone.

    python reports/collapse/by_block.py

Entropy is in nats, of the rollouts; accuracy is avg@8 on word-problems, in percent: nan where the coin grades, because it is the coin's then. Needs numpy.
"""

import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "golden/stats"))

from records import Study, accuracy, t_interval  # noqa: E402

LAST_QUARTER = slice(30, 40)
# Grid, arm, the arm that it is compared with, and how the line begins.
PAIRS = [
    ("smollm2-collapse", "high-0.28", "grpo", "0.28 - 0.2"),
    ("smollm2-collapse", "high-0.4", "grpo", "0.4 - 0.2"),
    ("smollm2-collapse", "high-0.4", "high-0.28", "0.4 - 0.28"),
    ("smollm2-collapse-slow", "high-0.28", "grpo", "0.28 - 0.2 at 3e-6"),
    ("smollm2-collapse-slow", "coin", "grpo", "coin - verifier at 3e-6"),
]


def mean(cell, name, steps=slice(None)):
    values = [value for value in cell["metrics"][name][steps] if value is not None]
    return float(np.mean(values)) if values else float("nan")


def first_entropy(cell):
    return mean(cell, "policy/rollout_entropy", slice(1))


def last_entropy(cell):
    return mean(cell, "policy/rollout_entropy", LAST_QUARTER)


def accuracies(cell):
    if isinstance(cell["experiment"]["reward"]["verifier"], dict):
        return [float("nan")]
    return [100 * accuracy(it) for it in cell["evaluations"] if it["set"] == "word-problems"]


def last_accuracy(cell):
    return accuracies(cell)[-1]


def shown(sides, form):
    middle, low, high = (format(number, form) for number in t_interval(np.subtract(*sides)))
    return f"{middle} [{low}, {high}]"


def main():
    study = Study(HERE)
    for arm in dict.fromkeys(name for name, _ in study.cells):
        rows = []
        print(f"{arm}\nblock  entropy, first step  last quarter  share of the first  right at first  right at last  clipped above  their probability")
        for seed in study.seeds:
            cell = study.cells.get((arm, seed))
            if cell is None:
                continue
            assert len(cell["metrics"]["policy/rollout_entropy"]) == 40
            first, last = first_entropy(cell), last_entropy(cell)
            right = accuracies(cell)
            rows.append((first, last, last / first, right[0], right[-1], 100 * mean(cell, "loss/clip_fraction_high"), mean(cell, "loss/up_clipped_probability_mean")))
            print(f"{seed:5} {first:20.3f} {last:13.3f} {last / first:19.2f} {right[0]:15.1f} {right[-1]:14.1f} {rows[-1][5]:12.3f} % {rows[-1][6]:18.2f}")
        means, spread = np.mean(rows, 0), np.std(rows, 0, ddof=1)
        print(f" mean {means[0]:20.3f} {means[1]:13.3f} {means[2]:19.2f} {means[3]:15.1f} {means[4]:14.1f} {means[5]:12.3f} % {means[6]:18.2f}")
        print(f" s.d. {spread[0]:20.3f} {spread[1]:13.3f} {spread[2]:19.2f} {spread[3]:15.1f} {spread[4]:14.1f} {spread[5]:12.3f} % {spread[6]:18.2f}\n")
    ratios = sorted(max(cell["metrics"]["loss/ratio_max"]) for cell in study.all_cells)
    print(f"largest importance ratio of a run: {ratios[0]:.1f} to {ratios[-1]:.1f}")
    lost = [[first_entropy(study.cells[f"smollm2-collapse-slow/{arm}", seed]) - last_entropy(study.cells[f"smollm2-collapse-slow/{arm}", seed]) for seed in study.seeds] for arm in ("coin", "grpo")]
    coins, halves = lost[0], np.divide(lost[1], 2)
    print(f"lost with the coin - half of what is lost with the verifier: {shown((coins, halves), '.3f')}; the most in a block: {max(coins / halves) / 2:.2f} of it")
    # Below 0.25 nats in the first step of GRPO: reported with and without, as registered.
    for grid, *names, title in PAIRS:
        sides = [{seed: study.cells[f"{grid}/{arm}", seed] for seed in study.seeds if (f"{grid}/{arm}", seed) in study.cells} for arm in names]
        blocks = [seed for seed in study.seeds if all(seed in side for side in sides)]
        for left_out in ([], [104]):
            kept = [seed for seed in blocks if seed not in left_out]
            entropy, right = ([[value(side[seed]) for seed in kept] for side in sides] for value in (last_entropy, last_accuracy))
            print(f"{title}, {len(kept)} blocks: entropy {shown(entropy, '.3f')}, right {shown(right, '.1f')}")


if __name__ == "__main__":
    main()
