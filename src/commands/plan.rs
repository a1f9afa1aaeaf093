//! `dapo plan`: what a run will do and need, before it starts.

use crate::commands::{exit::Invalid, output, plan_table};
use crate::commands::{place::ExecutionArgs, place::OverrideArgs};
use crate::records::RunFolder;
use crate::training::run::inputs::{self, Inputs};
use crate::training::{Name, RunPlan, plan};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Plan a run: updates, rollouts, memory and disk.
///
/// Counts by arithmetic, and samples some groups of the base policy, which takes 10 seconds at most:
/// how many of its responses are correct, truncated or without an answer. How long the run takes,
/// `dapo train` says from its first rollout step on.
/// Nothing is written.
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub struct PlanArgs {
    /// Experiment file (TOML).
    experiment: PathBuf,
    #[command(flatten)]
    overrides: OverrideArgs,
    #[command(flatten)]
    execution: ExecutionArgs,
    /// Count only: sample nothing.
    #[arg(long)]
    no_probe: bool,
    /// Every count and estimate, as tables.
    #[arg(long, short)]
    verbose: bool,
    /// Print one JSON value instead of text.
    #[arg(long)]
    json: bool,
}

fn help() -> String {
    let mut text = "Examples:\n  dapo plan experiments/dapo.toml\n  dapo plan experiments/base.toml --threads 1 --json\n\nWarnings and errors (exit code 3) by name:\n".to_string();
    for (name, meaning) in Name::ALL {
        text += &format!("  {:<24} {meaning}\n", name.text());
    }
    text
}

/// # Errors
/// An experiment, model or data set that cannot be used; a plan that cannot be met.
pub fn run(args: &PlanArgs) -> Result<ExitCode> {
    let mut experiment = args.overrides.load(&args.experiment, &args.execution.flags())?;
    args.execution.overrule(&mut experiment.execution);
    let inputs = if args.no_probe {
        inputs::prepare_without_weights(experiment)?
    } else {
        inputs::prepare(experiment)?
    };
    let plan = plan(&inputs, Path::new("runs"), !args.no_probe)?;
    output::document(args.json, &plan, || shown(&plan, args.verbose) + "\n");
    findings(&plan, true)?;
    Ok(ExitCode::SUCCESS)
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
    Ok(plan::make(inputs, folder, watch)?)
}

fn shown(plan: &RunPlan, verbose: bool) -> String {
    if verbose { plan_table::plan(plan) } else { plan_table::brief(plan) }
}

fn findings(plan: &RunPlan, forbid: bool) -> Result<()> {
    for warning in &plan.warnings {
        eprintln!("{warning}");
    }
    if forbid && !plan.can_start() {
        bail!(Invalid("this plan cannot be met: see the errors above".into()));
    }
    Ok(())
}

/// Without `sample` (`--no-plan`) only prints warnings, which then do not forbid.
///
/// # Errors
/// A plan that cannot be met, or what would also stop the run.
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
        eprintln!("{}", shown(&plan, verbose));
    }
    findings(&plan, sample)
}
