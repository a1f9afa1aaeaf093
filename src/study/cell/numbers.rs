//! Checks the numbers of a record against each other: clocks against metrics, metrics against their
//! ranges and against each other, scores against outcomes.
//!
//! Metrics are rounded when a record is made. Counts are compared exactly after the same rounding,
//! other values within what rounding can do to their terms.

use crate::algorithm::DynamicSampling;
use crate::experiment::Experiment;
use crate::policy::optimizer;
use crate::records::Counters;
use crate::study::{Cell, CellEvaluation};
use crate::training::{effects, trainer};
use std::fmt::Display;

pub const GENERATED: &str = "rollout/generated_rollouts";

/// Rollouts that a run has generated for training at these clocks: every generation round draws the
/// same number of prompts.
pub fn generated(experiment: &Experiment, counters: Counters) -> u64 {
    let round =
        trainer::prompts_per_round(experiment).saturating_mul(experiment.rollout.group_size);
    counters.generation_rounds.saturating_mul(round)
}

/// Significant digits to which records round their metrics.
pub const DIGITS: [usize; 3] = [9, 6, 4];

/// # Errors
/// `reason`, unless it holds.
pub fn ensure(holds: bool, reason: impl Display) -> Result<(), String> {
    if holds { Ok(()) } else { Err(reason.to_string()) }
}

pub fn significant(value: f64, digits: usize) -> f64 {
    format!("{value:.*e}", digits.saturating_sub(1)).parse().unwrap_or(value)
}

pub fn steps(cell: &Cell) -> Result<(), String> {
    let digits = digits(cell)?;
    let counted = cell.counters.is_empty() || cell.metric(GENERATED).is_some();
    ensure(counted, format_args!("it has no metric `{GENERATED}`"))?;
    for (name, values) in &cell.metrics {
        let known = is_recorded(name, &cell.experiment);
        ensure(known, format_args!("a run like this has no metric `{name}`"))?;
        for (index, value) in values.iter().enumerate() {
            let fits = value.is_none_or(|value| is_possible(name, value, &cell.experiment));
            let value = value.unwrap_or_default();
            let reason = format_args!("`{name}` of rollout step {} cannot be {value}", index + 1);
            ensure(fits, reason)?;
        }
    }
    let mut before = Counters::default();
    for (index, counters) in cell.counters.iter().enumerate() {
        let step = RecordedStep { cell, index, before, after: *counters, digits };
        step.check().map_err(|reason| format!("rollout step {}: {reason}", index + 1))?;
        before = *counters;
    }
    Ok(())
}

/// The fewest significant digits that hold all of a record's metrics.
fn digits(cell: &Cell) -> Result<usize, String> {
    let values = cell.metrics.values().flatten().flatten();
    let most = values.map(|value| needed_digits(*value)).max().unwrap_or(0);
    let fewest = DIGITS.iter().rev().find(|digits| most <= **digits).copied();
    fewest.ok_or_else(|| format!("its metrics have more than {} significant digits", DIGITS[0]))
}

/// Significant digits of the shortest decimal number that reads as this value.
fn needed_digits(value: f64) -> usize {
    let text = format!("{value:e}");
    let mantissa = text.split('e').next().unwrap_or_default();
    mantissa.bytes().filter(u8::is_ascii_digit).count()
}

/// Whether a run of this experiment, in its format of records, has such a metric of its updates.
fn is_recorded(name: &str, experiment: &Experiment) -> bool {
    let sampled = [effects::ROLLOUT_ENTROPY, effects::ROLLOUT_PROBABILITY].contains(&name);
    match name.split_once('/') {
        Some(("loss" | "optimizer" | "policy" | "exact" | "memory", _)) => {
            effects::is_of_updates(name, experiment) || (sampled && experiment.record_format() > 1)
        }
        _ => true,
    }
}

/// Whether a metric of an experiment's rollout step can have a value.
pub fn is_possible(name: &str, value: f64, experiment: &Experiment) -> bool {
    let Some((low, high, whole)) = range(name, experiment) else { return value.is_finite() };
    // A count with more digits than are kept is still whole.
    value >= low && value <= high + 1e-9 && (!whole || value.fract() == 0.0)
}

/// Smallest and largest value of a metric, and whether it is whole; `None` for a metric without
/// bounds.
fn range(name: &str, experiment: &Experiment) -> Option<(f64, f64, bool)> {
    let limit = experiment.rollout.max_response_tokens as f64;
    let (stage, short) = name.split_once('/')?;
    let ends = |endings: &[&str]| endings.iter().any(|ending| name.ends_with(ending));
    if short.starts_with("response_tokens_") {
        return Some((0.0, limit, short.ends_with("max")));
    }
    if short == "correctness_mean" {
        return Some((-1.0, 1.0, false));
    }
    if short == "accuracy"
        || short.starts_with("clip_fraction_")
        || ends(&["_share", "_share_mean", "_share_max", "probability_mean"])
    {
        return Some((0.0, 1.0, false));
    }
    let counted = ["_tokens", "_rollouts", "_groups", "/groups", "/rollouts", "rounds"];
    if ends(&counted) {
        return Some((0.0, f64::MAX, true));
    }
    let distances = ["entropy", "mismatch_mean", "mismatch_max", "ratio_max"];
    let norms = stage == "optimizer" && short != "learning_rate";
    (norms || distances.contains(&short)).then_some((0.0, f64::MAX, false))
}

struct RecordedStep<'a> {
    cell: &'a Cell,
    /// From 0.
    index: usize,
    before: Counters,
    after: Counters,
    digits: usize,
}

impl RecordedStep<'_> {
    fn check(&self) -> Result<(), String> {
        let (rounds, updates) = self.clocks()?;
        for (name, expected) in self.counts(rounds) {
            let Some((found, expected)) = self.of(name).zip(expected) else { continue };
            let same = found == expected || found == significant(expected, self.digits);
            agree(same, name, found, expected)?;
        }
        for (name, terms) in self.sums() {
            let (Some(found), Some(terms)) = (self.of(name), terms) else { continue };
            let expected: f64 = terms.iter().sum();
            let scale = terms.iter().fold(found.abs(), |scale, term| scale + term.abs());
            let near = (found - expected).abs() <= self.slack(scale);
            agree(near, name, found, expected)?;
        }
        self.bounds()?;
        let batches = self.of("train/rollouts").map(|rollouts| {
            let training = &self.cell.experiment.training;
            (rollouts as u64).div_ceil(training.mini_batch_rollouts) * training.epochs_per_step
        });
        // Four digits can round the count; the clock is then not checked.
        let expected = batches.filter(|_| self.digits > 4).unwrap_or(updates);
        let reason = format_args!("the updates rise by {updates}, its batch makes {expected}");
        ensure(updates == expected, reason)
    }

    fn clocks(&self) -> Result<(u64, u64), String> {
        let Counters { generation_rounds, rollout_steps, updates } = self.after;
        let on_time = rollout_steps == self.index as u64 + 1;
        ensure(on_time, format_args!("its clock says rollout step {rollout_steps}"))?;
        let most = match self.cell.experiment.dapo.dynamic_sampling {
            DynamicSampling::None {} => 1,
            DynamicSampling::Resample { max_rounds: 0, .. } => u64::MAX,
            DynamicSampling::Resample { max_rounds, .. } => u64::from(max_rounds),
        };
        let rounds = generation_rounds.checked_sub(self.before.generation_rounds);
        let rounds = rounds.filter(|rounds| (1..=most).contains(rounds));
        let updates = updates.checked_sub(self.before.updates).filter(|updates| *updates > 0);
        match (rounds, updates) {
            (None, _) => Err("its generation rounds cannot be those of one step".into()),
            (_, None) => Err("its updates do not rise".into()),
            (Some(rounds), Some(updates)) => Ok((rounds, updates)),
        }
    }

    fn counts(&self, rounds: u64) -> [(&'static str, Option<f64>); 4] {
        let experiment = &self.cell.experiment;
        let size = experiment.rollout.group_size as f64;
        let until = |counters| generated(experiment, counters);
        let generated = until(self.after).saturating_sub(until(self.before)) as f64;
        [
            ("rollout/rounds", Some(rounds as f64)),
            (GENERATED, Some(generated)),
            ("rollout/groups", Some(generated / size)),
            ("effect/dynamic_sampling_refill_rounds", Some(rounds as f64 - 1.0)),
        ]
    }

    fn sums(&self) -> [(&'static str, Option<Vec<f64>>); 11] {
        let experiment = &self.cell.experiment;
        let (epochs, target) = (
            experiment.training.epochs_per_step as f64,
            experiment.training.prompts_per_step as f64,
        );
        let size = experiment.rollout.group_size as f64;
        let rate = optimizer::learning_rate(&experiment.optimizer, self.index as u64);
        let of = |name: &str| self.of(name);
        let correctness = |accuracy: &str| of(accuracy).map(|it| vec![2.0 * it, -1.0]);
        let both = |a: &str, b: &str| of(a).zip(of(b)).map(|(a, b)| vec![a, b]);
        let product = |a: &str, b: &str| of(a).zip(of(b)).map(|(a, b)| vec![a * b]);
        let useless = both("rollout/groups_all_correct_share", "rollout/groups_all_wrong_share");
        let groups = of("train/groups");
        // An update that was left out has no tokens.
        let trained = product("train/response_tokens_mean", "train/rollouts")
            .zip(of("effect/overlong_filtering_masked_tokens"))
            .filter(|_| experiment.optimizer.non_finite.is_none());
        [
            ("optimizer/learning_rate", Some(vec![rate])),
            ("train/rollouts", groups.map(|groups| vec![groups * size])),
            (
                "effect/clip_higher_clipped_above_tokens",
                product("loss/clip_fraction_high", "effect/loss_tokens"),
            ),
            ("rollout/correctness_mean", correctness("rollout/accuracy")),
            ("train/correctness_mean", correctness("train/accuracy")),
            (
                "rollout/reward_mean",
                both("rollout/correctness_mean", "rollout/overlong_penalty_mean"),
            ),
            ("train/reward_mean", both("train/correctness_mean", "train/overlong_penalty_mean")),
            ("rollout/generated_tokens", product("rollout/response_tokens_mean", GENERATED)),
            (
                "rollout/groups_useful_share",
                useless.map(|shares| vec![1.0, -shares[0], -shares[1]]),
            ),
            (
                "effect/dynamic_sampling_batch_filled_share",
                groups.map(|groups| vec![groups / target]),
            ),
            (
                "effect/loss_tokens",
                trained.map(|(all, masked)| vec![epochs * all[0], -epochs * masked]),
            ),
        ]
    }

    fn bounds(&self) -> Result<(), String> {
        let experiment = &self.cell.experiment;
        let limit = experiment.rollout.max_response_tokens as f64;
        let share = 1.0 / experiment.rollout.group_size as f64;
        let full = experiment.training.prompts_per_step as f64;
        let of = |name: &str| self.of(name);
        let useful = of("rollout/groups_useful_share");
        let solved = of("rollout/groups_all_correct_share").zip(useful);
        let accuracy = of("rollout/accuracy");
        let tokens = of("rollout/response_tokens_mean");
        // (name, smaller, larger): a group that is partly correct has 1 to G − 1 correct rollouts.
        let at_most = |name: &'static str, most: &str| (name, of(name), of(most));
        let pairs = [
            ("rollout/accuracy", solved.map(|(solved, useful)| solved + share * useful), accuracy),
            (
                "rollout/accuracy",
                accuracy,
                solved.map(|(solved, useful)| solved + (1.0 - share) * useful),
            ),
            (
                "rollout/truncated_share",
                of("rollout/truncated_share").map(|share| share * limit),
                tokens,
            ),
            at_most("rollout/response_tokens_mean", "rollout/response_tokens_max"),
            at_most("train/response_tokens_mean", "train/response_tokens_max"),
            at_most("optimizer/gradient_norm_mean", "optimizer/gradient_norm_max"),
            ("train/groups", Some(1.0), of("train/groups")),
            ("train/groups", of("train/groups"), Some(full)),
        ];
        for (name, low, high) in pairs {
            let (Some(low), Some(high)) = (low, high) else { continue };
            let fits = low <= high + self.slack(low.abs() + high.abs());
            ensure(fits, format_args!("`{name}` does not fit the metrics beside it"))?;
        }
        Ok(())
    }

    fn of(&self, name: &str) -> Option<f64> {
        *self.cell.metric(name)?.get(self.index)?
    }

    /// How far rounding to the record's digits can move terms of this size together.
    fn slack(&self, scale: f64) -> f64 {
        2.0 * scale * libm::pow(10.0, 1.0 - self.digits as f64) + 1e-12
    }
}

fn agree(agrees: bool, name: &str, found: f64, expected: f64) -> Result<(), String> {
    let reason = format_args!("`{name}` is {found}, the record's other fields say {expected}");
    ensure(agrees, reason)
}

/// An evaluation's other numbers must be shares of whole responses that its outcomes allow.
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
    let samples = evaluation.samples;
    let count = |of: &dyn Fn(u64) -> bool| correct.iter().filter(|c| of(**c)).count() as f64;
    // The most frequent answer is correct where all are, and wrong where none is.
    let consensus = (cons_at_k * problems).round();
    let possible = count(&|c| c == samples)..=count(&|c| c > 0);
    ensure(possible.contains(&consensus), "has a `cons_at_k` that its outcomes exclude")?;
    ensure(
        response_tokens_mean + 1e-9 >= truncated_share * limit,
        "has more truncated responses than its mean length allows",
    )
}
