//! What goes into a rollout step and what comes out of it.

use crate::algorithm::{Group, ScoredRollout, dynamic_sampling};
use crate::policy::sampling::generate;
use crate::records::{Components, Counters};
use crate::task::prompt;
use crate::training::{Metrics, update};
use std::collections::BTreeMap;
use std::time::Instant;

/// A step that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A problem that cannot be rendered.
    #[error(transparent)]
    Prompt(#[from] prompt::Error),
    /// A prompt that the model cannot serve.
    #[error("rollout step {step}: {source}")]
    Generate {
        /// Rollout step, from 1.
        step: u64,
        /// What is wrong.
        source: generate::Error,
    },
    /// An update that memory does not hold, or that exact arithmetic cannot serve.
    #[error("rollout step {step}: {source}")]
    Update {
        /// Rollout step, from 1.
        step: u64,
        /// What is wrong.
        source: update::Error,
    },
    /// Dynamic Sampling's cap, with `at_cap = "stop"`.
    #[error("rollout step {step}: {source}")]
    CapReached {
        /// Rollout step, from 1.
        step: u64,
        /// The share that was kept.
        source: dynamic_sampling::CapReached,
    },
}

/// A step's progress, for whoever watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Responses of a generation round: done of total.
    Generation(usize, usize),
    /// Updates of the step: done of total.
    Update(usize, usize),
}

/// One rollout step, done.
#[derive(Debug, Default)]
pub struct Step {
    /// Every group that was generated, with those carried over in front.
    pub groups: Vec<Group<ScoredRollout>>,
    /// Indices into `groups` of the batch, in batch order, with each rollout's advantage.
    pub trained: Vec<(usize, Vec<f64>)>,
    /// How many of `groups` were carried over from the step before.
    pub carried: usize,
    /// `stage/name` → value.
    pub metrics: Metrics,
    /// Of the ledger's components those that no record shows: `old_log_probs`, `gradients`,
    /// `weights` and `moments`.
    pub components: Components,
    /// Phase → wall-clock seconds.
    pub seconds: BTreeMap<String, f64>,
}

/// What a step came to.
#[derive(Debug)]
pub enum StepOutcome {
    /// The policy was trained.
    Trained(Box<Step>),
    /// No group had a useful gradient: there is nothing left to learn from. The trainer stands
    /// where it stood before the step.
    Saturated,
    /// A logit, loss or gradient was NaN or infinite. The weights are those of the last update
    /// that was made.
    Diverged(Box<Divergence>),
}

/// Where a value was not finite.
#[derive(Debug, thiserror::Error)]
pub enum NotFinite {
    /// In the distribution that a token is drawn from.
    #[error(transparent)]
    Sampling(generate::Error),
    /// In an update of the run, from 1.
    #[error("update {0}: {1}")]
    Update(u64, #[source] update::Error),
}

/// A value that was not finite, and what led to it.
#[derive(Debug)]
pub struct Divergence {
    /// The step as far as it came: what was generated, trained on and measured.
    pub step: Step,
    /// Which value.
    pub source: NotFinite,
}

/// Where Algorithm 1 stands between two rollout steps, beside the policy.
#[derive(Debug, Clone, Default)]
pub struct Position {
    /// The three clocks.
    pub counters: Counters,
    /// Position in the endless sequence of shuffled epochs.
    pub prompts_drawn: u64,
    /// Useful groups beyond the last batch, with `surplus = "carry"`.
    pub carried: Vec<Group<ScoredRollout>>,
}

/// Wall-clock seconds by phase.
#[derive(Default)]
pub(super) struct Clock(BTreeMap<String, f64>);

impl Clock {
    pub(super) fn time<T>(&mut self, phase: &str, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        *self.0.entry(phase.to_string()).or_default() += started.elapsed().as_secs_f64();
        result
    }

    pub(super) fn seconds(self) -> BTreeMap<String, f64> {
        self.0
    }
}
