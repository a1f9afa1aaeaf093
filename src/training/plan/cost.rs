//! Seconds and bytes of a run: its counts times what the probe measured of a token.

use crate::algorithm::Kl;
use crate::experiment::Experiment;
use crate::training::plan::work::PlanWork;
use crate::training::{PlanPrompts, Rates};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Seconds and bytes under one assumption about responses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostEstimate {
    /// Assumed mean length of responses.
    pub response_tokens_mean: f64,
    /// Response tokens of training and evaluation.
    pub response_tokens: f64,
    /// Phase → seconds, with `total`. Grading and files are not counted.
    pub seconds: BTreeMap<String, f64>,
    pub disk_bytes: f64,
}

impl CostEstimate {
    /// With so many generation rounds a step and responses of so many tokens.
    pub fn new(
        experiment: &Experiment,
        work: &PlanWork,
        is_native: bool,
        rates: &Rates,
        prompts: &PlanPrompts,
        rounds_per_step: f64,
        tokens: f64,
    ) -> Self {
        let rollouts = work.rollouts.least / work.rounds_per_step.least.max(f64::MIN_POSITIVE)
            * rounds_per_step;
        let evaluated = (work.dev_responses as f64 + work.test_responses as f64) * tokens;
        let read = work.trained_rollouts as f64 * (prompts.mean_tokens + tokens);
        let epochs = experiment.training.epochs_per_step as f64;
        // π_old reads every trained token, unless the sampler said it, and so does π_ref of a KL
        // penalty.
        let old = f64::from(!(is_native && experiment.rollout.says_as_trained()));
        let frozen = old + f64::from(experiment.dapo.kl != Kl::None {});
        let phases = [
            ("generation", rollouts * tokens * rates.generation_token_seconds),
            ("old_log_probs", read * frozen * rates.old_log_probs_token_seconds),
            (
                "update",
                read * epochs * rates.update_token_seconds
                    + work.updates as f64 * rates.optimizer_seconds,
            ),
            ("evaluation", evaluated * rates.generation_token_seconds),
        ];
        let total = phases.iter().map(|(_, seconds)| seconds).sum();
        let named = |(name, seconds): (&str, f64)| (name.to_string(), seconds);
        Self {
            response_tokens_mean: tokens,
            response_tokens: rollouts * tokens + evaluated,
            seconds: phases.into_iter().chain([("total", total)]).map(named).collect(),
            disk_bytes: rollouts * tokens * rates.rollout_token_bytes
                + evaluated * rates.outcome_token_bytes
                + work.kept_checkpoints as f64 * rates.checkpoint_bytes,
        }
    }
}
