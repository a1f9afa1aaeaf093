//! The reference harness for DAPO (arXiv 2503.14476): the full trainer under pinned seeds, every
//! technique a switch, with records that a stranger can verify.
//!
//! A room uses only rooms above it, and a file of a room only files above it in the room's
//! `mod.rs`; a test checks both. A rollout goes through them in one direction:
//!
//! ```text
//! problem → prompt → response → reward → overlong → dynamic sampling → advantage → batch
//!         → objective → optimizer → checkpoint → evaluation → run folder → cell → report
//! ```

pub mod base; // files, workers, random streams: knows nothing of RL
pub mod statistics; // intervals, tests, verdicts
pub mod numerics; // arithmetic: exact, fast
pub mod algorithm; // the paper: one technique a file, with its settings
pub mod experiment; // what is asked: experiment files, identity, grids, facts about keys
pub mod records; // what is kept: run folder, ledger, tables
pub mod task; // problems in, grades out
pub mod policy; // decoder, sampling, optimizer, checkpoint
pub mod training; // Algorithm 1: step, update, evaluation, run, plan
pub mod study; // many runs: ablate; cells → comparisons, claims
pub mod report; // reports of runs and studies, exports
pub mod verification; // verify, replay, diff, regress, doctor
pub mod commands; // one file a verb
