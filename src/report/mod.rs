//! Reports and exports, from run folders, cells and analyses: of recorded numbers only, without a policy or trainer.

pub mod error;
pub mod text;
pub mod endings;
pub mod words;
pub mod page;
mod axes;
mod intervals;
mod figures;
pub mod html;
pub mod markdown;
pub mod terminal;
pub mod audit;
pub mod claims;
pub mod cells;
mod published;
pub mod export;
pub mod printed;
pub mod run;
pub mod study;
pub mod compared;
pub mod index;

pub use crate::report::error::ReportError;
pub use crate::report::export::curves::RunCurves;
pub use crate::report::export::tracker::{CurveSender, Tracker};
pub use crate::report::run::arm::Technique;
pub use crate::report::run::dynamics::{RunCounts, ShownMetric};
pub use crate::report::run::evaluations::{
    SetResult, SetsTogether, ShownEstimate, ShownEvaluation,
};
pub use crate::report::run::load::{LoadedEvaluation, ProblemOutcomes, RunReportLoaded};
pub use crate::report::run::samples::SampleRollout;
pub use crate::report::study::StudyReport;
pub use crate::report::study::context::Context;
