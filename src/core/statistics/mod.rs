//! Intervals, tests and verdicts, as pure functions of outcomes and scores: no file, no clock, no run.

pub mod error;
pub mod distributions;
pub mod outcomes;
pub mod estimators;
pub mod equivalence;
pub mod between;
pub mod correlation;
pub mod accuracy;
pub mod aggregates;
pub mod scaling;
pub mod time_to_level;
pub mod comparison;
pub mod needed;
pub mod paired;

pub use crate::statistics::accuracy::{Accuracy, Question, Uncertainty};
pub use crate::statistics::between::{Interval, Mean, PermutationTest, WelchDifference};
pub use crate::statistics::comparison::{Design, Estimate, Measured, Verdict};
pub use crate::statistics::equivalence::Equivalence;
pub use crate::statistics::error::StatisticsError;
pub use crate::statistics::estimators::Sample;
pub use crate::statistics::outcomes::Counts;
pub use crate::statistics::paired::Paired;
pub use crate::statistics::time_to_level::TimeToEvent;

#[cfg(test)]
mod calibration_tests;
