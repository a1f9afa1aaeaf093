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
    #[error("{} is not a run folder: {reason}", root.display())]
    NotARun { root: PathBuf, reason: &'static str },
    #[error("{}: {reason}", folder.display())]
    Refused { folder: PathBuf, reason: String },
    #[error("{}: {reason}", python.display())]
    Tracker { python: PathBuf, reason: String },
}
