//! The cost model: seconds as a function of decode iterations, tokens, passes and files.

use crate::algorithm::Kl;
use crate::experiment::{Experiment, sets};
use crate::training::plan::lengths::Pass;
use crate::training::plan::work::{self, Work};
use crate::training::{Lengths, Sizes, trainer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What generating responses takes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecodeRate {
    /// Of one decode iteration, whatever the batch.
    pub iteration_seconds: f64,
    /// Of one response token on top.
    pub token_seconds: f64,
}

/// What forward (and backward) passes over micro-batches take.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassRate {
    /// Of one micro-batch, whatever its size.
    pub micro_batch_seconds: f64,
    /// Of one computed token on top.
    pub token_seconds: f64,
    /// Share of the padding that is computed: 1 when every row is as long as the longest of
    /// its micro-batch, 0 when padding costs nothing.
    pub padding_share: f64,
}

impl PassRate {
    /// Seconds of a pass.
    pub fn seconds(&self, pass: &Pass) -> f64 {
        let computed = pass.tokens + self.padding_share * (pass.padded_tokens - pass.tokens);
        pass.micro_batches * self.micro_batch_seconds + computed * self.token_seconds
    }
}

/// What writing tables takes, digest included.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableRate {
    /// Of one file, whatever is in it.
    pub file_seconds: f64,
    /// Of one row on top.
    pub row_seconds: f64,
    /// Bytes of one file without rows.
    pub file_bytes: f64,
    /// Bytes of one row without tokens.
    pub row_bytes: f64,
    /// Bytes of one response token.
    pub token_bytes: f64,
}

impl TableRate {
    /// Bytes of `files` files with so many rows and tokens.
    pub fn bytes(&self, files: f64, rows: f64, tokens: f64) -> f64 {
        files * self.file_bytes + rows * self.row_bytes + tokens * self.token_bytes
    }
}

/// Everything that the probe measured about speed.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rates {
    /// Generation with the training's sampling.
    pub generation: DecodeRate,
    /// Generation with the evaluation's sampling.
    pub evaluation: DecodeRate,
    /// Decoding to text and grading one response.
    pub grading_response_seconds: f64,
    /// Forward passes of frozen weights.
    pub old_log_probs: PassRate,
    /// Forward and backward passes.
    pub update: PassRate,
    /// Gradient norm, AdamW and writing the weights back, for one update.
    pub optimizer_seconds: f64,
    /// Writing one checkpoint with its digests.
    pub checkpoint_seconds: f64,
    /// Bytes of one checkpoint: weights, moments, companions.
    pub checkpoint_bytes: f64,
    /// Tables of rollouts.
    pub rollout_table: TableRate,
    /// Tables of evaluation outcomes.
    pub evaluation_table: TableRate,
}

/// Tokens, passes and files: what a run does, in the cost model's terms.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    /// Decode iterations of training generation.
    pub iterations: f64,
    /// Response tokens of training rollouts.
    pub tokens: f64,
    /// Training rollouts.
    pub rollouts: f64,
    /// Rollout steps: files of rollouts.
    pub steps: f64,
    /// Passes of frozen weights.
    pub old_log_probs: Pass,
    /// Forward and backward passes.
    pub update: Pass,
    /// Optimiser steps.
    pub updates: f64,
    /// Decode iterations of evaluations.
    pub evaluation_iterations: f64,
    /// Response tokens of evaluations.
    pub evaluation_tokens: f64,
    /// Responses of evaluations.
    pub evaluation_responses: f64,
    /// Evaluated sets: files of outcomes.
    pub evaluation_files: f64,
    /// Checkpoints written.
    pub checkpoints: f64,
    /// Those that stand at the end.
    pub kept_checkpoints: f64,
}

/// The phases of a run that `timings.jsonl` names, and what is left of a step's total.
pub const PHASES: [&str; 7] =
    ["generation", "grading", "old_log_probs", "update", "evaluation", "checkpoint", "tables"];

impl Rates {
    /// Seconds of each phase, and of all of them as `total`.
    pub fn seconds(&self, load: &Load) -> BTreeMap<String, f64> {
        let decode = |rate: &DecodeRate, iterations: f64, tokens: f64| {
            iterations * rate.iteration_seconds + tokens * rate.token_seconds
        };
        let table = |rate: &TableRate, files: f64, rows: f64| {
            files * rate.file_seconds + rows * rate.row_seconds
        };
        let grading = |responses: f64| responses * self.grading_response_seconds;
        let evaluation =
            decode(&self.evaluation, load.evaluation_iterations, load.evaluation_tokens)
                + grading(load.evaluation_responses)
                + table(&self.evaluation_table, load.evaluation_files, load.evaluation_responses);
        let seconds = [
            decode(&self.generation, load.iterations, load.tokens),
            grading(load.rollouts),
            self.old_log_probs.seconds(&load.old_log_probs),
            self.update.seconds(&load.update) + load.updates * self.optimizer_seconds,
            evaluation,
            load.checkpoints * self.checkpoint_seconds,
            table(&self.rollout_table, load.steps, load.rollouts),
        ];
        let total = ("total".to_string(), seconds.iter().sum());
        PHASES.iter().map(|name| name.to_string()).zip(seconds).chain([total]).collect()
    }

    /// The same work when it takes `factor` times as long. What waits for the disk stays.
    pub fn slowed(mut self, factor: f64) -> Self {
        for rate in [&mut self.generation, &mut self.evaluation] {
            rate.iteration_seconds *= factor;
            rate.token_seconds *= factor;
        }
        for rate in [&mut self.old_log_probs, &mut self.update] {
            rate.micro_batch_seconds *= factor;
            rate.token_seconds *= factor;
        }
        self.grading_response_seconds *= factor;
        self.optimizer_seconds *= factor;
        self
    }

    /// Bytes that a run writes and keeps: tables and checkpoints. Records of a few kilobytes a
    /// step are not counted.
    pub fn bytes(&self, load: &Load) -> f64 {
        self.rollout_table.bytes(load.steps, load.rollouts, load.tokens)
            + self.evaluation_table.bytes(
                load.evaluation_files,
                load.evaluation_responses,
                load.evaluation_tokens,
            )
            + load.kept_checkpoints * self.checkpoint_bytes
    }
}

/// How long responses are taken to be.
#[derive(Debug, Clone, Copy)]
pub struct Scenario<'a> {
    /// Generation rounds of the whole run.
    pub rounds: f64,
    /// Of training rollouts.
    pub training: &'a Lengths,
    /// Of evaluation responses of the base policy.
    pub evaluation_base: &'a Lengths,
    /// Of evaluation responses once training has begun.
    pub evaluation_trained: &'a Lengths,
    /// Mean prompt length in tokens.
    pub prompt_tokens: f64,
}

impl Load {
    /// The load of a planned run under a scenario.
    pub fn planned(
        experiment: &Experiment,
        sizes: &Sizes,
        work: &Work,
        scenario: &Scenario,
    ) -> Self {
        let execution = &experiment.execution;
        let batch = execution.generation_batch_rollouts as f64;
        let round_rollouts =
            trainer::prompts_per_round(experiment) as f64 * experiment.rollout.group_size as f64;
        let rollouts = scenario.rounds * round_rollouts;
        let micro = execution.micro_batch_rollouts;
        let step_rollouts =
            experiment.training.prompts_per_step.saturating_mul(experiment.rollout.group_size);
        let pass = |rows: u64| scenario.training.pass(rows, scenario.prompt_tokens, micro);
        let (steps, updates) = (work.rollout_steps as f64, work.updates as f64);
        let frozen_policies = frozen_policies(experiment);
        let mut load = Self {
            iterations: scenario.rounds * scenario.training.iterations(round_rollouts, batch),
            tokens: rollouts * scenario.training.mean(),
            rollouts,
            steps,
            old_log_probs: pass(step_rollouts).repeated(steps * frozen_policies),
            update: pass(experiment.training.mini_batch_rollouts).repeated(updates),
            updates,
            checkpoints: work.checkpoints as f64,
            kept_checkpoints: work.kept_checkpoints as f64,
            ..Self::default()
        };
        let samples = |set: &str| experiment.evaluation.samples.get(set).copied().unwrap_or(0);
        let mut evaluate_so_often = |responses: f64, lengths: &Lengths, times: f64| {
            load.evaluation_iterations += times * lengths.iterations(responses, batch);
            load.evaluation_tokens += times * responses * lengths.mean();
            load.evaluation_responses += times * responses;
            load.evaluation_files += times;
        };
        let mut evaluate = |name: &str, problems: u64| {
            let responses = problems as f64 * samples(name) as f64;
            let trained = work::evaluations_of(experiment, name) as f64 - 1.0;
            evaluate_so_often(responses, scenario.evaluation_base, 1.0);
            evaluate_so_often(responses, scenario.evaluation_trained, trained);
        };
        evaluate(sets::DEV, sizes.dev);
        for (name, problems) in &sizes.tests {
            evaluate(name, *problems);
        }
        load
    }
}

/// Frozen policies that read every trained token: π_old, and π_ref of a KL penalty.
pub fn frozen_policies(experiment: &Experiment) -> f64 {
    match experiment.dapo.kl {
        Kl::None {} => 1.0,
        Kl::Penalty { .. } => 2.0,
    }
}

/// Non-negative (a, b) that minimise Σ ((a x + b y − t) / t)² over points [x, y, t], t > 0.
pub fn fit(points: &[[f64; 3]]) -> (f64, f64) {
    let scaled: Vec<(f64, f64)> =
        points.iter().filter(|[_, _, t]| *t > 0.0).map(|[x, y, t]| (x / t, y / t)).collect();
    let sum = |of: &dyn Fn(f64, f64) -> f64| scaled.iter().map(|&(x, y)| of(x, y)).sum::<f64>();
    let (xx, xy, yy) = (sum(&|x, _| x * x), sum(&|x, y| x * y), sum(&|_, y| y * y));
    let (x, y) = (sum(&|x, _| x), sum(&|_, y| y));
    let alone = |total: f64, square: f64| if square > 0.0 { total / square } else { 0.0 };
    let determinant = xx * yy - xy * xy;
    // Points on one ray do not tell the two apart.
    if determinant > 1e-9 * xx * yy {
        let (a, b) = ((x * yy - y * xy) / determinant, (y * xx - x * xy) / determinant);
        if a >= 0.0 && b >= 0.0 {
            return (a, b);
        }
    }
    let (a, b) = (alone(x, xx), alone(y, yy));
    let error = |a: f64, b: f64| sum(&|x, y| (a * x + b * y - 1.0) * (a * x + b * y - 1.0));
    if error(a, 0.0) < error(0.0, b) { (a, 0.0) } else { (0.0, b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::prop_assert;
    use proptest::proptest;

    #[test]
    fn a_fit_recovers_what_made_the_points_and_is_never_negative() {
        let made = |x: f64, y: f64| [x, y, 0.002 * x + 3e-5 * y];
        let (a, b) = fit(&[made(160.0, 12e3), made(16.0, 3.5e3), made(100.0, 2e4)]);
        assert!((a - 0.002).abs() < 1e-9 && (b - 3e-5).abs() < 1e-12, "{a} {b}");
        let (a, b) = fit(&[[10.0, 100.0, 1.0], [1.0, 100.0, 1.2]]);
        assert!(a == 0.0 && b > 0.0, "{a} {b}");
        assert_eq!(fit(&[]), (0.0, 0.0));
    }

    #[test]
    fn padding_is_paid_as_far_as_it_is_computed() {
        let pass = Pass { micro_batches: 2.0, tokens: 100.0, padded_tokens: 140.0 };
        let rate = |padding_share| PassRate {
            micro_batch_seconds: 1.0,
            token_seconds: 0.1,
            padding_share,
        };
        assert_eq!(rate(0.0).seconds(&pass), 12.0);
        assert_eq!(rate(1.0).seconds(&pass), 16.0);
    }

    proptest! {
        #[test]
        fn more_of_anything_never_costs_less(
            rates in proptest::collection::vec(0.0f64..1.0, 12),
            counts in proptest::collection::vec(0.0f64..1e6, 12),
            more in 0usize..12,
        ) {
            let rates = Rates {
                generation: DecodeRate { iteration_seconds: rates[0], token_seconds: rates[1] },
                evaluation: DecodeRate { iteration_seconds: rates[2], token_seconds: rates[3] },
                grading_response_seconds: rates[4],
                optimizer_seconds: rates[5],
                checkpoint_seconds: rates[6],
                checkpoint_bytes: rates[7],
                rollout_table: TableRate { file_bytes: rates[8], row_bytes: rates[9],
                    token_bytes: rates[10], row_seconds: rates[11], file_seconds: rates[0] },
                ..Rates::default()
            };
            let load = |counts: &[f64]| Load {
                iterations: counts[0], tokens: counts[1], rollouts: counts[2], steps: counts[3],
                updates: counts[4], evaluation_iterations: counts[5],
                evaluation_tokens: counts[6], evaluation_responses: counts[7],
                evaluation_files: counts[8], checkpoints: counts[9],
                kept_checkpoints: counts[10], ..Load::default()
            };
            let mut larger = counts.clone();
            larger[more] += 1.0;
            let (one, two) = (load(&counts), load(&larger));
            prop_assert!(rates.seconds(&two)["total"] >= rates.seconds(&one)["total"]);
            prop_assert!(rates.bytes(&two) >= rates.bytes(&one));
        }
    }
}
