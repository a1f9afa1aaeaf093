//! A run of another trainer, recorded like a run of this harness: rendered, started, followed, imported.

use crate::base::{files, python};
use crate::engines::following::STARTED;
use crate::engines::trl::{self, outputs::TrlOutputs};
use crate::engines::verl::{self, outputs::VerlOutputs, settings::Cards};
use crate::engines::{EngineError, Imported, Outputs, Running, Setting, process};
use crate::experiment::Engine;
use crate::records::RunFolder;
use crate::training::run::{self, RunEvent, inputs::Inputs};
use crate::training::{RunEnded, Stepper, TrainingError, Unfinished};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Installed versions where the trainer ran.
const VERSIONS: &str = "versions.json";

/// How another trainer is started.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Another trainer")]
pub struct EngineOptions {
    /// Python that has the other trainer. Default: DAPO_PYTHON_TRL or DAPO_PYTHON_VERL, else DAPO_PYTHON, else python3.
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<String>,
    /// Processes of accelerate that share each pass. Default: 1.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub processes: Option<u64>,
    #[command(flatten)]
    pub cards: Cards,
    /// A key of verl that changes no number, such as
    /// actor_rollout_ref.rollout.tensor_model_parallel_size=4; may be repeated.
    #[arg(long = "engine-set", value_name = "KEY=VALUE")]
    pub free: Vec<String>,
    /// Existing outputs: nothing is started.
    #[arg(skip)]
    pub from: Option<PathBuf>,
}

impl EngineOptions {
    /// The first flag that is given although `engine` does not read it, and the engines that read it.
    pub fn unread(&self, engine: Engine) -> Option<(&'static str, &'static [Engine])> {
        let flags: [(&str, bool, &[Engine]); 5] = [
            ("--engine-set", !self.free.is_empty(), &[Engine::Verl]),
            ("--nodes", self.cards.nodes.is_some(), &[Engine::Verl]),
            ("--gpus-per-node", self.cards.per_node.is_some(), &[Engine::Verl]),
            ("--processes", self.processes.is_some(), &[Engine::Trl]),
            ("--python", self.python.is_some(), &[Engine::Trl, Engine::Verl]),
        ];
        let unread = |(_, given, of): &(&str, bool, &[Engine])| *given && !of.contains(&engine);
        flags.into_iter().find(unread).map(|(flag, _, readers)| (flag, readers))
    }

    pub fn processes(&self) -> u64 {
        self.processes.unwrap_or(1)
    }

    /// Trainers need different versions of the same packages: each may have a Python of its own.
    pub fn python(&self, engine: Engine) -> String {
        let own = || {
            let name = format!("DAPO_PYTHON_{}", engine.name().to_uppercase());
            std::env::var(name).ok().filter(|python| !python.is_empty())
        };
        self.python.clone().or_else(own).unwrap_or_else(python::of_environment)
    }
}

/// The trainer comes first.
pub fn packages(engine: Engine) -> &'static [&'static str] {
    match engine {
        Engine::Native => &[],
        Engine::Trl => &trl::PACKAGES,
        Engine::Verl => &verl::PACKAGES,
    }
}

/// Errors: an arm that the engine cannot run.
pub fn all_settings(inputs: &Inputs, options: &EngineOptions) -> Result<Vec<Setting>, EngineError> {
    match inputs.experiment.engine {
        Engine::Native => Ok(Vec::new()),
        Engine::Trl => trl::render::all_settings(inputs, options.processes()),
        Engine::Verl => verl::render::all_settings(inputs, options.cards, &options.free),
    }
}

/// Errors: as [`all_settings`]; a prompt that cannot be rendered, a folder that cannot be written.
pub fn render(
    inputs: &Inputs,
    folder: &Path,
    options: &EngineOptions,
) -> Result<Vec<Setting>, EngineError> {
    match inputs.experiment.engine {
        Engine::Native => Ok(Vec::new()),
        Engine::Trl => trl::render::render(inputs, folder, options.processes()),
        Engine::Verl => verl::render::render(inputs, folder, options.cards, &options.free),
    }
}

pub fn advice(inputs: &Inputs, options: &EngineOptions, settings: &[Setting]) -> Vec<String> {
    let start = match (inputs.experiment.engine, options.processes()) {
        (Engine::Verl, _) => "./launch.sh, on every node".to_string(),
        (_, 1) => "python train.py".to_string(),
        (_, processes) => format!("accelerate launch --num_processes {processes} train.py"),
    };
    let start = format!("start it in the folder: {start}");
    [start].into_iter().chain(verl::render::kept_too_few(inputs, settings)).collect()
}

/// As [`run::run`], for any engine. Errors: as of that; an arm that the engine cannot run, an engine that is not
/// installed or ends early, outputs that are not what the arm makes.
pub fn run(
    inputs: &Inputs,
    folder: &RunFolder,
    options: &EngineOptions,
    unfinished: Unfinished,
    stop: &dyn Fn() -> bool,
    watch: &mut dyn FnMut(RunEvent),
) -> Result<RunEnded, TrainingError> {
    let engine = inputs.experiment.engine;
    if engine.is_native() {
        return run::run(inputs, folder, unfinished, stop, watch);
    }
    // Fails before the folder is made.
    all_settings(inputs, options)?;
    match &options.from {
        None => drop(process::versions(&options.python(engine), packages(engine))?),
        Some(_) if folder.path("manifest.json").exists() => {}
        Some(from) => outputs(inputs, from, options, None)?.begins()?,
    }
    run::run_with(inputs, folder, unfinished, stop, watch, &|checkpoint| {
        let outputs = match &options.from {
            Some(from) => outputs(inputs, from, options, None)?,
            None => begin(inputs, &folder.path("engine"), options)?,
        };
        let from = options.from.clone().unwrap_or_else(|| folder.path("engine"));
        note_versions(folder, engine, &from)?;
        let counters = checkpoint.map(|loaded| loaded.progress.counters).unwrap_or_default();
        let stepper: Box<dyn Stepper + '_> = Box::new(Imported { inputs, outputs, counters });
        Ok(stepper)
    })
}

fn outputs<'a>(
    inputs: &'a Inputs,
    folder: &Path,
    options: &EngineOptions,
    running: Option<Running>,
) -> Result<Box<dyn Outputs + 'a>, EngineError> {
    Ok(match inputs.experiment.engine {
        Engine::Verl => {
            verl::render::same_settings(inputs, folder, options.cards, &options.free)?;
            Box::new(VerlOutputs::open(inputs, folder, running)?)
        }
        _ => {
            trl::render::same_settings(inputs, folder, options.processes())?;
            Box::new(TrlOutputs::open(inputs, folder, options.processes(), running)?)
        }
    })
}

/// The trainer resumes its own newest checkpoint.
fn begin<'a>(
    inputs: &'a Inputs,
    folder: &Path,
    options: &EngineOptions,
) -> Result<Box<dyn Outputs + 'a>, EngineError> {
    let engine = inputs.experiment.engine;
    render(inputs, folder, options)?;
    let versions = process::versions(&options.python(engine), packages(engine))?;
    files::write_json(&folder.join(VERSIONS), &versions)?;
    files::remove_file(&folder.join(STARTED))?;
    let mut command = python::command(&options.python(engine));
    if engine == Engine::Trl && options.processes() > 1 {
        command.args(["-m", "accelerate.commands.launch", "--num_processes"]);
        command.arg(options.processes().to_string());
    }
    command.arg("train.py").current_dir(folder);
    command.env("HF_HUB_OFFLINE", "1").env("DAPO_PARENT", std::process::id().to_string());
    let running = Running::start(command, &folder.join("output.log"))?;
    outputs(inputs, folder, options, Some(running))
}

/// Adds versions to the run's facts.
fn note_versions(run: &RunFolder, engine: Engine, from: &Path) -> Result<(), EngineError> {
    let read = files::optional(files::read_json(&from.join(VERSIONS)))?;
    let Some(versions): Option<BTreeMap<String, String>> = read else { return Ok(()) };
    let mut environment = run.environment()?;
    let all = versions.iter().map(|(name, version)| format!("{name} {version}"));
    let fact = format!("{}: {}", engine.name(), all.collect::<Vec<_>>().join(", "));
    environment.facts.insert("engine".to_string(), fact);
    Ok(files::write_json(&run.path("environment.json"), &environment)?)
}
