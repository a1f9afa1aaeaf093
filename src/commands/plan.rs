//! `dapo plan`: what a run will do and need, before it starts; what came true, after it.

use crate::base::files;
use crate::commands::{exit::Invalid, exit::Usage, output, plan_table};
use crate::commands::{place::ExecutionArgs, place::OverrideArgs};
use crate::records::{Manifest, RunFolder};
use crate::training::plan::{self, PlanRecord, actual, machine};
use crate::training::run::inputs::{self, Inputs};
use crate::training::{Name, ProbeBudget, RunPlan};
use anyhow::{Result, bail};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Plan a run: updates, rollouts, memory and disk.
///
/// Counts by arithmetic, and samples some groups of the base policy, which takes 10 seconds at most:
/// how many of its responses are correct, truncated or without an answer. How long the run takes,
/// `dapo train` says from its first rollout step on.
/// Of a run folder it shows the plan beside what came true. Nothing is written.
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub struct PlanArgs {
    /// Experiment file (TOML), or the folder of a run that was planned.
    experiment: PathBuf,
    #[command(flatten)]
    overrides: OverrideArgs,
    #[command(flatten)]
    execution: ExecutionArgs,
    /// Count only: sample nothing.
    #[arg(long)]
    no_probe: bool,
    /// What the sample may take beside loading the policy. In less time fewer groups are sampled, and
    /// responses are cut only where one group does not fit.
    #[arg(long, value_name = "SECONDS", default_value_t = ProbeBudget::SECONDS, conflicts_with = "no_probe", value_parser = seconds)]
    probe_seconds: f64,
    /// Every count and estimate, as tables.
    #[arg(long, short)]
    verbose: bool,
    /// Print one JSON value instead of text.
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|it| (1.0..=86_400.0).contains(it));
    seconds.ok_or_else(|| format!("{text:?} is not between 1 and 86400"))
}

/// Tells what a probe does, once it takes long enough for a user to ask.
fn progress() -> impl FnMut(&str) {
    let began = Instant::now();
    move |what| {
        if began.elapsed().as_secs_f64() > 1.0 {
            output::tell(what);
        }
    }
}

fn help() -> String {
    let mut text = "Examples:\n  dapo plan experiments/dapo.toml\n  dapo plan experiments/base.toml --threads 1 --json\n  dapo plan runs/reproduce\n\nWarnings and errors (exit code 3) by name:\n".to_string();
    for (name, meaning) in Name::ALL {
        text += &format!("  {:<24} {meaning}\n", name.text());
    }
    text
}

/// Runs the verb.
///
/// # Errors
/// An experiment, model or data set that cannot be used; a plan that cannot be met.
pub fn run(args: &PlanArgs) -> Result<ExitCode> {
    if args.experiment.is_dir() {
        let flags = args.execution.flags().iter().any(|(_, given)| *given);
        if flags || args.no_probe || !args.overrides.is_empty() {
            let message = "of a run folder the plan is shown as it was made; --set, --seed, --threads, \
                           --device and --no-probe are for an experiment";
            bail!(Usage(message.to_string()));
        }
        return show_run(args);
    }
    let mut experiment = args.overrides.load(&args.experiment, &args.execution.flags())?;
    args.execution.overrule(&mut experiment.execution);
    let inputs = match args.no_probe {
        true => inputs::prepare_without_weights(experiment)?,
        false => inputs::prepare(experiment)?,
    };
    let budget = ProbeBudget { seconds: args.probe_seconds, watch: &mut progress() };
    let plan = plan::make(&inputs, &PathBuf::from("runs"), (!args.no_probe).then_some(budget))?;
    output::document(args.json, &plan, || shown(&plan, args.verbose) + "\n");
    findings(&plan, true)?;
    Ok(ExitCode::SUCCESS)
}

/// The plan of a run folder beside what its records say now.
fn show_run(args: &PlanArgs) -> Result<ExitCode> {
    let folder = RunFolder::at(&args.experiment);
    let path = folder.inside(plan::FILE)?;
    if !path.exists() {
        let message = format!("{} is missing: this run was not planned", path.display());
        bail!(Invalid(message));
    }
    let PlanRecord { plan, actual } = files::read_json(&path)?;
    let peak = actual.and_then(|actual| actual.peak_memory_bytes);
    let actual = Some(actual::read(&folder, peak)?);
    let record = PlanRecord { plan, actual };
    output::document(args.json, &record, || {
        format!("{}\n{}\n", shown(&record.plan, args.verbose), plan_table::comparison(&record))
    });
    Ok(ExitCode::SUCCESS)
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

/// The plan of a training run, from before its start to its end.
pub struct Planned {
    /// `None` when the folder holds a finished run: there is nothing to plan.
    plan: Option<RunPlan>,
    folder: RunFolder,
    /// The run folder's record is up to date.
    kept: bool,
    /// The process's peak of memory is the run's.
    peak_known: bool,
}

impl Planned {
    /// Plans and prints, unless the folder holds this run's plan already (the run then goes on)
    /// or a finished run. `measure` is false for `--no-plan`: nothing is measured or printed, and
    /// findings do not forbid.
    ///
    /// # Errors
    /// A plan that cannot be met, or what would also stop the run.
    pub fn before(
        inputs: &Inputs,
        folder: &RunFolder,
        measure: bool,
        verbose: bool,
    ) -> Result<Self> {
        let key = &inputs.manifest.run_key;
        // A plan that is missing or cannot be read is made.
        let known = files::read_json(&folder.path(plan::FILE)).ok();
        let known = known.map(|record: PlanRecord| record.plan).filter(|it| it.run_key == *key);
        let kept = known.is_some();
        let other = |found: Manifest| found.run_key != *key;
        // Finished, or another run's folder, which the trainer will refuse.
        let refused = folder.path("outcome.json").exists() || folder.manifest().is_ok_and(other);
        let plan = match known {
            _ if refused => None,
            Some(plan) => Some(plan),
            None => {
                let watch = &mut progress();
                let budget = ProbeBudget { seconds: ProbeBudget::SECONDS, watch };
                let plan = plan::make(inputs, folder.root(), measure.then_some(budget))?;
                if measure {
                    eprintln!("{}", shown(&plan, verbose));
                }
                findings(&plan, measure)?;
                Some(plan)
            }
        };
        let alone = machine::reset_peak() || plan.as_ref().is_some_and(|it| it.probe.is_none());
        Ok(Self { plan, folder: folder.clone(), kept, peak_known: alone && !kept })
    }

    /// Writes the plan into the run folder, once. To be called when the folder belongs to
    /// this run. A plan that cannot be kept is said and stops nothing.
    pub fn keep(&mut self) {
        if let Some(plan) = self.plan.as_ref().filter(|_| !self.kept) {
            write(&self.folder, &PlanRecord { plan: plan.clone(), actual: None });
            self.kept = true;
        }
    }

    /// Reads what the run did and keeps it; with `verbose` it is printed beside the plan.
    pub fn after(self, verbose: bool) {
        let Some(plan) = self.plan else { return };
        let peak = machine::process_bytes("VmHWM").filter(|_| self.peak_known);
        match actual::read(&self.folder, peak) {
            Ok(actual) => {
                let record = PlanRecord { plan, actual: Some(actual) };
                write(&self.folder, &record);
                if verbose {
                    eprintln!("{}", plan_table::comparison(&record));
                }
            }
            Err(error) => eprintln!("planned against actual: {error}"),
        }
    }
}

fn write(folder: &RunFolder, record: &PlanRecord) {
    if let Err(error) = files::write_json(&folder.path(plan::FILE), record) {
        eprintln!("the plan is not kept: {error}");
    }
}
