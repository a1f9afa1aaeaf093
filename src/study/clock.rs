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
    /// Floating-point operations a parameter: 2 for a generated token, 8 for a trained one (2 for its old
    /// probability, 2 forward, 4 backward). A nominal count, without evaluations and attention.
    Flops,
    /// Of the machine that ran the cell: whoever ran it vouches for them, so no declaration compares at them.
    #[value(skip)]
    Seconds,
}

impl Clock {
    pub fn words(self) -> &'static str {
        match self {
            Self::Updates => "updates",
            Self::GeneratedRollouts => "generated rollouts",
            Self::GeneratedTokens => "generated tokens",
            Self::Flops => "FLOPs per parameter",
            Self::Seconds => "seconds",
        }
    }

    /// Where an evaluation of a cell stands.
    pub fn at(self, cell: &Cell, evaluation: &CellEvaluation) -> f64 {
        match self {
            Self::Updates => evaluation.counters.updates as f64,
            Self::GeneratedRollouts => evaluation.generated_rollouts as f64,
            Self::GeneratedTokens | Self::Flops | Self::Seconds => {
                let steps = evaluation.counters.rollout_steps as usize;
                self.by_step(cell).into_iter().take(steps).flatten().sum()
            }
        }
    }

    /// What each rollout step of a cell adds, as far as it is recorded.
    pub fn by_step(self, cell: &Cell) -> Vec<Option<f64>> {
        let of_step = |step| match self {
            Self::Seconds => cell.step_seconds.get(step).copied(),
            _ => self.added(|name| *cell.metric(name)?.get(step)?),
        };
        (0..cell.counters.len()).map(of_step).collect()
    }

    /// What a rollout step adds by its metrics; `None` if not recorded, for updates (counters have them) and seconds.
    pub fn added(self, metric: impl Fn(&str) -> Option<f64>) -> Option<f64> {
        match self {
            Self::Updates | Self::Seconds => None,
            Self::GeneratedRollouts => metric("rollout/generated_rollouts"),
            Self::GeneratedTokens => metric("rollout/generated_tokens"),
            Self::Flops => {
                let trained = metric("train/response_tokens_mean")? * metric("train/rollouts")?;
                Some(2.0 * metric("rollout/generated_tokens")? + 8.0 * trained)
            }
        }
    }
}
