//! `dapo plan`: what a run will do and need, before it starts.

use crate::commands::exit::bail_invalid;
use crate::commands::flags::experiment::InputsArg;
use crate::commands::{ExecutionArgs, OverrideArgs, exit, output};
use crate::engines::run::{self as engines, EngineOptions};
use crate::experiment::Engine;
use crate::policy::model::devices;
use crate::records::{RunFolder, housekeeping::readable};
use crate::report::text::{counted, number, percent};
use crate::training::run::inputs::{self, Inputs};
use crate::training::{Name, Range, RunPlan, TrainingError, plan};
use anyhow::Result;
use clap::{ValueEnum as _, builder::PossibleValue};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Plan a run: updates, rollouts, memory and disk.
///
/// It counts, and samples some groups of the base policy for at most 10 seconds: how many responses are
/// correct, truncated or without an answer. `dapo train` says how long the run takes, from its first
/// rollout step on. Nothing is written.
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub struct PlanArgs {
    /// Experiment file (TOML), the name of an arm, a run folder or its experiment.json, or a cell's record.
    experiment: PathBuf,
    #[command(flatten)]
    inputs: InputsArg,
    #[command(flatten)]
    overrides: OverrideArgs,
    #[command(flatten)]
    execution: ExecutionArgs,
    /// Only count; do not sample the base policy.
    #[arg(long)]
    no_probe: bool,
    /// Add every count, and the parts of memory.
    #[arg(long, short)]
    verbose: bool,
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,
}

fn help() -> String {
    let examples = "Examples:\n  dapo plan experiments/dapo.toml\n  dapo plan experiments/base.toml --threads 1 --json\n\nWarnings and errors (exit code 3) by name:\n";
    let names = Name::value_variants().iter().filter_map(Name::to_possible_value);
    let line = |name: PossibleValue| {
        format!("  {:<24}  {}\n", name.get_name(), name.get_help().unwrap_or_default())
    };
    examples.to_string() + &names.map(line).collect::<String>()
}

/// Errors: an experiment, model or data set that cannot be used; a plan that cannot be met.
pub fn run(args: &PlanArgs) -> Result<u8> {
    args.overrides.check(&args.execution.flags())?;
    let (mut experiment, recorded) =
        args.overrides.load_with_inputs(&args.experiment, &args.inputs, None)?;
    args.execution.overrule(&mut experiment.execution);
    let inputs = if args.no_probe {
        devices::device(experiment.execution.place().device).map_err(TrainingError::from)?;
        inputs::prepare_without_weights(experiment)?
    } else {
        inputs::prepare(experiment)?
    };
    recorded.check(&inputs.manifest.inputs)?;
    show(&inputs, &EngineOptions::default(), !args.no_probe, (args.verbose, args.json))
}

/// Errors: a plan that cannot be met, an arm that its engine cannot run.
pub fn show(
    inputs: &Inputs,
    options: &EngineOptions,
    sample: bool,
    (verbose, json): (bool, bool),
) -> Result<u8> {
    engines::all_settings(inputs, options)?;
    let engine = inputs.experiment.engine;
    let plan = plan(inputs, Path::new("runs"), sample)?;
    let mut document = serde_json::to_value(&plan)?;
    if let Some(all) = document.as_object_mut().filter(|_| !engine.is_native()) {
        all.retain(|name, _| !["threads", "memory", "disk"].contains(&name.as_str()));
        all.insert("engine".to_string(), engine.name().into());
    }
    output::document(json, &document, || text(&plan, engine, verbose));
    warn(&plan, true)?;
    Ok(exit::SUCCESS)
}

/// Without `sample` (`--no-plan`) only prints warnings, which then do not forbid.
/// Errors: a plan that cannot be met, or what would also stop the run.
pub fn before_training(
    inputs: &Inputs,
    folder: &RunFolder,
    sample: bool,
    verbose: bool,
) -> Result<()> {
    // The run resumes, or the trainer refuses the folder.
    if folder.path("manifest.json").exists() {
        return Ok(());
    }
    let plan = plan(inputs, folder.root(), sample)?;
    if sample {
        output::tell_lines(&text(&plan, inputs.experiment.engine, verbose));
    }
    warn(&plan, sample)
}

/// With `sample`, prints the progress when it takes long.
fn plan(inputs: &Inputs, folder: &Path, sample: bool) -> Result<RunPlan> {
    let began = Instant::now();
    let mut watch = |what: &str| {
        if began.elapsed().as_secs_f64() > 1.0 {
            output::tell(what);
        }
    };
    let watch: Option<&mut dyn FnMut(&str)> = if sample { Some(&mut watch) } else { None };
    let mut plan = plan::make(inputs, folder, watch)?;
    if !inputs.experiment.engine.is_native() {
        plan.warnings.retain(|it| !matches!(it.name, Name::MemoryShort | Name::DiskShort));
    }
    Ok(plan)
}

fn warn(plan: &RunPlan, forbid: bool) -> Result<()> {
    plan.warnings.iter().for_each(output::tell);
    if forbid && !plan.can_start() {
        bail_invalid!("this plan cannot be met: the errors above say why");
    }
    Ok(())
}

/// A few lines of at most 80 columns; `verbose` adds every count, and the parts of memory.
fn text(plan: &RunPlan, engine: Engine, verbose: bool) -> String {
    let (work, memory, disk) = (&plan.work, &plan.memory, &plan.disk);
    let rollouts = match (work.rollouts.expected, work.rollouts.most) {
        (Some(expected), Some(most)) => {
            format!("{} expected, {} at most", number(expected), number(most))
        }
        (Some(expected), None) => format!("{} expected, no bound", number(expected)),
        (None, Some(most)) => {
            format!("from {}, {} at most", number(work.rollouts.least), number(most))
        }
        (None, None) => format!("from {}, no bound", number(work.rollouts.least)),
    };
    let [available, free] = [memory.available_bytes, disk.free_bytes]
        .map(|bytes| bytes.map_or("unknown".to_string(), size));
    let many = |count, one: &str| counted(count as usize, one, &format!("{one}s"));
    let (threads, steps) = (many(plan.threads, "thread"), many(work.rollout_steps, "rollout step"));
    let mut text = match engine {
        Engine::Native => format!("plan of {}, seed {}, {threads}\n", plan.name, plan.seed),
        other => format!("plan of {} on {}, seed {}\n", plan.name, other.name(), plan.seed),
    };
    text += &format!("  steps    {steps}, {}\n", many(work.updates, "update"));
    text += &format!("  rollouts {rollouts}\n");
    text += &probe(plan, verbose);
    if engine.is_native() {
        text += &format!("  memory   about {} of {available}\n", size(memory.needed_bytes));
        if verbose && memory.phases.is_empty() {
            text += &sizes("its parts", &memory.parts);
        } else if verbose {
            text += &sizes("by phase", &memory.phases);
            text += &sizes("parts of the largest phase", &memory.parts);
        }
        let [expected, most, one] =
            [disk.needed_bytes, disk.most_bytes, disk.checkpoint_bytes].map(size);
        let expected = if verbose { format!("about {expected}, ") } else { String::new() };
        text += &format!("  disk     {expected}{most} at most, {one} a checkpoint, {free} free\n");
    } else {
        text += &format!("  memory and disk of {} are not planned\n", engine.name());
    }
    if verbose { text + "\n" + &counts(plan) } else { text }
}

/// Nothing without a probe; shares are unknown where responses were cut.
fn probe(plan: &RunPlan, verbose: bool) -> String {
    let Some(probe) = &plan.probe else { return String::new() };
    let is_cut = probe.cut_at_tokens.is_some();
    let share = |share| if is_cut { "?".to_string() } else { percent(share) };
    let [correct, truncated, useful] =
        [probe.accuracy, probe.truncated_share, probe.useful_share].map(share);
    let groups = counted(probe.groups as usize, "group", "groups");
    let mut text = format!(
        "  probe    {groups}, {useful} of them useful; {correct} correct, {truncated} truncated\n"
    );
    if verbose {
        let mean = probe.response_tokens_mean;
        text += &format!("{}of the base policy, {mean:.0} tokens a response\n", " ".repeat(11));
    }
    text
}

/// One a line, the largest first.
fn sizes(what: &str, parts: &BTreeMap<String, f64>) -> String {
    let mut parts: Vec<(&String, &f64)> = parts.iter().filter(|(_, bytes)| **bytes > 0.0).collect();
    parts.sort_by(|a, b| b.1.total_cmp(a.1));
    let line = |(name, bytes): &(&String, &f64)| format!("             {name} {}\n", size(**bytes));
    format!("           {what}:\n{}", parts.iter().map(line).collect::<String>())
}

fn size(bytes: f64) -> String {
    readable(bytes as u64)
}

fn counts(plan: &RunPlan) -> String {
    let work = &plan.work;
    let exact = |count: u64| [String::new(), number(count as f64), String::new()];
    let range = |range: Range| {
        let expected = range.expected.map_or("unknown".into(), number);
        [number(range.least), expected, range.most.map_or("no bound".into(), number)]
    };
    let rows = [
        ("training problems", exact(work.problems)),
        ("clock 1: generation rounds", range(work.generation_rounds)),
        ("clock 2: rollout steps", exact(work.rollout_steps)),
        ("clock 3: updates (the paper's x-axis)", exact(work.updates)),
        ("prompts drawn", range(work.prompts_drawn)),
        ("epochs over the data", range(work.epochs_over_data)),
        ("rollouts to generate", range(work.rollouts)),
        ("rollouts trained on", exact(work.trained_rollouts)),
        ("evaluation responses, dev", exact(work.dev_responses)),
        ("evaluation responses, test sets", exact(work.test_responses)),
        ("checkpoints written", exact(work.checkpoints)),
        ("checkpoints kept", exact(work.kept_checkpoints)),
    ];
    let rows =
        rows.map(|(name, [least, expected, most])| [name.to_string(), least, expected, most]);
    output::table("count | least # | expected # | most #", rows)
}
