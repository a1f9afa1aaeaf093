//! Checks the numbers of a record: clocks, ranges of metrics, scores against outcomes.

use crate::algorithm::DynamicSampling;
use crate::base::files;
use crate::experiment::{Experiment, shipped};
use crate::records::{Counters, metrics};
use crate::study::{Cell, CellEvaluation};
use crate::training::{effects, trainer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::LazyLock;

pub const GENERATED: &str = effects::GENERATED_ROLLOUTS;

/// Rounds draw equally many prompts. Another trainer may fetch them singly; the metric `by_step` has what it counted.
pub fn generated(
    experiment: &Experiment,
    counters: Counters,
    by_step: Option<&[Option<f64>]>,
) -> u64 {
    if !experiment.records_every_group() {
        let steps = by_step.unwrap_or_default().iter().take(counters.rollout_steps as usize);
        return steps.flatten().sum::<f64>() as u64;
    }
    let round =
        trainer::prompts_per_round(experiment).saturating_mul(experiment.rollout.group_size);
    counters.generation_rounds.saturating_mul(round)
}

/// Significant digits of metrics in records.
pub const DIGITS: usize = 9;
pub const FEWEST_DIGITS: usize = 4;

pub fn ensure(holds: bool, reason: impl Display) -> Result<(), String> {
    if holds { Ok(()) } else { Err(reason.to_string()) }
}

pub fn significant(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits.saturating_sub(1)).parse().unwrap_or(value)
}

pub fn steps(cell: &Cell) -> Result<(), String> {
    let digits = digits(cell)?;
    // Where the rounds do not say it, a step without the number would count as nothing.
    let is_whole = |values: &[Option<f64>]| {
        cell.experiment.records_every_group() || values.iter().all(Option::is_some)
    };
    let counted = cell.counters.is_empty() || cell.metric(GENERATED).is_some_and(is_whole);
    ensure(counted, format_args!("it lacks the metric `{GENERATED}` of a rollout step"))?;
    for (name, values) in &cell.metrics {
        let known = is_recorded(name, &cell.experiment);
        ensure(known, format_args!("a run like this has no metric `{name}`"))?;
        for (index, value) in values.iter().enumerate() {
            let fits =
                value.is_none_or(|value| metrics::is_possible(name, value, &cell.experiment));
            let value = value.unwrap_or_default();
            let reason = format_args!("`{name}` of rollout step {} cannot be {value}", index + 1);
            ensure(fits, reason)?;
        }
    }
    let mut before = Counters::default();
    for (counters, step) in cell.counters.iter().zip(1..) {
        clocks(cell, step, before, *counters)
            .and_then(|()| related(cell, before, *counters, digits))
            .map_err(|reason| format!("rollout step {step}: {reason}"))?;
        before = *counters;
    }
    Ok(())
}

fn digits(cell: &Cell) -> Result<usize, String> {
    let values = cell.metrics.values().flatten().flatten();
    let most = values.map(|value| needed_digits(*value)).max().unwrap_or(0);
    let reason = format_args!("its metrics have more than {DIGITS} significant digits");
    ensure(most <= DIGITS, reason)?;
    Ok(most.max(FEWEST_DIGITS))
}

/// Digits of the shortest decimal number that reads as this value.
fn needed_digits(value: f64) -> usize {
    let text = format!("{value:e}");
    let mantissa = text.split('e').next().unwrap_or_default();
    mantissa.bytes().filter(u8::is_ascii_digit).count()
}

/// Of updates and the sampler a run records what its experiment asks for. Other trainers have metrics of their own.
fn is_recorded(name: &str, experiment: &Experiment) -> bool {
    let stage = name.split_once('/').map(|(stage, _)| stage);
    let is_ours = matches!(stage, Some("loss" | "optimizer" | "policy" | "exact" | "memory"));
    !is_ours || metrics::of(name).is_some_and(|metric| metric.is_recorded_by(experiment))
}

/// Clocks rise as in one rollout step.
fn clocks(cell: &Cell, step: u64, before: Counters, after: Counters) -> Result<(), String> {
    let stated = after.rollout_steps;
    ensure(stated == step, format_args!("its clock says rollout step {stated}"))?;
    let most = match cell.experiment.dapo.dynamic_sampling {
        DynamicSampling::None {} => 1,
        DynamicSampling::Resample { max_rounds: 0, .. } => u64::MAX,
        DynamicSampling::Resample { max_rounds, .. } => u64::from(max_rounds),
    };
    let rounds = after.generation_rounds.checked_sub(before.generation_rounds);
    let is_of_one_step = rounds.is_some_and(|rounds| (1..=most).contains(&rounds));
    ensure(is_of_one_step, "its generation rounds cannot be those of one step")?;
    ensure(after.updates > before.updates, "its updates do not rise")
}

fn related(cell: &Cell, before: Counters, after: Counters, digits: usize) -> Result<(), String> {
    let Cell { experiment, metrics: columns, inputs, .. } = cell;
    let by_rounds = |counters| generated(experiment, counters, None) as f64;
    let value = |name: &str| match name {
        metrics::GENERATED_BY_CLOCK => {
            experiment.records_every_group().then(|| by_rounds(after) - by_rounds(before))
        }
        metrics::LARGEST_ENTROPY => largest_entropy_of_embedded(inputs),
        name => *columns.get(name)?.get(before.rollout_steps as usize)?,
    };
    // Long records lack whole metrics.
    let lacking = metrics::lacking(&value, experiment);
    if let Some(name) = lacking.into_iter().find(|name| columns.contains_key(*name)) {
        return Err(format!("it lacks the metric `{name}`, which every step of such a run has"));
    }
    // Three rounded factors, half a unit of the last digit each.
    let rounding = (1..digits).fold(2.0, |unit, _| unit / 10.0);
    let broken = metrics::broken(&value, experiment, rounding).into_iter().next();
    broken.map_or(Ok(()), |broken| Err(broken.to_string()))
}

fn largest_entropy_of_embedded(inputs: &BTreeMap<String, String>) -> Option<f64> {
    static EMBEDDED: LazyLock<(String, Option<f64>)> = LazyLock::new(|| {
        let (_, config) = shipped::MODEL[0];
        let value: Value = serde_json::from_slice(config).unwrap_or_default();
        (files::sha256(config), metrics::largest_entropy(&value))
    });
    let (digest, entropy) = &*EMBEDDED;
    entropy.filter(|_| inputs.get("base/config.json") == Some(digest))
}

/// Whether every right response has an answer that can be the most frequent one: a user's program need not name any.
pub fn names_answers(cell: &Cell, set: &str) -> bool {
    cell.experiment.grading_of(set).program().is_none()
}

pub fn scores(cell: &Cell, evaluation: &CellEvaluation) -> Result<(), String> {
    let limit = cell.experiment.rollout.max_response_tokens as f64;
    let correct = evaluation.correct();
    let (problems, responses) = (correct.len() as f64, evaluation.outcomes.len() as f64);
    let whole = |value: f64, count: f64| (value * count).round() / count == value;
    let CellEvaluation { cons_at_k, truncated_share, response_tokens_mean, .. } = *evaluation;
    for (name, value, high, count) in [
        ("cons_at_k", cons_at_k, 1.0, problems),
        ("truncated_share", truncated_share, 1.0, responses),
        ("response_tokens_mean", response_tokens_mean, limit, responses),
    ] {
        let fits = (0.0..=high).contains(&value) && whole(value, count);
        ensure(fits, format_args!("cannot have the `{name}` {value}"))?;
    }
    let is_graded = cell.experiment.grading_of(&evaluation.set).program().is_some();
    ensure(
        is_graded || evaluation.reward_mean.is_none(),
        "has a `reward_mean`, and no program grades the set",
    )?;
    let samples = evaluation.samples;
    let count = |of: &dyn Fn(u64) -> bool| correct.iter().filter(|c| of(**c)).count() as f64;
    // The most frequent answer is correct where all are, and wrong where none is.
    let consensus = (cons_at_k * problems).round();
    let least = if names_answers(cell, &evaluation.set) { count(&|c| c == samples) } else { 0.0 };
    let possible = least..=count(&|c| c > 0);
    ensure(possible.contains(&consensus), "has a `cons_at_k` that its outcomes exclude")?;
    let is_allowed = response_tokens_mean + 1e-9 >= truncated_share * limit;
    ensure(is_allowed, "has more truncated responses than its mean length allows")
}
