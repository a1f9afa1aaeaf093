//! Runs and cells in the formats of other tools. Exports hold only what is recorded.

pub mod study;
pub mod curves;
pub mod tracker;
