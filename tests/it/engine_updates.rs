//! Updates of another trainer, made again here of the responses that it wrote.

use dapo::algorithm::{Kl, Selected, Selection, StepTotals};
use dapo::base::{Purpose, rng::stream};
use dapo::engines::Outputs;
use dapo::policy::{Policy, batch::Cut, frozen};
use dapo::training::run::inputs::Inputs;
use dapo::training::update::{self, Settings, Updated};
use dapo::training::{Metrics, MiniBatch};

/// The first rollout step of an arm, from the base policy.
pub struct FirstStep<'a> {
    inputs: &'a Inputs,
    pub selected: Selected,
    /// The trainer's own of the step.
    pub metrics: Metrics,
    /// Of the base policy, one list for each row.
    pub old_log_probs: Vec<Vec<f64>>,
    policy: Policy,
}

impl<'a> FirstStep<'a> {
    pub fn of(inputs: &'a Inputs, outputs: &mut dyn Outputs) -> Self {
        let experiment = &inputs.experiment;
        let prompts = experiment.training.prompts_per_step;
        let mut selection = Selection::new(&experiment.dapo, prompts, Vec::new());
        let read = outputs.step(1).unwrap();
        selection.add_round(read.groups).unwrap();
        let selected = selection.select();
        let policy = Policy::new(inputs.base_policy().unwrap(), &experiment.optimizer);
        let cut = Cut::of(&experiment.execution);
        let old = frozen::read(policy.model(), &selected.rows, 1.0, cut).unwrap();
        Self { inputs, selected, metrics: read.metrics, old_log_probs: old.log_probs, policy }
    }

    /// One update on the rows of `members`; `mini_batches` of the step in all.
    pub fn update(&mut self, members: &[usize], mini_batches: u64, learning_rate: f64) -> Updated {
        let experiment = &self.inputs.experiment;
        let rows = &self.selected.rows;
        let penalty = experiment.dapo.kl != Kl::None {};
        let batch = MiniBatch {
            rows,
            members,
            old_log_probs: &self.old_log_probs,
            // π_old is the base policy in the first step.
            ref_log_probs: penalty.then_some(&self.old_log_probs[..]),
            sampler_log_probs: None,
            choice: &stream(1, Purpose::TokenChoice, &[]),
            totals: StepTotals {
                tokens: rows.iter().map(|row| row.loss_tokens()).sum(),
                mini_batches,
                max_response_tokens: experiment.rollout.max_response_tokens,
            },
        };
        let cut = Cut::of(&experiment.execution);
        let settings = Settings { dapo: &experiment.dapo, temperature: 1.0, cut };
        update::update(&mut self.policy, &batch, &settings, learning_rate).unwrap()
    }
}
