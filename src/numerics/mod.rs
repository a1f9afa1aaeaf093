//! Arithmetic: exact (the same bits on any machine) and fast (LibTorch's kernels).
//!
//! In: slices and tensors. Out: slices and tensors. Never: a model, an objective.

pub mod error;
pub mod fast;
pub mod folded;
pub mod functions;
pub mod halving;
pub mod operations;
pub mod vectorised;
pub mod slices;
pub mod exact;

pub use crate::numerics::error::NumericsError;
pub use crate::numerics::exact::attention::Head;
pub use crate::numerics::exact::backward::{Backward, BackwardSetting};
pub use crate::numerics::exact::product::{Left, Panels};
pub use crate::numerics::exact::weights::{ExactGradients, ExactWeight, Parameters};
pub use crate::numerics::exact::window::{Tally, Window, Windows};
pub use crate::numerics::exact::{ExactAttention, ExactOperations, WindowedRows};
pub use crate::numerics::folded::Folded;
pub use crate::numerics::functions::Distribution;
pub use crate::numerics::operations::{HeadNorms, Numerics, Operations};
pub use crate::numerics::slices::Heads;
pub use crate::numerics::vectorised::Instructions;
