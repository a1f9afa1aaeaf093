//! Golden runs: whether this program still computes what it did when they were blessed.
//!
//! Two parts. *exact*: a short run whose ledger must be the golden one, bit for bit. *curves*:
//! several seeds of a short run with `fast` arithmetic, whose mean curves must lie within
//! declared margins of the golden ones (two one-sided tests). The rule for both stands in
//! `rule.toml` beside the golden files, and is fixed before anything is compared.

pub mod bless;
pub mod curves;
pub mod exact;
pub mod rule;

use crate::base::files;
use crate::experiment::{Experiment, extends};
use crate::policy::checkpoint;
use crate::records::run_folder::Outcome;
use crate::records::{Ending, RunFolder};
use crate::statistics::equivalence;
use crate::training::run::inputs::Inputs;
use crate::training::run::{self, Event};
use crate::training::{Ended, Unfinished};
use crate::verification::diff;
use std::path::{Path, PathBuf};

/// A golden run that cannot be made, read or compared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file.
    #[error(transparent)]
    File(#[from] files::Error),
    /// `rule.toml` is not a rule.
    #[error("{}: {reason}", path.display())]
    Rule {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The experiment file.
    #[error(transparent)]
    Experiment(#[from] extends::Error),
    /// A run.
    #[error(transparent)]
    Run(#[from] run::Error),
    /// A comparison of two runs.
    #[error(transparent)]
    Diff(#[from] diff::Error),
    /// A checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// Values that no statistic exists for.
    #[error("{point}: {source}")]
    Statistics {
        /// The compared value.
        point: String,
        /// What is wrong.
        source: equivalence::Error,
    },
    /// Nothing was blessed yet.
    #[error("{} does not exist: there is no golden run; `dapo regress --bless --reason …` makes it", path.display())]
    NotBlessed {
        /// The file.
        path: PathBuf,
    },
    /// The golden curves were made by another rule or of another arm or data.
    #[error("{}: {what} is not that of the golden curves ({golden}, now {now}); bless them again", path.display())]
    Stale {
        /// The golden file.
        path: PathBuf,
        /// The arm, an input, the rule.
        what: String,
        /// When it was blessed.
        golden: String,
        /// Now.
        now: String,
    },
    /// A run that ended before its last step has no whole curve.
    #[error(
        "seed {seed}: the run ended as {ending:?} and not after its last rollout step: {reason}"
    )]
    Ended {
        /// The run seed.
        seed: u64,
        /// How it ended.
        ending: Ending,
        /// The run's own words.
        reason: String,
    },
    /// A value of the rule that a run does not record.
    #[error("seed {seed}: the run records no {value} at rollout steps {first} to {last}")]
    NoValue {
        /// The run seed.
        seed: u64,
        /// The name.
        value: String,
        /// First rollout step.
        first: u64,
        /// Last rollout step.
        last: u64,
    },
    /// A blessing without a reason.
    #[error("a reason of at least one word must be given")]
    NoReason,
    /// A blessing from files that no commit holds.
    #[error("{} has changes that are not committed, {first} first: commit them, so that the log can name what was blessed", root.display())]
    Dirty {
        /// The folder in the repository.
        root: PathBuf,
        /// The first changed path.
        first: String,
    },
    /// git cannot say.
    #[error("git {command} in {}: {reason}", root.display())]
    Git {
        /// What was asked.
        command: String,
        /// The folder.
        root: PathBuf,
        /// What it said.
        reason: String,
    },
}

/// Runs an experiment in an empty folder to its end.
///
/// # Errors
/// As [`run::run`].
pub fn complete(inputs: &Inputs, folder: &RunFolder) -> Result<Outcome, Error> {
    let never = || false;
    match run::run(inputs, folder, Unfinished::Restart, &never, &mut |_: Event| ())? {
        Ended::Finished(outcome) => Ok(outcome),
        Ended::Stopped(step) => unreachable!("nobody asked it to stop, after step {step}"),
    }
}

/// The experiment file of a rule, resolved.
///
/// # Errors
/// As [`extends::load`].
pub fn experiment(rule: &Path, file: &Path) -> Result<Experiment, Error> {
    let folder = rule.parent().unwrap_or(Path::new("."));
    Ok(extends::load(&folder.join(file))?)
}

/// The files below the folder of golden runs.
#[derive(Debug, Clone)]
pub struct Golden {
    root: PathBuf,
}

impl Golden {
    /// A folder with a `rule.toml`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What is run and by which margins it is judged.
    pub fn rule(&self) -> PathBuf {
        self.root.join("rule.toml")
    }

    /// The records of the exact run; `dapo diff` reads it as a run.
    pub fn exact(&self) -> RunFolder {
        RunFolder::at(self.root.join("exact"))
    }

    /// The reference curves.
    pub fn curves(&self) -> PathBuf {
        self.root.join("fast/curves.json")
    }

    /// What was blessed when, and why.
    pub fn log(&self) -> PathBuf {
        self.root.join("LOG.md")
    }
}
