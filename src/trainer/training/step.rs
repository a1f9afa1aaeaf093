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
    /// Carried groups come first.
    pub groups: Vec<Group<ScoredRollout>>,
    /// Place in `groups` of each group of the batch → its rollouts' advantages.
    pub trained: BTreeMap<usize, Vec<f64>>,
    pub carried: usize,
    /// `stage/name` → value.
    pub metrics: Metrics,
    /// The components that no record shows: `old_log_probs`, `gradients`, `weights`, `moments`.
    pub components: Components,
    /// Phase → wall-clock seconds.
    pub seconds: BTreeMap<String, f64>,
}

#[derive(Debug)]
pub enum StepOutcome {
    Trained(Box<Step>),
    /// No group had a useful gradient; the number of correct responses. The trainer is in its state before the step.
    Saturated {
        correct: usize,
        differing: (usize, usize),
    },
    /// A number was not finite. The weights are those of the last successful update.
    Diverged(Box<Divergence>),
}

#[derive(Debug)]
pub struct Divergence {
    /// Up to the failure.
    pub step: Step,
    pub not_finite: NotFinite,
}

/// State of Algorithm 1 between two rollout steps, without the policy.
#[derive(Debug, Clone, Default)]
pub struct Position {
    pub counters: Counters,
    /// In the endless sequence of shuffled epochs.
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
