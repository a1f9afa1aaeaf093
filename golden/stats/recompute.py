"""The comparisons of a study in blocks, computed again from its records with numpy alone.

    python golden/stats/recompute.py reports/study-2

For each declared comparison whose metric is a mean of evaluations on a common clock or a mean of a training metric: each
block's value from STUDY/cells, the difference, the sign-flip p over all flips, Holm's adjusted p within the family, and the
t interval; held against STUDY/report.json. Prints them and the largest deviation of each, and ends with 1 above 1e-9. Then the
spread of the primary endpoint, read over each run's own updates, within the arms of each grid, and how much of it each share of
the policy's style explains (its mean over the same part of a run). It shares no code with the harness.
"""

import sys

import numpy as np

from records import Study, family_results, reading, value


def spread(table):
    """Of arms by blocks: the pooled standard deviation within arms; between blocks; of what is left."""
    arms, blocks = table.shape
    within = table - table.mean(1, keepdims=True)
    left = within - within.mean(0)
    residual = (left**2).sum() / ((arms - 1) * (blocks - 1))
    between = max(0.0, (arms * (within.mean(0) ** 2).sum() / (blocks - 1) - residual) / arms)
    return tuple(float(np.sqrt(variance)) for variance in ((within**2).sum() / (arms * (blocks - 1)), between, residual))


def print_comparisons(study):
    """Also gives the largest deviation from the report of each number."""
    worst = {"difference": 0.0, "p": 0.0, "adjusted_p": 0.0, "low": 0.0, "high": 0.0}
    compared = 0
    print(f"{'family/comparison, in shares':40}", *(f"{name:>17}" for name in worst))
    for family in study.analysis["families"]:
        for comparison, ours in zip(family["comparisons"], family_results(study, family)):
            name = f"{family['id']}/{comparison['declared']['id']}"
            if ours is None:
                print(f"{name}: {comparison['why']}")
                continue
            result = comparison["result"]
            # Below five blocks the report has no interval.
            theirs = {name: result[name] for name in ("difference", "p", "adjusted_p")} | (result["interval"] or {})
            for key in worst:
                if key in theirs:
                    worst[key] = max(worst[key], abs(ours[key] - theirs[key]))
            compared += 1
            print(f"{name:40}", *(f"{ours[key]:17.13f}" for key in worst))
    deviations = {name: float(f"{deviation:.3g}") for name, deviation in worst.items()}
    print(f"{compared} comparisons of {len(study.all_cells)} records; largest deviations:", deviations)
    return worst


def print_spread(study, grid, primary):
    seeds = study.seeds
    arms = [arm["id"] for arm in grid["arms"] if all((arm["id"], seed) in study.cells for seed in seeds)]
    if len(arms) < 2:
        return
    runs = [[study.cells[arm, seed] for seed in seeds] for arm in arms]
    own = [[value(cell, primary, reading(cell, "updates", None)) for cell in of_arm] for of_arm in runs]
    endpoints = 100 * np.array(own)
    within = endpoints - endpoints.mean(1, keepdims=True)
    print(f"\nprimary endpoint of {grid['name']}, over each run's own updates, points")
    print(f"{'':34}", *(f"{seed:>6}" for seed in seeds), "  mean   s.d.")
    for arm, row in zip(arms, endpoints):
        print(f"{arm:34}", *(f"{points:6.1f}" for points in row), f"{row.mean():6.1f} {row.std(ddof=1):6.1f}")
    print("within arms, between blocks, residual: %.1f, %.1f, %.1f" % spread(endpoints))
    for at, seed in enumerate(seeds):
        print(f"  without {seed}: %.1f, %.1f, %.1f" % spread(np.delete(endpoints, at, 1)))
    for name in sorted(name for name in runs[0][0]["metrics"] if name.startswith("rollout/style_")):
        window = {"from_share": primary["from_share"], "to_share": 1.0}
        metric = {"source": "metric", "name": name, "window": window, "reduce": "mean"}
        shares = np.array([[value(cell, metric, None) for cell in of_arm] for of_arm in runs])
        shares -= shares.mean(1, keepdims=True)
        norms = (shares**2).sum() * (within**2).sum()
        if norms:
            print(f"explains of the spread within arms, {name}: {(shares * within).sum() ** 2 / norms:.2f}")
        else:
            print(f"{name}: no spread")


def main():
    study = Study(sys.argv[1])
    worst = print_comparisons(study)
    primary = study.analysis["families"][0]["comparisons"][0]["declared"]["metric"] | {"clock": "updates"}
    if primary["source"] == "evaluation-mean":
        for grid in study.analysis["grids"]:
            print_spread(study, grid, primary)
    sys.exit(int(max(worst.values()) > 1e-9))


if __name__ == "__main__":
    main()
