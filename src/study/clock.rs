//! What runs are compared at: readings of their clocks.

use crate::study::{Cell, CellEvaluation};
use serde::{Deserialize, Serialize};

#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    Updates,
    /// Rollouts generated for training, dropped ones included.
    #[value(name = "rollouts")]
    GeneratedRollouts,
    /// Their response tokens.
    #[value(name = "tokens")]
    GeneratedTokens,
}

impl Clock {
    pub fn words(self) -> &'static str {
        match self {
            Self::Updates => "updates",
            Self::GeneratedRollouts => "generated rollouts",
            Self::GeneratedTokens => "generated tokens",
        }
    }

    /// Where an evaluation of a cell stands.
    pub fn at(self, cell: &Cell, evaluation: &CellEvaluation) -> f64 {
        match self {
            Self::Updates => evaluation.counters.updates as f64,
            Self::GeneratedRollouts => evaluation.generated_rollouts as f64,
            Self::GeneratedTokens => {
                let steps = evaluation.counters.rollout_steps as usize;
                let each = cell.metric("rollout/generated_tokens").unwrap_or(&[]);
                each.iter().take(steps).flatten().sum()
            }
        }
    }
}
