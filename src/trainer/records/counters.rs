//! The three clocks of a run.

use serde::{Deserialize, Serialize};

/// The paper's x-axis counts updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Sampled batches of prompts, refill rounds included.
    pub generation_rounds: u64,
    /// Full batches trained on.
    pub rollout_steps: u64,
    /// Optimiser steps.
    pub updates: u64,
}

impl Counters {
    /// The base policy's evaluation is no result of a run that diverged, or has updates.
    pub fn is_result_of(self, run: Self, diverged: bool) -> bool {
        self.updates > 0 || !(diverged || run.updates > 0)
    }
}
