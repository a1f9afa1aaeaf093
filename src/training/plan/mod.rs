//! Before a run: what it will do, how long it will take and how much it needs; after it: what
//! of that came true.
//!
//! ```text
//! work ── counts: data → generation rounds → rollout steps → updates
//! probe ─ one batch with the run's own model → what a token takes
//! cost, space ── seconds, memory, disk
//! actual ── the same counts and seconds, read from a run folder
//! ```
//!
//! Nothing here reaches a number of the run.

pub mod work;
pub mod machine;
pub mod phases;
pub mod probe;
pub mod cost;
pub mod space;
pub mod warnings;
pub mod actual;

use crate::base::files;
use crate::experiment::{Experiment, PromptTemplate};
use crate::task::prompt;
use crate::training::plan::work::PlanWork;
use crate::training::run::inputs::Inputs;
use crate::training::{
    Actual, CostEstimate, Disk, PlanMemory, ProbeBudget, Range, Severity, TrainingError,
    TrialProbe, Warning, WorkSizes,
};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A plan in a run folder, outside every comparison.
pub const FILE: &str = "plan.json";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRecord {
    pub plan: RunPlan,
    /// Read after it; `None` while it goes on.
    pub actual: Option<Actual>,
}

/// Everything that is known before a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunPlan {
    pub name: String,
    /// The run's key: a plan belongs to one run.
    pub run_key: String,
    pub seed: u64,
    /// Threads of LibTorch.
    pub threads: u64,
    pub prompts: PlanPrompts,
    pub work: PlanWork,
    pub probe: Option<TrialProbe>,
    pub estimates: Option<Estimates>,
    pub memory: PlanMemory,
    pub disk: Disk,
    pub warnings: Vec<Warning>,
}

/// Token lengths of the training prompts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanPrompts {
    pub mean_tokens: f64,
    pub longest_tokens: u64,
    /// The token with which the chat template ends a turn, where it does not stop a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unstopped_end_of_turn: Option<String>,
}

/// Seconds and bytes under two assumptions. No estimate can know how training will change the
/// length of responses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimates {
    /// Every response as long as the base policy's in the probe, and as many groups useful.
    pub expected: CostEstimate,
    /// Every response runs to L_max and every step to its cap of rounds.
    pub bound: CostEstimate,
}

impl RunPlan {
    /// No finding forbids the run.
    pub fn can_start(&self) -> bool {
        self.warnings.iter().all(|warning| warning.severity == Severity::Warning)
    }
}

/// Plans a run that writes to `folder`, which need not exist. With a budget a probe runs; not when the
/// counts alone forbid the run.
///
/// # Errors
/// What would also stop the run: a prompt that cannot be tokenized, the model, a folder that
/// cannot be written.
pub fn make(
    inputs: &Inputs,
    folder: &Path,
    probe: Option<ProbeBudget>,
) -> Result<RunPlan, TrainingError> {
    let sizes = WorkSizes::of(&inputs.data);
    let prompts = prompts(inputs)?;
    let assembled = |probe: Option<TrialProbe>| assemble(inputs, &sizes, &prompts, probe, folder);
    let counted = assembled(None);
    match probe.filter(|_| counted.can_start()) {
        Some(budget) => Ok(assembled(Some(probe::measure(inputs, folder, budget)?))),
        None => Ok(counted),
    }
}

fn prompts(inputs: &Inputs) -> Result<PlanPrompts, TrainingError> {
    /// More problems than this are not tokenized before a run.
    const MOST: usize = 200_000;
    let template = inputs.experiment.prompt.template;
    let (mut sum, mut longest) = (0u64, 0);
    let checked = inputs.data.train.len().min(MOST);
    for problem in &inputs.data.train[..checked] {
        let made = prompt::prompt(problem, template, &inputs.tokenizer, u64::MAX)?;
        let tokens = made.tokens.len() as u64;
        sum += tokens;
        longest = longest.max(tokens);
    }
    let mean_tokens = sum as f64 / checked.max(1) as f64;
    let unstopped = match template {
        PromptTemplate::Question | PromptTemplate::Dapo => None,
        PromptTemplate::Chat | PromptTemplate::DapoChat => {
            inputs.tokenizer.unstopped_end_of_turn()?
        }
    };
    let unstopped_end_of_turn = unstopped.map(|(id, token)| format!("{token} ({id})"));
    Ok(PlanPrompts { mean_tokens, longest_tokens: longest, unstopped_end_of_turn })
}

fn assemble(
    inputs: &Inputs,
    sizes: &WorkSizes,
    prompts: &PlanPrompts,
    probe: Option<TrialProbe>,
    folder: &Path,
) -> RunPlan {
    let (experiment, config) = (&inputs.experiment, &inputs.config);
    let work = PlanWork::new(experiment, sizes, rounds_per_step(experiment, probe.as_ref()));
    let checkpoint_bytes = phases::checkpoint_bytes(config);
    let is_native = !phases::are_stored(experiment, config);
    let estimate = |probe| estimates(experiment, &work, is_native, probe, prompts);
    let estimates = probe.as_ref().map(estimate);
    let checkpoints = work.kept_checkpoints as f64 * checkpoint_bytes;
    let bytes = |of: fn(&Estimates) -> &CostEstimate| {
        estimates.as_ref().map_or(checkpoints, |estimates| of(estimates).disk_bytes)
    };
    let mut plan = RunPlan {
        name: experiment.name.clone(),
        run_key: inputs.manifest.run_key.clone(),
        seed: experiment.execution.seed,
        threads: experiment.execution.threads,
        prompts: prompts.clone(),
        memory: space::memory(experiment, config, prompts, &work, probe.as_ref()),
        disk: Disk {
            needed_bytes: bytes(|estimates| &estimates.expected),
            most_bytes: bytes(|estimates| &estimates.bound),
            checkpoint_bytes,
            free_bytes: files::free_bytes(folder).ok().map(|bytes| bytes as f64),
        },
        work,
        probe,
        estimates,
        warnings: Vec::new(),
    };
    plan.warnings = warnings::of(&plan, experiment);
    plan
}

/// Dynamic Sampling needs as many times the rounds as groups of the probe to one useful group.
fn rounds_per_step(experiment: &Experiment, probe: Option<&TrialProbe>) -> Range {
    let bounds = work::rounds_without_probe(experiment);
    let (Some(probe), None) = (probe, bounds.expected) else { return bounds };
    let needed = bounds.least / probe.useful_share;
    let expected = bounds.most.map_or(needed, |most| needed.min(most));
    Range { expected: expected.is_finite().then_some(expected), ..bounds }
}

fn estimates(
    experiment: &Experiment,
    work: &PlanWork,
    is_native: bool,
    probe: &TrialProbe,
    prompts: &PlanPrompts,
) -> Estimates {
    let rounds = work.rounds_per_step;
    let estimate = |rounds, tokens| {
        CostEstimate::new(experiment, work, is_native, &probe.rates, prompts, rounds, tokens)
    };
    let longest = experiment.rollout.max_response_tokens as f64;
    Estimates {
        expected: estimate(rounds.best(), probe.response_tokens_mean),
        bound: estimate(rounds.most.unwrap_or(rounds.best()), longest),
    }
}

#[cfg(test)]
mod tests;
