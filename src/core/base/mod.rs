//! What any program needs: files, workers, random streams.
//!
//! In: paths, bytes, seeds. Out: bytes, text, values, uniforms. Never: a word of reinforcement learning,
//! a tensor, a file that is not bounded.

pub mod bits;
pub mod contained;
pub mod visible;
pub mod files;
pub mod rng;
pub mod pace;
pub mod workers;
pub mod python;
pub mod program;
pub mod apart;

pub use crate::base::apart::ApartLimits;
pub use crate::base::bits::Bits;
pub use crate::base::files::locks::Lock;
pub use crate::base::pace::Pace;
pub use crate::base::rng::Purpose;
