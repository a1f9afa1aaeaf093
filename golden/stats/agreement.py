"""Whether the effect of a technique is the same in two implementations, from a study's report.json.

    python golden/stats/agreement.py reports/engines-1/report.json

For each comparison that the families effects-here and effects-in-trl share: the effect in each, and the difference of
the two effects, (arm - reference) here - (arm - reference) there, with its 95 % interval. The four means are of
independent training runs: the variance is the sum of s^2/n over the four, the degrees of freedom are Welch-Satterthwaite's.
"differ": the interval is without 0. "the same": the 90 % interval lies within the declared margin (two one-sided tests at 5 %).
"open": neither. Decided before the first run of reports/engines-1. Needs numpy and scipy.
"""

import json
import pathlib
import sys

import numpy as np
from scipy import stats

HERE, THERE = "effects-here", "effects-in-trl"
analysis = json.load(open(sys.argv[1]))["analysis"]
margin = analysis["declaration"]["margin"]
families = {family["id"]: {it["declared"]["id"]: it for it in family["comparisons"]} for family in analysis["families"]}


def values(comparison, side):
    return np.array([run["value"] for run in comparison[side]])


print("| Technique | here | in TRL | difference of effects | 95 % interval | |")
print("|---|---|---|---|---|---|")
for name in families[HERE]:
    pair = [families[HERE][name], families[THERE][name]]
    sides = [values(comparison, side) for comparison in pair for side in ("arm", "reference")]
    effects = [sides[0].mean() - sides[1].mean(), sides[2].mean() - sides[3].mean()]
    parts = np.array([side.var(ddof=1) / len(side) for side in sides])
    error = np.sqrt(parts.sum())
    freedom = parts.sum() ** 2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, sides))
    difference = effects[0] - effects[1]
    half, narrow = (stats.t.ppf(share, freedom) * error for share in (0.975, 0.95))
    differ, same = abs(difference) > half, abs(difference) + narrow <= margin
    word = "differ" if differ else "the same" if same else "open"
    points = [f"{100 * it:+.1f}" for it in (*effects, difference, difference - half, difference + half)]
    print(f"| {name} | {points[0]} | {points[1]} | {points[2]} | {points[3]} to {points[4]} | {word} |")

# Added after the study, exploratory: how the two implementations' rollouts compare while training, arm by arm.
cells = [json.loads(path.read_text()) for path in sorted(pathlib.Path(sys.argv[1]).parent.glob("cells/*.json"))]
MEASURED = [
    "rollout/accuracy",
    "rollout/response_tokens_mean",
    "rollout/truncated_share",
    "rollout/style_careful_share",
    "optimizer/gradient_norm_mean",
]


def means(name, arm, engine, steps):
    """The mean over rollout steps of a metric in each run of an arm."""
    runs = [it for it in cells if it["experiment"]["name"] == f"engines.{arm}" and it["experiment"].get("engine", "native") == engine]
    return np.array([np.array(it["metrics"][name][steps], float).mean() for it in runs])


for title, steps in [("Rollout steps 1 to 10", slice(0, 10)), ("Rollout steps 31 to 40", slice(30, 40))]:
    print(f"\n| {title}: here / TRL (difference in standard errors) | " + " | ".join(MEASURED) + " |")
    print("|---" * (len(MEASURED) + 1) + "|")
    for arm in ["grpo", *families[HERE]]:
        row = []
        for name in MEASURED:
            here, there = means(name, arm, "native", steps), means(name, f"{arm}-trl", "trl", steps)
            error = np.sqrt(here.var(ddof=1) / len(here) + there.var(ddof=1) / len(there))
            row.append(f"{here.mean():.3f} / {there.mean():.3f} ({(there.mean() - here.mean()) / error:+.1f})")
        print(f"| {arm} | " + " | ".join(row) + " |")
