//! What a run did, in the terms of its plan, read from its folder.

use crate::base::files;
use crate::records::{Counters, RunFolder};
use crate::training::TrainingError;
use serde::{Deserialize, Serialize};

/// What a run did so far, over all the processes that worked on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Actual {
    /// The three clocks.
    pub counters: Counters,
    pub disk_bytes: f64,
    /// Peak memory of the run, where one process did all of it and could tell.
    pub peak_memory_bytes: Option<u64>,
}

/// Reads a run folder.
///
/// # Errors
/// Records that cannot be read.
pub fn read(folder: &RunFolder, peak_memory_bytes: Option<u64>) -> Result<Actual, TrainingError> {
    let counters = folder.metrics()?.last().map(|step| step.counters).unwrap_or_default();
    let mut disk_bytes = 0;
    for name in ["rollouts", "evaluations", "checkpoints"] {
        let path = folder.path(name);
        disk_bytes += if path.exists() { files::size_bytes(&path)? } else { 0 };
    }
    Ok(Actual { counters, disk_bytes: disk_bytes as f64, peak_memory_bytes })
}
