"""Responses that were cut, accuracy and what the loss weighed, by block and in time.

    python reports/loops/by_block.py

Shares in percent. Accuracy is avg@4, on dev, or on test after the last step. Looked at after the study was read, but for the first table
and the lines below it, which answer predictions 2 and 4; corrected for nothing. Needs numpy.
"""

import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "golden/stats"))

from records import Study, accuracy, t_interval  # noqa: E402

ARMS = ["grpo", "token", "grpo-48", "token-48", "grpo-16", "token-16"]


def curve(cell, name):
    return {it["counters"]["rollout_steps"]: 100 * accuracy(it) for it in cell["evaluations"] if it["set"] == name}


def shares(cell, name, steps=slice(None)):
    return 100 * float(np.mean(cell["metrics"][name][steps]))


def interval(values):
    return "{:+.1f} [{:.1f}, {:.1f}]".format(*t_interval(np.array(values), 0.95))


def main():
    study = Study(HERE)
    runs = {}
    for (arm, seed), cell in study.cells.items():
        runs.setdefault(arm.split("/")[1], {})[seed] = cell
    blocks = sorted(runs["grpo"])
    cut = "rollout/truncated_share"

    def of(arm, what):
        return np.array([what(runs[arm][seed]) for seed in blocks])

    first, last = slice(0, 1), slice(30, 40)
    print("Responses cut at the limit: first step, last quarter of the steps; right on test after the last step; entropy there")
    print("block " + "".join(f"{arm:>26}" for arm in ARMS))
    for place, seed in enumerate(blocks):
        cells = [runs[arm][seed] for arm in ARMS]
        row = [f"{shares(cell, cut, first):5.1f} {shares(cell, cut, last):5.1f} {curve(cell, 'test')[40]:6.1f} {np.mean(cell['metrics']['policy/rollout_entropy'][last]):6.2f}" for cell in cells]
        print(f"{seed:5} " + "".join(f"{text:>26}" for text in row))
    means = [[of(arm, lambda cell: shares(cell, cut, first)).mean(), of(arm, lambda cell: shares(cell, cut, last)).mean(),
              of(arm, lambda cell: curve(cell, "test")[40]).mean(), of(arm, lambda cell: np.mean(cell["metrics"]["policy/rollout_entropy"][last])).mean()] for arm in ARMS]
    print(" mean " + "".join(f"{f'{a:5.1f} {b:5.1f} {c:6.1f} {d:6.2f}':>26}" for a, b, c, d in means))
    for arm in ("grpo", "grpo-48", "grpo-16"):
        rise = of(arm, lambda cell: shares(cell, cut, last)) - of(arm, lambda cell: shares(cell, cut, first))
        print(f"{arm}: last quarter - first step, {interval(rise)} points, up in {int((rise > 0).sum())} of {len(rise)} blocks")

    effects = [of(token, lambda cell: shares(cell, cut, last)) - of(grpo, lambda cell: shares(cell, cut, last)) for token, grpo in zip(ARMS[1::2], ARMS[::2])]
    print(f"effect at 48 - effect at 96: {interval(effects[1] - effects[0])} points; at 16 - at 48: {interval(effects[2] - effects[1])}")

    print("\nRight among the responses that end, sampled in the last quarter of the steps, and tokens generated in all, in thousands")
    for arm in ARMS:
        ended = of(arm, lambda cell: shares(cell, "rollout/accuracy", last) / (1 - shares(cell, cut, last) / 100))
        tokens = of(arm, lambda cell: sum(cell["metrics"]["rollout/generated_tokens"]) / 1000)
        print(f"{arm:9} {ended.mean():5.1f} %  {tokens.mean():7.0f}")
    for one, other in (("token", "grpo"), ("token-48", "grpo-48")):
        ended = [of(arm, lambda cell: shares(cell, "rollout/accuracy", last) / (1 - shares(cell, cut, last) / 100)) for arm in (one, other)]
        print(f"{one} - {other}, right among those that end: {interval(ended[0] - ended[1])}")

    print("\nStep   cut: " + "".join(f"{arm:>10}" for arm in ARMS) + "   right on dev: " + "".join(f"{arm:>10}" for arm in ARMS))
    for step in (1, 10, 20, 30, 40):
        at = slice(step - 1, step)
        cuts = [of(arm, lambda cell: shares(cell, cut, at)).mean() for arm in ARMS]
        right = [of(arm, lambda cell: curve(cell, "dev").get(step, np.nan)).mean() for arm in ARMS]
        print(f"{step:4}        " + "".join(f"{value:10.1f}" for value in cuts) + "                 " + "".join(f"{value:10.1f}" for value in right))

    print("\nLoss weight that a mean of tokens moves from a mean of responses, in the mean over the steps; gradient norm; largest ratio")
    for arm in ARMS:
        moved = of(arm, lambda cell: shares(cell, "effect/token_level_loss_moved_share_mean")).mean()
        norm = of(arm, lambda cell: np.mean(cell["metrics"]["optimizer/gradient_norm_mean"])).mean()
        ratio = max(max(cell["metrics"]["loss/ratio_max"]) for cell in runs[arm].values())
        print(f"{arm:9} {moved:5.1f} %  {norm:6.3f}  {ratio:6.0f}")


if __name__ == "__main__":
    main()
