//! The reference harness for DAPO (arXiv 2503.14476): the full trainer under pinned seeds, every
//! technique a switch, with records that a stranger can verify.
//!
//! The rooms are in three crates, so that a change compiles little: `core/` and `trainer/`, which
//! compute and are optimised, and this one. In order: base, statistics, numerics, algorithm |
//! experiment, records, task, policy, training | study, report, verification, engines, commands.
//!
//! A room uses only rooms above it, and a file of a room only files above it in the room's
//! `mod.rs`; a test checks both. A rollout goes through them in one direction:
//!
//! ```text
//! problem → prompt → response → reward → overlong → dynamic sampling → advantage → batch
//!         → objective → optimizer → checkpoint → evaluation → run folder → cell → report
//! ```

pub use dapo_core::{algorithm, base, numerics, statistics};
pub use dapo_trainer::{experiment, policy, records, task, training};

pub mod study; // many runs: ablate; cells → comparisons, claims
pub mod report; // reports of runs and studies, exports
pub mod verification; // verify, replay, diff, regress, doctor
pub mod engines; // other trainers and other machines
pub mod commands; // one file a verb
