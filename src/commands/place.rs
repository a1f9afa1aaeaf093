//! Flags of a policy's device and form, for every verb that takes a checkpoint folder.

use crate::base::workers;
use crate::commands::{bounds, exit::Usage};
use crate::experiment::{Device, Execution, Experiment, Place, WeightKind, extends, named};
use crate::numerics::Numerics;
use crate::policy::{Qwen2, checkpoint};
use crate::task::Tokenizer;
use anyhow::{Result, bail};
use std::path::Path;

/// Where and in which form a policy is held.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct PlaceArgs {
    /// What computes: cpu, cuda or cuda:N; exact arithmetic is on the processor
    #[arg(long, default_value = "cpu")]
    device: Device,
    /// Form of the weights; exact arithmetic is f32
    #[arg(long, value_enum, default_value = "f32")]
    weights: WeightKind,
}

/// Other values of an experiment's keys than its file's.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct OverrideArgs {
    /// Another value of a key of the experiment, such as training.rollout_steps=2 or
    /// dapo.clip.high=0.3; may be repeated. It is checked as in a file, and is part of the arm.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl OverrideArgs {
    /// The experiment of a TOML file or of an arm's name, or a resolved one.
    ///
    /// # Errors
    /// An experiment or an override that cannot be used, and one that a flag states too.
    pub fn load(&self, name: &Path, flags: &[(&str, bool)]) -> Result<Experiment> {
        self.check(flags)?;
        Ok(named::load(name, &self.set)?)
    }

    /// # Errors
    /// As [`OverrideArgs::load`].
    pub fn apply(&self, experiment: Experiment, place: &Path) -> Result<Experiment> {
        if self.set.is_empty() {
            return Ok(experiment);
        }
        let chain = vec![(place.to_path_buf(), toml::Table::try_from(&experiment)?)];
        Ok(extends::resolve(extends::overridden(chain, &self.set)?)?)
    }

    /// A flag and `--set` may not state the same key. `flags`: key, and whether its flag is given.
    ///
    /// # Errors
    /// The key, with the way out.
    pub fn check(&self, flags: &[(&str, bool)]) -> Result<()> {
        let key = |text: &String| text.split('=').next().unwrap_or_default().trim().to_string();
        let within = |it: &str, key: &str| {
            it.strip_prefix(key).is_some_and(|it| it.is_empty() || it.starts_with('.'))
        };
        let keys: Vec<String> = self.set.iter().map(key).collect();
        let both = |(key, given): &&(&str, bool)| *given && keys.iter().any(|it| within(it, key));
        if let Some((flag, _)) = flags.iter().find(both) {
            bail!(Usage(format!(
                "--set {flag}: this command or a flag of it states this key; leave one out"
            )));
        }
        Ok(())
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
    /// Threads of LibTorch, instead of the file's. Other counts may give other bits.
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

impl PlaceArgs {
    /// Keys of flags, and whether they are given.
    pub fn flags(self) -> [(&'static str, bool); 2] {
        [
            ("execution.device", self.device != Device::default()),
            ("execution.weights", self.weights != WeightKind::default()),
        ]
    }

    /// Applies flags that are not defaults.
    pub fn overrule(self, execution: &mut Execution) {
        if self.device != Device::default() {
            execution.device = Some(self.device);
        }
        if self.weights != WeightKind::default() {
            execution.weights = Some(self.weights);
        }
    }

    /// Keys of resumable work contain it: another device or form rounds differently.
    pub fn told(self) -> String {
        format!("{} on {}", self.weights, self.device)
    }

    /// Loads and checks the checkpoint's tokenizer, too.
    ///
    /// # Errors
    /// As [`PlaceArgs::load`], and a tokenizer that is missing or has too many tokens.
    pub fn load_both(self, folder: &Path, numerics: Numerics) -> Result<(Qwen2, Tokenizer)> {
        let (model, tokenizer) = (self.load(folder, numerics)?, Tokenizer::load(folder)?);
        tokenizer.fits(folder, model.config().vocab_size)?;
        Ok((model, tokenizer))
    }

    /// # Errors
    /// A folder without a policy, a missing device, or exact arithmetic elsewhere than on the processor.
    pub fn load(self, folder: &Path, numerics: Numerics) -> Result<Qwen2> {
        let Self { device, weights } = self;
        let place = Place { device, weights, memory: None };
        if numerics == Numerics::Exact && place != Place::default() {
            bail!(Usage(format!(
                "--numerics exact is f32 on the processor, got --device {device} --weights {weights}"
            )));
        }
        Ok(checkpoint::load_model(folder)?.placed(place)?.with_numerics(numerics)?)
    }
}
