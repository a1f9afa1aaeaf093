//! Errors of reading a study.

use crate::base::files;
use crate::experiment::grid;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    #[error(transparent)]
    File(#[from] files::FileError),
    #[error(transparent)]
    Grid(#[from] grid::GridError),
    #[error("{}: {reason}", path.display())]
    Invalid { path: PathBuf, reason: String },
}
