//! A run with another trainer's steps: each is read, graded again, and recorded as far as the outputs tell of it.

use crate::algorithm::{Group, ScoredRollout, Selection};
use crate::engines::{EngineError, rendered};
use crate::policy::{CheckpointProgress, Qwen2, checkpoint, optimizer};
use crate::records::{Components, Counters, TensorDigest};
use crate::training::{Metrics, Phase, StepOutcome, Stepper, TrainingError};
use crate::training::{effects, run::inputs::Inputs, step::Step, trainer};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Debug, Default)]
pub struct ReadStep {
    pub groups: Vec<Group<ScoredRollout>>,
    /// Under our names where the definition is the same, else under `engine/`.
    pub metrics: Metrics,
    pub engine_seconds: f64,
}

/// Complete, or growing.
pub trait Outputs {
    /// Waits for rollout step `step`, from 1, in order. Errors: outputs that end before or differ from the arm.
    fn step(&mut self, step: u64) -> Result<ReadStep, EngineError>;

    /// Errors: outputs without a complete first step.
    fn begins(&self) -> Result<(), EngineError>;

    /// Folder of the policy after the step, if written.
    fn policy(&self, step: u64) -> Option<PathBuf>;

    /// The trainer itself can resume after this step.
    fn resumes_at(&self, step: u64) -> bool;
}

pub struct Imported<'a> {
    pub inputs: &'a Inputs,
    pub outputs: Box<dyn Outputs + 'a>,
    /// Those of a checkpoint, or of before the first step.
    pub counters: Counters,
}

impl Stepper for Imported<'_> {
    fn step(&mut self, watch: &mut dyn FnMut(Phase)) -> Result<StepOutcome, TrainingError> {
        let number = self.counters.rollout_steps + 1;
        let experiment = &self.inputs.experiment;
        let prompts = experiment.training.prompts_per_step;
        watch(Phase::Generation(0, (prompts * experiment.rollout.group_size) as usize));
        let started = Instant::now();
        let read = self.outputs.step(number)?;
        let waiting_seconds = started.elapsed().as_secs_f64();
        let mut selection = Selection::new(&experiment.dapo, prompts, Vec::new());
        selection
            .add_round(read.groups)
            .map_err(|source| TrainingError::CapReached { step: number, source })?;
        let selected = selection.select();
        let mut metrics = effects::of_rollouts(&selected, experiment, None);
        metrics.extend(read.metrics);
        let rate = optimizer::learning_rate(&experiment.optimizer, number - 1);
        metrics.insert("optimizer/learning_rate".to_string(), rate);
        let generated = effects::generated_by_engine(&metrics, experiment);
        metrics.extend(generated.map(|count| (effects::GENERATED_ROLLOUTS.to_string(), count)));
        let trained = selected.batch.iter().copied().zip(selected.advantages).collect();
        let mut components = Components::new();
        if self.outputs.policy(number).is_some() {
            self.counters.rollout_steps = number;
            let weights = checkpoint::weights_digest(&self.model()?, TensorDigest::Bytes);
            components.insert("weights".to_string(), weights);
        }
        self.counters = Counters {
            generation_rounds: self.counters.generation_rounds + 1,
            rollout_steps: number,
            updates: self.counters.updates + rendered::updates_of_step(experiment),
        };
        Ok(StepOutcome::Trained(Box::new(Step {
            groups: selected.groups,
            trained,
            carried: 0,
            metrics,
            components,
            seconds: [("engine", read.engine_seconds), ("waiting", waiting_seconds)]
                .map(|(phase, seconds)| (phase.to_string(), seconds))
                .into(),
        })))
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn model(&self) -> Result<Qwen2, TrainingError> {
        let step = self.counters.rollout_steps;
        if step == 0 {
            return self.inputs.base_policy();
        }
        let Some(folder) = self.outputs.policy(step) else {
            let path = PathBuf::from(format!("policies/step-{step:06}"));
            let reason = "the policy of this rollout step was not written".to_string();
            return Err(EngineError::Output { path, reason }.into());
        };
        self.inputs.executed(checkpoint::load_model(&folder)?)
    }

    fn save(&self, folder: &Path) -> Result<bool, TrainingError> {
        let step = self.counters.rollout_steps;
        if step == 0 || self.outputs.policy(step).is_none() || !self.outputs.resumes_at(step) {
            return Ok(false);
        }
        let model = self.model()?;
        let (experiment, counters) = (&self.inputs.experiment, self.counters);
        let prompts_drawn = counters.generation_rounds * trainer::prompts_per_round(experiment);
        let progress = CheckpointProgress { counters, prompts_drawn, carried: Vec::new() };
        checkpoint::save(folder, model.parameters(), None, &experiment.inputs.model, &progress)?;
        Ok(true)
    }
}
