"""Entropy where a run's rollouts first reach an accuracy, arm by arm; and entropy of the single blocks at the end.

    python reports/words/at_equal_accuracy.py

Accuracy and entropy of the rollouts are means over five rollout steps. A block counts where both the arm and GRPO reach the level. Looked
at after the study was read; corrected for nothing. Needs numpy.
"""

import json
import lzma
import pathlib

import numpy as np

LEVELS = (0.5, 0.6, 0.7, 0.75)
HERE = pathlib.Path(__file__).parent


def curves(cell):
    smooth = [np.convolve(np.array(cell["metrics"][name], float), np.full(5, 0.2), "valid") for name in ("rollout/accuracy", "policy/rollout_entropy")]
    return smooth


def main():
    runs = {}
    for cell in map(json.loads, lzma.open(HERE / "records.jsonl.xz")):
        arm = cell["name"].split(".", 1)[1]
        accuracy, entropy = curves(cell)
        reached = {level: int(np.argmax(accuracy >= level)) for level in LEVELS if (accuracy >= level).any()}
        at = {level: (index + 3, float(entropy[index])) for level, index in reached.items()}
        runs.setdefault(arm, {})[cell["seed"]] = at
    print(f"{'arm':10} {'right':>6} {'blocks':>7} {'step':>6} {'entropy':>8} {'minus GRPO':>11} {'above':>6}")
    for arm in ("grpo", "high-0.28", "high-0.4", "high-0.8"):
        for level in LEVELS:
            both = [seed for seed in runs[arm] if level in runs[arm][seed] and level in runs["grpo"][seed]]
            step, entropy = (np.mean([runs[arm][seed][level][part] for seed in both]) for part in (0, 1))
            more = np.array([runs[arm][seed][level][1] - runs["grpo"][seed][level][1] for seed in both])
            print(f"{arm:10} {level:6.2f} {len(both):7} {step:6.1f} {entropy:8.3f} {more.mean():+11.3f} {int((more > 0).sum()):6}")


if __name__ == "__main__":
    main()
