//! A cell of a grid: what one finished run (an arm with a seed) leaves for reports and
//! statistics, in one file. A study can be committed, continued elsewhere and analysed again
//! from its cells alone, without the run folders.

pub mod bits;
pub mod build;
pub mod check;
pub mod compare;
pub mod grading;
pub mod numbers;

use crate::base::files;
use crate::experiment::Experiment;
use crate::records::{Counters, tables};
use crate::study::Bits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Version of the record.
pub const FORMAT: u64 = 1;

/// Largest record, in bytes.
pub const MAX_BYTES: u64 = 50_000;

/// What no check of records can show, and what would; every verdict from records says it.
pub const ONLY_TRAINING: &str = "only training a cell again (dapo train CELL.json --out RUN, \
then dapo runs cells CELL.json --run RUN) shows that its record is of a run that took place";

/// A record that cannot be read or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file system or JSON refused.
    #[error(transparent)]
    File(#[from] files::Error),
    /// A table of a run folder cannot be read.
    #[error(transparent)]
    Table(#[from] tables::Error),
    /// The record, or a file of the run that it is made from, contradicts itself or another one.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
}

/// How a cell ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CellEnding {
    /// All rollout steps were done.
    Finished,
    /// Nothing was left to learn from; counts with its last evaluation.
    Saturated,
    /// A loss or gradient was not finite; counts with its last evaluation.
    Diverged,
    /// The process ended without an outcome; there is no result.
    Failed,
}

/// One finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// [`FORMAT`].
    pub format: u64,
    /// The arm's name when it was run; its identity is the hash.
    pub name: String,
    /// SHA-256 of the arm's canonical JSON.
    pub arm_sha256: String,
    /// The run seed.
    pub seed: u64,
    /// SHA-256 over arm, seed and inputs.
    pub run_key: String,
    /// `exact`, `exact-here` or `approximate`.
    pub exactness: String,
    /// Version of the harness.
    pub harness: String,
    /// How it ended.
    pub ending: CellEnding,
    /// One sentence on the ending.
    pub reason: String,
    /// The resolved experiment.
    pub experiment: Experiment,
    /// `data/train`, `tokenizer`, `base/model.safetensors`, … → SHA-256.
    pub inputs: BTreeMap<String, String>,
    /// The clocks after each rollout step; entry t is step t + 1.
    pub counters: Vec<Counters>,
    /// `stage/name` → a value for each rollout step; `None` where the step has none. Rounded to
    /// nine significant digits; to fewer, and without some metrics, where a run has so many
    /// steps that the record would be too large (`build::ROOM`).
    pub metrics: BTreeMap<String, Vec<Option<f64>>>,
    /// Set → ids of its problems, in the order of the outcomes.
    pub problems: BTreeMap<String, ProblemIds>,
    /// Every evaluation, in order.
    pub evaluations: Vec<CellEvaluation>,
    /// The last head of the hash chain; `None` when the run failed.
    pub ledger_head: Option<String>,
    /// `metrics.jsonl`, `evaluations.jsonl`, `ledger.jsonl` and, under the name
    /// `model.safetensors`, the last checkpoint's weights → SHA-256.
    pub digests: BTreeMap<String, String>,
    /// Machine facts, outside every comparison.
    pub environment: BTreeMap<String, String>,
    /// Wall-clock seconds of all sessions together, outside every comparison.
    pub wall_seconds: f64,
    /// SHA-256 of this record's canonical JSON with this field empty: it tells an edited or
    /// truncated record from a whole one, not an honest one from a forged one.
    pub record_sha256: String,
}

/// The problems of a set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProblemIds {
    /// How many there are.
    pub count: u64,
    /// SHA-256 over the ids, one a line, in order: two cells with the same digest were evaluated
    /// on the same problems.
    pub sha256: String,
}

/// One evaluation of one set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellEvaluation {
    /// `dev`, `mini-aime`, `mini-aime-plus`, or a file's stem.
    pub set: String,
    /// The clocks when it was evaluated.
    pub counters: Counters,
    /// Rollouts that had been generated for training by then.
    pub generated_rollouts: u64,
    /// k: samples of each problem.
    pub samples: u64,
    /// x_ij: problem after problem in the order of the set's ids, k bits each.
    pub outcomes: Bits,
    /// cons@k, which needs the predictions and so cannot be computed from `outcomes`.
    pub cons_at_k: f64,
    /// Share of truncated responses.
    pub truncated_share: f64,
    /// Mean response length in tokens.
    pub response_tokens_mean: f64,
    /// SHA-256 of the outcomes file in the run folder.
    pub outcomes_sha256: String,
}

impl CellEvaluation {
    /// c_i: correct samples of each problem.
    pub fn correct(&self) -> Vec<u64> {
        let samples = self.samples.max(1) as usize;
        let bits = self.outcomes.values();
        bits.chunks(samples).map(|row| row.iter().filter(|bit| **bit).count() as u64).collect()
    }

    /// p̂_i: share of correct samples of each problem.
    pub fn accuracies(&self) -> Vec<f64> {
        let samples = self.samples.max(1) as f64;
        self.correct().into_iter().map(|correct| correct as f64 / samples).collect()
    }

    /// avg@k.
    pub fn avg_at_k(&self) -> f64 {
        let accuracies = self.accuracies();
        accuracies.iter().sum::<f64>() / accuracies.len().max(1) as f64
    }
}

/// Outcomes of evaluations: set, rollout step, and which samples were correct.
pub type Outcomes<'a> = Vec<(&'a str, u64, &'a [bool])>;

impl Cell {
    /// The outcomes of the evaluations that are asked for, in order.
    pub fn outcomes(&self, of: impl Fn(&CellEvaluation) -> bool) -> Outcomes<'_> {
        let wanted = self.evaluations.iter().filter(|evaluation| of(evaluation));
        wanted
            .map(|it| (it.set.as_str(), it.counters.rollout_steps, it.outcomes.values()))
            .collect()
    }

    /// `<arm hash's first 12 digits>-seed<seed>.json`: the same arm and seed have the same name.
    /// A cell under `fast` arithmetic has its run key's first 12 digits in place of the arm's,
    /// because there the execution can change its bits.
    pub fn file_name(&self) -> String {
        file_name(&self.arm_sha256, &self.run_key, &self.exactness, self.seed)
    }

    /// A metric's values, one for each rollout step.
    pub fn metric(&self, name: &str) -> Option<&[Option<f64>]> {
        self.metrics.get(name).map(Vec::as_slice)
    }

    /// The evaluations of a set, in order.
    pub fn evaluations_of<'a>(&'a self, set: &'a str) -> impl Iterator<Item = &'a CellEvaluation> {
        self.evaluations.iter().filter(move |evaluation| evaluation.set == set)
    }

    /// The last evaluation of a set: the cell's result on it.
    pub fn last_evaluation(&self, set: &str) -> Option<&CellEvaluation> {
        self.evaluations.iter().rfind(|evaluation| evaluation.set == set)
    }

    /// What [`Cell::record_sha256`] must be.
    pub fn digest(&self) -> String {
        let bare = Self { record_sha256: String::new(), ..self.clone() };
        files::sha256(files::canonical_json_line(&bare).as_bytes())
    }

    /// The record with its digest.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.record_sha256 = self.digest();
        self
    }

    /// Writes the record into a folder of cells, under its name.
    ///
    /// # Errors
    /// When the record is above [`MAX_BYTES`], or the file system refuses.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, Error> {
        let path = folder.join(self.file_name());
        let bytes = files::canonical_json_line(self) + "\n";
        if bytes.len() as u64 > MAX_BYTES {
            let reason = format!("the record has {} bytes, more than {MAX_BYTES}", bytes.len());
            return Err(Error::Invalid { path, reason });
        }
        files::create_folder(folder)?;
        files::write_atomic(&path, bytes.as_bytes())?;
        Ok(path)
    }

    /// Reads and checks a record, which may come from somebody else.
    ///
    /// # Errors
    /// A file that is no record, is above [`MAX_BYTES`], or contradicts itself.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = files::read_text_up_to(path, MAX_BYTES)?;
        let invalid = |reason: String| Error::Invalid { path: path.to_path_buf(), reason };
        let cell: Self = serde_json::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        check::check(&cell).map_err(invalid)?;
        Ok(cell)
    }
}

/// The name of the cell of an arm with a seed.
pub fn file_name(arm_sha256: &str, run_key: &str, exactness: &str, seed: u64) -> String {
    let identity = if exactness == "exact" { arm_sha256 } else { run_key };
    format!("{}-seed{seed}.json", identity.get(..12).unwrap_or(identity))
}

/// The records of a folder, by file name, and what could not be read as one.
///
/// # Errors
/// When the folder cannot be listed.
pub fn read_folder(folder: &Path) -> Result<(Vec<Cell>, Vec<Error>), files::Error> {
    let mut cells = Vec::new();
    let mut refused = Vec::new();
    for name in files::list(folder)? {
        if !name.ends_with(".json") {
            continue;
        }
        match files::foreign::inside(folder, &name)
            .map_err(Error::from)
            .and_then(|p| Cell::read(&p))
        {
            Ok(cell) if cell.file_name() == name => cells.push(cell),
            Ok(cell) => refused.push(Error::Invalid {
                path: folder.join(&name),
                reason: format!("the record's own name is `{}`", cell.file_name()),
            }),
            Err(error) => refused.push(error),
        }
    }
    Ok((cells, refused))
}
