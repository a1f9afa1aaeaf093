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

pub mod advantage;
pub mod aggregation;
pub mod clip;
pub mod dynamic_sampling;
pub mod kl;
pub mod length_bands;
pub mod overlong;
pub mod weight_shift;
pub mod objective;

pub use crate::algorithm::aggregation::StepTotals;
pub use crate::algorithm::clip::Surrogate;
pub use crate::algorithm::dynamic_sampling::{Buffer, Next};
pub use crate::algorithm::weight_shift::WeightShift;
