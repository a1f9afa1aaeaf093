//! `dapo engine`: an experiment on another trainer.

use crate::commands::train::{self, EngineArgs, TrainArgs};
use crate::commands::{exit, output};
use crate::engines::trl::check::Effective;
use crate::engines::{process, trl};
use crate::experiment::Engine;
use crate::training::run::inputs;
use anyhow::{Result, bail};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run an experiment on another trainer, and import what came out
///
/// An experiment with `engine = "trl"` runs so with `dapo train` and in a grid of `dapo ablate`. What
/// an arm asks and the trainer cannot do is an error that names the key. The harness grades every
/// response again and evaluates the policies that the trainer wrote.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = "Examples:
  dapo engine check trl experiments/engines/grpo.toml
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
    experiment: PathBuf,
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

fn only_trl(engine: Engine) -> Result<()> {
    match engine {
        Engine::Trl => Ok(()),
        other => bail!(exit::Usage(format!("{} is not rendered", other.name()))),
    }
}

fn render(args: &RenderArgs) -> Result<ExitCode> {
    only_trl(args.engine)?;
    let (mut experiment, _) = train::load(&args.experiment, None)?;
    experiment.engine = args.engine;
    let inputs = inputs::prepare_without_weights(experiment)?;
    let settings = trl::render::render(&inputs, &args.out, args.args.options(None).processes)?;
    eprintln!("{} settings and the prompts of all rollout steps", settings.len());
    output::path(&args.out.join("train.py"));
    Ok(ExitCode::SUCCESS)
}

fn check(args: &EngineCheckArgs) -> Result<ExitCode> {
    only_trl(args.engine)?;
    let (mut experiment, _) = train::load(&args.experiment, None)?;
    experiment.engine = args.engine;
    let inputs = inputs::prepare_without_weights(experiment)?;
    let options = args.args.options(None);
    let settings = trl::render::all_settings(&inputs, options.processes)?;
    let versions = process::versions(&options.python, &trl::PACKAGES)?;
    let effective = trl::check::effective(&options.python, settings)?;
    let agrees = effective.iter().all(Effective::agrees);
    if args.json {
        let row = |it: &Effective| json!({"setting": it.setting, "effective": it.value, "agrees": it.agrees()});
        let rows: Vec<_> = effective.iter().map(row).collect();
        println!("{}", json!({"versions": versions, "settings": rows}));
        return Ok(exit::agreed(agrees));
    }
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
    println!("{}", output::table(["setting", "asked", "TRL", "key", ""], [], rows));
    let version = |name: &str| versions.get(name).cloned().unwrap_or_default();
    eprintln!(
        "TRL {}, transformers {}, torch {}",
        version("trl"),
        version("transformers"),
        version("torch")
    );
    Ok(exit::agreed(agrees))
}
