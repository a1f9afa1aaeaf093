"""What Dynamic Sampling did in each block, and where the two arms differ in time.

    python reports/useful/by_block.py

Groups and rollouts are means over rollout steps. Accuracy is avg@4 on dev, for test avg@16 after the last step, in points. Looked at after
the study was read; corrected for nothing. Needs numpy.
"""

import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "golden/stats"))

from records import Study, accuracy, block_differences, t_interval  # noqa: E402

EQUAL_TOKENS = {"source": "evaluation-mean", "set": "dev", "statistic": "avg-at-k", "clock": "generated-tokens", "from_share": 0.5}


def curve(cell, name):
    return {it["counters"]["rollout_steps"]: 100 * accuracy(it) for it in cell["evaluations"] if it["set"] == name}


def metric(cell, name, last=None):
    values = cell["metrics"][name]
    return float(np.mean(values[-last:] if last else values))


def main():
    study = Study(HERE)
    runs = {}
    for (arm, seed), cell in study.cells.items():
        runs.setdefault(arm.split("/")[1], {})[seed] = cell
    print("block  GRPO: useful, last ten steps   Dynamic Sampling: groups dropped   same, last ten   prompts trained, last ten   rollouts a step   steps below 64   test - GRPO")
    rows = []
    for seed, grpo in sorted(runs["grpo"].items()):
        dynamic = runs["dynamic"][seed]
        dropped = "effect/dynamic_sampling_dropped_share"
        difference = curve(dynamic, "test")[120] - curve(grpo, "test")[120]
        rows.append((100 * metric(grpo, "rollout/groups_useful_share", 10), 100 * metric(dynamic, dropped), 100 * metric(dynamic, dropped, 10),
                     metric(dynamic, "train/groups", 10), metric(dynamic, "rollout/generated_rollouts"),
                     sum(groups < 64 for groups in dynamic["metrics"]["train/groups"]), difference))
        print(f"{seed:5} {rows[-1][0]:28.0f} % {rows[-1][1]:32.0f} % {rows[-1][2]:14.0f} % {rows[-1][3]:26.1f} {rows[-1][4]:17.0f} {rows[-1][5]:16} {rows[-1][6]:+13.1f}")
    means = np.mean(rows, 0)
    print(f" mean {means[0]:28.0f} % {means[1]:32.0f} % {means[2]:14.0f} % {means[3]:26.1f} {means[4]:17.0f} {means[5]:16.0f} {means[6]:+13.1f}")
    print("\nstep    GRPO  Dynamic - GRPO  blocks above     136 prompts - GRPO")
    curves = {arm: {seed: curve(cell, "dev") for seed, cell in of_arm.items()} for arm, of_arm in runs.items()}
    for step in range(0, 121, 10):
        grpo, dynamic, more = (np.array([of_seed[step] for _, of_seed in sorted(curves[arm].items())]) for arm in ("grpo", "dynamic", "more"))
        print(f"{step:4} {grpo.mean():7.1f} {(dynamic - grpo).mean():+15.1f} {int((dynamic > grpo).sum()):13} {(more - grpo).mean():+22.1f}")
    of_control = block_differences(study, {"arm": "useful/grpo", "reference": "useful/more", "metric": EQUAL_TOKENS})
    mean, low, high = (100 * number for number in t_interval(of_control, 0.95))
    print(f"\nGRPO - GRPO with 136 prompts, second half of equal tokens: {mean:+.1f} [{low:.1f}, {high:.1f}]")
    print("\nTokens a rollout step, updates a rollout step, share of tokens clipped above or below, importance ratio, largest:")
    for arm, of_arm in runs.items():
        cells = of_arm.values()
        tokens, high, low = (np.mean([metric(cell, name) for cell in cells]) for name in ("rollout/generated_tokens", "loss/clip_fraction_high", "loss/clip_fraction_low"))
        updates = np.mean([cell["counters"][-1]["updates"] / cell["counters"][-1]["rollout_steps"] for cell in cells])
        print(f"{arm:8} {tokens:8.0f} {updates:6.1f} {100 * (high + low):6.1f} % {max(max(cell['metrics']['loss/ratio_max']) for cell in cells):8.0f}")


if __name__ == "__main__":
    main()
