//! A cell of a grid: the record of one run (an arm with a seed), in one file. A study can be
//! committed, continued elsewhere and analysed again from its cells alone, without the run folders.

pub mod numbers;
pub mod check;
pub mod build;
pub mod compare;
pub mod grading;

use crate::base::{Bits, files, workers};
use crate::experiment::Experiment;
use crate::records::{Counters, NotFinite};
use crate::study::StudyError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub const FORMAT: u64 = 1;

pub const MAX_BYTES: u64 = 50_000;

/// What no check of records can show; every verdict from records says it.
pub const ONLY_TRAINING: &str = "only training a cell again (dapo train CELL.json --out RUN, \
then dapo runs cells CELL.json --run RUN) shows that its record is of a run that took place";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CellEnding {
    Finished,
    /// Nothing was left to learn from; the last evaluation counts.
    Saturated,
    /// As `Saturated`, because every response of the step was wrong.
    Stalled,
    /// A loss or gradient was not finite; the last evaluation counts.
    Diverged,
    /// The process ended without an outcome; there is no result.
    Failed,
}

impl CellEnding {
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Saturated => "saturated",
            Self::Stalled => "stalled",
            Self::Diverged => "diverged",
            Self::Failed => "failed",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    pub format: u64,
    /// The arm's name when it was run; its identity is the hash.
    pub name: String,
    pub arm_sha256: String,
    pub seed: u64,
    /// SHA-256 over arm, seed and inputs.
    pub run_key: String,
    /// `exact`, `exact-f32`, `exact-here` or `approximate`.
    pub exactness: String,
    pub harness: String,
    pub ending: CellEnding,
    /// Of a run that diverged, from format 4 of its records on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_finite: Option<NotFinite>,
    /// What a process that failed printed last; of other runs up to format 3 of their records what their
    /// `outcome.json` has.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub experiment: Experiment,
    /// `data/train`, `tokenizer`, `base/model.safetensors`, … → SHA-256.
    pub inputs: BTreeMap<String, String>,
    /// The clocks after each rollout step; entry t is step t + 1.
    pub counters: Vec<Counters>,
    /// `stage/name` → a value for each rollout step; `None` where the step has none. Rounded to
    /// nine significant digits; long runs keep fewer digits and metrics (`build::ROOM`).
    pub metrics: BTreeMap<String, Vec<Option<f64>>>,
    /// Set → ids of its problems, in the order of the outcomes.
    pub problems: BTreeMap<String, ProblemIds>,
    pub evaluations: Vec<CellEvaluation>,
    /// `None` when the run failed.
    pub ledger_head: Option<String>,
    /// `metrics.jsonl`, `evaluations.jsonl`, `ledger.jsonl` and, under the name
    /// `model.safetensors`, the last checkpoint's weights → SHA-256.
    pub digests: BTreeMap<String, String>,
    pub environment: BTreeMap<String, String>,
    /// Of all sessions together, outside every comparison.
    pub wall_seconds: f64,
    /// SHA-256 of this record's canonical JSON with this field empty. It detects an edited or
    /// truncated record, not a forged one.
    pub record_sha256: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProblemIds {
    pub count: u64,
    /// SHA-256 over the ids, one a line, in order: cells with the same digest were evaluated on the
    /// same problems.
    pub sha256: String,
    /// Tag → places of its problems in the set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, Vec<usize>>,
}

impl ProblemIds {
    /// Of problems in order, with the tags of each by its id.
    pub fn of(ids: &[&str], of_ids: Option<&BTreeMap<String, Vec<String>>>) -> Self {
        let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
        let mut tags = BTreeMap::<String, Vec<usize>>::new();
        for (place, id) in ids.iter().enumerate() {
            for tag in of_ids.and_then(|tags| tags.get(*id)).into_iter().flatten() {
                tags.entry(tag.clone()).or_default().push(place);
            }
        }
        Self { count: ids.len() as u64, sha256: files::sha256(lines.as_bytes()), tags }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellEvaluation {
    pub set: String,
    pub counters: Counters,
    pub generated_rollouts: u64,
    pub samples: u64,
    /// x_ij: problem after problem in the order of the set's ids, k bits each.
    pub outcomes: Bits,
    /// cons@k, which needs the predictions and so cannot be computed from `outcomes`.
    pub cons_at_k: f64,
    pub truncated_share: f64,
    pub response_tokens_mean: f64,
    pub outcomes_sha256: String,
}

impl CellEvaluation {
    /// c_i: correct samples of each problem.
    pub fn correct(&self) -> Vec<u64> {
        self.outcomes.counts(self.samples as usize)
    }

    /// p̂_i: share of correct samples of each problem.
    pub fn accuracies(&self) -> Vec<f64> {
        let samples = self.samples.max(1) as f64;
        self.correct().into_iter().map(|correct| correct as f64 / samples).collect()
    }

    pub fn avg_at_k(&self) -> f64 {
        let accuracies = self.accuracies();
        accuracies.iter().sum::<f64>() / accuracies.len().max(1) as f64
    }
}

pub type CellOutcomes<'a> = Vec<(&'a str, u64, &'a [bool])>;

impl Cell {
    pub fn outcomes(&self, of: impl Fn(&CellEvaluation) -> bool) -> CellOutcomes<'_> {
        let wanted = self.evaluations.iter().filter(|evaluation| of(evaluation));
        wanted
            .map(|it| (it.set.as_str(), it.counters.rollout_steps, it.outcomes.values()))
            .collect()
    }

    /// `<arm hash's first 12 digits>-seed<seed>.json`. Under `fast` arithmetic the run key replaces
    /// the arm hash, because there the execution can change bits.
    pub fn file_name(&self) -> String {
        file_name(&self.arm_sha256, &self.run_key, &self.exactness, self.seed)
    }

    pub fn metric(&self, name: &str) -> Option<&[Option<f64>]> {
        self.metrics.get(name).map(Vec::as_slice)
    }

    pub fn evaluations_of<'a>(&'a self, set: &'a str) -> impl Iterator<Item = &'a CellEvaluation> {
        self.evaluations.iter().filter(move |evaluation| evaluation.set == set)
    }

    pub fn last_evaluation(&self, set: &str) -> Option<&CellEvaluation> {
        self.evaluations.iter().rfind(|evaluation| evaluation.set == set)
    }

    pub fn digest(&self) -> String {
        let bare = Self { record_sha256: String::new(), ..self.clone() };
        files::sha256(files::canonical_json_line(&bare).as_bytes())
    }

    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.record_sha256 = self.digest();
        self
    }

    pub fn write(&self, folder: &Path) -> Result<PathBuf, StudyError> {
        let path = folder.join(self.file_name());
        let bytes = files::canonical_json_line(self) + "\n";
        if bytes.len() as u64 > MAX_BYTES {
            let reason = format!("the record has {} bytes, more than {MAX_BYTES}", bytes.len());
            return Err(StudyError::invalid(path, reason));
        }
        files::create_folder(folder)?;
        files::write_atomic(&path, bytes.as_bytes())?;
        Ok(path)
    }

    pub fn read(path: &Path) -> Result<Self, StudyError> {
        let text = files::read_text_up_to(path, MAX_BYTES)?;
        let invalid = |reason: String| StudyError::invalid(path, reason);
        let cell: Self = serde_json::from_str(&text)
            .map_err(|error| invalid(files::foreign::without_values(&error.to_string())))?;
        check::check(&cell).map_err(invalid)?;
        Ok(cell)
    }
}

/// The ending and the run key that a file says, without the check of its other fields and of its digest;
/// `None` where there is no record, or one that does not look like one.
pub fn head(path: &Path) -> Option<(CellEnding, String)> {
    let text = files::read_text_up_to(path, MAX_BYTES).ok()?;
    // A record is canonical JSON on one line: within a string the quotation marks have a backslash, and
    // no other field has these names. To parse ten thousand records would take minutes.
    let value = |name: &str| {
        let start = text.find(&format!(",\"{name}\":\""))? + name.len() + 5;
        text[start..].split('"').next()
    };
    let (said, run_key) = (value("ending")?, value("run_key")?.to_string());
    use CellEnding::{Diverged, Failed, Finished, Saturated, Stalled};
    let mut endings = [Finished, Saturated, Stalled, Diverged, Failed].into_iter();
    Some((endings.find(|ending| ending.name() == said)?, run_key))
}

pub fn file_name(arm_sha256: &str, run_key: &str, exactness: &str, seed: u64) -> String {
    let identity = if exactness == "exact" { arm_sha256 } else { run_key };
    format!("{}-seed{seed}.json", identity.get(..12).unwrap_or(identity))
}

/// The name of a record that may be compressed, as it would be otherwise.
pub fn without_gz(name: &str) -> &str {
    name.strip_suffix(".gz").unwrap_or(name)
}

/// Where a record is: at `path`, or compressed beside it.
pub fn place(path: &Path) -> PathBuf {
    let compressed = path.with_added_extension("gz");
    if !path.exists() && compressed.exists() { compressed } else { path.to_path_buf() }
}

/// The records of a folder, by file name, and the errors of files that are none.
pub fn read_folder(folder: &Path) -> Result<(Vec<Cell>, Vec<StudyError>), files::FileError> {
    let mut names = files::list(folder)?;
    names.retain(|name| without_gz(name).ends_with(".json"));
    let read = |name: &String| {
        let cell = Cell::read(&files::foreign::inside(folder, name)?)?;
        match cell.file_name() {
            own if own == without_gz(name) => Ok(cell),
            own => {
                let reason = format!("the record's own name is `{own}`");
                Err(StudyError::invalid(folder.join(name), reason))
            }
        }
    };
    let (mut cells, mut refused) = (Vec::with_capacity(names.len()), Vec::new());
    for read in workers::on_all_cores(&names, read) {
        match read {
            Ok(cell) => cells.push(cell),
            Err(error) => refused.push(error),
        }
    }
    Ok((cells, refused))
}
