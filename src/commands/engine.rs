//! `dapo engine`: an experiment on another trainer.

use crate::base::{files, visible};
use crate::commands::exit::{bail_invalid, bail_usage};
use crate::commands::flags::experiment::InputsArg;
use crate::commands::flags::grading;
use crate::commands::train::{self, TrainArgs};
use crate::commands::{OverrideArgs, exit, output};
use crate::engines::run::{self as engines, EngineOptions};
use crate::engines::{Effective, RunAuditOptions, Setting, Trap, audited, check};
use crate::experiment::{Engine, Grading, named, starter};
use crate::report::text;
use crate::training::run::inputs::{self, Inputs};
use anyhow::Result;
use clap::ValueEnum as _;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Run an experiment on another trainer, and import what came out
///
/// `dapo train` and `dapo ablate` run an experiment with `engine = "trl"` or `"verl"` in the same way. If
/// the trainer cannot do what an arm asks, an error names the key. The harness grades every response
/// again and evaluates the policies that the trainer wrote.
#[derive(Debug, clap::Subcommand)]
#[command(after_help = include_str!("help/engine.txt"))]
pub enum EngineVerb {
    /// Write the folder that the trainer is started in.
    #[command(after_help = include_str!("help/engine-render.txt"))]
    Render(RenderArgs),
    /// Compare what the installed trainer will do with what the arm asks, setting by setting.
    #[command(after_help = include_str!("help/engine-check.txt"))]
    Check(EngineCheckArgs),
    /// Audit a run that another trainer made on its own: what it did to responses, beside what is configured.
    #[command(after_help = include_str!("help/engine-audit.txt"))]
    Audit(RunAuditArgs),
    /// Render, start, follow and import: as `dapo train` with the engine of the command line.
    #[command(after_help = include_str!("help/engine-launch.txt"))]
    Launch(LaunchArgs),
    /// Make a run folder of the outputs of a trainer that ran elsewhere.
    #[command(after_help = include_str!("help/engine-import.txt"))]
    Import(ImportArgs),
}

fn trainers() -> impl TypedValueParser<Value = Engine> {
    let value = |it: &Engine| it.to_possible_value().map(|value| value.hide(it.is_native()));
    let values = Engine::value_variants().iter().filter_map(value);
    PossibleValuesParser::new(values).try_map(|name| Engine::from_str(&name, false))
}

#[derive(Debug, clap::Args)]
pub struct RenderArgs {
    #[arg(value_parser = trainers())]
    engine: Engine,
    /// Experiment, as `dapo plan` takes it.
    experiment: PathBuf,
    #[command(flatten)]
    inputs: InputsArg,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// Folder of the trainer.
    #[arg(long)]
    out: PathBuf,
    #[command(flatten)]
    options: EngineOptions,
}

#[derive(Debug, clap::Args)]
pub struct EngineCheckArgs {
    #[arg(value_parser = trainers())]
    engine: Engine,
    /// Experiment file (*.toml, or a record in JSON), the name of an arm, or a configuration of the trainer,
    /// as with --config.
    #[arg(required_unless_present = "config", conflicts_with = "config")]
    file: Option<PathBuf>,
    #[command(flatten)]
    inputs: InputsArg,
    #[command(flatten)]
    overrides: OverrideArgs,
    /// A configuration of the trainer. Its values are shown beside what the experiment asks, and every trap is
    /// named. What it does not state is shown as not stated, or, where --python has TRL, as that TRL's default.
    ///
    /// verl: what your command prints with `--cfg job` at its end (also in a log, with Ray's prefixes),
    /// `.hydra/config.yaml`, W&B's `config.yaml`, the dictionary that verl prints, and, where --python has verl,
    /// `.hydra/overrides.yaml`, overrides one a line, or YAML with a `defaults` list. A shell script is not read.
    ///
    /// trl: a GRPOConfig as YAML or JSON, W&B's `config.yaml`, or `training_args.bin`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The experiment to compare a configuration with. Default: the paper's DAPO on Qwen2.5-32B.
    #[arg(long, value_name = "EXPERIMENT")]
    against: Option<PathBuf>,
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: EngineOptions,
}

/// Responses are graded again and groups rebuilt: verl's by `uid` or prompt, TRL's by their places. A contradiction
/// between what was done and the configuration, or a grade, ends with exit code 4.
#[derive(Debug, clap::Args)]
pub struct RunAuditArgs {
    #[arg(value_parser = trainers())]
    engine: Engine,
    /// Folder of verl's `rollout_data_dir` (N.jsonl), or of TRL's `log_completions` (completions_N.parquet).
    folder: PathBuf,
    #[command(flatten)]
    options: RunAuditOptions,
    /// What grades again: answer-line, strict-box or last-number; or math-verify, FILE.py, FILE.py:FUNCTION or an
    /// experiment file, by the Python of DAPO_PYTHON.
    #[arg(long, value_name = "RULE|FILE", value_parser = grading::grading)]
    verifier: Option<Grading>,
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub struct LaunchArgs {
    #[arg(value_parser = trainers())]
    engine: Engine,
    #[command(flatten)]
    train: TrainArgs,
}

#[derive(Debug, clap::Args)]
pub struct ImportArgs {
    #[arg(value_parser = trainers())]
    engine: Engine,
    /// Folder that `dapo engine render` wrote and in which the trainer ran.
    #[arg(long, value_name = "FOLDER")]
    from: PathBuf,
    #[command(flatten)]
    train: TrainArgs,
}

/// Errors: an experiment, engine or folder that cannot be used.
pub fn run(verb: &EngineVerb) -> Result<u8> {
    match verb {
        EngineVerb::Render(args) => render(args),
        EngineVerb::Check(args) => check(args),
        EngineVerb::Audit(args) => audit(args),
        EngineVerb::Launch(args) => {
            refuse_native(args.engine)?;
            train::run_on(&args.train, Some(args.engine), None)
        }
        EngineVerb::Import(args) => {
            refuse_native(args.engine)?;
            if files::kind(&args.from)? != Some(files::FileKind::Folder) {
                bail_invalid!("--from {}: there is no such folder", args.from.display());
            }
            train::run_on(&args.train, Some(args.engine), Some(args.from.clone()))
        }
    }
}

fn refuse_native(engine: Engine) -> Result<()> {
    if engine.is_native() {
        bail_usage!("the native engine is this harness; `dapo train` runs it");
    }
    Ok(())
}

/// Reads everything but the base policy's weights.
fn inputs(
    engine: Engine,
    (experiment, folder): (&Path, &InputsArg),
    overrides: &OverrideArgs,
    options: &EngineOptions,
) -> Result<Inputs> {
    refuse_native(engine)?;
    train::check_flags(options, engine)?;
    overrides.check(&[("engine", true)])?;
    let (mut experiment, recorded) = overrides.load_with_inputs(experiment, folder, None)?;
    experiment.engine = engine;
    let inputs = inputs::prepare_without_weights(experiment)?;
    recorded.check(&inputs.manifest.inputs)?;
    Ok(inputs)
}

fn render(args: &RenderArgs) -> Result<u8> {
    let inputs =
        inputs(args.engine, (&args.experiment, &args.inputs), &args.overrides, &args.options)?;
    let settings = engines::render(&inputs, &args.out, &args.options)?;
    output::tell(format!("{} settings and the prompts of all rollout steps", settings.len()));
    engines::advice(&inputs, &args.options, &settings).iter().for_each(output::tell);
    output::path(&args.out.join("train.py"));
    Ok(exit::SUCCESS)
}

fn check(args: &EngineCheckArgs) -> Result<u8> {
    let file = args.config.as_ref().or(args.file.as_ref()).expect("clap requires one of both");
    if args.config.is_some() || is_configuration(file) {
        args.inputs.is_for_experiments("a configuration")?;
        return check_configuration(args, file);
    }
    if args.against.is_some() {
        named::find(file)?;
        bail_usage!("--against is for a configuration; {} is an experiment", file.display());
    }
    let inputs = inputs(args.engine, (file, &args.inputs), &args.overrides, &args.options)?;
    let check = check::arm(&inputs, &args.options)?;
    let code = exit::agreed(check.agrees());
    if args.json {
        let settings = as_json(&check.effective);
        output::json_line(&json!({
            "versions": check.versions, "settings": settings, "validation": check.problem,
            "traps": check.traps
        }));
        return Ok(code);
    }
    print(args.engine, args.engine.name(), &check.effective, "–");
    check.traps.iter().for_each(say_trap);
    if let Some(problem) = &check.problem {
        output::tell(format!("verl's own validation: {problem}"));
    }
    let versions = check.versions.iter().map(|(name, version)| format!("{name} {version}"));
    output::tell(text::joined(versions, ", "));
    Ok(code)
}

fn audit(args: &RunAuditArgs) -> Result<u8> {
    let RunAuditArgs { engine, folder, options, verifier, json } = args;
    if engine.is_native() {
        bail_usage!("`dapo verify` checks a run of this harness");
    }
    let audit = audited::run(*engine, folder, options, verifier.as_ref())?;
    output::document(*json, &audit, || {
        let names = audit.steps.values().flat_map(|numbers| numbers.keys().copied());
        let names: BTreeSet<&str> = names.collect();
        let rows = audit.steps.iter().map(|(step, numbers)| {
            let number =
                |name: &&str| numbers.get(name).map_or("–".to_string(), |it| text::number(*it));
            [step.to_string()].into_iter().chain(names.iter().map(number)).collect::<Vec<_>>()
        });
        output::table(&format!("step # | {} #", text::joined(&names, " # | ")), rows)
    });
    audit.contradictions.iter().filter(|_| !json).for_each(say_trap);
    audit.notes.iter().for_each(output::tell);
    audit.not_looked_at.iter().for_each(|what| output::tell(format!("not looked at: {what}")));
    Ok(exit::agreed(audit.contradictions.is_empty()))
}

/// Keys that are set and not looked at, in text.
const UNREAD_SHOWN: usize = 12;

/// A trainer's configuration, not an experiment.
fn is_configuration(path: &Path) -> bool {
    let kind = path.extension().and_then(|it| it.to_str()).map(str::to_ascii_lowercase);
    let kind = kind.as_deref();
    let is_arm = named::find(path).is_ok_and(|found| found != path);
    let is_name = kind.is_none() && !path.exists();
    if is_arm || path.is_dir() || is_name || kind == Some("toml") {
        return false;
    }
    let is_ours = |value: Value| ["dapo", "experiment"].iter().any(|key| value.get(key).is_some());
    kind != Some("json") || !files::read_json(path).is_ok_and(is_ours)
}

fn check_configuration(args: &EngineCheckArgs, file: &Path) -> Result<u8> {
    train::check_flags(&args.options, args.engine)?;
    if args.engine.is_native() {
        bail_usage!("the native engine has no configuration of its own");
    }
    let asked = match &args.against {
        Some(experiment) => args.overrides.load(experiment)?,
        None => args.overrides.apply(starter::paper()?, Path::new("the paper's settings"))?,
    };
    let check = check::configuration(args.engine, file, &asked, &args.options)?;
    let not_stated = check.not_stated();
    let is_known = !check.agrees() || check.is_whole();
    let code = if is_known { exit::agreed(check.agrees()) } else { exit::INCONCLUSIVE };
    if args.json {
        let settings = as_json(&check.effective);
        output::json_line(&json!({
            "of": check.of, "settings": settings, "traps": check.traps, "refusals": check.refusals,
            "not_stated": not_stated, "unread": check.unread, "note": check.note
        }));
        return Ok(code);
    }
    print(args.engine, &check.of, &check.effective, "not stated");
    check.traps.iter().for_each(say_trap);
    let (engine, arm) = (args.engine.name(), &asked.name);
    for refusal in &check.refusals {
        output::tell(format!("{engine} cannot do what {arm} asks: {refusal}"));
    }
    if let Some(unread) = check.unread.as_ref().filter(|unread| !unread.is_empty()) {
        let shown = unread.iter().take(UNREAD_SHOWN);
        let shown = shown.map(|it| format!("{} = {}", it.key, short(&it.value)));
        let more = unread.len().saturating_sub(UNREAD_SHOWN);
        let more = if more > 0 { format!(", and {more} more (--json)") } else { String::new() };
        output::tell(format!("set, and not looked at: {}{more}", text::joined(shown, ", ")));
    }
    check.note.iter().for_each(output::tell);
    let differing = check.effective.iter().filter(|setting| !setting.agrees()).count();
    let (keys, unstated, traps) = (check.effective.len(), not_stated.len(), check.traps.len());
    output::tell(format!(
        "{} beside {arm}: {differing} of {keys} keys differ, {unstated} not stated; traps: {traps}",
        check.of
    ));
    Ok(code)
}

fn say_trap(Trap { name, key, value, what }: &Trap) {
    output::say(format!("{name}: {key} = {value}: {what}"));
}

fn as_json(effective: &[Effective]) -> Vec<Value> {
    let row = |row: &Effective| {
        let agrees = row.value.as_ref().map(|_| row.agrees());
        let (setting, value) = (&row.setting, &row.value);
        json!({"setting": setting, "effective": value, "agrees": agrees, "default": row.is_default})
    };
    effective.iter().map(row).collect()
}

fn print(engine: Engine, of: &str, effective: &[Effective], absent: &str) {
    let rows = effective.iter().map(|row| {
        let mut own = row.value.as_ref().map_or(absent.to_string(), short);
        if row.is_default {
            own = format!("{own} ({of}'s default)");
        }
        let word = if row.agrees() { "" } else { "differs" };
        let Setting { name, value, key, .. } = &row.setting;
        [name.clone(), short(value), own, key.clone(), word.to_string()]
    });
    print!("{}", output::table(&format!("setting | asked | {} | key | ", engine.name()), rows));
}

fn short(value: &Value) -> String {
    visible::start(&value.to_string(), 30)
}
