//! Peak memory and disk of a run, in bytes.

use crate::algorithm::Kl;
use crate::base::files;
use crate::experiment::{Device, Experiment};
use crate::numerics::Numerics;
use crate::policy::{Config, checkpoint, model::native};
use crate::training::plan::phases::{self, F32, PlanSizes};
use crate::training::plan::work::PlanWork;
use crate::training::{Parts, PlanPrompts, TrialProbe, machine};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanMemory {
    pub needed_bytes: f64,
    /// Counted from shapes; activations by a rough formula. Of a policy held as stored, the parts of the largest phase.
    pub parts: BTreeMap<String, f64>,
    /// Only for a policy held as stored.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub phases: BTreeMap<String, f64>,
    /// Memory still available, and what the process holds now; `None` where unknown.
    pub available_bytes: Option<f64>,
}

/// `process_bytes`: before the process loads the policy.
pub fn memory(
    experiment: &Experiment,
    config: &Config,
    prompts: &PlanPrompts,
    process_bytes: u64,
    rows: u64,
) -> PlanMemory {
    let by_phase = if phases::are_stored(experiment, config) {
        phases::of(experiment, config, prompts, rows)
    } else {
        BTreeMap::new()
    };
    let sum = |parts: &Parts| parts.values().sum::<f64>();
    let largest = by_phase.values().max_by(|a, b| sum(a).total_cmp(&sum(b))).cloned();
    let parts = largest
        .unwrap_or_else(|| parts(PlanSizes::new(experiment, config, prompts), process_bytes, rows));
    PlanMemory {
        needed_bytes: sum(&parts),
        parts,
        phases: by_phase.iter().map(|(phase, parts)| (phase.clone(), sum(parts))).collect(),
        available_bytes: available(experiment.execution.device.unwrap_or_default()),
    }
}

/// Still available, and what the process holds now.
fn available(device: Device) -> Option<f64> {
    match device {
        Device::Cpu => {
            let now = machine::process_bytes("VmRSS").unwrap_or(0);
            machine::available_memory_bytes().map(|bytes| (bytes + now) as f64)
        }
        Device::Cuda(card) => machine::card_memory_bytes(card).map(|bytes| bytes as f64),
    }
}

/// The native engine needs the larger of an update's passes and the optimizer's work.
fn parts(sizes: PlanSizes, process_bytes: u64, rows: u64) -> Parts {
    let PlanSizes { experiment, prompts, response, vocabulary, hidden, .. } = sizes;
    let PlanSizes { inner, layers, queries, keys, parameters, .. } = sizes;
    let weights = F32 * parameters;
    let (rows_of_a_prompt, width) = match experiment.numerics {
        Numerics::Exact => (1.0, 2.0 * F32),
        Numerics::Fast => (experiment.rollout.group_size as f64, F32),
    };
    let prompt = prompts.longest_tokens as f64;
    let cache = width * 2.0 * layers * rows as f64 * keys * (prompt + response);
    // Small policy: each thread has its own sequence (fast: a group with its prompt once). Large: threads share a pass.
    let of_a_pass = if parameters < native::LARGE as f64 {
        experiment.execution.threads as f64 * (prompt + rows_of_a_prompt * response)
    } else {
        experiment.execution.tokens_of_a_pass() as f64
    };
    let rollouts = experiment.training.mini_batch_rollouts as f64;
    let tokens = of_a_pass.min(rollouts * (prompt + response)).max(prompt + response);
    // Normed rows twice, queries, keys and values, their mixture, gates and what they gate.
    let token = layers * (2.0 * hidden + 2.0 * queries + 2.0 * keys + 2.0 * inner);
    let activations = width * tokens * (token + 6.0 * inner);
    let targets = (tokens * response / (prompt + response)).min(512.0);
    let logits = width * targets * vocabulary;
    // The weights as plain values, gradients in f32 beside their sums, the largest of them in f64.
    let update = 2.0 * weights + 2.0 * F32 * vocabulary * hidden;
    let (activations, logits, update) =
        if activations + logits > update { (activations, logits, 0.0) } else { (0.0, 0.0, update) };
    let reference = if experiment.dapo.kl == (Kl::None {}) { 0.0 } else { 2.0 * weights };
    [
        ("process", process_bytes as f64),
        ("records", RECORDS_BYTES),
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// With the probe's lengths; without a probe no response.
    pub needed_bytes: f64,
    /// With every response at L_max and every step at its cap.
    pub most_bytes: f64,
    /// Weights and two moments.
    pub checkpoint_bytes: f64,
    /// This user's free space at the run's place; `None` where unknown.
    pub free_bytes: Option<f64>,
}

pub fn disk(
    experiment: &Experiment,
    config: &Config,
    work: &PlanWork,
    probe: Option<&TrialProbe>,
    folder: &Path,
) -> Disk {
    let checkpoint_bytes = phases::checkpoint_bytes(config);
    let checkpoints = work.checkpoints.min(work.kept_checkpoints.saturating_add(1)) as f64;
    let beside = checkpoints * (checkpoint_bytes + companion_bytes(experiment, config))
        + work.rollout_steps as f64 * STEP_BYTES
        + work.evaluations as f64 * EVALUATION_BYTES
        + REPORT_BYTES;
    let bytes = |rounds: f64, response_tokens: f64| {
        let rollouts =
            work.rollouts.least / work.rounds_per_step.least.max(f64::MIN_POSITIVE) * rounds;
        let evaluated = work.dev_responses as f64 + work.test_responses as f64;
        let tables = rollouts * ROLLOUT_TOKEN_BYTES + evaluated * OUTCOME_TOKEN_BYTES;
        response_tokens * tables + beside
    };
    let rounds = work.rounds_per_step;
    let longest = experiment.rollout.max_response_tokens as f64;
    let as_sampled = probe.map_or(0.0, |probe| probe.response_tokens_mean);
    Disk {
        needed_bytes: bytes(rounds.best(), as_sampled),
        most_bytes: bytes(rounds.most.unwrap_or(rounds.best()), longest),
        checkpoint_bytes,
        free_bytes: files::free_bytes(folder).ok().map(|bytes| bytes as f64),
    }
}

/// Tokenizer and configuration, and what safetensors says of each tensor, three times.
fn companion_bytes(experiment: &Experiment, config: &Config) -> f64 {
    let folder = &experiment.inputs.model;
    let names = checkpoint::COMPANIONS.iter();
    let bytes: u64 = names.filter_map(|name| files::file_bytes(&folder.join(name)).ok()).sum();
    (bytes + 3 * 128 * config.tensor_shapes().len() as u64) as f64
}

/// What tables, report and threads take beside the process that has loaded nothing: 10 to 60 MB were measured.
const RECORDS_BYTES: f64 = 5e7;

const REPORT_BYTES: f64 = 5e5;
/// Lines of metrics, ledger and timings (6 kB), the footer of a table of rollouts (10 kB), curves in the report (16 kB).
const STEP_BYTES: f64 = 32e3;
const EVALUATION_BYTES: f64 = 5e3;
/// A response token takes 7 to 12 in rollouts of the embedded benchmark.
const ROLLOUT_TOKEN_BYTES: f64 = 12.0;
/// A response token takes 1 to 3 in outcomes of the embedded benchmark.
const OUTCOME_TOKEN_BYTES: f64 = 3.0;
