//! `dapo train`: train, evaluate, report.

use crate::commands::exit::bail_usage;
use crate::commands::flags::experiment::InputsArg;
use crate::commands::flags::tracking::{LiveCurves, TrackerArgs};
use crate::commands::terminal::course::RunCourse;
use crate::commands::terminal::effects;
use crate::commands::{ExecutionArgs, Interrupt, OverrideArgs, Progress, eval, exit, output, plan};
use crate::engines::run::{self as engines, EngineOptions};
use crate::experiment::Engine;
use crate::records::{Ending, RunFolder};
use crate::report::{self, Tracker, endings, text};
use crate::training::run::{RunEvent, inputs};
use crate::training::{Phase, RunEnded, TrainingError, Unfinished};
use anyhow::{Context, Result};
use clap::{Args as _, FromArgMatches as _};
use std::ffi::OsString;
use std::path::PathBuf;

/// Train an arm under one seed, evaluate it, and write its report.
///
/// A finished run of the same arm, seed and inputs is not run again. Ctrl-C stops after the present
/// rollout step and saves a checkpoint; a second one stops at once.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/train.txt"))]
pub struct TrainArgs {
    /// Experiment file (TOML), the name of an arm, a run folder or its experiment.json, or a cell's record,
    /// whose seed is then used.
    experiment: PathBuf,
    #[command(flatten)]
    inputs: InputsArg,
    #[command(flatten)]
    overrides: OverrideArgs,
    #[command(flatten)]
    execution: ExecutionArgs,
    /// Run folder. Default: `runs/<name>-seed<seed>-<key>`.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Go on with an unfinished run from its newest good checkpoint, or begin if there is none.
    #[arg(long, conflicts_with = "restart")]
    resume: bool,
    /// Delete what this run wrote before, finished or not, and begin again.
    #[arg(long)]
    restart: bool,
    /// Only plan the run, as `dapo plan` does: what it will do and need. Nothing is written.
    #[arg(long, conflicts_with_all = ["resume", "restart", "no_plan", "follow"])]
    dry_run: bool,
    /// Do not sample the base policy before the run, and start even if the plan cannot be met.
    #[arg(long)]
    no_plan: bool,
    /// Show the whole plan, and the evidence of what each technique did.
    #[arg(long, short)]
    verbose: bool,
    /// Send the curves to a tracker while the run goes on; event files of TensorBoard go into the
    /// folder `export` beside the run.
    #[arg(long, value_name = "TRACKER")]
    follow: Option<Tracker>,
    #[command(flatten)]
    tracker: TrackerArgs,
    #[command(flatten)]
    engine: EngineOptions,
}

/// Errors: an experiment, model or data set that cannot be used; a folder that cannot be written.
pub fn run(args: &TrainArgs) -> Result<u8> {
    run_on(args, None, None)
}

/// Errors: as [`run`], and arguments that do not parse.
pub fn run_line(arguments: &[OsString]) -> Result<u8> {
    let command = TrainArgs::augment_args(clap::Command::new("train").no_binary_name(true));
    run(&TrainArgs::from_arg_matches(&command.try_get_matches_from(arguments)?)?)
}

/// Uses another engine than the experiment's, or the outputs of an earlier run.
/// Errors: as [`run`], and an arm that the engine cannot run.
pub fn run_on(args: &TrainArgs, engine: Option<Engine>, from: Option<PathBuf>) -> Result<u8> {
    args.tracker.check(args.follow, "--follow")?;
    args.overrides.check(&args.execution.flags())?;
    args.overrides.check(&[("engine", engine.is_some())])?;
    let (mut experiment, recorded) =
        args.overrides.load_with_inputs(&args.experiment, &args.inputs, None)?;
    experiment.engine = engine.unwrap_or(experiment.engine);
    check_flags(&args.engine, experiment.engine)?;
    args.execution.overrule(&mut experiment.execution);
    let inputs = inputs::prepare(experiment)?;
    let manifest = &inputs.manifest;
    recorded.check(&manifest.inputs)?;
    if args.dry_run {
        return plan::show(&inputs, &args.engine, true, (args.verbose, false));
    }
    let folder = RunFolder::at(args.out.clone().unwrap_or_else(|| {
        let key = &manifest.run_key[..8];
        PathBuf::from(format!("runs/{}-seed{}-{key}", manifest.name, manifest.seed))
    }));
    let (name, seed, root) = (&manifest.name, manifest.seed, folder.root().display());
    output::tell(format!("arm {name} seed {seed} → {root}"));
    let unfinished = match (args.resume, args.restart) {
        (true, _) => Unfinished::Resume,
        (_, true) => Unfinished::Restart,
        _ => Unfinished::Refuse,
    };
    let probes = !args.no_plan && inputs.experiment.engine.is_native();
    plan::before_training(&inputs, &folder, probes, args.verbose)?;
    let sender =
        |to| args.tracker.sender(to, &folder.root().with_file_name("export"), folder.root());
    let mut live = LiveCurves::new(args.follow.map(sender).transpose()?);
    let interrupt = Interrupt::listen()?;
    let mut bar = Progress::new("train", inputs.experiment.training.rollout_steps);
    let mut course = RunCourse::default();
    let stop = || interrupt.asked();
    let engine = EngineOptions { from, ..args.engine.clone() };
    let ended = engines::run(&inputs, &folder, &engine, unfinished, &stop, &mut |event| {
        if interrupt.news() {
            bar.note("stopping after this rollout step or evaluation; once more stops at once");
        }
        let is_evaluation = matches!(event, RunEvent::Evaluated(_));
        let is_record = is_evaluation || matches!(event, RunEvent::Step(..));
        show(&mut bar, &mut course, &folder, event);
        if is_record {
            live.look(&folder, &mut |text| bar.note(text));
        }
        if is_evaluation {
            renew_report(&folder);
        }
    })
    .map_err(resumable)?;
    course.finish();
    bar.finish();
    live.end(&folder);
    let outcome = match ended {
        RunEnded::Finished(outcome) => outcome,
        RunEnded::Stopped(step) => {
            renew_report(&folder);
            output::tell(format!("stopped after rollout step {step}; {RESUMES}"));
            return Ok(interrupt.exit_code());
        }
    };
    output::tell(format!("{}: {}", outcome.ending.name(), endings::sentence(&outcome)));
    if outcome.ending == Ending::Diverged {
        let kept = folder.path("diverged");
        output::tell(format!("the step's rollouts, metrics and policy are in {}", kept.display()));
        output::tell("train with a lower optimizer.learning_rate or optimizer.max_gradient_norm");
    }
    tracing::debug!("report");
    let report = report::run::write(&folder).with_context(|| format!("the report of {root}"))?;
    output::tell(&report.headline);
    effects::print_effects(&report.effects, args.verbose);
    output::path(&folder.path("report.html"));
    Ok(match outcome.ending {
        Ending::Diverged => exit::DIVERGED,
        Ending::Finished | Ending::Saturated | Ending::Stalled => exit::SUCCESS,
    })
}

/// Errors: a flag of another trainer than `engine`, with the trainers that read it.
pub fn check_flags(options: &EngineOptions, engine: Engine) -> Result<()> {
    let Some((flag, readers)) = options.unread(engine) else { return Ok(()) };
    let names = text::joined(readers.iter().map(|engine| engine.name()), " and ");
    let instead = format!(": --set engine={}", readers[0].name());
    let instead = if engine.is_native() { &*instead } else { "" };
    bail_usage!("{flag} is for {names}; this experiment runs on {}{instead}", engine.name());
}

const RESUMES: &str = "the same command with --resume continues";

fn resumable(error: TrainingError) -> anyhow::Error {
    let error = anyhow::Error::from(error);
    let text = exit::message(&error);
    if exit::code(&error) != exit::BUG || text.contains("--resume") {
        return error;
    }
    error.context(format!("{text}; {RESUMES}, `ablate` and `cell run` without it"))
}

fn renew_report(folder: &RunFolder) {
    if let Err(error) = report::run::write(folder) {
        tracing::warn!(%error, "the report was not renewed");
    }
}

fn show(bar: &mut Progress, course: &mut RunCourse, folder: &RunFolder, event: RunEvent) {
    match event {
        RunEvent::Phase(step, Phase::Generation(done, total)) => {
            bar.set(step - 1, &format!("generating {done}/{total}"));
        }
        RunEvent::Phase(step, Phase::Update(done, total)) => {
            bar.set(step - 1, &format!("update {done}/{total}"));
        }
        RunEvent::Resumed(step) => {
            bar.note(&format!("resuming after rollout step {step}"));
            let recorded = folder.metrics().unwrap_or_default();
            recorded.iter().filter(|it| it.step <= step).for_each(|it| course.earlier(bar, it));
        }
        RunEvent::FinishedBefore => {
            bar.note("this run was finished before; nothing was trained again")
        }
        RunEvent::Saved(step) => tracing::info!(step, "checkpoint saved"),
        RunEvent::Warning(text) => bar.note(&format!("warning: {text}")),
        RunEvent::Evaluating(set, done, total) => {
            bar.message(&format!("evaluating {set} {done}/{total}"))
        }
        RunEvent::Evaluated(record) => bar.note(&format!(
            "eval  {:<14} step {:>3}  avg@{:<3} {:5.1} % ± {}  len {:.0}",
            record.set,
            record.counters.rollout_steps,
            record.samples,
            100.0 * record.avg_at_k,
            eval::half_width(record),
            record.response_tokens_mean,
        )),
        RunEvent::Step(metrics, timings) => {
            tracing::info!(step = metrics.step, "rollout step done");
            course.step(bar, metrics, timings);
            bar.set(metrics.step, "");
        }
    }
}
