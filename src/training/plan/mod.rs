//! Before a run: what it will do, how long it will take and how much it needs; after it: what
//! of that came true.
//!
//! ```text
//! work ── counts: data → generation rounds → rollout steps → updates
//! probe ─ a few seconds with the run's own model and batches → rates, lengths, groups
//! forecast ── groups → kept share and refill rounds of Dynamic Sampling
//! cost, space ── seconds, memory, disk
//! actual ── the same counts and seconds, read from a run folder
//! ```
//!
//! Nothing here reaches a number of the run.

pub mod work;
pub mod forecast;
pub mod lengths;
pub mod machine;
pub mod cost;
pub mod probe;
pub mod phases;
pub mod space;
pub mod warnings;
pub mod actual;
#[cfg(test)]
mod tests;

use crate::algorithm::{DynamicSampling, Surplus};
use crate::base::files;
use crate::experiment::{Experiment, PromptTemplate};
use crate::task::prompt;
use crate::training::plan::probe::Measured;
use crate::training::plan::work::Work;
use crate::training::run::Error;
use crate::training::run::inputs::Inputs;
use crate::training::{
    Actual, Disk, Forecast, Lengths, Load, Memory, Probe, Range, Refill, Scenario, Severity, Sizes,
    Warning,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A plan in a run folder, outside every comparison.
pub const FILE: &str = "plan.json";

/// `plan.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Made before the run.
    pub plan: Plan,
    /// Read after it; `None` while it goes on.
    pub actual: Option<Actual>,
}

/// Everything that is known before a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The arm's name.
    pub name: String,
    /// The run's key: a plan belongs to one run.
    pub run_key: String,
    /// The run seed.
    pub seed: u64,
    /// Threads of LibTorch.
    pub threads: u64,
    /// Lengths of the training prompts.
    pub prompts: Prompts,
    /// Counts.
    pub work: Work,
    /// What was measured.
    pub probe: Option<Probe>,
    /// Kept share and refill rounds.
    pub forecast: Option<Forecast>,
    /// Time and disk.
    pub estimates: Option<Estimates>,
    /// Peak memory.
    pub memory: Memory,
    /// Bytes written.
    pub disk: Disk,
    /// What is wrong.
    pub warnings: Vec<Warning>,
}

/// Token lengths of the training prompts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prompts {
    /// Prompts that were looked at, from the first on.
    pub checked: u64,
    /// Mean.
    pub mean_tokens: f64,
    /// The longest.
    pub longest_tokens: u64,
    /// The token with which the chat template ends a turn, where it does not stop a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unstopped_end_of_turn: Option<String>,
}

/// Seconds and bytes under three assumptions about responses. No estimate can know how
/// training will change their length.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimates {
    /// Every response as long as the base policy's.
    pub base: Estimate,
    /// The stated estimate: training responses a quarter longer than the base policy's correct
    /// ones, which training makes more frequent and longer.
    pub point: Estimate,
    /// Every response runs to L_max and every step to its cap of rounds.
    pub bound: Estimate,
}

/// Seconds and bytes under one assumption.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    /// Assumed mean length of training responses.
    pub response_tokens_mean: f64,
    /// Training rollouts.
    pub rollouts: f64,
    /// Response tokens of training and evaluation.
    pub response_tokens: f64,
    /// Phase → seconds, with `total`.
    pub seconds: BTreeMap<String, f64>,
    /// Written to the run folder.
    pub disk_bytes: f64,
}

impl Plan {
    /// No finding forbids the run.
    pub fn can_start(&self) -> bool {
        self.warnings.iter().all(|warning| warning.severity == Severity::Warning)
    }
}

/// Plans a run that writes to `folder`, which need not exist. With `measure` a probe of a few
/// seconds runs; not when the counts alone forbid the run.
///
/// # Errors
/// What would also stop the run: a prompt that cannot be tokenized, the model, a folder that
/// cannot be written.
pub fn make(inputs: &Inputs, folder: &Path, measure: bool) -> Result<Plan, Error> {
    let sizes = Sizes::of(&inputs.data);
    let prompts = prompts(inputs)?;
    let assembled =
        |measured: Option<&Measured>| assemble(inputs, &sizes, &prompts, measured, folder);
    let counted = assembled(None);
    if !measure || !counted.can_start() {
        return Ok(counted);
    }
    Ok(assembled(Some(&probe::measure(inputs, folder)?)))
}

fn prompts(inputs: &Inputs) -> Result<Prompts, Error> {
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
    let (checked, mean_tokens) = (checked as u64, sum as f64 / checked.max(1) as f64);
    let unstopped = match template {
        PromptTemplate::Question | PromptTemplate::Dapo => None,
        PromptTemplate::Chat | PromptTemplate::DapoChat => {
            inputs.tokenizer.unstopped_end_of_turn()?
        }
    };
    let unstopped_end_of_turn = unstopped.map(|(id, token)| format!("{token} ({id})"));
    Ok(Prompts { checked, mean_tokens, longest_tokens: longest, unstopped_end_of_turn })
}

fn assemble(
    inputs: &Inputs,
    sizes: &Sizes,
    prompts: &Prompts,
    measured: Option<&Measured>,
    folder: &Path,
) -> Plan {
    let (experiment, config) = (&inputs.experiment, &inputs.config);
    let refill = refill(experiment);
    let forecast = measured
        .map(|measured| Forecast::new(&measured.correct, experiment.rollout.group_size, refill));
    let rounds = rounds_per_step(experiment, forecast.as_ref());
    let work = Work::new(experiment, sizes, rounds);
    let estimates = measured.map(|measured| {
        estimates(experiment, sizes, &work, forecast.as_ref(), measured, prompts.mean_tokens)
    });
    let memory = space::memory(experiment, config, prompts, &work, measured);
    let checkpoint_bytes = measured
        .map_or(space::checkpoint_bytes(config), |measured| measured.probe.rates.checkpoint_bytes);
    let checkpoints = work.kept_checkpoints as f64 * checkpoint_bytes;
    let bytes = |of: fn(&Estimates) -> &Estimate| {
        estimates.as_ref().map_or(checkpoints, |estimates| of(estimates).disk_bytes)
    };
    let mut plan = Plan {
        name: experiment.name.clone(),
        run_key: inputs.manifest.run_key.clone(),
        seed: experiment.execution.seed,
        threads: experiment.execution.threads,
        prompts: prompts.clone(),
        disk: Disk {
            needed_bytes: bytes(|estimates| &estimates.point),
            most_bytes: bytes(|estimates| &estimates.bound),
            checkpoint_bytes,
            free_bytes: files::free_bytes(folder).ok().map(|bytes| bytes as f64),
        },
        work,
        probe: measured.map(|measured| measured.probe.clone()),
        forecast,
        estimates,
        memory,
        warnings: Vec::new(),
    };
    plan.warnings = warnings::of(&plan, experiment);
    plan
}

fn refill(experiment: &Experiment) -> Option<Refill> {
    match experiment.dapo.dynamic_sampling {
        DynamicSampling::None {} => None,
        DynamicSampling::Resample { max_rounds, surplus, at_cap: _ } => Some(Refill {
            prompts_per_round: experiment.rollout.prompts_per_round,
            target: experiment.training.prompts_per_step,
            max_rounds,
            carry: surplus == Surplus::Carry,
        }),
    }
}

fn rounds_per_step(experiment: &Experiment, forecast: Option<&Forecast>) -> Range {
    let bounds = work::rounds_without_forecast(experiment);
    match forecast.and_then(|forecast| forecast.rounds.as_ref()) {
        None => bounds,
        Some([rounds, ..]) => Range { expected: rounds.expected, ..bounds },
    }
}

/// How much longer than the base policy's correct responses the point estimate takes those of a
/// run: training lengthens responses (Fig. 7a of the paper), by how much is not known before. On
/// the embedded benchmark GRPO's run was 1.0 and DAPO's 1.6 times as long.
const GROWTH: f64 = 1.25;

fn estimates(
    experiment: &Experiment,
    sizes: &Sizes,
    work: &Work,
    forecast: Option<&Forecast>,
    measured: &Measured,
    prompt_tokens: f64,
) -> Estimates {
    /// Fewer correct responses than this say nothing about their length.
    const ENOUGH: usize = 16;
    let or = |correct: &'_ Option<Lengths>, all: &Lengths| match correct {
        Some(correct) if correct.count() >= ENOUGH => correct.clone(),
        _ => all.clone(),
    };
    let limit = experiment.rollout.max_response_tokens;
    let grown = |lengths: Lengths| lengths.lengthened(GROWTH, limit);
    let correct = grown(or(&measured.training_correct, &measured.training));
    let evaluated_correct = grown(or(&measured.evaluation_correct, &measured.evaluation));
    let longest = Lengths::all(limit);
    // Without a cap the bound takes the rounds at the lower end of the kept share.
    let low = forecast.and_then(|forecast| forecast.rounds.as_ref()?[2].expected);
    let most = work.rounds_per_step.most.or(low).unwrap_or(work.rounds_per_step.best());
    let steps = work.rollout_steps as f64;
    let estimate = |rounds: f64, training: &Lengths, base: &Lengths, trained: &Lengths| {
        let scenario = Scenario {
            rounds,
            training,
            evaluation_base: base,
            evaluation_trained: trained,
            prompt_tokens,
        };
        let load = Load::planned(experiment, sizes, work, &scenario);
        Estimate {
            response_tokens_mean: training.mean(),
            rollouts: load.rollouts,
            response_tokens: load.tokens + load.evaluation_tokens,
            seconds: measured.probe.rates.seconds(&load),
            disk_bytes: measured.probe.rates.bytes(&load),
        }
    };
    let (expected, evaluated) = (work.generation_rounds.best(), &measured.evaluation);
    let base = estimate(expected, &measured.training, evaluated, evaluated);
    let point = estimate(expected, &correct, evaluated, &evaluated_correct);
    Estimates {
        // A policy that becomes sure of its tokens writes log-probs that compress better: on the
        // embedded benchmark files grew no faster than at the base policy's lengths.
        point: Estimate { disk_bytes: base.disk_bytes, ..point },
        base,
        bound: estimate(most * steps, &longest, &longest, &longest),
    }
}
