"""What the scripts that compute a study again share: its records, a run's clocks, exact tests and t's interval. numpy alone.

The definitions are those of docs/statistics.md and docs/formats.md, written without a look at the harness's code.
"""

import base64
import itertools
import json
import lzma
import math
import pathlib

import numpy as np

CLOCKS = {"generated-tokens": "rollout/generated_tokens", "generated-rollouts": "rollout/generated_rollouts"}
# Floating-point operations per parameter: a generated token is one forward pass; a trained token is one for its old
# probability, one for the reference's with a KL penalty, and in each epoch one forward, one backward (twice a forward), and
# one more where this harness runs a method that chooses among the tokens of a whole mini-batch.
FLOPS_FORWARD, LOOKING = 2, {"clip-cov", "kl-cov", "top-entropy"}


class Study:
    """The declaration and the results of STUDY/report.json, and the cells by (arm, seed), an arm being named GRID/ID."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.analysis = json.loads((self.folder / "report.json").read_text())["analysis"]
        self.declaration = self.analysis["declaration"]
        self.seeds = self.declaration["seeds"] if self.declaration else []
        pools = (self.declaration or {}).get("pools", [])
        self.pools = {f"pools/{pool['id']}": pool["arms"] for pool in pools}
        sums = {arm["id"]: arm["arm_sha256"] for grid in self.analysis["grids"] for arm in grid["arms"]}
        self.all_cells = read_cells(self.folder)
        by_key = {(cell["arm_sha256"], cell["seed"]): cell for cell in self.all_cells}
        seeds = sorted({cell["seed"] for cell in self.all_cells})
        self.cells = {(arm, seed): by_key[key, seed] for arm, key in sums.items() for seed in seeds if (key, seed) in by_key}

    def arms(self, name):
        """The arms that a side of a comparison stands for."""
        return self.pools.get(name, [name])

    def runs(self, arms, seeds=None):
        return [self.cells[arm, seed] for arm in arms for seed in seeds or self.seeds if (arm, seed) in self.cells]


def read_cells(folder):
    """Every record of a study: of cells/NAME.json and of records.jsonl.xz."""
    folder = pathlib.Path(folder)
    lines = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("cells/*.json"))]
    if (packed := folder / "records.jsonl.xz").exists():
        with lzma.open(packed, "rt", encoding="utf-8") as file:
            lines.extend(file)
    if not lines:
        raise SystemExit(f"{folder}: no record is there, neither cells/NAME.json nor records.jsonl.xz")
    return [json.loads(line) for line in lines]


def outcomes(evaluation):
    """Whether each response is right, problems by samples."""
    count, bits = evaluation["outcomes"].split(":")
    right = np.unpackbits(np.frombuffer(base64.b64decode(bits), np.uint8))[: int(count)]
    return right.reshape(-1, evaluation["samples"])


def accuracy(evaluation):
    """avg@k: the share of outcomes that are right."""
    return float(outcomes(evaluation).mean())


STATISTICS = {"avg-at-k": accuracy, "pass-at-k": lambda evaluation: float(outcomes(evaluation).any(1).mean())}


def reading(cell, clock, steps):
    """What a clock shows after so many rollout steps; None: at the end."""
    if clock == "updates":
        return max((counters["updates"] for counters in cell["counters"][:steps]), default=0)
    metrics = cell["metrics"]
    if clock == "flops":
        experiment = cell["experiment"]
        dapo = experiment["dapo"]
        looks = dapo.get("method", {}).get("kind") in LOOKING and experiment.get("engine", "native") == "native"
        passes = 1 + (dapo["kl"]["kind"] == "penalty") + experiment["training"]["epochs_per_step"] * (4 if looks else 3)
        steps_of = zip(metrics["rollout/generated_tokens"][:steps], metrics["train/response_tokens_mean"], metrics["train/rollouts"])
        return sum(FLOPS_FORWARD * (generated + passes * mean * rollouts) for generated, mean, rollouts in steps_of)
    return sum(metrics[CLOCKS[clock]][:steps])


def equal_budget(runs, clock):
    """The smallest total of a run."""
    finished = [cell for cell in runs if cell["ending"] == "finished"] or runs
    return min(reading(cell, clock, None) for cell in finished)


def clock_of(metric):
    """The clock at whose smallest total the runs are compared; None: each at its end."""
    at = {"equal-tokens": "generated-tokens", "equal-rollouts": "generated-rollouts"}
    return metric.get("clock") or at.get(metric.get("at"))


def windowed_mean(cell, metric):
    """The mean of a training metric over the steps whose middles lie in a part of the run."""
    series, window = cell["metrics"][metric["name"]], metric["window"]
    middles = (np.arange(len(series)) + 0.5) / len(series)
    inside = (middles >= window["from_share"]) & (middles < window["to_share"])
    return np.mean([value for value, use in zip(series, inside) if use and value is not None])


def value(cell, metric, budget):
    """A declared metric of one run."""
    if metric["source"] == "metric":
        assert metric["reduce"] == "mean", metric
        return windowed_mean(cell, metric)
    evaluations = [evaluation for evaluation in cell["evaluations"] if evaluation["set"] == metric["set"]]
    if metric["source"] == "evaluation" and metric["at"] == "last":
        return STATISTICS[metric["statistic"]](evaluations[-1])
    at = [reading(cell, clock_of(metric), evaluation["counters"]["rollout_steps"]) for evaluation in evaluations]
    if metric["source"] == "evaluation":
        return STATISTICS[metric["statistic"]]([evaluation for evaluation, reached in zip(evaluations, at) if reached <= budget][-1])
    assert (metric["source"], metric["statistic"]) == ("evaluation-mean", "avg-at-k"), metric
    inside = [metric["from_share"] * budget < reached <= budget for reached in at]
    return np.mean([accuracy(evaluation) for evaluation, use in zip(evaluations, inside) if use])


def block_differences(study, declared):
    """Of each block that has every run: the arm's value less the reference's, each a mean over the arms of its pool."""
    sides = [study.arms(declared[side]) for side in ("arm", "reference")]
    metric = declared["metric"]
    clock = clock_of(metric)
    budget = equal_budget([cell for arms in sides for cell in study.runs(arms)], clock) if clock else None
    differences = []
    for seed in study.seeds:
        runs = [[study.cells.get((arm, seed)) for arm in arms] for arms in sides]
        if all(cell for side in runs for cell in side):
            arm, reference = (np.mean([value(cell, metric, budget) for cell in side]) for side in runs)
            differences.append(arm - reference)
    return np.array(differences)


def family_results(study, family):
    """Of each comparison of a family: difference, p, adjusted_p, low and high, or None where the report has no result."""
    results = []
    for comparison in family["comparisons"]:
        if comparison["result"] is None:
            results.append(None)
            continue
        differences = block_differences(study, comparison["declared"])
        mean, low, high = t_interval(differences, study.declaration["level"])
        results.append({"difference": mean, "p": sign_flip_p(differences), "adjusted_p": None, "low": low, "high": high})
    for result, adjusted in zip(results, holm([result["p"] if result else 1.0 for result in results])):
        if result:
            result["adjusted_p"] = adjusted
    return results


def sign_flip_p(differences):
    """Two-sided, over all 2^n flips."""
    signs = np.array(list(itertools.product([1, -1], repeat=len(differences))))
    return float(np.mean(np.abs(signs @ differences) >= np.abs(np.sum(differences)) - 1e-12))


def split_p(a, b):
    """Two-sided permutation p of the difference of means, over all splits of the pooled values."""
    pooled = np.concatenate([a, b])
    sums = np.array([sum(pooled[list(split)]) for split in itertools.combinations(range(len(pooled)), len(a))])
    centred = np.abs(sums - pooled.sum() * len(a) / len(pooled))
    return float(np.mean(centred >= abs(a.sum() - pooled.sum() * len(a) / len(pooled)) - 1e-12))


def holm(p):
    order, adjusted, floor = np.argsort(p, kind="stable"), np.empty(len(p)), 0.0
    for rank, at in enumerate(order):
        floor = max(floor, min(1.0, (len(p) - rank) * p[at]))
        adjusted[at] = floor
    return adjusted


def t_interval(values, level=0.95):
    """(mean, low, high)."""
    values = np.asarray(values)
    half = t_quantile((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return values.mean(), values.mean() - half, values.mean() + half


def welch_interval(a, b, level=0.95):
    """(difference of means, low, high) of two independent samples."""
    parts = np.array([a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)])
    freedom = parts.sum() ** 2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))
    difference, half = a.mean() - b.mean(), t_quantile((1 + level) / 2, freedom) * math.sqrt(parts.sum())
    return difference, difference - half, difference + half


def t_below(t, freedom):
    """P(T <= t)."""
    tail = 0.5 * incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)
    return 1 - tail if t > 0 else tail


def t_quantile(share, freedom):
    low, high = -1e4, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if t_below(middle, freedom) < share else (low, middle)
    return low


def incomplete_beta(x, a, b):
    """The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    upper, lower = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = lower
    for m in range(1, 500):
        terms = (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        )
        for term in terms:
            lower, upper = 1 / (1 + term * lower), 1 + term / upper
            fraction *= lower * upper
        if abs(lower * upper - 1) < 1e-16:
            break
    return front * fraction


def detectable(deviation, freedom, groups, runs, level):
    """The true difference that a two-sided t test at this level finds with a power of 80 %; groups: 2 of `runs` runs each,
    or 1 of that many differences."""
    error = deviation * math.sqrt(groups / runs)
    critical = t_quantile(1 - level / 2, freedom)
    low, high = 0.0, 1e3
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_power(middle, critical, freedom) < 0.8 else (low, middle)
    return low * error


def t_power(shift, critical, freedom):
    """P(|T| > critical) of the noncentral t: the normal's tails, averaged over the spread that may be estimated."""
    ratios = np.linspace(0, 4, 8001)[1:]
    logs = (freedom - 1) * np.log(ratios) - freedom * ratios**2 / 2
    weights = np.exp(logs - logs.max())
    tails = [0.5 * (math.erfc((critical * s - shift) / math.sqrt(2)) + math.erfc((critical * s + shift) / math.sqrt(2))) for s in ratios]
    return float(weights @ tails / weights.sum())
