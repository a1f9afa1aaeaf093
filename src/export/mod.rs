//! A run in the formats that others read. What stands in them is recorded in the run folder;
//! nothing is measured, looked up or invented here.

pub mod inventory;
pub mod mllog;
pub mod ro_crate;
