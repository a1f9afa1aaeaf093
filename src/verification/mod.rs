//! Whether a run is what it says, and whether this program still computes what it did. Nothing is
//! repaired here.

pub mod diff;
pub mod doctor;
pub mod verify;
pub mod regress;

pub use crate::verification::diff::finding::{Pair, Place, Tally};
pub use crate::verification::diff::search::Search;
pub use crate::verification::diff::{Basis, First, Named, RunDiff};
pub use crate::verification::doctor::probes::Fingerprint;
pub use crate::verification::doctor::self_checks::SelfCheck;
pub use crate::verification::doctor::{Comparison, Examination};
pub use crate::verification::regress::Golden;
pub use crate::verification::regress::bless::Blessed;
pub use crate::verification::regress::curves::{Curves, Judged};
pub use crate::verification::regress::exact::Compared;
pub use crate::verification::regress::rule::{Fast, Rule};
pub use crate::verification::verify::Verification;
pub use crate::verification::verify::coverage::{AlteredProblems, Detection};
pub use crate::verification::verify::identity::Records;
pub use crate::verification::verify::replay::evaluations::{Executed, Picked};
pub use crate::verification::verify::replay::{Challenge, Replay};
pub use crate::verification::verify::steps::Waiting;
