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
    #[error(
        "{source}; nothing was set aside or recorded for that: repeat the command when it can be read"
    )]
    Unread { source: Box<Self> },
    #[error(
        "{source}; copy the whole file again, or remove it where no cell is on its way: \
         `dapo ablate GRID --out STUDY --launcher command` writes it again"
    )]
    Listing { source: files::FileError },
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

    /// What is wrong with a record or a run folder. Errors: it could not be read, and may be as it should.
    pub fn contradiction(self) -> Result<String, Self> {
        if files::is_unread(&self) {
            return Err(Self::Unread { source: Box::new(self) });
        }
        Ok(self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_read_contradicts_nothing() {
        let error = |code: i32| {
            let source = io::Error::from_raw_os_error(code);
            let file = files::FileError::Io { action: "read", path: "cells/a.json".into(), source };
            StudyError::from(tables::TableError::from(file))
        };
        let [io, missing] = [5, 2];
        let told = error(io).contradiction().unwrap_err().to_string();
        assert!(told.starts_with("cannot read cells/a.json: "), "{told}");
        assert!(told.contains("nothing was set aside or recorded"), "{told}");
        error(missing).contradiction().unwrap();
    }
}
