//! The errors of verification.

use crate::base::files;
use crate::experiment::ExperimentError;
use crate::policy::PolicyError;
use crate::records::{RunFolder, tables};
use crate::statistics::StatisticsError;
use crate::study::StudyError;
use crate::training::TrainingError;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum VerificationError {
    #[error(transparent)]
    File(#[from] files::FileError),
    #[error(transparent)]
    Table(#[from] tables::TableError),
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Study(#[from] StudyError),
    #[error(transparent)]
    Training(#[from] TrainingError),
    #[error("{} is not a run folder: {}", .0.root().display(), .0.flaw())]
    NotARun(RunFolder),
    /// The sentence names the rule, run or blessing.
    #[error("{0}")]
    Refused(String),
    #[error("{point}: {source}")]
    Statistics { point: String, source: StatisticsError },
    #[error("{} does not exist: there is no golden run; `dapo regress --bless --reason …` makes it", path.display())]
    NotBlessed { path: PathBuf },
    #[error("{}: {what} is not that of the golden curves ({golden}, now {now}); bless them again", path.display())]
    Stale { path: PathBuf, what: String, golden: String, now: String },
}
