//! What a run did, in the terms of its plan, read from its folder.

use crate::base::files;
use crate::experiment::Experiment;
use crate::records::{Counters, RolloutRow, RunFolder, tables};
use crate::training::plan::cost::{self, PHASES};
use crate::training::plan::lengths::{self, Pass};
use crate::training::run::Error;
use crate::training::{Load, Plan, trainer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a run did so far, over all the processes that worked on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Actual {
    /// The three clocks.
    pub counters: Counters,
    /// Training rollouts.
    pub rollouts: f64,
    /// Response tokens of training rollouts.
    pub training_tokens: f64,
    /// Response tokens of training and evaluation.
    pub response_tokens: f64,
    /// Phase → seconds, with `total`, from `timings.jsonl`.
    pub seconds: BTreeMap<String, f64>,
    /// What the cost model says to the tokens that were really generated.
    pub given_seconds: Option<BTreeMap<String, f64>>,
    /// Written to the folder.
    pub disk_bytes: f64,
    /// What only the process knows that did the run.
    pub process: Option<Process>,
}

/// What only a process itself can tell.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Peak memory of the run.
    pub peak_memory_bytes: Option<u64>,
    /// The peak includes the probe's, because it could not be set back.
    pub peak_includes_probe: bool,
    /// Processor seconds over wall-clock seconds.
    pub processor_share: Option<f64>,
    /// This process did only a part of the run (it was resumed).
    pub partial: bool,
}

/// Reads a run folder.
///
/// # Errors
/// Records or tables that cannot be read.
pub fn read(folder: &RunFolder, plan: &Plan, process: Option<Process>) -> Result<Actual, Error> {
    let experiment = folder.experiment()?;
    let load = load(folder, &experiment, plan)?;
    let counters = folder.metrics()?.last().map(|step| step.counters).unwrap_or_default();
    let given = plan.probe.as_ref().map(|probe| probe.rates.seconds(&load));
    let mut disk_bytes = 0;
    for name in ["rollouts", "evaluations", "checkpoints"] {
        let path = folder.path(name);
        disk_bytes += if path.exists() { files::size_bytes(&path)? } else { 0 };
    }
    Ok(Actual {
        counters,
        rollouts: load.rollouts,
        training_tokens: load.tokens,
        response_tokens: load.tokens + load.evaluation_tokens,
        seconds: seconds(folder)?,
        given_seconds: given,
        disk_bytes: disk_bytes as f64,
        process,
    })
}

/// Seconds by phase. What a step's total holds beyond its phases is the writing of tables.
fn seconds(folder: &RunFolder) -> Result<BTreeMap<String, f64>, Error> {
    let mut sums: BTreeMap<String, f64> = PHASES.map(|name| (name.to_string(), 0.0)).into();
    for line in folder.timings()? {
        let mut rest = 0.0;
        for (name, seconds) in &line.seconds {
            *sums.entry(name.clone()).or_default() += seconds;
            rest += if name == "total" { *seconds } else { -seconds };
        }
        *sums.entry("tables".to_string()).or_default() += rest.max(0.0);
    }
    Ok(sums)
}

/// The run in the cost model's terms, from every response's length.
fn load(folder: &RunFolder, experiment: &Experiment, plan: &Plan) -> Result<Load, Error> {
    let batch = experiment.execution.generation_batch_rollouts.max(1) as usize;
    let mut load = Load::default();
    let mut before = Counters::default();
    for line in folder.metrics()? {
        let path = folder.inside(&format!("rollouts/step-{:06}.parquet", line.step))?;
        let rows = tables::read_rollouts(&path)?;
        let rounds = line.counters.generation_rounds.saturating_sub(before.generation_rounds);
        let updates = line.counters.updates.saturating_sub(before.updates);
        add_step(&mut load, &rows, rounds, updates, experiment, plan.prompts.mean_tokens);
        before = line.counters;
    }
    for record in folder.evaluations()? {
        let path = folder.recorded_outcomes(&record.set, record.counters.rollout_steps)?;
        let outcomes = tables::read_outcomes(&path)?;
        let lengths: Vec<f64> =
            outcomes.iter().map(|outcome| f64::from(outcome.response_tokens)).collect();
        load.evaluation_iterations += lengths.chunks(batch).map(longest).sum::<f64>();
        load.evaluation_tokens += lengths.iter().sum::<f64>();
        load.evaluation_responses += lengths.len() as f64;
        load.evaluation_files += 1.0;
    }
    let written =
        |line: &&crate::records::run_folder::StepTimings| line.seconds.contains_key("checkpoint");
    load.checkpoints = folder.timings()?.iter().filter(written).count() as f64;
    Ok(load)
}

fn longest(lengths: &[f64]) -> f64 {
    lengths.iter().copied().fold(0.0, f64::max)
}

fn add_step(
    load: &mut Load,
    rows: &[RolloutRow],
    rounds: u64,
    updates: u64,
    experiment: &Experiment,
    prompt_tokens: f64,
) {
    let execution = &experiment.execution;
    let batch = execution.generation_batch_rollouts.max(1) as usize;
    let round =
        trainer::prompts_per_round(experiment).saturating_mul(experiment.rollout.group_size);
    let tokens = |row: &RolloutRow| row.tokens.len() as f64;
    // Groups that were carried over stand in front and were not generated in this step.
    let generated = (rounds.saturating_mul(round)).min(rows.len() as u64) as usize;
    let lengths: Vec<f64> = rows[rows.len() - generated..].iter().map(tokens).collect();
    for round in lengths.chunks(round.max(1) as usize) {
        load.iterations += round.chunks(batch).map(longest).sum::<f64>();
    }
    load.tokens += lengths.iter().sum::<f64>();
    load.rollouts += lengths.len() as f64;
    load.steps += 1.0;
    load.updates += updates as f64;
    let mut trained: Vec<f64> = rows.iter().filter(|row| row.trained).map(tokens).collect();
    trained.sort_by(|a, b| b.total_cmp(a));
    let micro = execution.micro_batch_rollouts as usize;
    let frozen = lengths::pass(&trained, prompt_tokens, micro);
    let policies = cost::frozen_policies(experiment);
    load.old_log_probs = load.old_log_probs.plus(frozen.repeated(policies));
    let epochs = experiment.training.epochs_per_step.max(1);
    let mini_batches = (updates / epochs).max(1) as usize;
    let mut step = Pass::default();
    for first in 0..mini_batches {
        // Every so many-th length: mini-batches are random and alike.
        let part: Vec<f64> = trained.iter().skip(first).step_by(mini_batches).copied().collect();
        step = step.plus(lengths::pass(&part, prompt_tokens, micro));
    }
    load.update = load.update.plus(step.repeated(epochs as f64));
}
