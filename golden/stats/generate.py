"""Expected values of src/core/statistics: scipy, statsmodels and rliable on shared examples.

    python -m venv venv && venv/bin/pip install -r golden/stats/requirements.txt
    venv/bin/python golden/stats/generate.py

Examples come from numpy's PCG64 with SEED. A second run changes no byte of expected.json.
"""

import importlib.metadata
import platform
import sys
from pathlib import Path

import numpy as np
from rliable import library, metrics
from scipy import integrate, stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestIndPower

sys.path.insert(0, str(Path(__file__).parents[1]))
from json_text import compact  # noqa: E402

SEED = 20261122
LEVEL = 0.95
draw = np.random.default_rng(SEED)


def runs(n, centre=0.5, spread=0.02):
    """Scores of n runs: shares with a denominator of 2048, so that ties happen."""
    return (np.round(draw.normal(centre, spread, n) * 2048) / 2048).tolist()


def permutation(a, b):
    """Both-sided by size, exact; scipy's own two-sided p doubles the smaller tail."""
    size = lambda x, y, axis: abs(np.mean(y, axis=axis) - np.mean(x, axis=axis))
    test = stats.permutation_test((a, b), size, alternative="greater", n_resamples=np.inf, vectorized=True)
    return float(test.pvalue)


def sign_flip(d):
    size = lambda x, axis: abs(np.mean(x, axis=axis))
    test = stats.permutation_test(
        (d,), size, permutation_type="samples", alternative="greater", n_resamples=np.inf, vectorized=True
    )
    return float(test.pvalue)


def two_samples():
    for a, b in [
        (runs(3), runs(3, 0.54)),
        (runs(4), runs(4, 0.53)),
        (runs(5), runs(5, 0.53)),
        (runs(5, spread=0.004), runs(5, 0.51, 0.05)),
        (runs(3), runs(7, 0.53)),
        (runs(8), runs(8)),
        ([0.25, 0.75, 0.25, 0.75, 0.25], [0.75, 0.75, 0.75, 0.25, 0.75]),
    ]:
        t = stats.ttest_ind(b, a, equal_var=False)
        interval = t.confidence_interval(LEVEL)
        yield {
            "a": a,
            "b": b,
            "permutation_p": permutation(a, b),
            "difference": float(np.mean(b) - np.mean(a)),
            "standard_error": float(np.sqrt(np.var(a, ddof=1) / len(a) + np.var(b, ddof=1) / len(b))),
            "degrees_of_freedom": float(t.df),
            "welch": [float(interval.low), float(interval.high)],
            "t_interval_of_b": [float(x) for x in stats.t.interval(LEVEL, len(b) - 1, np.mean(b), stats.sem(b))],
        }


def sign_flips():
    for n, centre in [(5, 0.1), (8, 0.1), (12, 0.05), (16, 0.08)]:
        d = (np.round(draw.normal(centre, 0.15, n) * 32) / 32).tolist()
        yield {"differences": d, "p": sign_flip(d)}


def families():
    for m in [1, 4, 9]:
        p = np.round(draw.beta(0.5, 3, m), 4).tolist()
        yield {"p": p, "holm": multipletests(p, method="holm")[1].tolist()}


def detectable():
    """At the largest level that C(n_a + n_b, n_a) splits allow."""
    from math import comb

    for n_a, n_b, alpha, power in [
        (4, 4, 0.05, 0.8),
        (5, 5, 0.05, 0.8),
        (8, 8, 0.05, 0.8),
        (10, 10, 0.05, 0.9),
        (5, 8, 0.05, 0.8),
        (5, 5, 0.0125, 0.8),
        (12, 12, 0.05, 0.8),
    ]:
        splits = comb(n_a + n_b, n_a)
        step = (2 if n_a == n_b else 1) / splits if splits <= 200_000 else 1 / 200_000
        level = np.floor(alpha / step * (1 + 1e-12)) * step
        effect = TTestIndPower().solve_power(nobs1=n_a, ratio=n_b / n_a, alpha=level, power=power)
        yield {"n_a": n_a, "n_b": n_b, "alpha": alpha, "power": power, "effect": float(effect)}


def equivalence_power():
    """P(|D| + t·SE < δ) at a true difference of 0, by adaptive quadrature over s."""
    for n_a, n_b, alpha, margin in [(3, 3, 0.05, 3.0), (5, 5, 0.05, 2.0), (10, 10, 0.05, 1.5), (5, 8, 0.05, 1.0)]:
        error, df = np.sqrt(1 / n_a + 1 / n_b), n_a + n_b - 2
        t = stats.t.ppf(1 - alpha, df)
        s = stats.chi(df, scale=1 / np.sqrt(df))
        inside = lambda x: s.pdf(x) * (2 * stats.norm.cdf(margin / error - t * x) - 1)
        power = integrate.quad(inside, 0, margin / error / t, epsabs=1e-12, limit=200)[0]
        yield {"n_a": n_a, "n_b": n_b, "alpha": alpha, "margin": margin, "power": float(power)}


def times(n, scale, end):
    """Evaluations every 5 updates until `end`, so that ties and censoring happen."""
    at = np.ceil(draw.exponential(scale, n) / 5) * 5
    return [{"time": float(min(t, end)), "reached": bool(t <= end)} for t in at]


def logrank_u(times_a, times_b):
    """Observed − expected events of b, as a plain double loop."""
    pooled = times_a + times_b
    u = 0.0
    for t in sorted({r["time"] for r in pooled if r["reached"]}):
        n = sum(r["time"] >= t for r in pooled)
        d = sum(r["reached"] and r["time"] == t for r in pooled)
        n_b = sum(r["time"] >= t for r in times_b)
        u += sum(r["reached"] and r["time"] == t for r in times_b) - d * n_b / n
    return u


def censored():
    from itertools import combinations

    for n, scale_b, end in [(4, 20, 40), (5, 40, 60), (5, 90, 40), (7, 25, 100)]:
        a, b = times(n, 20, end), times(n, scale_b, end)
        data = lambda runs: stats.CensoredData(
            uncensored=[r["time"] for r in runs if r["reached"]],
            right=[r["time"] for r in runs if not r["reached"]],
        )
        test = stats.logrank(data(a), data(b))
        observed = abs(logrank_u(a, b))
        pooled = a + b
        extreme, total = 0, 0
        for chosen in combinations(range(2 * n), n):
            rest = [pooled[i] for i in range(2 * n) if i not in chosen]
            extreme += abs(logrank_u(rest, [pooled[i] for i in chosen])) >= observed - 1e-9
            total += 1
        survival = stats.ecdf(data(b)).sf
        # inf{t: S(t) ≤ ½}; SurvfuncRight.quantile of statsmodels wants S(t) < ½.
        half = [t for t, p in zip(survival.quantiles, survival.probabilities) if p <= 0.5 + 1e-12]
        yield {
            "a": a,
            "b": b,
            "chi_square": float(test.statistic**2),
            "chi_square_p": float(test.pvalue),
            "observed_minus_expected": logrank_u(a, b),
            "permutation_p": extreme / total,
            "median_of_b": float(half[0]) if half else None,
            "survival_of_b": [
                [float(t), float(p)]
                for t, p in zip(survival.quantiles, survival.probabilities)
                if any(r["reached"] and r["time"] == t for r in b)
            ],
        }


def share(scores, tau):
    """rliable's performance profile at one threshold."""
    return float(library.run_score_deviation(scores, tau))


def aggregates():
    for s, tasks in [(5, 1), (7, 3), (12, 2)]:
        a = np.array([runs(tasks, 0.5, 0.1) for _ in range(s)])
        b = np.array([runs(tasks, 0.55, 0.1) for _ in range(s + 1)])
        a[0] = b[0]
        yield {
            "a": a.tolist(),
            "b": b.tolist(),
            "iqm_of_b": float(metrics.aggregate_iqm(b)),
            "trim_mean_of_b": float(stats.trim_mean(b.ravel(), 0.25)),
            "share_above_of_b": [[tau, share(b, tau)] for tau in (0.4, 0.5, 0.55, 0.7)],
            # rliable's P(X > Y) with X = b.
            "probability_of_improvement": float(metrics.probability_of_improvement(b, a)),
        }


def main():
    packages = ["numpy", "scipy", "statsmodels", "rliable", "arch"]
    expected = {
        "provenance": {
            "command": "python golden/stats/generate.py",
            "seed": SEED,
            "python": platform.python_version(),
            "packages": {name: importlib.metadata.version(name) for name in packages},
        },
        "two_samples": list(two_samples()),
        "sign_flips": list(sign_flips()),
        "families": list(families()),
        "detectable": list(detectable()),
        "equivalence_power": list(equivalence_power()),
        "censored": list(censored()),
        "aggregates": list(aggregates()),
    }
    Path(__file__).with_name("expected.json").write_text(compact(expected))


if __name__ == "__main__":
    main()
