"""Whether the effect of a technique is the same in two implementations, from a study's report.json.

    python golden/stats/agreement.py reports/engines-2/report.json

For each comparison that the families effects-here and effects-in-X share: the effect in each, and the difference of
the two effects, (arm - reference) here - (arm - reference) there, with its 95 % interval. The four means are of
independent training runs: the variance is the sum of s^2/n over the four, the degrees of freedom are Welch-Satterthwaite's.
"differ": the interval is without 0. "the same": the 90 % interval lies within the declared margin (two one-sided tests at 5 %).
"open": neither. Decided before the first run of reports/engines-1; since engines-2 for more than one other
implementation, each with tables of how the rollouts compare, which are exploratory. Needs numpy and scipy.
"""

import json
import pathlib
import sys

import numpy as np
import records
from scipy import stats

HERE, THERE = "effects-here", "effects-in-"
analysis = json.load(open(sys.argv[1]))["analysis"]
margin = analysis["declaration"]["margin"]
families = {family["id"]: {it["declared"]["id"]: it for it in family["comparisons"]} for family in analysis["families"]}
cells = records.read_cells(pathlib.Path(sys.argv[1]).parent)
MEASURED = [
    "rollout/accuracy",
    "rollout/response_tokens_mean",
    "rollout/truncated_share",
    "rollout/style_careful_share",
    "optimizer/gradient_norm_mean",
]


def values(comparison, side):
    return np.array([run["value"] for run in comparison[side]])


def effects(engine, here, there):
    print(f"| Technique | here | in {engine} | difference of effects | 95 % interval | |")
    print("|---|---|---|---|---|---|")
    for name in there:
        sides = [values(comparison, side) for comparison in (here[name], there[name]) for side in ("arm", "reference")]
        found = [sides[0].mean() - sides[1].mean(), sides[2].mean() - sides[3].mean()]
        parts = np.array([side.var(ddof=1) / len(side) for side in sides])
        error = np.sqrt(parts.sum())
        freedom = parts.sum() ** 2 / sum(part**2 / (len(side) - 1) for part, side in zip(parts, sides))
        difference = found[0] - found[1]
        half, narrow = (stats.t.ppf(share, freedom) * error for share in (0.975, 0.95))
        differ, same = abs(difference) > half, abs(difference) + narrow <= margin
        word = "differ" if differ else "the same" if same else "open"
        points = [f"{100 * it:+.1f}" for it in (*found, difference, difference - half, difference + half)]
        print(f"| {name} | {points[0]} | {points[1]} | {points[2]} | {points[3]} to {points[4]} | {word} |")


def runs(arm):
    """The records of an arm, by its name in the grid."""
    return [it for it in cells if it["experiment"]["name"].split(".")[-1] == arm]


def tables(engine, arms):
    """The first and the last quarter of the rollout steps (engines-1: the first and last ten of 40)."""
    steps = max(len(series) for series in cells[0]["metrics"].values())
    for part in (slice(0, steps // 4), slice(steps - steps // 4, steps)):
        title = f"Rollout steps {part.start + 1} to {part.stop}"
        print(f"\n| {title}: here / {engine} (difference in standard errors) | " + " | ".join(MEASURED) + " |")
        print("|---" * (len(MEASURED) + 1) + "|")
        for arm in arms:
            row = []
            for name in MEASURED:
                sides = [runs(arm), runs(f"{arm}-{engine.lower()}")]
                if any(name not in run["metrics"] for side in sides for run in side):
                    row.append("not recorded")
                    continue
                mean = lambda run: np.array(run["metrics"][name][part], float).mean()
                here, there = (np.array([mean(run) for run in side]) for side in sides)
                error = np.sqrt(here.var(ddof=1) / len(here) + there.var(ddof=1) / len(there))
                row.append(f"{here.mean():.3f} / {there.mean():.3f} ({(there.mean() - here.mean()) / error:+.1f})")
            print(f"| {arm} | " + " | ".join(row) + " |")


engines = [family for family in families if family.startswith(THERE)]
for family in engines:
    engine = {"trl": "TRL"}.get(family.removeprefix(THERE), family.removeprefix(THERE))
    print("\n" * (family != engines[0]), end="")
    effects(engine, families[HERE], families[family])
    tables(engine, ["grpo", *families[family]])
