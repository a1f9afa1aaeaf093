//! A run, or a study's cells, in the formats that others read. What stands in them is recorded in the run folder;
//! nothing is measured, looked up or invented here.

pub mod study;
pub mod tensorboard;
pub mod curves;
pub mod tracker;
