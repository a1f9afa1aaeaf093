//! Flags of verbs that take an experiment: other values of its keys.

use crate::base::{files, program, workers};
use crate::commands::bounds;
use crate::commands::exit::{bail_invalid, bail_usage};
use crate::experiment::sources::is_within;
use crate::experiment::{Device, Execution, Experiment, extends, grid::file, named};
use crate::study::cell::stored::{self, Recorded, Stored};
use crate::study::collection;
use anyhow::Result;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Default, clap::Args)]
pub struct InputsArg {
    /// Folder from which the relative paths of a run folder, a JSON experiment or a record start. Default:
    /// the working folder or a folder around it, whichever has the inputs that ran. The program has the
    /// embedded benchmark's base policy.
    #[arg(long, value_name = "FOLDER")]
    inputs: Option<PathBuf>,
}

impl InputsArg {
    pub fn is_for_experiments(&self, given: &str) -> Result<()> {
        if self.inputs.is_some() {
            bail_usage!("--inputs is for an experiment that already ran, and {given} is none");
        }
        Ok(())
    }
}

/// Other values of an experiment's keys than its file's.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct OverrideArgs {
    /// Another value of a key of the experiment, such as training.rollout_steps=20 or
    /// dapo.clip.high=0.3; may be repeated. It is checked as in a file, and is part of the arm.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl OverrideArgs {
    /// Leaves a stored experiment's paths as they are. Errors: a bad experiment.
    pub fn load(&self, name: &Path) -> Result<Experiment> {
        let path = Self::find(name)?;
        if stored::is_stored(&path) {
            return self.apply(Stored::read(&path)?.experiment, &path);
        }
        Ok(named::load(&path, &self.set)?)
    }

    /// Finds the inputs; `model` replaces the base policy. Errors: a bad experiment, other inputs than those that ran.
    pub fn load_with_inputs(
        &self,
        name: &Path,
        InputsArg { inputs }: &InputsArg,
        model: Option<&Path>,
    ) -> Result<(Experiment, Recorded)> {
        let path = Self::find(name)?;
        let with_model = |mut experiment: Experiment| {
            experiment.inputs.model = model.map_or(experiment.inputs.model, Path::to_path_buf);
            experiment
        };
        if stored::is_stored(&path) {
            let exchange = |experiment| Ok(with_model(self.apply(experiment, &path)?));
            return Stored::read(&path)?.placed(inputs.as_deref(), exchange);
        }
        if inputs.is_some() {
            bail_usage!(
                "--inputs is for JSON experiments and records; the paths of {} are relative to it",
                path.display()
            );
        }
        Ok((with_model(named::load(&path, &self.set)?), Recorded::default()))
    }

    fn find(name: &Path) -> Result<PathBuf> {
        let mut path = named::find(name)?;
        if named::is_run(&path) {
            path = files::foreign::inside(&path, "experiment.json")?;
        } else if file::in_folder(&path).is_some() || collection::has_grids(&path) {
            bail_invalid!(
                "{} is a study, which `dapo ablate {}` runs; name an experiment, such as its base.toml, or a cell's \
                 record",
                path.display(),
                program::path_word(&path)
            );
        } else if path.is_dir() {
            bail_invalid!(
                "{} is a folder without experiment.json; name a TOML file, an arm, a run folder, its experiment.json or \
                 a cell's record",
                path.display()
            );
        }
        Ok(path)
    }

    /// Errors: as [`OverrideArgs::load`].
    pub fn apply(&self, experiment: Experiment, place: &Path) -> Result<Experiment> {
        if self.set.is_empty() {
            return Ok(experiment);
        }
        let chain = vec![(place.to_path_buf(), toml::Table::try_from(&experiment)?)];
        Ok(extends::resolve(extends::overridden(chain, &self.set)?)?)
    }

    /// A flag and `--set` may not state the same key. `flags`: key, and whether its flag is given.
    /// Errors: the key, with the way out.
    pub fn check(&self, flags: &[(&str, bool)]) -> Result<()> {
        if let Some(text) = self.set.iter().find(|text| !text.contains('=')) {
            bail_usage!("--set {text}: expected KEY=VALUE, such as execution.seed=2");
        }
        for key in self.set.iter().map(|text| text.split('=').next().unwrap_or_default().trim()) {
            let is_stated = |(flag, given): &&(&str, bool)| *given && is_within(key, flag);
            if let Some((flag, _)) = flags.iter().find(is_stated) {
                bail_usage!(
                    "--set {flag}: this command or a flag of it sets this key; leave one out"
                );
            }
        }
        Ok(())
    }

    pub fn states(&self, key: &str) -> bool {
        self.set.iter().any(|text| text.split('=').next().is_some_and(|own| own.trim() == key))
    }

    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    pub fn texts(&self) -> &[String] {
        &self.set
    }
}

/// How an experiment runs, instead of what its file says.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct ExecutionArgs {
    /// Run seed, instead of the file's.
    #[arg(long)]
    seed: Option<u64>,
    /// Threads, instead of the file's. At the levels exact and exact-f32 any number gives the same bits.
    #[arg(long, value_parser = bounds::threads())]
    threads: Option<u64>,
    /// What computes, instead of the file's: cpu, cuda or cuda:N.
    #[arg(long)]
    device: Option<Device>,
}

impl ExecutionArgs {
    /// Keys of flags, and whether they are given.
    pub fn flags(self) -> [(&'static str, bool); 3] {
        [
            ("execution.seed", self.seed.is_some()),
            ("execution.threads", self.threads.is_some()),
            ("execution.device", self.device.is_some()),
        ]
    }

    /// Applies the flags, and sets the threads.
    pub fn overrule(self, execution: &mut Execution) {
        execution.seed = self.seed.unwrap_or(execution.seed);
        execution.threads = self.threads.unwrap_or(execution.threads);
        execution.device = self.device.or(execution.device);
        workers::set_count(execution.threads);
    }
}
