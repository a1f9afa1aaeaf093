//! The errors of reports, exports and statements.

use crate::base::files;
use crate::records::tables;
use crate::study::StudyError;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    File(#[from] files::FileError),
    #[error(transparent)]
    Table(#[from] tables::TableError),
    #[error(transparent)]
    Study(#[from] StudyError),
    #[error("{} is not a run folder: {source}", root.display())]
    NotARun { root: PathBuf, source: files::FileError },
    #[error("{} has not ended: there is no outcome.json to make a statement about", folder.display())]
    Unfinished { folder: PathBuf },
    /// The files are not those that the run wrote.
    #[error("{}: {reason}; no statement was written", folder.display())]
    Altered { folder: PathBuf, reason: String },
    #[error("{}: {reason}", python.display())]
    Tracker { python: PathBuf, reason: String },
    #[error("not a statement about a run: {0}")]
    Malformed(String),
}
