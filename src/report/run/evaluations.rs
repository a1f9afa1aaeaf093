//! Scores of each set before training and at the end, their difference and history.

use crate::experiment::sets;
use crate::records::{Counters, Ending, EvaluationRecord, StepMetrics};
use crate::report::text::Unit;
use crate::report::{LoadedEvaluation, ProblemOutcomes, RunReportLoaded, text};
use crate::statistics::{Counts, Interval, Question, Uncertainty, accuracy, estimators, paired};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The 95 % intervals are cut at the value's range; statistics withhold them where outcomes do not say enough.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownEstimate {
    /// In [0, 1], or in [−1, 1] for a difference.
    pub value: f64,
    /// "This checkpoint on these problems": decoding noise.
    pub fixed_problems: Uncertainty,
    /// "Another draw of problems": clustered by problem.
    pub new_problems: Uncertainty,
}

const LEVEL: f64 = 0.95;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownEvaluation {
    pub counters: Counters,
    pub avg_at_k: ShownEstimate,
    /// k → unbiased pass@k.
    pub pass_at_k: BTreeMap<u64, f64>,
    /// Share of problems whose most frequent answer is correct; `None` where a user's program names no answers.
    pub cons_at_k: Option<f64>,
    pub truncated_share: f64,
    pub response_tokens_mean: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reward_mean: Option<f64>,
    pub outcomes_sha256: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SetResult {
    pub set: String,
    pub problems: u64,
    pub samples: u64,
    pub base: Option<ShownEvaluation>,
    /// `None` before training.
    pub last: Option<ShownEvaluation>,
    /// last − base on the same problems; needs both tables of outcomes.
    pub difference: Option<ShownEstimate>,
    /// (updates, avg@k, half width of the interval for these problems)
    pub history: Vec<(u64, f64, Option<f64>)>,
}

/// avg@k over all test sets, each with the same weight.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SetsTogether {
    pub sets: Vec<String>,
    /// Means; `None` where a set was not evaluated.
    pub base: Option<f64>,
    pub last: Option<f64>,
}

pub fn results(loaded: &RunReportLoaded) -> Vec<SetResult> {
    evaluated_sets(loaded).iter().map(result).collect()
}

/// `None` where there is one test set. A set that has the problems of another one is left out.
pub fn together(loaded: &RunReportLoaded, results: &[SetResult]) -> Option<SetsTogether> {
    let copies: Vec<&String> =
        loaded.experiment.evaluation.copies().map(|(name, _)| name).collect();
    let is_its_own =
        |result: &&SetResult| result.set != sets::DEV && !copies.contains(&&result.set);
    let tests: Vec<&SetResult> = results.iter().filter(is_its_own).collect();
    if tests.len() < 2 {
        return None;
    }
    let mean = |of: fn(&SetResult) -> &Option<ShownEvaluation>| {
        let values = tests.iter().map(|set| Some(of(set).as_ref()?.avg_at_k.value));
        values.collect::<Option<Vec<f64>>>().map(|values| estimators::mean(&values))
    };
    let sets = tests.iter().map(|result| result.set.clone()).collect();
    Some(SetsTogether { sets, base: mean(|set| &set.base), last: mean(|set| &set.last) })
}

/// A set's evaluations; at least one.
struct EvaluatedSet<'a> {
    all: Vec<&'a LoadedEvaluation>,
    base: Option<&'a LoadedEvaluation>,
    /// Of a trained policy.
    last: Option<&'a LoadedEvaluation>,
}

impl EvaluatedSet<'_> {
    fn record(&self) -> &EvaluationRecord {
        &self.last.unwrap_or(self.all[0]).record
    }
}

/// The headline set first, the development set last.
fn evaluated_sets(loaded: &RunReportLoaded) -> Vec<EvaluatedSet<'_>> {
    let mut seen = BTreeSet::new();
    let names = loaded.evaluations.iter().map(|evaluation| evaluation.record.set.as_str());
    let mut names: Vec<&str> = names.filter(|set| seen.insert(*set)).collect();
    names.sort_by_key(|set| (*set != sets::MINI_AIME, *set == sets::DEV));
    let set = |name: &str| {
        let all = loaded.evaluations.iter().filter(|evaluation| evaluation.record.set == name);
        let all: Vec<&LoadedEvaluation> = all.collect();
        let is_base = |it: &&&LoadedEvaluation| it.record.counters.updates == 0;
        let base = all.iter().find(is_base).copied();
        let last = all.iter().rev().find(|evaluation| !is_base(evaluation)).copied();
        EvaluatedSet { all, base, last }
    };
    names.into_iter().map(set).collect()
}

fn result(set: &EvaluatedSet) -> SetResult {
    let point = |evaluation: &&LoadedEvaluation| {
        let record = &evaluation.record;
        let error = record.standard_error_fixed_problems;
        let half = accuracy::has_interval_of_decoding(error, record.problems, record.samples)
            .then(|| estimators::half_width_fixed_problems(error));
        (record.counters.updates, record.avg_at_k, half)
    };
    let record = set.record();
    SetResult {
        set: text::visible(&record.set),
        problems: record.problems,
        samples: record.samples,
        base: set.base.map(evaluation),
        last: set.last.map(evaluation),
        difference: set.base.zip(set.last).and_then(|(base, last)| difference(base, last)),
        history: set.all.iter().map(point).collect(),
    }
}

fn evaluation(loaded: &LoadedEvaluation) -> ShownEvaluation {
    let record = &loaded.record;
    let mut all = loaded.outcomes.iter().flatten().flat_map(|problem| &problem.samples);
    let names_answers = loaded.outcomes.is_none() || all.any(|it| it.prediction.is_some());
    let outcomes = loaded.outcomes.as_deref().map(counts);
    let accuracy = outcomes.and_then(|outcomes| accuracy::accuracy(&[outcomes], LEVEL).ok());
    let [fixed, new] = match accuracy.map(|accuracy| accuracy.uncertainties) {
        Some([fixed, new, _]) => [fixed, new],
        None => [
            (Question::TheseCheckpointsOnTheseProblems, record.standard_error_fixed_problems),
            (Question::AnotherDrawOfProblems, record.standard_error_new_problems),
        ]
        .map(|(question, error)| Uncertainty {
            question,
            standard_error: Some(error),
            interval: None,
            withheld: Some("the table of outcomes is missing".to_string()),
        }),
    };
    ShownEvaluation {
        counters: record.counters,
        avg_at_k: estimate(record.avg_at_k, [fixed, new], (0.0, 1.0)),
        pass_at_k: record.pass_at_k.clone(),
        cons_at_k: names_answers.then_some(record.cons_at_k),
        truncated_share: record.truncated_share,
        response_tokens_mean: record.response_tokens_mean,
        reward_mean: record.reward_mean,
        outcomes_sha256: text::visible(&record.outcomes_sha256),
    }
}

fn estimate(value: f64, errors: [Uncertainty; 2], range: (f64, f64)) -> ShownEstimate {
    let cut = |mut error: Uncertainty| {
        error.interval = error.interval.map(|it| Interval {
            low: it.low.max(range.0),
            high: it.high.min(range.1),
            ..it
        });
        error
    };
    let [fixed_problems, new_problems] = errors.map(cut);
    ShownEstimate { value, fixed_problems, new_problems }
}

fn counts(problems: &[ProblemOutcomes]) -> Vec<Counts> {
    problems.iter().map(|problem| Counts::of(&problem.samples)).collect()
}

/// Paired by name: the tables may have another order.
fn difference(base: &LoadedEvaluation, last: &LoadedEvaluation) -> Option<ShownEstimate> {
    let (base, last) = (base.outcomes.as_ref()?, last.outcomes.as_ref()?);
    let by_name = base.iter().map(|problem| (&problem.problem, Counts::of(&problem.samples)));
    let by_name: BTreeMap<&String, Counts> = by_name.collect();
    let before = last.iter().map(|problem| by_name.get(&problem.problem).copied());
    let before = before.collect::<Option<Vec<_>>>().filter(|_| base.len() == last.len())?;
    let paired = paired::paired(&[before], &[counts(last)], LEVEL).ok()?;
    Some(estimate(paired.difference, paired.uncertainties, (-1.0, 1.0)))
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TagResult {
    pub tag: String,
    pub problems: usize,
    pub base: Option<f64>,
    pub last: Option<f64>,
}

pub fn by_tag(loaded: &RunReportLoaded) -> Vec<TagResult> {
    let sets = evaluated_sets(loaded);
    let Some(set) = sets.first() else { return Vec::new() };
    let Some(tags) = loaded.tags.get(&set.record().set) else { return Vec::new() };
    let mut problems: BTreeMap<&String, BTreeSet<&String>> = BTreeMap::new();
    for (problem, tag) in tags.iter().flat_map(|(id, tags)| tags.iter().map(move |tag| (id, tag))) {
        problems.entry(tag).or_default().insert(problem);
    }
    let result = |(tag, of_tag): (&String, BTreeSet<&String>)| TagResult {
        tag: text::visible(tag),
        problems: of_tag.len(),
        base: share(set.base, &of_tag),
        last: share(set.last, &of_tag),
    };
    problems.into_iter().map(result).collect()
}

fn share(evaluation: Option<&LoadedEvaluation>, problems: &BTreeSet<&String>) -> Option<f64> {
    let outcomes = evaluation?.outcomes.as_ref()?.iter();
    let of_tag = outcomes.filter(|outcomes| problems.contains(&outcomes.problem));
    let counts = of_tag.map(|outcomes| Counts::of(&outcomes.samples));
    let (correct, samples) = counts.fold((0, 0), |(correct, samples), counts| {
        (correct + counts.correct, samples + counts.samples)
    });
    (samples > 0).then(|| correct as f64 / samples as f64)
}

/// One sentence with an interval; it begins with what makes the result void.
pub fn headline(loaded: &RunReportLoaded, results: &[SetResult]) -> String {
    let sentences = [left_out(loaded), nothing_learned(loaded)].into_iter().flatten();
    text::joined(sentences.chain([result_sentence(loaded, results)]), " ")
}

/// What `optimizer.non_finite = "skip"` left out.
fn left_out(loaded: &RunReportLoaded) -> Option<String> {
    let skipped = |step: &StepMetrics| step.metrics.get("optimizer/skipped_updates").copied();
    let skipped = loaded.metrics.iter().filter_map(skipped).sum::<f64>() as u64;
    let updates = loaded.metrics.last()?.counters.updates;
    let then = if skipped == updates { "; nothing was learned" } else { "" };
    (skipped > 0).then(|| {
        let [skipped, updates] = [skipped, updates].map(text::grouped);
        format!(
            "{skipped} of {updates} updates were left out because their loss or gradient was not \
             finite{then}."
        )
    })
}

/// It ended early, or no update had a gradient.
fn nothing_learned(loaded: &RunReportLoaded) -> Option<String> {
    let outcome = loaded.outcome.as_ref()?;
    let values = |name: &'static str| {
        loaded.metrics.iter().filter_map(move |step| step.metrics.get(name).copied())
    };
    if matches!(outcome.ending, Ending::Stalled | Ending::Diverged) {
        let (ended, step) = (outcome.ending.name(), outcome.step());
        return Some(format!("The run {ended} in rollout step {step}."));
    }
    let scores = loaded.evaluations.iter().map(|it| it.record.avg_at_k);
    let mut scores = scores.chain(values("rollout/accuracy")).peekable();
    let none_right = scores.peek().is_some() && scores.all(|score| score == 0.0);
    let mut norms = values("optimizer/gradient_norm_max").peekable();
    let no_gradient = norms.peek().is_some() && norms.all(|norm| norm == 0.0);
    let decays = loaded.experiment.optimizer.weight_decay > 0.0;
    let weights =
        if decays { "only weight decay changed the weights" } else { "the weights did not change" };
    let why = if none_right { "; every response was wrong" } else { "" };
    no_gradient.then(|| format!("No update had a gradient; {weights}{why}."))
}

fn without_noise(difference: &ShownEstimate, base: &ShownEstimate, last: &ShownEstimate) -> String {
    let side = |(name, of): (&str, &ShownEstimate)| {
        let reason = of.fixed_problems.withheld.as_ref()?;
        Some(format!(" The {name} policy counts without decoding noise of its own: {reason}."))
    };
    let sides = [("base", base), ("final", last)].into_iter().filter_map(side);
    sides.filter(|_| difference.fixed_problems.interval.is_some()).collect()
}

fn result_sentence(loaded: &RunReportLoaded, results: &[SetResult]) -> String {
    let Some(result) = results.first() else {
        return "No evaluation is recorded yet: this run has no result.".to_owned();
    };
    let size = format!("n = {} × k = {} × 1 run", result.problems, result.samples);
    let on = format!("On {}, avg@{}", result.set, result.samples);
    let with_size = |estimate: &ShownEstimate| {
        let problems = result.problems as usize;
        let these = format!("these {}", text::counted(problems, "problem", "problems"));
        around(estimate, &these) + &format!(" ({size})")
    };
    match (&result.base, &result.last, &result.difference) {
        (Some(base), Some(last), Some(difference)) => {
            let verb = match &difference.fixed_problems.interval {
                Some(interval) if interval.low > 0.0 => "rose",
                Some(interval) if interval.high < 0.0 => "fell",
                Some(_) => "did not move measurably,",
                None => "went",
            };
            format!(
                "{on} {verb} from {} (base policy) to {} after {}: {} points, {}.{}",
                text::percent(base.avg_at_k.value),
                text::percent(last.avg_at_k.value),
                text::updates(last.counters.updates),
                text::signed_points(difference.value),
                with_size(difference),
                without_noise(difference, &base.avg_at_k, &last.avg_at_k),
            )
        }
        (_, Some(last), _) => format!(
            "{on} is {} after {}, {}.",
            text::percent(last.avg_at_k.value),
            text::updates(last.counters.updates),
            with_size(&last.avg_at_k),
        ),
        (Some(base), None, _) => {
            let evaluated = match loaded.outcome {
                Some(_) => "was evaluated on it",
                None => "has been evaluated on it yet",
            };
            format!(
                "{on} is {} for the base policy, {}; no trained policy {evaluated}.",
                text::percent(base.avg_at_k.value),
                with_size(&base.avg_at_k),
            )
        }
        (None, None, _) => unreachable!("a set without evaluations is not listed"),
    }
}

fn around(estimate: &ShownEstimate, these: &str) -> String {
    let [fixed, new] = [&estimate.fixed_problems, &estimate.new_problems];
    let reason = |of: &Uncertainty| {
        of.withheld.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default()
    };
    let [why_fixed, why_new] = [fixed, new].map(reason);
    let another = "for another draw of problems";
    let shown = |of: &Uncertainty| of.interval.map(|interval| Unit::Share.interval(&interval));
    match (shown(fixed), shown(new)) {
        (Some(fixed), Some(new)) => format!("95 % interval {fixed} for {these}, {new} {another}"),
        (None, Some(new)) => {
            format!("no interval for {these}{why_fixed}, 95 % interval {new} {another}")
        }
        (Some(fixed), None) => {
            format!("95 % interval {fixed} for {these}, none {another}{why_new}")
        }
        (None, None) => format!("no interval for {these}{why_fixed}, nor {another}{why_new}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_headline_names_the_policy_that_counts_without_decoding_noise() {
        let shown = |counts: &[u64]| {
            let counts: Vec<Counts> =
                counts.iter().map(|&correct| Counts { correct, samples: 2 }).collect();
            let [fixed, new, _] = accuracy::accuracy(&[counts], LEVEL).unwrap().uncertainties;
            estimate(0.5, [fixed, new], (0.0, 1.0))
        };
        let (noisy, silent) = (shown(&[1, 1, 0]), shown(&[0, 0, 2]));
        let these = "these 3 problems";
        assert_eq!(
            around(&silent, these),
            "no interval for these 3 problems (all responses to each problem have the same outcome), nor for another \
             draw of problems (3 problems, fewer than 10)"
        );
        let none = ", none for another draw of problems (3 problems, fewer than 10)";
        assert!(around(&noisy, these).ends_with(none), "{}", around(&noisy, these));
        assert_eq!(without_noise(&noisy, &noisy, &noisy), "");
        assert_eq!(without_noise(&silent, &silent, &silent), "");
        assert_eq!(
            without_noise(&noisy, &noisy, &silent),
            " The final policy counts without decoding noise of its own: all responses to each \
             problem have the same outcome."
        );
    }
}
