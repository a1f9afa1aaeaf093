//! Input and result of a rollout step.

use crate::algorithm::{Group, ScoredRollout};
use crate::records::{Components, Counters, NotFinite};
use crate::training::Metrics;
use std::collections::BTreeMap;
use std::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Responses of a generation round: done, total.
    Generation(usize, usize),
    /// Updates of the step: done, total.
    Update(usize, usize),
}

#[derive(Debug, Default)]
pub struct Step {
    /// Every generated group, with the carried ones in front.
    pub groups: Vec<Group<ScoredRollout>>,
    /// Indices into `groups` of the batch, in batch order, with each rollout's advantage.
    pub trained: Vec<(usize, Vec<f64>)>,
    /// How many of `groups` were carried over.
    pub carried: usize,
    /// `stage/name` → value.
    pub metrics: Metrics,
    /// The ledger's components that no record shows: `old_log_probs`, `gradients`, `weights` and
    /// `moments`.
    pub components: Components,
    /// Phase → wall-clock seconds.
    pub seconds: BTreeMap<String, f64>,
}

#[derive(Debug)]
pub enum StepOutcome {
    Trained(Box<Step>),
    /// No group had a useful gradient, and so many responses were correct. The trainer is in its state
    /// before the step.
    Saturated {
        correct: usize,
    },
    /// A logit, loss or gradient was NaN or infinite. The weights are those of the last successful
    /// update.
    Diverged(Box<Divergence>),
}

#[derive(Debug)]
pub struct Divergence {
    /// As far as it came.
    pub step: Step,
    pub not_finite: NotFinite,
}

/// State of Algorithm 1 between two rollout steps, beside the policy.
#[derive(Debug, Clone, Default)]
pub struct Position {
    pub counters: Counters,
    /// Position in the endless sequence of shuffled epochs.
    pub prompts_drawn: u64,
    /// Useful groups beyond the last batch, with `surplus = "carry"`.
    pub carried: Vec<Group<ScoredRollout>>,
}

#[derive(Default)]
pub(super) struct StepClock(BTreeMap<String, f64>);

impl StepClock {
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
