//! Why a study cannot be read.

use crate::base::files;
use crate::experiment::grid;
use std::path::PathBuf;

/// A study that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder cannot be read.
    #[error(transparent)]
    File(#[from] files::Error),
    /// A grid cannot be used.
    #[error(transparent)]
    Grid(#[from] grid::Error),
    /// A file contradicts itself.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The file or folder.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
}
