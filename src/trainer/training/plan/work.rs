//! Arithmetic: data → generation rounds → rollout steps → updates. Large counts saturate instead of overflowing.

use crate::algorithm::{DynamicSampling, Surplus};
use crate::experiment::{Experiment, sets};
use crate::task::DataSets;
use crate::training::trainer;
use serde::{Deserialize, Serialize};

/// A count that training decides.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    pub least: f64,
    /// From the base policy; `None` without a probe or an expectation.
    pub expected: Option<f64>,
    /// `None` without a bound.
    pub most: Option<f64>,
}

impl Range {
    pub fn exactly(value: f64) -> Self {
        Self { least: value, expected: Some(value), most: Some(value) }
    }

    pub fn times(self, factor: f64) -> Self {
        Self {
            least: self.least * factor,
            expected: self.expected.map(|value| value * factor),
            most: self.most.map(|value| value * factor),
        }
    }

    /// The expectation, else the least.
    pub fn best(self) -> f64 {
        self.expected.unwrap_or(self.least)
    }
}

/// Clocks: `generation_rounds`, `rollout_steps` and `updates` (the paper's x-axis).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanWork {
    pub problems: u64,
    /// Clock 2: full batches trained on.
    pub rollout_steps: u64,
    /// Clock 3: optimiser steps; at most, when a step may train on fewer groups.
    pub updates: u64,
    pub updates_per_step: u64,
    /// Clock 1: sampled batches of prompts, refill rounds included.
    pub generation_rounds: Range,
    pub rounds_per_step: Range,
    pub prompts_drawn: Range,
    pub epochs_over_data: Range,
    /// Sampled for training.
    pub rollouts: Range,
    /// Once for each epoch of a step.
    pub trained_rollouts: u64,
    pub evaluations: u64,
    pub dev_responses: u64,
    /// Sum over all evaluations and test sets.
    pub test_responses: u64,
    pub checkpoints: u64,
    pub kept_checkpoints: u64,
}

/// A run writes one at every interval, and at the end.
pub fn checkpoints(experiment: &Experiment) -> u64 {
    between(experiment.training.rollout_steps, experiment.checkpoints.every_steps) + 1
}

/// An upper bound at the end: the newest ones, and those of `keep_every`.
pub fn kept_checkpoints(experiment: &Experiment) -> u64 {
    let kept = experiment.checkpoints;
    let by_number = between(experiment.training.rollout_steps, kept.keep_every);
    checkpoints(experiment).min(kept.keep_last.saturating_add(by_number))
}

/// Multiples of `every` strictly between 0 and `steps`; none when `every` is 0.
fn between(steps: u64, every: u64) -> u64 {
    steps.saturating_sub(1).checked_div(every).unwrap_or(0)
}

/// A set is evaluated before training, at its interval, and at the end.
pub fn evaluations_of(experiment: &Experiment, set: &str) -> u64 {
    let Experiment { evaluation, training, .. } = experiment;
    let is_on_the_way = evaluation.during_training.iter().any(|it| it == set);
    let every = if is_on_the_way { evaluation.every_steps } else { 0 };
    between(training.rollout_steps, every).saturating_add(2)
}

/// The least is that of a policy with useful groups only.
pub fn rounds_without_probe(experiment: &Experiment) -> Range {
    let DynamicSampling::Resample { max_rounds, surplus, .. } = experiment.dapo.dynamic_sampling
    else {
        return Range::exactly(1.0);
    };
    let (target, round) =
        (experiment.training.prompts_per_step as f64, experiment.rollout.prompts_per_round as f64);
    let full = match surplus {
        Surplus::Discard => (target / round).ceil(),
        Surplus::Carry => (target / round).max(1.0),
    };
    let most = (max_rounds > 0).then_some(f64::from(max_rounds));
    Range { least: most.map_or(full, |most| full.min(most)), expected: None, most }
}

/// Responses that are generated at the same time: of a round or of the largest evaluation, at most a batch.
pub fn generated_rows(experiment: &Experiment, data: &DataSets) -> u64 {
    let round =
        trainer::prompts_per_round(experiment).saturating_mul(experiment.rollout.group_size);
    let evaluated = data.evaluated().map(|(set, problems)| {
        let samples = experiment.evaluation.samples.get(set).copied().unwrap_or(0);
        samples.saturating_mul(problems.len() as u64)
    });
    evaluated.fold(round, u64::max).min(experiment.execution.generation_batch_rollouts)
}

impl PlanWork {
    /// `rounds_per_step`: [`rounds_without_probe`], with the expectation from a probe if there is one.
    pub fn new(experiment: &Experiment, data: &DataSets, rounds_per_step: Range) -> Self {
        let Experiment { training, rollout, evaluation, .. } = experiment;
        let steps = training.rollout_steps;
        let step_rollouts = training.prompts_per_step.saturating_mul(rollout.group_size);
        let updates_per_step = step_rollouts
            .div_ceil(training.mini_batch_rollouts.max(1))
            .saturating_mul(training.epochs_per_step);
        let generation_rounds = rounds_per_step.times(steps as f64);
        let prompts_drawn = generation_rounds.times(trainer::prompts_per_round(experiment) as f64);
        let (mut evaluations, mut dev_responses, mut test_responses) = (0, 0, 0u64);
        for (set, problems) in data.evaluated() {
            let times = evaluations_of(experiment, set);
            let samples = evaluation.samples.get(set).copied().unwrap_or(0);
            let responses = times.saturating_mul(problems.len() as u64).saturating_mul(samples);
            evaluations = times.saturating_add(evaluations);
            if set == sets::DEV {
                dev_responses = responses;
            } else {
                test_responses = test_responses.saturating_add(responses);
            }
        }
        let problems = data.train.len() as u64;
        Self {
            problems,
            rollout_steps: steps,
            updates: updates_per_step.saturating_mul(steps),
            updates_per_step,
            generation_rounds,
            rounds_per_step,
            prompts_drawn,
            epochs_over_data: prompts_drawn.times(1.0 / problems.max(1) as f64),
            rollouts: prompts_drawn.times(rollout.group_size as f64),
            trained_rollouts: step_rollouts.saturating_mul(steps),
            evaluations,
            dev_responses,
            test_responses,
            checkpoints: checkpoints(experiment),
            kept_checkpoints: kept_checkpoints(experiment),
        }
    }
}
