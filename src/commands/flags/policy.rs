//! Flags of verbs that take a checkpoint folder: which policy, and where and how it is held.

use crate::commands::exit::bail_usage;
use crate::experiment::{Device, Execution, Place, WeightKind};
use crate::numerics::Numerics;
use crate::policy::{Qwen2, checkpoint};
use crate::task::Tokenizer;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// A policy, and how it computes.
#[derive(Debug, Clone, clap::Args)]
pub struct PolicyArgs {
    /// Checkpoint folder in the Hugging Face layout.
    #[arg(long)]
    model: PathBuf,
    /// How numbers are computed: the same bits on any machine, or f32.
    #[arg(long, value_enum, default_value_t = Numerics::Fast)]
    numerics: Numerics,
    #[command(flatten)]
    place: PlaceArgs,
}

impl PolicyArgs {
    pub fn load(&self) -> Result<Qwen2> {
        self.place.load(&self.model, self.numerics)
    }

    /// Errors: as [`PlaceArgs::load_both`].
    pub fn load_both(&self) -> Result<(Qwen2, Tokenizer)> {
        self.place.load_both(&self.model, self.numerics)
    }
}

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
        let [(_, has_device), (_, has_weights)] = self.flags();
        execution.device = has_device.then_some(self.device).or(execution.device);
        execution.weights = has_weights.then_some(self.weights).or(execution.weights);
    }

    /// Keys of resumable work contain it: another device or form rounds differently.
    pub fn text(self) -> String {
        format!("{} on {}", self.weights, self.device)
    }

    /// Loads and checks the checkpoint's tokenizer, too.
    /// Errors: as [`PlaceArgs::load`], and a tokenizer that is missing or has too many tokens.
    pub fn load_both(self, folder: &Path, numerics: Numerics) -> Result<(Qwen2, Tokenizer)> {
        let (model, tokenizer) = (self.load(folder, numerics)?, Tokenizer::load(folder)?);
        tokenizer.fits(folder, model.config().vocab_size)?;
        Ok((model, tokenizer))
    }

    /// Errors: a folder without a policy, a missing device, or exact arithmetic elsewhere than on the processor.
    pub fn load(self, folder: &Path, numerics: Numerics) -> Result<Qwen2> {
        let Self { device, weights } = self;
        let place = Place { device, weights, memory: None };
        if numerics == Numerics::Exact && place != Place::default() {
            bail_usage!(
                "--numerics exact is f32 on the processor, got --device {device} --weights {weights}"
            );
        }
        Ok(checkpoint::load_model(folder)?.placed(place)?.with_numerics(numerics)?)
    }
}
