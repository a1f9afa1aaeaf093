//! Arithmetic: the native engine over slices (exact sums or f32), and LibTorch's kernels.
//!
//! In: slices and tensors. Out: slices and tensors. Never: a model, an objective.

pub mod error;
pub mod vectorised;
pub mod fast;
pub mod flat;
pub mod arithmetic;
pub mod folded;
pub mod functions;
pub mod halving;
pub mod operations;
pub mod native;

pub use crate::numerics::arithmetic::{Arithmetic, Sums};
pub use crate::numerics::error::NumericsError;
pub use crate::numerics::folded::{Folded, SomeRows};
pub use crate::numerics::functions::Distribution;
pub use crate::numerics::native::attention::Head;
pub use crate::numerics::native::backward::BackwardSetting;
pub use crate::numerics::native::cache::Heads;
pub use crate::numerics::native::product::{Left, Panels};
pub use crate::numerics::native::weights::{NativeGradients, NativeWeight, Parameters, SlotSums};
pub use crate::numerics::native::window::{Tally, Window, Windows};
pub use crate::numerics::native::{NativeAttention, NativeOperations, NativeRows, Span};
pub use crate::numerics::operations::{Numerics, Operations};
pub use crate::numerics::vectorised::Instructions;
