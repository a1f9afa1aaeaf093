//! `dapo engine`: an experiment on another trainer.

use crate::base::visible;
use crate::commands::train::{self, EngineArgs, TrainArgs};
use crate::commands::{exit, output};
use crate::engines::{Effective, process, run as engines, trl, verl};
use crate::experiment::{Engine, starter};
use crate::training::run::inputs::{self, Inputs};
use anyhow::{Result, bail};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run an experiment on another trainer, and import what came out
///
/// An experiment with `engine = "trl"` or `"verl"` runs so with `dapo train` and in a grid of `dapo ablate`. What
/// an arm asks and the trainer cannot do is an error that names the key. The harness grades every
/// response again and evaluates the policies that the trainer wrote.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Examples:
  dapo engine check trl experiments/engines/grpo.toml
  dapo engine check verl --config run_dapo.sh
  dapo engine render trl experiments/engines/grpo.toml --out runs/trl
  dapo engine launch trl experiments/engines/grpo.toml --out runs/grpo-trl
  dapo engine import trl experiments/engines/grpo.toml --from runs/trl --out runs/imported")]
pub enum EngineVerb {
    /// Write the folder that the trainer is started in.
    Render(RenderArgs),
    /// Compare what the installed trainer will do with what the arm asks, setting by setting.
    Check(EngineCheckArgs),
    /// Render, start, follow and import: as `dapo train` with the engine of the command line.
    Launch(LaunchArgs),
    /// Make a run folder of the outputs of a trainer that ran elsewhere.
    Import(ImportArgs),
}

#[derive(Debug, clap::Args)]
pub struct RenderArgs {
    engine: Engine,
    /// Experiment file, or the name of an arm here.
    experiment: PathBuf,
    /// Folder of the trainer.
    #[arg(long)]
    out: PathBuf,
    #[command(flatten)]
    args: EngineArgs,
}

#[derive(Debug, clap::Args)]
pub struct EngineCheckArgs {
    engine: Engine,
    /// Experiment file, or the name of an arm here.
    #[arg(required_unless_present = "config", conflicts_with = "config")]
    experiment: Option<PathBuf>,
    /// A configuration of verl that you wrote: YAML, overrides one a line, or the shell script that
    /// passes them. Its effective values stand beside what is asked, and every trap is named.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// With --config: the experiment that it is held against. Default: the paper's DAPO on Qwen2.5-32B.
    #[arg(long, value_name = "EXPERIMENT", requires = "config")]
    against: Option<PathBuf>,
    #[command(flatten)]
    args: EngineArgs,
    /// Print one JSON value.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub struct LaunchArgs {
    engine: Engine,
    #[command(flatten)]
    train: TrainArgs,
}

#[derive(Debug, clap::Args)]
pub struct ImportArgs {
    engine: Engine,
    #[command(flatten)]
    train: TrainArgs,
    /// Folder that `dapo engine render` wrote and in which the trainer ran.
    #[arg(long, value_name = "FOLDER")]
    from: PathBuf,
}

/// Runs the verb.
///
/// # Errors
/// An experiment, engine or folder that cannot be used.
pub fn run(verb: &EngineVerb) -> Result<ExitCode> {
    match verb {
        EngineVerb::Render(args) => render(args),
        EngineVerb::Check(args) => check(args),
        EngineVerb::Launch(args) => train::run_on(&args.train, Some(args.engine), None),
        EngineVerb::Import(args) => {
            train::run_on(&args.train, Some(args.engine), Some(args.from.clone()))
        }
    }
}

/// An experiment on an engine, and what it reads but the base policy's weights.
fn inputs(engine: Engine, experiment: &Path) -> Result<Inputs> {
    if engine.is_native() {
        bail!(exit::Usage("the native engine is this harness: dapo train".to_string()));
    }
    let (mut experiment, _) = train::load(experiment, None)?;
    experiment.engine = engine;
    Ok(inputs::prepare_without_weights(experiment)?)
}

fn render(args: &RenderArgs) -> Result<ExitCode> {
    let inputs = inputs(args.engine, &args.experiment)?;
    let settings = engines::render(&inputs, &args.out, &args.args.options(None))?;
    eprintln!("{} settings and the prompts of all rollout steps", settings.len());
    output::path(&args.out.join("train.py"));
    Ok(ExitCode::SUCCESS)
}

fn check(args: &EngineCheckArgs) -> Result<ExitCode> {
    if let Some(config) = &args.config {
        return check_config(args, config);
    }
    let Some(experiment) = &args.experiment else {
        bail!(exit::Usage("EXPERIMENT is missing".to_string()));
    };
    let (inputs, options) = (inputs(args.engine, experiment)?, args.args.options(None));
    let versions = process::versions(&options.python, engines::packages(args.engine))?;
    let settings = engines::all_settings(&inputs, &options)?;
    let (effective, problem) = match args.engine {
        Engine::Verl => {
            let composed = verl::compose::of_settings(&options.python, &settings)?;
            (composed.beside(settings), composed.validation)
        }
        _ => (trl::check::effective(&options.python, settings)?, None),
    };
    let agrees = effective.iter().all(Effective::agrees) && problem.is_none();
    if args.json {
        let rows = as_json(&effective);
        println!("{}", json!({"versions": versions, "settings": rows, "validation": problem}));
        return Ok(exit::agreed(agrees));
    }
    print(args.engine, &effective);
    if let Some(problem) = problem {
        output::tell(format!("verl's own validation: {problem}"));
    }
    let all = versions.iter().map(|(name, version)| format!("{name} {version}"));
    eprintln!("{}", all.collect::<Vec<_>>().join(", "));
    Ok(exit::agreed(agrees))
}

/// A configuration that a user wrote without this harness.
fn check_config(args: &EngineCheckArgs, config: &Path) -> Result<ExitCode> {
    if args.engine != Engine::Verl {
        bail!(exit::Usage("--config is for verl".to_string()));
    }
    let asked = match &args.against {
        Some(experiment) => train::load(experiment, None)?.0,
        None => starter::paper()?,
    };
    let options = args.args.options(None);
    let composed = verl::compose::of_file(&options.python, config)?;
    let (effective, refusals) = verl::traps::compared(&composed, &asked, options.cards);
    let traps = verl::traps::traps(&composed, &asked);
    let agrees = traps.is_empty() && effective.iter().all(Effective::agrees);
    if args.json {
        let rows = as_json(&effective);
        let all = json!({"version": composed.version, "settings": rows, "traps": traps, "refusals": refusals});
        output::json_line(&all);
        return Ok(exit::agreed(agrees));
    }
    print(args.engine, &effective);
    for trap in &traps {
        let verl::traps::Trap { name, key, value, what } = trap;
        println!("{}", visible::message(&format!("{name}: {key} = {value}: {what}")));
    }
    for refusal in &refusals {
        output::tell(format!("verl cannot do what {} asks: {refusal}", asked.name));
    }
    eprintln!("verl {} beside {}; traps: {}", composed.version, asked.name, traps.len());
    Ok(exit::agreed(agrees))
}

fn as_json(effective: &[Effective]) -> Vec<serde_json::Value> {
    let row = |it: &Effective| json!({"setting": it.setting, "effective": it.value, "agrees": it.agrees()});
    effective.iter().map(row).collect()
}

fn print(engine: Engine, effective: &[Effective]) {
    let short = |value: &serde_json::Value| {
        let text = value.to_string();
        if text.len() > 30 {
            format!("{}…", text.chars().take(29).collect::<String>())
        } else {
            text
        }
    };
    let rows = effective.iter().map(|it| {
        let found = it.value.as_ref().map_or("—".to_string(), &short);
        let word = if it.agrees() { "" } else { "differs" };
        [
            it.setting.name.clone(),
            short(&it.setting.value),
            found,
            it.setting.key.clone(),
            word.to_string(),
        ]
    });
    println!("{}", output::table(["setting", "asked", engine.name(), "key", ""], [], rows));
}
