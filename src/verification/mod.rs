//! Checks runs, and whether this program still computes what it did. Nothing is repaired.

pub mod error;
pub mod diff;
pub mod doctor;
pub mod verify;
pub mod regress;

pub use crate::verification::diff::finding::{DiffPlace, DiffTally, Pair};
pub use crate::verification::diff::search::Search;
pub use crate::verification::diff::{Basis, FirstDifference, Named, RunDiff};
pub use crate::verification::doctor::{Examination, SelfCheck};
pub use crate::verification::error::VerificationError;
pub use crate::verification::regress::Golden;
pub use crate::verification::regress::curves::{RegressCurves, RegressJudged};
pub use crate::verification::regress::exact::Compared;
pub use crate::verification::regress::rule::{Fast, RegressRule};
pub use crate::verification::verify::Verification;
pub use crate::verification::verify::replay::evaluations::{Executed, Picked};
pub use crate::verification::verify::replay::{AlteredProblems, Detection, Replay};
pub use crate::verification::verify::steps::Waiting;
