//! The clocks of a run.

use serde::{Deserialize, Serialize};

/// The three clocks of a run. The paper's x-axis counts updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counters {
    /// Batches of prompts that were sampled, refill rounds included.
    pub generation_rounds: u64,
    /// Times the policy was trained on a full batch.
    pub rollout_steps: u64,
    /// Optimiser steps.
    pub updates: u64,
}
