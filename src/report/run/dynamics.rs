//! The run over time: metrics, counters, and wall-clock time by phase.

use crate::records::{Counters, StepMetrics};
use crate::report::{RunReportLoaded, text};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownMetric {
    pub name: String,
    pub meaning: Option<&'static str>,
    /// (rollout step, value)
    pub first: (u64, f64),
    /// (rollout step, value)
    pub last: (u64, f64),
    pub low: f64,
    pub high: f64,
    /// (updates, value)
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunCounts {
    /// At the last recorded step.
    pub counters: Counters,
    /// Sampled for training, dropped groups included.
    pub generated_rollouts: Option<f64>,
    /// Response tokens sampled for training.
    pub generated_tokens: Option<f64>,
    pub trained_rollouts: Option<f64>,
    /// Summed over steps, largest first; without `total`.
    pub seconds_by_phase: Vec<(String, f64)>,
    pub seconds: Option<f64>,
}

const MEANINGS: [(&str, &str); 34] = [
    ("rollout/reward_mean", "shaped reward, all generated rollouts"),
    ("train/reward_mean", "shaped reward, the batch after filtering"),
    ("rollout/accuracy", "share correct, all generated rollouts"),
    ("train/accuracy", "share correct, the batch after filtering"),
    ("rollout/response_tokens_mean", "mean response length, all generated"),
    ("train/response_tokens_mean", "mean response length after filtering"),
    ("rollout/truncated_share", "responses cut at L_max"),
    ("rollout/groups_useful_share", "groups neither all correct nor all wrong"),
    ("rollout/groups_all_correct_share", "groups with accuracy 1"),
    ("rollout/groups_all_wrong_share", "groups with accuracy 0"),
    ("rollout/rounds", "generation rounds of one step"),
    ("rollout/overlong_penalty_mean", "mean penalty of Eq. 13"),
    ("effect/soft_punishment_punished_rollouts", "responses with a length penalty"),
    ("effect/soft_punishment_moved_advantages", "trained advantages that the penalty moved"),
    ("effect/overlong_filtering_masked_rollouts", "rollouts of the batch outside the loss"),
    ("effect/dynamic_sampling_dropped_all_correct_groups", "groups dropped as solved"),
    ("effect/dynamic_sampling_dropped_all_wrong_groups", "groups dropped as failed"),
    ("effect/dynamic_sampling_batch_filled_share", "groups of the batch over prompts_per_step"),
    ("effect/token_level_loss_moved_share_mean", "loss weight moved from the response mean"),
    ("effect/token_level_loss_longest_quarter_weight", "longest quarter, over response mean"),
    ("effect/token_level_loss_shortest_quarter_weight", "shortest quarter, over response mean"),
    ("policy/rollout_entropy", "nats a token, all rollouts"),
    ("policy/entropy", "nats a token, batch"),
    ("policy/rollout_token_probability_mean", "probability of the sampled token, all rollouts"),
    ("policy/token_probability_mean", "probability of the sampled token, batch"),
    ("policy/mismatch_max", "largest |sampler − trainer| log-prob"),
    ("loss/clip_fraction_low", "tokens clipped from below"),
    ("loss/clip_fraction_high", "tokens clipped from above"),
    ("effect/clip_higher_let_through_share", "tokens between the two upper bounds"),
    ("loss/up_clipped_probability_mean", "mean probability of up-clipped tokens"),
    ("loss/approx_kl", "approximate KL to π_old"),
    ("optimizer/gradient_norm_mean", "before clipping"),
    ("optimizer/clipped_updates_share", "updates with a clipped gradient"),
    ("optimizer/learning_rate", "at the step"),
];

/// Main metrics in pipeline order, then the rest by name.
pub fn rows(metrics: &[StepMetrics]) -> Vec<ShownMetric> {
    let rank = |name: &str| MEANINGS.iter().position(|(known, _)| *known == name);
    let names = metrics.iter().flat_map(|step| step.metrics.keys());
    let names: BTreeSet<(usize, &String)> =
        names.map(|name| (rank(name).unwrap_or(usize::MAX), name)).collect();
    let row = |name: &str| {
        let recorded: Vec<(u64, f64)> =
            metrics.iter().filter_map(|step| Some((step.step, *step.metrics.get(name)?))).collect();
        let (low, high) = text::range(recorded.iter().map(|(_, value)| *value));
        Some(ShownMetric {
            name: text::visible(name),
            meaning: rank(name).map(|index| MEANINGS[index].1),
            first: *recorded.first()?,
            last: *recorded.last()?,
            low,
            high,
            points: curve(metrics, name),
        })
    };
    names.into_iter().filter_map(|(_, name)| row(name)).collect()
}

/// (updates, value)
pub fn curve(metrics: &[StepMetrics], name: &str) -> Vec<(f64, f64)> {
    metrics
        .iter()
        .filter_map(|step| Some((step.counters.updates as f64, *step.metrics.get(name)?)))
        .collect()
}

/// `None` when no step recorded the metric.
pub fn sum(metrics: &[StepMetrics], name: &str) -> Option<f64> {
    let values: Vec<f64> = curve(metrics, name).into_iter().map(|point| point.1).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

pub fn counts(loaded: &RunReportLoaded) -> RunCounts {
    let mut phases: BTreeMap<&str, f64> = BTreeMap::new();
    for step in &loaded.timings {
        for (phase, seconds) in &step.seconds {
            *phases.entry(phase).or_default() += seconds;
        }
    }
    let total = phases.remove("total");
    let mut by_phase: Vec<(String, f64)> =
        phases.into_iter().map(|(phase, seconds)| (text::visible(phase), seconds)).collect();
    by_phase.sort_by(|a, b| b.1.total_cmp(&a.1));
    let ended = loaded.outcome.as_ref().map(|outcome| outcome.counters);
    let recorded = loaded.metrics.last().map(|step| step.counters);
    let named = by_phase.iter().map(|(_, seconds)| seconds).sum();
    RunCounts {
        counters: ended.or(recorded).unwrap_or_default(),
        generated_rollouts: sum(&loaded.metrics, "rollout/generated_rollouts"),
        generated_tokens: sum(&loaded.metrics, "rollout/generated_tokens"),
        trained_rollouts: sum(&loaded.metrics, "train/rollouts"),
        seconds: total.or((!by_phase.is_empty()).then_some(named)),
        seconds_by_phase: by_phase,
    }
}
