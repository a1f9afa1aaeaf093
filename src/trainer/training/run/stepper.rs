//! The interface of a run to its trainer.

use crate::policy::{Qwen2, checkpoint};
use crate::records::Counters;
use crate::training::run::rows::progress;
use crate::training::{Phase, StepOutcome, Trainer, TrainingError};
use std::path::Path;

/// [`Trainer`], or another trainer whose outputs are read.
pub trait Stepper {
    /// After an error the records of earlier steps stay valid.
    fn step(&mut self, watch: &mut dyn FnMut(Phase)) -> Result<StepOutcome, TrainingError>;

    fn counters(&self) -> Counters;

    fn model(&self) -> Result<Qwen2, TrainingError>;

    /// `false` where the other trainer has no checkpoint of this step.
    fn save(&self, folder: &Path) -> Result<bool, TrainingError>;
}

impl Stepper for Trainer<'_> {
    fn step(&mut self, watch: &mut dyn FnMut(Phase)) -> Result<StepOutcome, TrainingError> {
        self.step(watch)
    }

    fn counters(&self) -> Counters {
        self.counters()
    }

    fn model(&self) -> Result<Qwen2, TrainingError> {
        Ok(self.policy().model().share())
    }

    fn save(&self, folder: &Path) -> Result<bool, TrainingError> {
        let (policy, base) = (self.policy(), &self.experiment().inputs.model);
        checkpoint::save(folder, policy.weights(), Some(policy.moments()), base, &progress(self))?;
        Ok(true)
    }
}
