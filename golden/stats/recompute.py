"""The comparisons of a study in blocks, computed again from its records with numpy alone.

    python golden/stats/recompute.py reports/study-2

For each declared comparison whose metric is a mean of evaluations on a common clock or a mean of a training metric: each
block's value from STUDY/cells, the difference, the sign-flip p over all flips, Holm's adjusted p within the family, and the
t interval; held against STUDY/report.json. Prints them and the largest deviation of each, and ends with 1 above 1e-9. Then the
spread of the primary endpoint, read over each run's own updates, within the arms of each grid, and how much of it each share of
the policy's style explains (its mean over the same part of a run). It shares no code with the harness.
"""

import base64
import itertools
import json
import pathlib
import sys

import numpy as np

STUDY = pathlib.Path(sys.argv[1])
CLOCKS = {"generated-tokens": "rollout/generated_tokens", "generated-rollouts": "rollout/generated_rollouts"}

analysis = json.load(open(STUDY / "report.json"))["analysis"]
declaration = analysis["declaration"]
pools = {f"pools/{pool['id']}": pool["arms"] for pool in declaration.get("pools", [])}
sums = {arm["id"]: arm["arm_sha256"] for grid in analysis["grids"] for arm in grid["arms"]}
cells = {}
for path in sorted((STUDY / "cells").glob("*.json")):
    cell = json.loads(path.read_text())
    if cell["seed"] in declaration["seeds"]:
        cells[cell["arm_sha256"], cell["seed"]] = cell


def accuracy(evaluation):
    count, bits = evaluation["outcomes"].split(":")
    raw = np.frombuffer(base64.b64decode(bits), np.uint8)
    return float(np.unpackbits(raw).sum()) / int(count)


def reading(cell, clock, steps):
    if clock == "updates":
        return max((it["updates"] for it in cell["counters"][:steps]), default=0)
    return sum(cell["metrics"][CLOCKS[clock]][:steps])


def budget(runs, clock):
    finished = [cell for cell in runs if cell["ending"] == "finished"] or runs
    return min(reading(cell, clock, None) for cell in finished)


def value(cell, metric, limit):
    if metric["source"] == "metric":
        series, window = cell["metrics"][metric["name"]], metric["window"]
        middles = (np.arange(len(series)) + 0.5) / len(series)
        inside = (middles >= window["from_share"]) & (middles < window["to_share"])
        return np.mean([it for it, use in zip(series, inside) if use and it is not None])
    scores = []
    for evaluation in cell["evaluations"]:
        at = reading(cell, metric["clock"], evaluation["counters"]["rollout_steps"])
        if evaluation["set"] == metric["set"] and metric["from_share"] * limit < at <= limit:
            scores.append(accuracy(evaluation))
    return np.mean(scores)


def t_share(t, freedom):
    """P(|T| <= t), by the finite sums of Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = np.arctan(t / np.sqrt(freedom))
    term, total = 1.0, 0.0
    for power in range(freedom % 2, freedom - 1, 2):
        term = term * (power - 1) / power * np.cos(angle) ** 2 if power > 1 else (np.cos(angle) if power == 1 else 1.0)
        total += term
    total *= np.sin(angle)
    return 2 / np.pi * (angle + total) if freedom % 2 else total


def t_quantile(share, freedom):
    low, high = 0.0, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_share(middle, freedom) < share else (low, middle)
    return low


worst = {"difference": 0.0, "p": 0.0, "adjusted_p": 0.0, "low": 0.0, "high": 0.0}
compared = 0
print(f"{'family/comparison, in shares':40}", *(f"{name:>17}" for name in worst))
for family in analysis["families"]:
    found = []
    for comparison in family["comparisons"]:
        declared, result = comparison["declared"], comparison["result"]
        metric = declared["metric"]
        assert metric["source"] == "metric" and metric["reduce"] == "mean" or metric["source"] == "evaluation-mean", metric
        if result is None:
            print(f"{family['id']}/{declared['id']}: {comparison['reason']}")
            found.append(None)
            continue
        sides = [pools.get(declared[side], [declared[side]]) for side in ("arm", "reference")]
        runs = [cell for side in sides for arm in side for seed in declaration["seeds"] if (cell := cells.get((sums[arm], seed)))]
        limit = budget(runs, metric["clock"]) if "clock" in metric else None
        differences = []
        for seed in declaration["seeds"]:
            block = [[cells.get((sums[arm], seed)) for arm in side] for side in sides]
            if all(cell for side in block for cell in side):
                arm, reference = (np.mean([value(cell, metric, limit) for cell in side]) for side in block)
                differences.append(arm - reference)
        differences = np.array(differences)
        signs = np.array(list(itertools.product([1, -1], repeat=len(differences))))
        flipped = np.abs(signs @ differences)
        p = np.mean(flipped >= np.abs(differences.sum()) - 1e-12)
        half = t_quantile(declaration["level"], len(differences) - 1) * differences.std(ddof=1) / np.sqrt(len(differences))
        found.append({"difference": differences.mean(), "p": p, "low": differences.mean() - half, "high": differences.mean() + half})
    order = sorted(range(len(found)), key=lambda at: found[at]["p"] if found[at] else 1.0)
    adjusted, floor = {}, 0.0
    for rank, at in enumerate(order):
        floor = max(floor, min(1.0, (len(found) - rank) * (found[at]["p"] if found[at] else 1.0)))
        adjusted[at] = floor
    for at, comparison in enumerate(family["comparisons"]):
        if found[at] is None:
            continue
        result = comparison["result"]
        # Below five blocks the report has no interval.
        theirs = {name: result[name] for name in ("difference", "p", "adjusted_p")} | (result["interval"] or {})
        for name, ours in {**found[at], "adjusted_p": adjusted[at]}.items():
            if name in theirs:
                worst[name] = max(worst[name], abs(ours - theirs[name]))
        compared += 1
        ours = {**found[at], "adjusted_p": adjusted[at]}
        print(f"{family['id'] + '/' + comparison['declared']['id']:40}", *(f"{ours[name]:17.13f}" for name in worst))

print(f"{compared} comparisons of {len(cells)} records; largest deviations:", {name: float(f"{it:.3g}") for name, it in worst.items()})

primary = analysis["families"][0]["comparisons"][0]["declared"]["metric"] | {"clock": "updates"}
seeds = declaration["seeds"]


def spread(table):
    """Of arms by blocks: the pooled standard deviation within arms; between blocks; of what is left."""
    arms, blocks = table.shape
    within = table - table.mean(1, keepdims=True)
    left = within - within.mean(0)
    residual = (left**2).sum() / ((arms - 1) * (blocks - 1))
    between = max(0.0, (arms * (within.mean(0) ** 2).sum() / (blocks - 1) - residual) / arms)
    return tuple(float(np.sqrt(it)) for it in ((within**2).sum() / (arms * (blocks - 1)), between, residual))


for grid in analysis["grids"]:
    arms = [arm for arm in grid["arms"] if all((arm["arm_sha256"], seed) in cells for seed in seeds)]
    if len(arms) < 2:
        continue
    runs = [[cells[arm["arm_sha256"], seed] for seed in seeds] for arm in arms]
    endpoints = 100 * np.array([[value(cell, primary, reading(cell, "updates", None)) for cell in of_arm] for of_arm in runs])
    within = endpoints - endpoints.mean(1, keepdims=True)
    print(f"\nprimary endpoint of {grid['name']}, over each run's own updates, points")
    print(f"{'':34}", *(f"{seed:>6}" for seed in seeds), "  mean   s.d.")
    for arm, row in zip(arms, endpoints):
        print(f"{arm['id']:34}", *(f"{it:6.1f}" for it in row), f"{row.mean():6.1f} {row.std(ddof=1):6.1f}")
    print("within arms, between blocks, residual: %.1f, %.1f, %.1f" % spread(endpoints))
    for at, seed in enumerate(seeds):
        print(f"  without {seed}: %.1f, %.1f, %.1f" % spread(np.delete(endpoints, at, 1)))
    for name in sorted(it for it in runs[0][0]["metrics"] if it.startswith("rollout/style_")):
        window = {"source": "metric", "name": name, "window": {"from_share": primary["from_share"], "to_share": 1.0}}
        shares = np.array([[value(cell, window, None) for cell in of_arm] for of_arm in runs])
        shares -= shares.mean(1, keepdims=True)
        norms = (shares**2).sum() * (within**2).sum()
        print(f"explains of the spread within arms, {name}: {(shares * within).sum() ** 2 / norms:.2f}" if norms else f"{name}: no spread")
sys.exit(int(max(worst.values()) > 1e-9))
