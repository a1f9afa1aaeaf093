//! Bytes: memory that a run needs at its peak, and disk that it fills.

use crate::algorithm::Kl;
use crate::experiment::{Device, Experiment};
use crate::policy::{Config, model::native};
use crate::training::plan::{machine, phases, phases::parameters, work::PlanWork};
use crate::training::{Parts, PlanPrompts, TrialProbe};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes of an f32.
const FLOAT: f64 = 4.0;

/// Peak memory of the process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanMemory {
    /// Estimate of the run's peak.
    pub needed_bytes: f64,
    /// The estimate is the peak of a probe with the run's batches; else the sum of `parts`.
    pub measured: bool,
    /// Part → bytes, counted from shapes; activations by a rough formula. Of a policy that is held
    /// as its checkpoint stores it, the parts of the phase that needs most.
    pub parts: BTreeMap<String, f64>,
    /// Of such a policy: phase → bytes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub phases: BTreeMap<String, f64>,
    /// What the process can still get, what it holds now included; `None` where the system
    /// does not say.
    pub available_bytes: Option<f64>,
}

/// Estimates the peak. A probe ran with the run's own batches, so its peak is the estimate; to
/// that comes what the probe did not hold.
pub fn memory(
    experiment: &Experiment,
    config: &Config,
    prompts: &PlanPrompts,
    work: &PlanWork,
    probe: Option<&TrialProbe>,
) -> PlanMemory {
    if phases::are_stored(experiment, config) {
        return by_phase(experiment, config, prompts);
    }
    let parts = match parameters(config) < native::LARGE as f64 {
        true => parts(experiment, config, prompts.longest_tokens as f64),
        false => large_parts(experiment, config, prompts.longest_tokens as f64),
    };
    let available_bytes = available(Device::Cpu);
    let peak = probe.and_then(|probe| {
        // A probe that was cut did not hold what a whole batch holds.
        probe.peak_memory_bytes.filter(|_| probe.cut_at_tokens.is_none())
    });
    let sum = parts.values().sum::<f64>();
    let needed_bytes = match peak {
        Some(peak) => {
            let lengths = probe.map_or(0.0, |probe| probe.response_tokens_mean);
            let round = work.rollouts.least / work.generation_rounds.least.max(1.0);
            peak as f64
                + parts.get("reference").copied().unwrap_or(0.0)
                + rollouts(round * work.rounds_per_step.best(), lengths)
        }
        None => sum,
    };
    let phases = BTreeMap::new();
    PlanMemory { needed_bytes, measured: peak.is_some(), parts, phases, available_bytes }
}

/// From shapes alone: a probe's peak would be that of its own short batches.
fn by_phase(experiment: &Experiment, config: &Config, prompts: &PlanPrompts) -> PlanMemory {
    let phases = phases::of(experiment, config, prompts);
    let sum = |parts: &Parts| parts.values().sum::<f64>();
    let most = phases.values().max_by(|a, b| sum(a).total_cmp(&sum(b)));
    let parts = most.cloned().unwrap_or_default();
    let needed_bytes = sum(&parts);
    let phases = phases.iter().map(|(phase, parts)| (phase.clone(), sum(parts))).collect();
    let available_bytes = available(experiment.execution.device.unwrap_or_default());
    PlanMemory { needed_bytes, measured: false, parts, phases, available_bytes }
}

/// What the process can still get where it computes, what it holds now included.
fn available(device: Device) -> Option<f64> {
    match device {
        Device::Cpu => {
            let now = machine::process_bytes("VmRSS").unwrap_or(0);
            machine::available_memory_bytes().map(|bytes| (bytes + now) as f64)
        }
        Device::Cuda(card) => machine::card_memory_bytes(card).map(|bytes| bytes as f64),
    }
}

/// The rollouts of a step as records: ids, f64 log-probs, text, and the table's copy of them.
fn rollouts(count: f64, tokens: f64) -> f64 {
    /// 4 + 8 bytes a token twice, and a byte of text three times.
    const TOKEN_BYTES: f64 = 27.0;
    count * tokens * TOKEN_BYTES
}

fn parts(experiment: &Experiment, config: &Config, prompt: f64) -> BTreeMap<String, f64> {
    let weights = FLOAT * parameters(config);
    let response = experiment.rollout.max_response_tokens as f64;
    let (layers, hidden) = (config.num_hidden_layers as f64, config.hidden_size as f64);
    let round = experiment.rollout.prompts_per_round.saturating_mul(experiment.rollout.group_size);
    let rows = round.min(experiment.execution.generation_batch_rollouts) as f64;
    let keys = (config.num_key_value_heads * config.head_dim) as f64;
    // The cache is copied when rows leave the batch.
    let cache = 2.0 * FLOAT * 2.0 * layers * rows * keys * (prompt + response);
    let micro =
        experiment.execution.micro_batch_rollouts.min(experiment.training.mini_batch_rollouts);
    // Saved for backward: about 14 values of the residual's width and 6 of the inner one.
    let token = layers * (14.0 * hidden + 6.0 * config.intermediate_size as f64)
        + 3.0 * config.vocab_size as f64;
    let activations = FLOAT * micro as f64 * (prompt + response) * token;
    let reference = if experiment.dapo.kl == (Kl::None {}) { 0.0 } else { weights };
    let now = machine::process_bytes("VmRSS").unwrap_or(0) as f64;
    [
        ("process", now),
        ("weights", weights),
        ("base_weights", weights),
        ("reference", reference),
        ("master_weights", weights),
        ("gradients", 2.0 * weights),
        ("moments", 2.0 * weights),
        ("kv_cache", cache),
        ("activations", activations),
    ]
    .map(|(name, bytes)| (name.to_string(), bytes))
    .into()
}

/// As [`parts`], of a policy whose threads share each operation of the native engine: the larger one of a
/// pass of an update and of the optimizer's work.
fn large_parts(experiment: &Experiment, config: &Config, prompt: f64) -> BTreeMap<String, f64> {
    let weights = FLOAT * parameters(config);
    let response = experiment.rollout.max_response_tokens as f64;
    let (layers, hidden) = (config.num_hidden_layers as f64, config.hidden_size as f64);
    let (inner, vocabulary) = (config.intermediate_size as f64, config.vocab_size as f64);
    let queries = (config.num_attention_heads * config.head_dim) as f64;
    let keys = (config.num_key_value_heads * config.head_dim) as f64;
    let round = experiment.rollout.prompts_per_round.saturating_mul(experiment.rollout.group_size);
    let rows = round.min(experiment.execution.generation_batch_rollouts) as f64;
    let cache = FLOAT * 2.0 * layers * rows * keys * (prompt + response);
    let rollouts = experiment.training.mini_batch_rollouts as f64;
    let tokens = (experiment.execution.tokens_of_a_pass() as f64)
        .min(rollouts * (prompt + response))
        .max(prompt + response);
    // Normed rows twice, queries, keys and values, their mixture, gates and what they gate.
    let token = layers * (2.0 * hidden + 2.0 * queries + 2.0 * keys + 2.0 * inner);
    let activations = FLOAT * tokens * (token + 6.0 * inner);
    let targets = (tokens * response / (prompt + response)).min(512.0);
    let logits = FLOAT * targets * vocabulary;
    // The weights as plain values, gradients in f32 beside their sums, the largest of them in f64.
    let update = 2.0 * weights + 2.0 * FLOAT * vocabulary * hidden;
    let (activations, logits, update) = match activations + logits > update {
        true => (activations, logits, 0.0),
        false => (0.0, 0.0, update),
    };
    let reference = if experiment.dapo.kl == (Kl::None {}) { 0.0 } else { 2.0 * weights };
    [
        ("process", machine::process_bytes("VmRSS").unwrap_or(0) as f64),
        ("weights", weights),
        ("matrices", weights),
        ("reference", reference),
        ("gradients", weights),
        ("moments", 2.0 * weights),
        ("kv_cache", cache),
        ("activations", activations),
        ("logits", logits),
        ("optimizer", update),
    ]
    .map(|(name, bytes)| (name.to_string(), bytes))
    .into()
}

/// What a run writes and keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// With responses of the stated length; without a probe the checkpoints alone.
    pub needed_bytes: f64,
    /// When every response runs to L_max and every step to its cap.
    pub most_bytes: f64,
    /// Bytes of one checkpoint: weights and two moments.
    pub checkpoint_bytes: f64,
    /// Free for this user where the run will write; `None` where the system does not say.
    pub free_bytes: Option<f64>,
}
