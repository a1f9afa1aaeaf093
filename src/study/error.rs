//! Errors of reading a study.

use crate::base::files;
use crate::experiment::grid;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] files::Error),
    #[error(transparent)]
    Grid(#[from] grid::Error),
    #[error("{}: {reason}", path.display())]
    Invalid { path: PathBuf, reason: String },
}
