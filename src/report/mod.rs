//! What a reader sees: reports of a run and of a study, exports.
//!
//! In: run folders, cells, analyses. Out: HTML, Markdown, JSON, other tools' formats. Never: a number that
//! no record has, a policy or a trainer.

pub mod error;
pub mod text;
pub mod endings;
pub mod words;
pub mod page;
mod axes;
mod figures;
pub mod html;
pub mod markdown;
pub mod terminal;
pub mod claims;
pub mod compared;
mod published;
mod quantities;
pub mod export;
pub mod run;
pub mod study;

pub use crate::report::error::ReportError;
pub use crate::report::export::curves::RunCurves;
pub use crate::report::export::tensorboard::Scalar;
pub use crate::report::export::tracker::{CurveSender, Tracker};
pub use crate::report::run::arm::{Decision, Technique};
pub use crate::report::run::dynamics::{RunCounts, ShownMetric};
pub use crate::report::run::evaluations::{SetResult, ShownEstimate, ShownEvaluation, Strip};
pub use crate::report::run::load::{LoadedEvaluation, ProblemOutcomes, RunReportLoaded};
pub use crate::report::run::samples::SampleRollout;
pub use crate::report::study::StudyReport;
pub use crate::report::study::context::Context;
