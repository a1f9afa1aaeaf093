"""What cutting and its two remedies did in each block and in time.

    python reports/overlong/by_block.py

Shares in percent. Accuracy is avg@4 on dev, or on test after the last step. Looked at after the study was read, but for the lines on weights, which
answer the fourth prediction; corrected for nothing. Needs numpy.
"""

import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "golden/stats"))

from records import Study, accuracy, t_interval  # noqa: E402

ARMS = [name + suffix for suffix in ("", "-28", "-80") for name in ("grpo", "filter", "soft")]


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

    print("Right on test after the last step, by block, and in the mean with its interval")
    for arm in ARMS:
        last = of(arm, lambda cell: curve(cell, "test")[40])
        print(f"{arm:10}" + "".join(f"{value:7.1f}" for value in last) + f"   {interval(last)}")

    for title, steps, what in (
        ("Right on dev", (0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40), lambda step: lambda cell: curve(cell, "dev").get(step, np.nan)),
        ("Responses cut at the limit", (1, 5, 10, 15, 20, 30, 40), lambda step: lambda cell: shares(cell, cut, slice(step - 1, step))),
        ("Tokens a response", (1, 5, 10, 15, 20, 30, 40), lambda step: lambda cell: np.mean(cell["metrics"]["rollout/response_tokens_mean"][step - 1 : step])),
    ):
        print(f"\n{title}, after or in step" + "".join(f"{step:7}" for step in steps))
        for arm in ARMS:
            print(f"{arm:{len(title) + 18}}" + "".join(f"{of(arm, what(step)).mean():7.1f}" for step in steps))

    print("\narm - GRPO on dev, mean over evaluations up to step 16, and after it")
    for arm in ARMS:
        if not arm.startswith("grpo"):
            grpo = arm.replace("filter", "grpo").replace("soft", "grpo")
            parts = []
            for is_early in (True, False):
                means = [np.array([np.mean([value for step, value in curve(runs[name][seed], "dev").items() if step > 0 and (step <= 16) == is_early]) for seed in blocks]) for name in (arm, grpo)]
                parts.append(interval(means[0] - means[1]))
            print(f"{arm:10} {parts[0]:>22} {parts[1]:>22}")

    print("\nDoses: responses masked, responses punished; entropy in the last quarter of the steps; largest importance ratio; tokens generated, in thousands")
    for arm in ARMS:
        masked = of(arm, lambda cell: 100 * np.sum(cell["metrics"]["effect/overlong_filtering_masked_rollouts"]) / np.sum(cell["metrics"]["train/rollouts"])).mean()
        punished = of(arm, lambda cell: shares(cell, "effect/soft_punishment_punished_share")).mean()
        entropy = of(arm, lambda cell: np.mean(cell["metrics"]["policy/rollout_entropy"][30:])).mean()
        ratio = max(max(cell["metrics"]["loss/ratio_max"]) for cell in runs[arm].values())
        tokens = of(arm, lambda cell: np.sum(cell["metrics"]["rollout/generated_tokens"]) / 1000).mean()
        print(f"{arm:10} {masked:6.1f} % {punished:6.1f} % {entropy:6.2f} {ratio:6.0f} {tokens:6.0f}")

    same = [seed for seed in blocks if runs["filter-80"][seed]["digests"]["model.safetensors"] == runs["grpo-80"][seed]["digests"]["model.safetensors"]]
    uncut = [seed for seed in blocks if sum(runs["filter-80"][seed]["metrics"][cut]) == 0]
    print(f"\nat 80: no response was cut in blocks {uncut}; the filter's last weights are GRPO's in blocks {same}")


if __name__ == "__main__":
    main()
