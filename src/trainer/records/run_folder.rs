//! The layout of a run folder and its records. Every report and later verification reads through here.
//!
//! ```text
//! runs/<name>-seed<seed>-<key>/
//!   experiment.json        the resolved experiment
//!   manifest.json          identity: digests of arm, data, tokenizer, base; versions
//!   environment.json       machine facts of the first session (outside every comparison)
//!   sessions.jsonl         one line each time the run was begun or resumed (likewise)
//!   run.lock               held by the process that works on the run
//!   metrics.jsonl          one line a rollout step; the same bytes for the same run
//!   ledger.jsonl           hash chain over inputs, rollout steps and ending; see `ledger`
//!   tags.json              tags of evaluated problems, where their files have any
//!   timings.jsonl          wall-clock seconds, memory (outside every comparison)
//!   evaluations.jsonl      one line for each evaluated set
//!   evaluations/           every outcome, as parquet
//!   rollouts/              every training rollout, as parquet
//!   checkpoints/           step-NNNNNN/, Hugging Face layout plus optimizer and counters
//!   engine/                what another trainer read and wrote, where one ran (outside every comparison)
//!   diverged/              rollouts, metrics and policy of the step that was not finite
//!   outcome.json           how the run ended, with digests of what it wrote
//!   report.{html,md,json}
//!   plan.json, ro-crate-metadata.json, statement.json   of earlier versions; nothing reads them
//! ```

use crate::base::files::{self, FileError, foreign};
use crate::experiment::Experiment;
use crate::records::{Counters, Outcome};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Responses that a program did not grade, which ended a session, as `dapo data grade` reads them.
pub const UNGRADED: &str = "ungraded.jsonl";

/// Names of this and earlier versions.
pub const LAYOUT: [&str; 23] = [
    "experiment.json",
    "tags.json",
    "manifest.json",
    "environment.json",
    "sessions.jsonl",
    "run.lock",
    "plan.json",
    "metrics.jsonl",
    "ledger.jsonl",
    "timings.jsonl",
    "evaluations.jsonl",
    "evaluations",
    "rollouts",
    "checkpoints",
    "diverged",
    UNGRADED,
    "engine",
    "outcome.json",
    "report.html",
    "report.md",
    "report.json",
    "ro-crate-metadata.json",
    "statement.json",
];

/// Set → problem → tags; only problems with tags.
pub type Tags = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// A checkpoint has [`COMPANIONS`] too.
pub const CHECKPOINT: [&str; 4] =
    ["model.safetensors", "optimizer.safetensors", "trainer.json", "carried.parquet"];

/// Files of a base folder that a checkpoint carries along, unchanged but for the type of weights in `config.json`.
pub const COMPANIONS: [&str; 9] = [
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
];

/// The step follows.
pub const DAMAGED_CHECKPOINT: &str = "damaged-step-";

/// A line of `metrics.jsonl`; without the mean of nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepMetrics {
    pub step: u64,
    pub counters: Counters,
    /// `stage/name` → value.
    pub metrics: BTreeMap<String, f64>,
}

/// A line of `timings.jsonl`: a rollout step, or an evaluation or checkpoint after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTimings {
    pub step: u64,
    /// Wall clock, by phase.
    pub seconds: BTreeMap<String, f64>,
    /// Milliseconds since 1970-01-01 UTC; missing in older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

pub const THIRTY_YEARS_SECONDS: f64 = 1e9;

impl StepTimings {
    pub fn are_possible(&self) -> bool {
        let is_part = |phase: &&String| !["total", "engine"].contains(&phase.as_str());
        let phases = self.seconds.iter().filter(|(phase, _)| is_part(phase));
        let sum: f64 = phases.map(|(_, seconds)| seconds).sum();
        self.seconds.values().all(|seconds| (0.0..THIRTY_YEARS_SECONDS).contains(seconds))
            && self.seconds.get("total").is_none_or(|total| sum <= total * 1.001 + 0.001)
    }
}

/// A line of `evaluations.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationRecord {
    /// All 0 for the base policy.
    pub counters: Counters,
    /// `dev`, `mini-aime`, `mini-aime-plus`, or a file's stem.
    pub set: String,
    /// n
    pub problems: u64,
    /// k
    pub samples: u64,
    /// In [0, 1], over problems and samples.
    pub avg_at_k: f64,
    /// "This checkpoint on these problems": sampling noise only.
    pub standard_error_fixed_problems: f64,
    /// "Another draw of problems": clustered by problem.
    pub standard_error_new_problems: f64,
    /// Unbiased, for k = 1, 2, 4, … up to `samples`.
    pub pass_at_k: BTreeMap<u64, f64>,
    /// Share of problems whose most frequent answer is correct.
    pub cons_at_k: f64,
    pub truncated_share: f64,
    pub response_tokens_mean: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward_mean: Option<f64>,
    pub outcomes_sha256: String,
}

/// f32 in the native engine: the same bits on any machine, threads and batches, for one cut into passes.
pub const EXACT_F32: &str = "exact-f32";

/// Repetitions have the same bits on any machine.
pub fn is_portable(level: &str) -> bool {
    level == "exact" || level == EXACT_F32
}

/// `manifest.json`: the run's identity, independent of time and place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub harness: String,
    pub name: String,
    pub arm_sha256: String,
    pub seed: u64,
    /// SHA-256 over arm, seed, inputs and (under `fast` arithmetic) execution.
    pub run_key: String,
    /// Agreement of repetitions: `exact`; [`EXACT_F32`] for `fast` arithmetic in the native engine; `exact-here` for
    /// LibTorch on the processor, `approximate` on a card, `imported` for another trainer.
    pub exactness: String,
    /// `data/train`, `tokenizer`, `base/model.safetensors`, … → SHA-256.
    pub inputs: BTreeMap<String, String>,
}

pub fn input_of_set(set: &str, name: &str) -> String {
    format!("evaluation/{set}/{name}")
}

/// `environment.json`: facts for readers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Such as `cpu`, `threads`, `libtorch`, `git_commit`.
    pub facts: BTreeMap<String, String>,
}

/// A line of `sessions.jsonl`: a process that began or resumed the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Of the resumed checkpoint; 0 for the base policy.
    pub from_step: u64,
    /// Differing facts: name → the first session's and this one's.
    pub changed: BTreeMap<String, [String; 2]>,
    /// Milliseconds since 1970-01-01 UTC; missing in older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// Missing when the process was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

impl Session {
    pub fn went_back(&self) -> bool {
        self.started_ms.zip(self.ended_ms).is_some_and(|(started, ended)| ended < started)
    }
}

macro_rules! records {
    ($($name:ident: $read:ident($file:literal) -> $record:ty;)*) => {
        $(pub fn $name(&self) -> Result<$record, FileError> {
            files::$read(&self.inside($file)?)
        })*
    };
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    root: PathBuf,
}

impl RunFolder {
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn flaw(&self) -> &'static str {
        match (files::kind(&self.root), files::kind(&self.path("."))) {
            (Ok(None), _) => "there is no such folder",
            (_, Ok(Some(_))) => "it has no manifest.json or experiment.json",
            (Ok(Some(files::FileKind::File)), _) => {
                "it is a file; `dapo runs cells` compares the record of a cell with a run"
            }
            _ => "it cannot be opened as a folder",
        }
    }

    /// As [`RunFolder::path`], for names from records: the folder may come from somebody else. Errors: a name that
    /// leaves the folder, and one that is a link or leads through one.
    pub fn inside(&self, name: &str) -> Result<PathBuf, FileError> {
        foreign::inside(&self.root, name)
    }

    /// The names come from a record.
    pub fn recorded_outcomes(&self, set: &str, step: u64) -> Result<PathBuf, FileError> {
        self.inside(set)?;
        self.inside(&format!("evaluations/{set}-step-{step:06}.parquet"))
    }

    records! {
        experiment: read_json("experiment.json") -> Experiment;
        tags: read_json("tags.json") -> Tags;
        manifest: read_json("manifest.json") -> Manifest;
        environment: read_json("environment.json") -> Environment;
        metrics: read_lines("metrics.jsonl") -> Vec<StepMetrics>;
        timings: read_lines("timings.jsonl") -> Vec<StepTimings>;
        evaluations: read_lines("evaluations.jsonl") -> Vec<EvaluationRecord>;
        sessions: read_lines("sessions.jsonl") -> Vec<Session>;
        outcome: read_json("outcome.json") -> Outcome;
    }

    pub fn rollouts(&self, step: u64) -> PathBuf {
        self.root.join(format!("rollouts/step-{step:06}.parquet"))
    }

    pub fn outcomes(&self, set: &str, step: u64) -> PathBuf {
        self.root.join(format!("evaluations/{set}-step-{step:06}.parquet"))
    }

    /// `None` when another process works on the run.
    pub fn lock(&self) -> Result<Option<files::locks::Lock>, FileError> {
        files::locks::lock(&self.path("run.lock"))
    }

    pub fn is_locked(&self) -> Result<bool, FileError> {
        files::locks::is_locked(&self.path("run.lock"))
    }

    pub fn checkpoint_steps(&self) -> Result<Vec<u64>, FileError> {
        let path = self.path("checkpoints");
        if files::kind(&path)?.is_none() || !path.is_dir() {
            return Ok(Vec::new());
        }
        let step = |name: &String| name.strip_prefix("step-")?.parse().ok();
        Ok(files::list(&path)?.iter().filter_map(step).collect())
    }

    pub fn checkpoint(&self, step: u64) -> PathBuf {
        self.root.join(format!("checkpoints/step-{step:06}"))
    }
}
