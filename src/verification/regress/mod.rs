//! Golden runs: whether this program still computes what it did when they were blessed. *exact* is a short run whose
//! ledger must be equal, bit for bit; *curves* are `fast` runs whose mean curves must be within margins (two one-sided
//! tests). `rule.toml` has the rule for both, fixed before anything is compared.

pub mod rule;
pub mod curves;
pub mod exact;
pub mod bless;

use crate::base::files;
use crate::experiment::{Experiment, extends};
use crate::records::{Outcome, RunFolder};
use crate::training::run::{self, RunEvent, inputs::Inputs};
use crate::training::{RunEnded, Unfinished};
use crate::verification::VerificationError;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blessed {
    pub part: &'static str,
    /// Ledger head, or digest of the curves' file.
    pub before: Option<String>,
    pub now: String,
    pub files: Vec<(PathBuf, Vec<u8>)>,
}

impl Blessed {
    pub fn write(&self) -> Result<(), VerificationError> {
        Ok(self.files.iter().try_for_each(|(path, bytes)| files::write_atomic(path, bytes))?)
    }
}

/// The folder must be empty.
pub fn complete(inputs: &Inputs, folder: &RunFolder) -> Result<Outcome, VerificationError> {
    match run::run(inputs, folder, Unfinished::Restart, &|| false, &mut |_: RunEvent| ())? {
        RunEnded::Finished(outcome) => Ok(outcome),
        RunEnded::Stopped(step) => unreachable!("nobody asked it to stop, after step {step}"),
    }
}

#[derive(Debug, Clone)]
pub struct Golden {
    root: PathBuf,
}

impl Golden {
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn rule(&self) -> PathBuf {
        self.root.join("rule.toml")
    }

    pub fn experiment(&self, file: &Path) -> Result<Experiment, VerificationError> {
        let path = extends::normal(&self.root.join(file));
        extends::named(&self.rule(), "experiment", &path)?;
        Ok(extends::load(&path)?)
    }

    /// `dapo diff` reads it as a run.
    pub fn exact(&self) -> RunFolder {
        RunFolder::at(self.root.join("exact"))
    }

    pub fn curves(&self) -> PathBuf {
        self.root.join("fast/curves.json")
    }

    pub fn log(&self) -> PathBuf {
        self.root.join("LOG.md")
    }
}
