"""Whether the effect of a technique is the same in two implementations, from a study's report.json.

    python golden/stats/agreement.py reports/engines-1/report.json

For each comparison that the families effects-here and effects-in-trl share: the effect in each, and the difference of
the two effects, (arm - reference) here - (arm - reference) there, with its 95 % interval. The four means are of
independent training runs: the variance is the sum of s^2/n over the four, the degrees of freedom are Welch-Satterthwaite's.
"differ": the interval is without 0. "the same": the 90 % interval lies within the declared margin (two one-sided tests at 5 %).
"open": neither. Decided before the first run of reports/engines-1. Needs numpy and scipy.
"""

import json
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
