//! `dapo engine`: an experiment on another trainer.

use crate::base::{files, visible};
use crate::commands::train::{self, EngineArgs, TrainArgs};
use crate::commands::{OverrideArgs, exit, output};
use crate::engines::{Effective, Trap, process, run as engines, trl, verl};
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
  python3 -m verl.trainer.main_ppo … --cfg job > job.yaml    # your own command: it prints, and trains nothing
  dapo engine check verl job.yaml
  dapo engine check trl training_args.bin --against experiments/engines/grpo.toml
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
    #[command(flatten)]
    overrides: OverrideArgs,
    /// Folder of the trainer.
    #[arg(long)]
    out: PathBuf,
    #[command(flatten)]
    args: EngineArgs,
}

#[derive(Debug, clap::Args)]
pub struct EngineCheckArgs {
    engine: Engine,
    /// Experiment file (*.toml, or a record in JSON) or the name of an arm here; or a configuration of the trainer, as --config.
    #[arg(required_unless_present = "config", conflicts_with = "config")]
    file: Option<PathBuf>,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// A configuration that you have. Its values stand beside what is asked, and every trap is named. What it does not
    /// state is shown as not stated, never as a default.
    ///
    /// verl: what your command prints with `--cfg job` at its end (also in a log, with Ray's prefixes),
    /// `.hydra/config.yaml`, W&B's `config.yaml`, the dictionary that verl prints, and, where --python has verl,
    /// `.hydra/overrides.yaml`, overrides one a line, or YAML with a `defaults` list. A shell script is not read.
    ///
    /// trl: a GRPOConfig as YAML or JSON, W&B's `config.yaml`, or `training_args.bin`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The experiment that a configuration is held against. Default: the paper's DAPO on Qwen2.5-32B.
    #[arg(long, value_name = "EXPERIMENT")]
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

/// Reads everything but the base policy's weights.
fn inputs(
    engine: Engine,
    experiment: &Path,
    overrides: &OverrideArgs,
    args: &EngineArgs,
) -> Result<Inputs> {
    if engine.is_native() {
        bail!(exit::Usage("the native engine is this harness: dapo train".to_string()));
    }
    args.check(engine)?;
    overrides.check(&[("engine", true)])?;
    let (mut experiment, _) = train::load(experiment, None, overrides)?;
    experiment.engine = engine;
    Ok(inputs::prepare_without_weights(experiment)?)
}

fn render(args: &RenderArgs) -> Result<ExitCode> {
    let inputs = inputs(args.engine, &args.experiment, &args.overrides, &args.args)?;
    let settings = engines::render(&inputs, &args.out, &args.args.options(None))?;
    eprintln!("{} settings and the prompts of all rollout steps", settings.len());
    output::path(&args.out.join("train.py"));
    Ok(ExitCode::SUCCESS)
}

fn check(args: &EngineCheckArgs) -> Result<ExitCode> {
    let Some(experiment) = args.config.as_ref().or(args.file.as_ref()) else {
        bail!(exit::Usage("FILE is missing".to_string()));
    };
    if args.config.is_some() || is_configuration(experiment) {
        return check_config(args, experiment);
    }
    if args.against.is_some() {
        let path = experiment.display();
        bail!(exit::Usage(format!("--against is for a configuration; {path} is an experiment")));
    }
    let inputs = inputs(args.engine, experiment, &args.overrides, &args.args)?;
    let options = args.args.options(None);
    let versions = process::versions(&options.python, engines::packages(args.engine))?;
    let settings = engines::all_settings(&inputs, &options)?;
    let (effective, problem) = match args.engine {
        Engine::Verl => {
            let composed = verl::compose::of_settings(&options.python, &settings)?;
            let unchecked = composed.unchecked.as_ref();
            let unchecked = unchecked.map(|why| format!("it is not asked: {why}"));
            (composed.beside(settings), composed.validation.or(unchecked))
        }
        _ => (trl::check::effective(&options.python, settings)?, None),
    };
    let agrees = effective.iter().all(Effective::agrees) && problem.is_none();
    if args.json {
        let rows = as_json(&effective);
        println!("{}", json!({"versions": versions, "settings": rows, "validation": problem}));
        return Ok(exit::agreed(agrees));
    }
    print(args.engine, &effective, "—");
    if let Some(problem) = problem {
        output::tell(format!("verl's own validation: {problem}"));
    }
    let all = versions.iter().map(|(name, version)| format!("{name} {version}"));
    eprintln!("{}", all.collect::<Vec<_>>().join(", "));
    Ok(exit::agreed(agrees))
}

/// A trainer's configuration, not an experiment.
fn is_configuration(path: &Path) -> bool {
    let kind = path.extension().and_then(|it| it.to_str());
    if path.is_dir() || !path.exists() || kind == Some("toml") {
        return false;
    }
    let is_ours = |value: serde_json::Value| {
        ["dapo", "experiment"].iter().any(|key| value.get(key).is_some())
    };
    kind != Some("json") || !files::read_json(path).is_ok_and(is_ours)
}

/// The configuration is from outside this harness.
fn check_config(args: &EngineCheckArgs, config: &Path) -> Result<ExitCode> {
    args.args.check(args.engine)?;
    let asked = match &args.against {
        Some(experiment) => train::load(experiment, None, &args.overrides)?.0,
        None => args.overrides.apply(starter::paper()?, Path::new("the paper's settings"))?,
    };
    let options = args.args.options(None);
    let (python, processes) = (&options.python, options.processes);
    let (named, (effective, refusals), traps, note) = match args.engine {
        Engine::Native => bail!(exit::Usage("the native engine has no configuration".to_string())),
        Engine::Verl => {
            let composed = verl::compose::of_file(python, config)?;
            let compared = verl::traps::compared(&composed, &asked, options.cards);
            let unchecked = composed.unchecked.as_ref();
            let unchecked =
                unchecked.map(|why| format!("not checked: verl's own validation: {why}"));
            let note = match composed.version.as_str() {
                "" => Some(
                    "not checked: keys that were added to verl's own, and verl's own validation; both need \
                     .hydra/overrides.yaml and a Python with that verl"
                        .to_string(),
                ),
                _ => unchecked,
            };
            let traps = verl::traps::traps(&composed, &asked);
            (composed.named(), compared, traps, note)
        }
        Engine::Trl => {
            let config = trl::written::TrlConfig::of_file(python, config)?;
            let compared = config.compared(&asked, processes);
            let note = config.partial.as_ref().map(|reason| {
                format!("TRL's own values of what is not stated are not known: {reason}")
            });
            ("TRL".to_string(), compared, config.traps(&asked), note)
        }
    };
    let stated = |it: &&Effective| it.value.is_none();
    let unknown: Vec<&str> =
        effective.iter().filter(stated).map(|it| it.setting.name.as_str()).collect();
    let agrees = traps.is_empty() && effective.iter().all(Effective::agrees);
    let code = if agrees && !unknown.is_empty() {
        ExitCode::from(exit::INCONCLUSIVE)
    } else {
        exit::agreed(agrees)
    };
    if args.json {
        let rows = as_json(&effective);
        let all = json!({"of": named, "settings": rows, "traps": traps, "refusals": refusals,
            "not_stated": unknown, "note": note});
        output::json_line(&all);
        return Ok(code);
    }
    print(args.engine, &effective, "not stated");
    for trap in &traps {
        let Trap { name, key, value, what } = trap;
        println!("{}", visible::message(&format!("{name}: {key} = {value}: {what}")));
    }
    for refusal in &refusals {
        let name = args.engine.name();
        output::tell(format!("{name} cannot do what {} asks: {refusal}", asked.name));
    }
    let (all, differs) = (effective.len(), effective.iter().filter(|it| !it.agrees()).count());
    if let Some(note) = note {
        output::tell(note);
    }
    let beside = format!("{named} beside {}: {differs} of {all} keys differ", asked.name);
    output::tell(format!("{beside}, {} not stated; traps: {}", unknown.len(), traps.len()));
    Ok(code)
}

fn as_json(effective: &[Effective]) -> Vec<serde_json::Value> {
    let row = |it: &Effective| json!({"setting": it.setting, "effective": it.value, "agrees": it.value.as_ref().map(|_| it.agrees())});
    effective.iter().map(row).collect()
}

fn print(engine: Engine, effective: &[Effective], absent: &str) {
    let short = |value: &serde_json::Value| {
        let text = value.to_string();
        if text.len() > 30 {
            format!("{}…", text.chars().take(29).collect::<String>())
        } else {
            text
        }
    };
    let rows = effective.iter().map(|it| {
        let found = it.value.as_ref().map_or(absent.to_string(), &short);
        let word = if it.agrees() { "" } else { "differs" };
        [
            it.setting.name.clone(),
            short(&it.setting.value),
            found,
            it.setting.key.clone(),
            word.to_string(),
        ]
    });
    let columns = format!("setting | asked | {} | key | ", engine.name());
    print!("{}", output::table(&columns, rows));
}
