//! Flags that say where a policy is held: the same for every verb that takes a checkpoint folder.

use crate::base::workers;
use crate::commands::{bounds, exit::Usage};
use crate::experiment::{Device, Execution, Place, WeightKind};
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
    /// What flags say takes the place of an experiment's own, and the threads are set.
    pub fn overrule(self, execution: &mut Execution) {
        execution.seed = self.seed.unwrap_or(execution.seed);
        execution.threads = self.threads.unwrap_or(execution.threads);
        execution.device = self.device.or(execution.device);
        workers::set_count(execution.threads);
    }
}

impl PlaceArgs {
    /// What differs from the defaults takes the place of an experiment's own.
    pub fn overrule(self, execution: &mut Execution) {
        if self.device != Device::default() {
            execution.device = Some(self.device);
        }
        if self.weights != WeightKind::default() {
            execution.weights = Some(self.weights);
        }
    }

    /// For keys of what may be gone on with: another device or form rounds otherwise.
    pub fn told(self) -> String {
        format!("{} on {}", self.weights, self.device)
    }

    /// A checkpoint's policy there with the checkpoint's tokenizer, which fits it.
    ///
    /// # Errors
    /// As [`PlaceArgs::load`], and a tokenizer that is missing or has too many tokens.
    pub fn load_both(self, folder: &Path, numerics: Numerics) -> Result<(Qwen2, Tokenizer)> {
        let (model, tokenizer) = (self.load(folder, numerics)?, Tokenizer::load(folder)?);
        tokenizer.fits(folder, model.config().vocab_size)?;
        Ok((model, tokenizer))
    }

    /// A checkpoint's policy there, under an arithmetic.
    ///
    /// # Errors
    /// A folder that holds no policy, a device that is not there, or exact arithmetic elsewhere than
    /// on the processor.
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
