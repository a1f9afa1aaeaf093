use crate::base::{files, program::path_word};
use crate::experiment::ExperimentError;
use crate::records::tables;
use crate::statistics::StatisticsError;
use std::error::Error;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    #[error(transparent)]
    File(#[from] files::FileError),
    #[error(transparent)]
    Table(#[from] tables::TableError),
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    #[error(transparent)]
    Statistics(#[from] StatisticsError),
    #[error("{}: {reason}", path.display())]
    Invalid { path: PathBuf, reason: String },
    #[error("arm {arm}: {source}")]
    Arm { arm: String, source: Box<dyn Error + Send + Sync> },
    #[error("two grids are named {name}, and their results would be mixed: rename one of them")]
    SameName { name: String },
    /// The grids would share a cell although they read different files.
    #[error(
        "{first} and {second} are the same arm on other inputs, so that their grids cannot share a study: \
         give one of them another --out"
    )]
    SharedArm { first: String, second: String },
    #[error(
        "{}: this cell was made from other inputs ({what}); use another --out, or bring back the inputs", path.display()
    )]
    OtherInputs { path: PathBuf, what: String },
    #[error("{} is in use by another `dapo ablate`: wait until it has ended, or name another --out", study.display())]
    InUse { study: PathBuf },
    #[error(
        "{}/ablate.lock was removed or replaced, so that another `dapo ablate` may have begun; nothing further was \
         written, and the same command continues where the study is now (--out)", study.display()
    )]
    LockLost { study: PathBuf },
    #[error("{} is a study that has no cells yet: dapo ablate {} runs it", study.display(), path_word(study))]
    NotBegun { study: PathBuf },
    #[error("cannot start {}: {source}", program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("cannot tell whether a process of {} has ended: {source}", program.display())]
    Wait { program: PathBuf, source: io::Error },
    #[error(
        "{} and {} are not about the same problems: {only} only in the first of them; \
         --common-problems compares those that are in all", one.display(), other.display()
    )]
    OtherProblems { one: PathBuf, other: PathBuf, only: String },
}

impl StudyError {
    pub fn invalid(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::Invalid { path: path.into(), reason: reason.into() }
    }
}
