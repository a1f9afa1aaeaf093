//! The paper, as pure functions: no files, no clock, no randomness, no loop.
//!
//! | Technique | Paper | Equation | File | Key under `[dapo]` |
//! |---|---|---|---|---|
//! | Clip-Higher | §3.1 | Eq. 10 | [`clip`] | `clip` |
//! | Dynamic Sampling | §3.2 | Eq. 11 | [`dynamic_sampling`] | `dynamic_sampling` |
//! | Token-level loss | §3.3 | Eq. 12 | [`aggregation`] | `aggregation`, `token_mean_unit` |
//! | — how much weight it moves | — | — | [`weight_shift`] | — |
//! | Overlong reward shaping | §3.4 | Eq. 13 | [`overlong`] | `overlong` |
//! | Group-relative advantage | §2.2 | Eq. 9 | [`advantage`] | `advantage` |
//! | KL penalty (removed by §2.3) | §2.2 | Eq. 5 | [`kl`] | `kl` |
//! | Objective | §3 | Eq. 8 | [`objective`] | all of the above |
//! | Mini-batches in length bands | — | — | [`length_bands`] | `training.mini_batch_order` |

pub mod rollout;
pub mod advantage;
pub mod aggregation;
pub mod tokens;
pub mod clip;
pub mod dynamic_sampling;
pub mod kl;
pub mod length_bands;
pub mod weight_shift;
pub mod overlong;
pub mod methods;
pub mod objective;
pub mod step;

pub use crate::algorithm::advantage::{Advantage, Rewarded, Std};
pub use crate::algorithm::aggregation::{Aggregation, StepTotals, TokenMeanUnit};
pub use crate::algorithm::clip::{Clip, DualClip, LogRatioClamp, Surrogate};
pub use crate::algorithm::dynamic_sampling::{
    AtCap, Buffer, DynamicSampling, FilterMetric, RefillNext, Surplus,
};
pub use crate::algorithm::kl::{Kl, KlEstimator};
pub use crate::algorithm::methods::{Dapo, Method, Rules, SeenResponse};
pub use crate::algorithm::overlong::{Beyond, Overlong, Punishment};
pub use crate::algorithm::rollout::{Finish, Group, Problem, Prompt, Rollout, ScoredRollout};
pub use crate::algorithm::step::{Row, Selected, Selection};
pub use crate::algorithm::tokens::Tokens;
pub use crate::algorithm::weight_shift::WeightShift;
