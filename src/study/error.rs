//! Errors of reading a study.

use crate::base::files;
use crate::experiment::ExperimentError;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    #[error(transparent)]
    File(#[from] files::FileError),
    #[error(transparent)]
    Grid(#[from] ExperimentError),
    #[error("{}: {reason}", path.display())]
    Invalid { path: PathBuf, reason: String },
}
