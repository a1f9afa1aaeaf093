//! A cell: the record of one run (an arm with a seed) in a file. Cells suffice to commit, continue and analyse a study.

pub mod numbers;
pub mod check;
pub mod build;
pub mod compare;
pub mod grading;
pub mod packed;
pub mod stored;

use crate::base::{Bits, files, workers};
use crate::experiment::Experiment;
use crate::records::{Counters, NotFinite};
use crate::statistics::Counts;
use crate::study::StudyError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub const FORMAT: u64 = 1;

/// 1,000 rollout steps with a hundred metrics.
pub const MAX_BYTES: u64 = 1_000_000;

/// Every verdict from records says this.
pub const ONLY_TRAINING: &str = "only training a cell again (dapo train CELL.json --out RUN, \
then dapo runs cells CELL.json --run RUN) shows that its record is of a run that took place";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CellEnding {
    Finished,
    /// Nothing was left to learn; the last evaluation counts.
    Saturated,
    /// As `Saturated`, with every response of the step wrong.
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
    /// When it was run; the hash is the identity.
    pub name: String,
    pub arm_sha256: String,
    pub seed: u64,
    /// SHA-256 over arm, seed and inputs.
    pub run_key: String,
    /// `exact`, `exact-f32`, `exact-here` or `approximate`.
    pub exactness: String,
    pub harness: String,
    pub ending: CellEnding,
    /// Diverged runs have it, from format 4 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_finite: Option<NotFinite>,
    /// The last output of a failed process; up to format 3 also `outcome.json`'s reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub experiment: Experiment,
    /// `data/train`, `tokenizer`, `base/model.safetensors`, … → SHA-256.
    pub inputs: BTreeMap<String, String>,
    /// After each rollout step; entry t is step t + 1.
    pub counters: Vec<Counters>,
    /// `stage/name` → a value for each rollout step, rounded to nine digits, in long runs to fewer (`build::ROOM`).
    pub metrics: BTreeMap<String, Vec<Option<f64>>>,
    pub problems: BTreeMap<String, ProblemIds>,
    pub evaluations: Vec<CellEvaluation>,
    /// `None` when the run failed.
    pub ledger_head: Option<String>,
    /// `metrics.jsonl`, `evaluations.jsonl`, `ledger.jsonl` and the last checkpoint's `model.safetensors` → SHA-256.
    pub digests: BTreeMap<String, String>,
    pub environment: BTreeMap<String, String>,
    /// Of all sessions, outside every comparison.
    pub wall_seconds: f64,
    /// Of each rollout step, without evaluations and checkpoints; outside every comparison; empty where not recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub step_seconds: Vec<f64>,
    /// SHA-256 of the canonical JSON with this field empty. Detects edits, not forgery.
    pub record_sha256: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProblemIds {
    pub count: u64,
    /// SHA-256 over the ids in order, one a line: equal for the same problems.
    pub sha256: String,
    /// Tag → places of its problems in the set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, Vec<usize>>,
}

impl ProblemIds {
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
    /// x_ij in the order of the set's ids, k bits for each problem.
    pub outcomes: Bits,
    /// Needs the predictions, so `outcomes` do not give it.
    pub cons_at_k: f64,
    pub truncated_share: f64,
    pub response_tokens_mean: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward_mean: Option<f64>,
    pub outcomes_sha256: String,
}

impl CellEvaluation {
    /// c_i
    pub fn correct(&self) -> Vec<u64> {
        self.outcomes.counts(self.samples as usize)
    }

    pub fn counts(&self) -> Vec<Counts> {
        let samples = self.samples;
        self.correct().into_iter().map(|correct| Counts { correct, samples }).collect()
    }

    /// p̂_i
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
    /// The finished one that took least time; the first of equals.
    pub fn cheapest<'a>(cells: impl IntoIterator<Item = &'a Self>) -> Option<&'a Self> {
        let is_whole = |cell: &&Self| {
            let finished = cell.ending == CellEnding::Finished;
            finished && cell.ledger_head.is_some() && cell.wall_seconds.is_finite()
        };
        let seconds = |cell: &&Self| cell.wall_seconds;
        cells.into_iter().filter(is_whole).min_by(|a, b| seconds(a).total_cmp(&seconds(b)))
    }

    pub fn outcomes(&self, of: impl Fn(&CellEvaluation) -> bool) -> CellOutcomes<'_> {
        let wanted = self.evaluations.iter().filter(|evaluation| of(evaluation));
        wanted
            .map(|it| (it.set.as_str(), it.counters.rollout_steps, it.outcomes.values()))
            .collect()
    }

    /// `<12 digits of the arm hash>-seed<seed>.json`; under `fast`, where execution can change bits, of the run key.
    pub fn file_name(&self) -> String {
        file_name(&self.arm_sha256, &self.run_key, &self.exactness, self.seed)
    }

    /// `None` where no response of a user's program names an answer.
    pub fn cons_at_k(&self, evaluation: &CellEvaluation) -> Option<f64> {
        let has_answers =
            numbers::names_answers(self, &evaluation.set) || evaluation.cons_at_k > 0.0;
        has_answers.then_some(evaluation.cons_at_k)
    }

    pub fn metric(&self, name: &str) -> Option<&[Option<f64>]> {
        self.metrics.get(name).map(Vec::as_slice)
    }

    pub fn evaluations_of<'a>(&'a self, set: &'a str) -> impl Iterator<Item = &'a CellEvaluation> {
        self.evaluations.iter().filter(move |evaluation| evaluation.set == set)
    }

    pub fn last_evaluation(&self, set: &str) -> Option<&CellEvaluation> {
        let last = self.evaluations.iter().rfind(|evaluation| evaluation.set == set)?;
        let end = self.counters.last().copied().unwrap_or_default();
        last.counters.is_result_of(end, self.ending == CellEnding::Diverged).then_some(last)
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

    /// Of a file `NAME.json`, or of the study's packed records.
    pub fn read(path: &Path) -> Result<Self, StudyError> {
        Self::parse(path, &text(path)?)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, StudyError> {
        let invalid = |reason: String| StudyError::invalid(path, reason);
        let cell: Self = serde_json::from_str(text)
            .map_err(|error| invalid(files::foreign::without_values(&error.to_string())))?;
        check::check(&cell).map_err(invalid)?;
        Ok(cell)
    }
}

fn text(path: &Path) -> Result<String, StudyError> {
    match packed::text(path)? {
        Some(text) => Ok(text),
        None => Ok(files::read_text_up_to(path, MAX_BYTES)?),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHead {
    pub ending: CellEnding,
    pub run_key: String,
    /// The text goes on to the end of a record: it was not cut off.
    pub is_whole: bool,
}

/// Reads a record without any check; `None` for files that do not look like one.
pub fn head(path: &Path) -> Result<Option<RecordHead>, StudyError> {
    match text(path) {
        Ok(text) => Ok(head_of(&text)),
        Err(error) => error.contradiction().map(|_| None),
    }
}

fn head_of(text: &str) -> Option<RecordHead> {
    // Canonical JSON escapes quotation marks in strings; no other field has these names. Parsing would take minutes.
    let value = |name: &str| {
        let start = text.find(&format!(",\"{name}\":\""))? + name.len() + 5;
        text[start..].split('"').next()
    };
    let ending = serde_json::from_value(value("ending")?.into()).ok()?;
    let (run_key, is_whole) = (value("run_key")?.to_string(), text.ends_with("}\n"));
    Some(RecordHead { ending, run_key, is_whole })
}

pub fn file_name(arm_sha256: &str, run_key: &str, exactness: &str, seed: u64) -> String {
    let identity = if exactness == "exact" { arm_sha256 } else { run_key };
    format!("{}-seed{seed}.json", identity.get(..12).unwrap_or(identity))
}

/// Whether `STUDY/cells/NAME.json` is a file or packed. Errors: packed records that cannot be read.
pub fn is_there(path: &Path) -> Result<bool, StudyError> {
    Ok(files::kind(path)?.is_some() || packed::text(path)?.is_some())
}

/// Whether a study has a folder `cells` or packed records. Errors: a folder that cannot be looked at.
pub fn has_records(cells: &Path) -> Result<bool, StudyError> {
    let packed = files::kind(&cells.with_file_name(packed::FILE))?;
    Ok(packed.is_some() || files::kind(cells)?.is_some())
}

/// Every record of a study's folder `cells`, and those packed beside it; in the order of their names.
/// Errors: neither the folder nor packed records are there; a link in its place; packed records that cannot be read.
pub fn read_folder(study: &Path) -> Result<(Vec<Cell>, Vec<StudyError>), StudyError> {
    let folder = &files::foreign::inside(study, "cells")?;
    let packed = packed::beside(folder)?;
    let mut names = match files::kind(folder)? {
        None if !packed.is_empty() => Vec::new(),
        None => return Err(StudyError::invalid(study, "is not a study: it has no folder `cells`")),
        _ => files::list(folder)?,
    };
    names.retain(|name| name.ends_with(".json"));
    let read = |name: &String| {
        let path = files::foreign::inside(folder, name)?;
        let cell = Cell::read(&path)?;
        let refuse = |reason: String| Err(StudyError::invalid(path, reason));
        match cell.file_name() {
            _ if packed.contains_key(name) => {
                refuse(format!("the record is in {}, too: remove one of them", packed::FILE))
            }
            own if own == *name => Ok(cell),
            own => refuse(format!("the record's own name is `{own}`")),
        }
    };
    let of_pack = |(name, text): &(&String, &String)| Cell::parse(&folder.join(name), text);
    let lines: Vec<_> =
        packed.iter().filter(|(name, _)| names.binary_search(name).is_err()).collect();
    let read = workers::on_all_cores(&names, read).into_iter();
    let (cells, refused): (Vec<_>, Vec<_>) =
        read.chain(workers::on_all_cores(&lines, of_pack)).partition(Result::is_ok);
    let refused = refused.into_iter().filter_map(Result::err).collect();
    Ok((cells.into_iter().flatten().collect(), refused))
}
