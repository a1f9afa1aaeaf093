"""What was asked of the committed records after their studies were read, and post_hoc.json, which has the answers.

    python reports/post-hoc/recompute.py            # computes everything again and holds it against post_hoc.json
    python reports/post-hoc/recompute.py --write    # writes post_hoc.json

First it computes every declared comparison of study-2, sums-1, engines-1 and engines-2 from the records and holds it against their
report.json: beyond 1e-9 it ends with 1 and writes nothing. It needs numpy. README.md says how each number is defined. Shares are
of 1: a difference of 0.01 is one point.
"""

import json
import math
import pathlib
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "golden/stats"))
sys.dont_write_bytecode = True

from records import (  # noqa: E402
    Study,
    accuracy,
    block_differences,
    detectable,
    equal_budget,
    family_results,
    holm,
    sign_flip_p,
    split_p,
    t_below,
    t_interval,
    value,
    welch_interval,
)

ANSWERS = pathlib.Path(__file__).with_name("post_hoc.json")
TOLERANCE = 1e-9
STUDIES = ["study-1", "study-2", "sums-1", "methods-1", "engines-1"]
# Whose reports alone are held: nothing was asked of them afterwards.
LATER = ["engines-2", "words", "useful", "loops", "overlong", "repairs-chains", "repairs-sums", "collapse"]
# Of GRPO and DAPO: one epoch, no reference, and no look at a mini-batch first.
FLOPS_GENERATED, FLOPS_TRAINED = 2, 8
TECHNIQUES = ["clip", "token", "soft", "dynamic"]
FALL = 0.10


def main():
    studies = {name: Study(ROOT / "reports" / name) for name in STUDIES}
    chains, sums = studies["study-2"], studies["sums-1"]
    later = {name: Study(ROOT / "reports" / name) for name in LATER}
    for study in [*studies.values(), *later.values()]:
        held_against_what_was_looked_at(study)
    held_against_report(later["engines-2"], unpaired_results)
    answers = {
        "schema": "dapo-post-hoc/1",
        "declared": declared_again(studies),
        "clocks": clocks(chains, sums),
        "warm_up": warm_up(chains),
        "updates_without_gradient": updates_without_gradient(chains),
        "fair_control": fair_control(chains),
        "signed_sums": signed_sums(sums),
        "instability": {name: instability(study) for name, study in studies.items()},
        "without_collapsed": without_collapsed(chains, sums),
        "without_each_block": {"study-2": without_each_block(chains), "sums-1": without_each_block(sums)},
        "detectable": detectable_effects(chains),
        "equivalence": {"study-2": equivalence(chains), "interactions": interactions(chains)},
        "up_clipped_probability": up_clipped_probability(chains),
        "seed_104": seed_104(chains),
        "records": {name: changed_trees(study) for name, study in studies.items()},
    }
    answers = rounded(answers)
    if "--write" in sys.argv[1:]:
        ANSWERS.write_text(json.dumps(answers, indent=1, sort_keys=True) + "\n")
        print(f"{ANSWERS.name} is written")
        return
    moved = list(differing("", answers, json.loads(ANSWERS.read_text())))
    for line in moved:
        print(line)
    print(f"{ANSWERS.name}: {len(moved)} numbers differ by more than {TOLERANCE}")
    sys.exit(int(bool(moved)))


# --- What was declared ---------------------------------------------------------------------------


def declared_again(studies):
    """How many declared comparisons of each study come out as in its report."""
    return {
        "study-2": {"comparisons": held_against_report(studies["study-2"], family_results)},
        "sums-1": {"comparisons": held_against_report(studies["sums-1"], family_results)},
        "engines-1": {"comparisons": held_against_report(studies["engines-1"], unpaired_results)},
    }


def held_against_report(study, results_of):
    compared = 0
    for family in study.analysis["families"]:
        for comparison, ours in zip(family["comparisons"], results_of(study, family)):
            result, name = comparison["result"], f"{study.folder.name}: {family['id']}/{comparison['declared']['id']}"
            if result is None:
                continue
            theirs = {key: result[key] for key in ("difference", "p", "adjusted_p")} | (result["interval"] or {})
            for key in ("difference", "p", "adjusted_p", "low", "high"):
                if key in theirs and not abs(ours[key] - theirs[key]) <= TOLERANCE:
                    raise SystemExit(f"{name}: {key} is {ours[key]!r} here and {theirs[key]!r} in report.json")
            compared += 1
    print(f"{study.folder.name}: {compared} declared comparisons are those of report.json within {TOLERANCE}")
    return compared


def unpaired_results(study, family):
    """Of each comparison of independent runs: the difference, the permutation p, Holm's, and Welch's interval."""
    results = []
    for comparison in family["comparisons"]:
        declared = comparison["declared"]
        sides = [study.runs(study.arms(declared[side])) for side in ("arm", "reference")]
        arm, reference = (np.array([value(cell, declared["metric"], None) for cell in runs]) for runs in sides)
        difference, low, high = welch_interval(arm, reference, study.declaration["level"])
        results.append({"difference": difference, "p": split_p(arm, reference), "low": low, "high": high})
    for result, adjusted in zip(results, holm([result["p"] for result in results])):
        result["adjusted_p"] = adjusted
    return results


def held_against_what_was_looked_at(study):
    """The report's own tables of stability, reference points and sensitivity (of paired studies)."""
    numbers = 0

    def hold(name, ours, theirs):
        nonlocal numbers
        numbers += 1
        if (ours is None) != (theirs is None) or ours is not None and not abs(ours - theirs) <= TOLERANCE * max(1.0, abs(ours)):
            raise SystemExit(f"{study.folder.name}, {name}: {ours!r} here, {theirs!r} in report.json")

    for arm in study.analysis["stability"]:
        name = f"stability of {arm['arm']}"
        runs = study.runs([arm["arm"]], sorted({seed for _, seed in study.cells}))
        for key, metric in [("ratio", "loss/ratio_max"), ("kl", "loss/approx_kl"), ("gradient_norm", "optimizer/gradient_norm_max")]:
            values = [np.nanmax(series(cell, metric)) for cell in runs if metric in cell["metrics"] and not np.isnan(series(cell, metric)).all()]
            hold(f"{name}, {key}", max(values, default=None), arm[key] and arm[key]["value"])
        fallen, collapsed = [], []
        for cell in runs:
            scores = np.array([accuracy(it) for it in cell["evaluations"] if it["set"] == study.declaration["curve_set"]])
            fallen += list(scores[1:][np.diff(scores) < -FALL])
            highest = np.maximum.accumulate(scores)
            if ((highest - scores > 0.25) & (highest - scores > 0.4 * highest)).any():
                collapsed.append(cell["seed"])
        hold(f"{name}, falls", len(fallen), len(arm["falls"]))
        for ours, theirs in zip(fallen, arm["falls"]):
            hold(f"{name}, a fall", ours, theirs["after"])
        assert collapsed == [it["seed"] for it in arm["collapsed"]], name
    for grid in study.analysis["grids"]:
        for point in grid["reference_points"]:
            runs = study.runs([point["arm"]], sorted({seed for _, seed in study.cells}))
            for key, clock in [("updates", "updates"), ("generated_tokens", "generated_tokens")]:
                times = [first_time(study, cell, clock, point["level"]) for cell in runs]
                is_whole = None not in times
                name = f"{point['arm']} at {point['level']}, {key}"
                hold(name, np.mean(times) if is_whole else None, point[key] and point[key]["mean"])
                hold(name, np.std(times, ddof=1) if is_whole else None, point[key] and point[key]["standard_deviation"])
    for table in study.analysis["sensitivity"] if study.declaration.get("paired") else []:
        of = declared(study, table["family"], table["id"])
        seeds = np.array(study.seeds)
        own = block_differences(study, of)
        for row in table["rows"]:
            change, metric = row["change"], of["metric"]
            kind = change["kind"]
            if kind == "clock":
                ours = on_clock(study, of["arm"], of["reference"], change["clock"].replace("-", "_"))
            elif kind == "from":
                ours = effect(block_differences(study, of | {"metric": metric | {"from_share": change["share"]}}))
            elif kind == "last-evaluation":
                last = {"source": "evaluation", "at": "last", "set": metric["set"], "statistic": "avg-at-k"}
                ours = effect(block_differences(study, of | {"metric": last}))
            else:
                without = {"none": [], "without-seed": [change.get("seed")], "without-collapsed": change.get("seeds")}.get(kind)
                if without is None:
                    sides = [study.arms(of[side]) for side in ("arm", "reference")]
                    is_clean = {seed: all(cell["environment"]["git_dirty"] != "true" for arms in sides for cell in study.runs(arms, [seed])) for seed in study.seeds}
                    without = [seed for seed in study.seeds if not is_clean[seed]]
                kept = own[~np.isin(seeds, without)]
                ours = effect(kept) if len(kept) > 1 else None
            hold(f"{table['id']}, {change}", ours and ours["difference"], row["difference"])
            if ours and row["interval"]:
                hold(f"{table['id']}, {change}", ours["interval"]["low"], row["interval"]["low"])
                hold(f"{table['id']}, {change}", ours["interval"]["high"], row["interval"]["high"])
                hold(f"{table['id']}, {change}", ours["p"], row["p"])
    print(f"{study.folder.name}: {numbers} numbers that were looked at afterwards are those of report.json within {TOLERANCE}")


def first_time(study, cell, clock, level):
    """What a clock shows at the first evaluation at or above a level; None where there is none."""
    at_step = CLOCKS[clock](cell) if clock == "updates" or "rollout/generated_tokens" in cell["metrics"] else None
    reached = [it for it in cell["evaluations"] if it["set"] == study.declaration["curve_set"] and accuracy(it) >= level]
    return float(at_step[reached[0]["counters"]["rollout_steps"]]) if reached and at_step is not None else None


# --- Clocks --------------------------------------------------------------------------------------


def clocks(chains, sums):
    """Of each comparison the difference on each clock: means of the interpolated curve over the second half of the budget."""
    comparisons = {
        "dapo": (chains, "factorial/dapo", "factorial/grpo"),
        "enlarged": (chains, "controls/enlarged", "factorial/grpo"),
        "size": (chains, "size/dapo", "size/grpo"),
        "hard": (chains, "hard/dynamic", "hard/grpo"),
        "sums": (sums, "sums/dapo", "sums/grpo"),
    }
    comparisons |= {name: (chains, f"pools/with-{name}", f"pools/without-{name}") for name in TECHNIQUES}
    return {name: {clock: on_clock(*sides, clock) for clock in CLOCKS} for name, sides in comparisons.items()}


def on_clock(study, arm, reference, clock):
    sides = [study.arms(side) for side in (arm, reference)]
    budget = min(total(cell, clock)[-1] for arms in sides for cell in study.runs(arms))
    differences = [
        np.mean([late_mean(study, cell, clock, budget) for cell in study.runs(sides[0], [seed])])
        - np.mean([late_mean(study, cell, clock, budget) for cell in study.runs(sides[1], [seed])])
        for seed in study.seeds
    ]
    return effect(differences) | {"budget": budget}


def late_mean(study, cell, clock, budget):
    """The mean from half of the budget on of the accuracy, interpolated between evaluations: an exact integral."""
    at_step = total(cell, clock)
    steps, scores = curve(study, cell)
    reached = at_step[steps]
    knots = np.unique(np.concatenate([[budget / 2, budget], reached[(reached > budget / 2) & (reached < budget)]]))
    heights = np.interp(knots, reached, scores)
    return float(np.sum((heights[1:] + heights[:-1]) / 2 * np.diff(knots)) / (budget / 2))


def curve(study, cell):
    """(rollout steps, accuracy) of the evaluations of the set that the study is about."""
    metric = study.analysis["families"][0]["comparisons"][0]["declared"]["metric"]
    evaluations = [evaluation for evaluation in cell["evaluations"] if evaluation["set"] == metric["set"]]
    steps = np.array([evaluation["counters"]["rollout_steps"] for evaluation in evaluations])
    return steps, np.array([accuracy(evaluation) for evaluation in evaluations])


def series(cell, name):
    return np.array([np.nan if number is None else number for number in cell["metrics"][name]], float)


def running(per_step):
    """The total after each rollout step, from 0."""
    return np.concatenate([[0.0], np.cumsum(per_step)])


def updates(cell):
    return np.diff([0] + [counters["updates"] for counters in cell["counters"]])


def learning_rate(cell):
    """As a share of the rate after the warm-up."""
    return series(cell, "optimizer/learning_rate") / cell["experiment"]["optimizer"]["learning_rate"]


def trained_tokens(cell):
    return series(cell, "train/response_tokens_mean") * series(cell, "train/rollouts")


CLOCKS = {
    "generated_tokens": lambda cell: running(series(cell, "rollout/generated_tokens")),
    "generated_tokens_by_learning_rate": lambda cell: running(series(cell, "rollout/generated_tokens") * learning_rate(cell)),
    "generated_rollouts": lambda cell: running(series(cell, "rollout/generated_rollouts")),
    "flops": lambda cell: running(
        FLOPS_GENERATED * series(cell, "rollout/generated_tokens") + FLOPS_TRAINED * trained_tokens(cell)
    ),
    "updates": lambda cell: running(updates(cell)),
    "updates_with_gradient": lambda cell: running(updates(cell) - useless_groups(cell)),
}


def total(cell, clock):
    """On CLOCKS, or in seconds, which records have since study words."""
    return running(cell["step_seconds"]) if clock == "seconds" else CLOCKS[clock](cell)


def effect(differences):
    """Mean, t interval, sign-flip p (not corrected) and the number of blocks in which the first arm is below."""
    differences = np.array(differences)
    mean, low, high = t_interval(differences)
    interval = {"low": low, "high": high}
    below = int((differences < 0).sum())
    return {"difference": mean, "interval": interval, "p": sign_flip_p(differences), "blocks_below": below, "blocks": len(differences)}


# --- What a budget and an update are -------------------------------------------------------------


def warm_up(study):
    """The generated tokens of the warm-up's rollout steps as a share of the primary comparison's budget, and those of whole runs."""
    primary = study.analysis["families"][0]["comparisons"][0]["declared"]
    runs = study.runs([primary["arm"], primary["reference"]])
    budget = equal_budget(runs, primary["metric"]["clock"])
    (steps,) = {cell["experiment"]["optimizer"]["warm_up"]["rollout_steps"] for cell in runs}
    shares = {}
    for name, arm in [("grpo", "factorial/grpo"), ("dapo", "factorial/dapo"), ("enlarged", "controls/enlarged")]:
        tokens = [CLOCKS["generated_tokens"](cell)[steps] for cell in study.runs([arm])]
        shares[f"{name}_share_of_tokens"] = np.mean(tokens) / budget
    totals = [np.sum([CLOCKS["generated_tokens"](cell)[-1] for cell in study.runs([arm])]) for arm in (primary["arm"], primary["reference"])]
    shares["dapo_tokens_to_grpo_tokens"] = totals[0] / totals[1]
    return {"rollout_steps": steps, "of_rollout_steps": len(runs[0]["counters"]), "budget_tokens": budget} | shares


def updates_without_gradient(study):
    """Of each arm: updates a run whose mini-batch, which is one group, has no advantage (all right or all wrong)."""
    counts = {}
    for name, arm in [("grpo", "factorial/grpo"), ("dapo", "factorial/dapo"), ("enlarged", "controls/enlarged")]:
        runs = study.runs([arm])
        for cell in runs:
            training = cell["experiment"]["training"]
            assert training["mini_batch_rollouts"] == cell["experiment"]["rollout"]["group_size"], "a mini-batch is no group"
            assert training["mini_batch_order"] == "shuffled-groups" and training["epochs_per_step"] == 1
        counts[name] = {
            "without_gradient": np.mean([useless_groups(cell).sum() for cell in runs]),
            "updates": np.mean([updates(cell).sum() for cell in runs]),
        }
    return counts


def useless_groups(cell):
    return series(cell, "effect/dynamic_sampling_trained_useless_groups")


def fair_control(study):
    """The registered family: Dynamic Sampling against GRPO with as many rollouts."""
    (family,) = [family for family in study.analysis["families"] if family["id"] == "fair-control"]
    return {
        comparison["declared"]["id"].replace("-", "_"): effect(block_differences(study, comparison["declared"]))
        for comparison in family["comparisons"]
    }


# --- Signed sums ---------------------------------------------------------------------------------


def signed_sums(study):
    """What the techniques had to act on, where accuracy fell, and the end of training beside GRPO's."""
    dapo = study.runs(["sums/dapo"])
    let_through = sum(series(cell, "effect/clip_higher_let_through_tokens").sum() for cell in dapo)
    tokens = sum(series(cell, "effect/loss_tokens").sum() for cell in dapo)
    late = {}
    for arm in ["dapo", "without-clip", "without-token", "without-soft", "without-dynamic"]:
        late[arm] = effect([last_half(study, f"sums/{arm}", seed) - last_half(study, "sums/grpo", seed) for seed in study.seeds])
    both = {arm for arm, _ in study.cells if arm not in ("sums/grpo", "sums/without-token", "sums/without-soft")}
    fallen = falls(study)
    with_both = [fall for fall in fallen if fall["arm"] in both]
    return {
        "let_through_share": let_through / tokens,
        "dropped_share": np.mean([series(cell, "effect/dynamic_sampling_dropped_share").mean() for cell in dapo]),
        "falls": len(fallen),
        "falls_with_token_and_soft": len(with_both),
        "runs_with_token_and_soft": len(study.runs(sorted(both))),
        "blocks_with_falls": len({fall["seed"] for fall in fallen}),
        "steps_12_to_20_against_grpo": late,
    }


def last_half(study, arm, seed):
    steps, scores = curve(study, study.cells[arm, seed])
    return scores[steps > 10].mean()


# --- Stability -----------------------------------------------------------------------------------


def instability(study):
    """Runs whose importance ratio went above 10, the largest ones, and falls of accuracy between two evaluations."""
    ratios = {}
    for (arm, seed), cell in unique(study):
        if "loss/ratio_max" in cell["metrics"]:
            ratios[arm, seed] = np.nanmax(series(cell, "loss/ratio_max"), initial=0.0)
    largest = sorted(ratios, key=ratios.get, reverse=True)[:3]
    answers = {
        "runs": len(study.all_cells),
        "runs_with_ratio": len(ratios),
        "ratio_above_10": sum(ratio > 10 for ratio in ratios.values()),
        "largest_ratios": [{"arm": arm, "seed": seed, "ratio": ratios[arm, seed]} for arm, seed in largest],
    }
    return answers | ({"falls": falls(study)} if study.folder.name in ("study-2", "sums-1") else {})


def falls(study):
    """Accuracy that fell by more than 10 points from one evaluation to the next, two rollout steps later."""
    found = []
    for (arm, seed), cell in unique(study):
        steps, scores = curve(study, cell)
        for at in np.flatnonzero(np.diff(scores) < -FALL):
            around = {"step": int(steps[at + 1]), "before": scores[at], "after": scores[at + 1]}
            around |= {"highest_later": scores[at + 1 :].max(), "last": scores[-1]}
            found.append({"arm": arm, "seed": seed, "lost": scores[at] - scores[at + 1]} | around)
    return sorted(found, key=lambda fall: -fall["lost"])


def unique(study):
    """Every run once, under its first name: an arm may stand in several grids."""
    named = {}
    for key, cell in study.cells.items():
        named.setdefault(cell["run_key"], (key, cell))
    assert len(named) == len(study.all_cells), f"{study.folder}: a record belongs to no arm"
    return list(named.values())


def without_collapsed(chains, sums):
    """The comparisons of the two named runs, with their block and without it."""
    return {
        "size_token": with_and_without(chains, "size", "token", 103),
        "sums_primary": with_and_without(sums, "primary", "equal-tokens", 105),
        "sums_without_token": with_and_without(sums, "leave-one-out", "token", 105),
    }


def with_and_without(study, family, comparison, seed):
    differences = block_differences(study, declared(study, family, comparison))
    rest = np.delete(differences, study.seeds.index(seed))
    return {"with": effect(differences), "without": effect(rest), "seed": seed}


def declared(study, family, comparison):
    (family,) = [it for it in study.analysis["families"] if it["id"] == family]
    (comparison,) = [it for it in family["comparisons"] if it["declared"]["id"] == comparison]
    return comparison["declared"]


def without_each_block(study):
    """The primary comparison and those of the first other family, without each block."""
    answers = {}
    for family in study.analysis["families"][:2]:
        for comparison in family["comparisons"]:
            differences = block_differences(study, comparison["declared"])
            without = {str(seed): effect(np.delete(differences, at)) for at, seed in enumerate(study.seeds)}
            answers[f"{family['id']}/{comparison['declared']['id']}"] = without
    return answers


# --- What the words mean -------------------------------------------------------------------------


def detectable_effects(study):
    """True differences that are found in 80 %: by independent groups, and by the blocks' differences, as report.json has it."""
    spread = study.analysis["spread"]
    runs = spread["runs"]
    step = 2 / math.comb(2 * runs, runs)
    level = math.floor(study.declaration["alpha"] / step * (1 + 1e-12)) * step
    unpaired = detectable(spread["observed"], 2 * runs - 2, 2, runs, level)
    differences = block_differences(study, declared(study, "primary", "equal-tokens"))
    deviation = differences.std(ddof=1)
    flips = math.floor(study.declaration["alpha"] * 2 ** (runs - 1)) / 2 ** (runs - 1)
    of_flips = detectable(deviation, runs - 1, 1, runs, flips)
    if abs(of_flips - spread["observed_effect"]) > TOLERANCE:
        raise SystemExit(f"{study.folder.name}: {of_flips!r} is detectable here, {spread['observed_effect']!r} in report.json")
    return {
        "unpaired": unpaired,
        "paired": detectable(deviation, runs - 1, 1, runs, study.declaration["alpha"]),
        "paired_at_the_sign_flips_level": of_flips,
        "standard_deviation_within_arms": spread["observed"],
        "standard_deviation_of_block_differences": deviation,
    }


def equivalence(study):
    """Verdicts of equivalence, each by itself, and after Holm's correction within its family; then as report.json has them:
    corrected, and interactions undivided."""
    lost, alone, of_report = [], 0, 0
    for family in study.analysis["families"]:
        results = [comparison for comparison in family["comparisons"] if comparison["declared"]["metric"]["source"] == "evaluation-mean"]
        margin, alpha = study.declaration["margin"], study.declaration["alpha"]
        p = [equivalence_p(block_differences(study, it["declared"]), margin) for it in results]
        undivided = [equivalence_p(factor_of(it) * block_differences(study, it["declared"]), margin) for it in results]
        if not p:
            continue
        for comparison, own, adjusted, corrected in zip(results, p, holm(p), holm(undivided)):
            name = f"{family['id']}/{comparison['declared']['id']}"
            is_open = comparison["word"] in ("equivalent", "inconclusive")
            if is_open and own <= alpha:
                alone += 1
                if adjusted > alpha:
                    lost.append({"comparison": name, "adjusted_p": adjusted})
            theirs = comparison["result"]["adjusted_equivalence_p"]
            if not abs(corrected - theirs) <= TOLERANCE or is_open and (corrected <= alpha) != (comparison["word"] == "equivalent"):
                raise SystemExit(f"{name}: equivalence has p {corrected!r} here, {theirs!r} and {comparison['word']} in report.json")
            of_report += comparison["word"] == "equivalent"
    return {"equivalent": alone, "equivalent_after_holm": alone - len(lost), "equivalent_in_report": of_report, "lost": lost}


def factor_of(comparison):
    """What a declared contrast of k techniques was divided by: 2^(k-1)."""
    is_interaction = comparison["family"].startswith("interactions-of")
    factor = 2 ** comparison["declared"]["id"].count("+") if is_interaction else 1
    assert factor == comparison.get("contrast_divisor", 1), comparison["declared"]
    return factor


def equivalence_p(differences, margin):
    """Two one-sided t tests: the larger p."""
    error = differences.std(ddof=1) / math.sqrt(len(differences))
    if error == 0:
        return 0.0 if abs(differences.mean()) < margin else 1.0
    freedom = len(differences) - 1
    return max(t_below(-(differences.mean() + margin) / error, freedom), t_below((differences.mean() - margin) / error, freedom))


def interactions(study):
    """Contrasts of k techniques in the unit of a difference of differences: 2^(k-1) times the contrast that was declared."""
    answers = {}
    for family in study.analysis["families"]:
        if not family["id"].startswith("interactions-of"):
            continue
        for comparison in family["comparisons"]:
            name = comparison["declared"]["id"]
            factor, divided = factor_of(comparison), block_differences(study, comparison["declared"])
            differences = factor * divided
            p = equivalence_p(differences, study.declaration["margin"])
            was = equivalence_p(divided, study.declaration["margin"]) <= study.declaration["alpha"]
            remains = was and p <= study.declaration["alpha"]
            answers[name] = effect(differences) | {"factor": factor, "equivalent": was, "equivalent_undivided": remains}
    return answers


def up_clipped_probability(study):
    """The mean probability of up-clipped tokens under GRPO, and what the paper's figure 3a shows."""
    values = [np.nanmean(series(cell, "loss/up_clipped_probability_mean")) for cell in study.runs(["factorial/grpo"])]
    lines = (ROOT / "golden/paper/curves.json").read_text().splitlines()
    (figure,) = [json.loads(line.strip().rstrip(",")) for line in lines if '"figure":"3a"' in line]
    points = np.array(figure["points"])[:, 1]
    low, high = np.quantile(points, [0.25, 0.75])
    return {"mean": np.mean(values), "paper_mean": points.mean(), "paper_quartile_low": low, "paper_quartile_high": high}


def seed_104(study):
    """Arms without Dynamic Sampling in block 104: accuracy over the second half of the updates, and in the last evaluation."""
    answers = {}
    for name, has_soft in [("with_soft", True), ("without_soft", False)]:
        arms = sorted({arm for arm in study.arms("pools/without-dynamic") if (arm in study.arms("pools/with-soft")) == has_soft})
        late = [last_half(study, arm, 104) for arm in arms]
        last = [curve(study, study.cells[arm, 104])[1][-1] for arm in arms]
        answers[name] = {"late_low": min(late), "late_high": max(late), "last_low": min(last), "last_high": max(last), "arms": len(arms)}
    return answers


def changed_trees(study):
    """Records made by a build of a work tree whose tracked files differed from the commit that the record names."""
    changed = [cell for cell in study.all_cells if cell["environment"]["git_dirty"] == "true"]
    grids = {}
    for cell in changed:
        grid = cell["name"].split(".")[0]
        grids[grid] = grids.get(grid, 0) + 1
    return {"records": len(study.all_cells), "git_dirty": len(changed), "by_grid": grids}


# --- JSON ----------------------------------------------------------------------------------------


def rounded(answer):
    if isinstance(answer, dict):
        return {key: rounded(inner) for key, inner in answer.items()}
    if isinstance(answer, list):
        return [rounded(inner) for inner in answer]
    if isinstance(answer, (float, np.floating)):
        return float(f"{answer:.12g}") + 0.0
    return answer.item() if isinstance(answer, np.generic) else answer


def differing(name, ours, theirs):
    """A line for each number that is not what the file has."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            yield from differing(f"{name}/{key}", ours.get(key), theirs.get(key))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for at, (one, other) in enumerate(zip(ours, theirs)):
            yield from differing(f"{name}/{at}", one, other)
    elif isinstance(ours, float) and isinstance(theirs, (int, float)):
        if not abs(ours - theirs) <= TOLERANCE * max(1.0, abs(ours)):
            yield f"{name}: {ours!r} here, {theirs!r} in {ANSWERS.name}"
    elif ours != theirs:
        yield f"{name}: {ours!r} here, {theirs!r} in {ANSWERS.name}"


if __name__ == "__main__":
    main()
