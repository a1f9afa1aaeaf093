//! The layout of a run folder and the records in it. Everything that a report or a later
//! verification reads goes through here.
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

use crate::base::files::{self, foreign};
use crate::experiment::Experiment;
use crate::records::{Counters, Outcome};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Everything that a run of this or an earlier version writes directly in its folder.
pub const LAYOUT: [&str; 22] = [
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
    "engine",
    "outcome.json",
    "report.html",
    "report.md",
    "report.json",
    "ro-crate-metadata.json",
    "statement.json",
];

/// Set → problem → what its file calls it. Only problems with tags.
pub type Tags = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// How the name of a checkpoint that was refused begins; its step follows.
pub const DAMAGED_CHECKPOINT: &str = "damaged-step-";

/// One line of `metrics.jsonl`. Names are `stage/name`; a value that does not exist in a
/// step (the mean of nothing) is left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepMetrics {
    /// Rollout step, from 1.
    pub step: u64,
    pub counters: Counters,
    /// `stage/name` → value.
    pub metrics: BTreeMap<String, f64>,
}

/// One line of `timings.jsonl`: a rollout step, or an evaluation or checkpoint after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTimings {
    /// Rollout step, from 1.
    pub step: u64,
    /// `phase` → wall-clock seconds.
    pub seconds: BTreeMap<String, f64>,
    /// When it ended: milliseconds since 1970-01-01 UTC. Older runs did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

/// One line of `evaluations.jsonl`: a set evaluated at a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluationRecord {
    /// The clocks when it was evaluated; all 0 for the base policy.
    pub counters: Counters,
    /// `dev`, `mini-aime`, `mini-aime-plus`, or a file's stem.
    pub set: String,
    /// n: problems.
    pub problems: u64,
    /// k: samples for each problem.
    pub samples: u64,
    /// Mean accuracy over problems and samples, in [0, 1].
    pub avg_at_k: f64,
    /// Standard error for "this checkpoint on these problems" (sampling noise only).
    pub standard_error_fixed_problems: f64,
    /// Standard error for "another draw of problems" (clustered by problem).
    pub standard_error_new_problems: f64,
    /// Unbiased pass@k for k = 1, 2, 4, … up to `samples`.
    pub pass_at_k: BTreeMap<u64, f64>,
    /// Share of problems whose most frequent answer is correct.
    pub cons_at_k: f64,
    pub truncated_share: f64,
    pub response_tokens_mean: f64,
    pub outcomes_sha256: String,
}

/// The level of f32 in the native engine: the same bits on any machine, with any threads and generation
/// batch, for one cut of the mini-batches into passes.
pub const EXACT_F32: &str = "exact-f32";

/// Whether repetitions at this level have the same bits on any machine.
pub fn is_portable(level: &str) -> bool {
    level == "exact" || level == EXACT_F32
}

/// `manifest.json`: what this run is. Nothing in it depends on time or place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub harness: String,
    pub name: String,
    pub arm_sha256: String,
    pub seed: u64,
    /// SHA-256 over arm, seed, inputs and (under `fast` arithmetic) execution.
    pub run_key: String,
    /// How exactly a repetition agrees: `exact`; [`EXACT_F32`] for `fast` arithmetic in the native engine;
    /// `exact-here` where LibTorch computes it on the processor, `approximate` on a card, `imported` where
    /// another trainer ran.
    pub exactness: String,
    /// `data/train`, `tokenizer`, `base/model.safetensors`, … → SHA-256.
    pub inputs: BTreeMap<String, String>,
}

/// `environment.json`: facts about the machine, for the reader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// `name` → value, such as `cpu`, `threads`, `libtorch`, `git_commit`.
    pub facts: BTreeMap<String, String>,
}

/// One line of `sessions.jsonl`: a process that began or resumed the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// Rollout step of the checkpoint that it went on from; 0 for the base policy.
    pub from_step: u64,
    /// Facts that differ from `environment.json`: name → the first session's and this one's.
    pub changed: BTreeMap<String, [String; 2]>,
    /// When it began: milliseconds since 1970-01-01 UTC. Older runs did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// When it ended; absent when the process was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

/// Methods that read a record file of a run folder.
macro_rules! records {
    ($($name:ident: $read:ident($file:literal) -> $record:ty;)*) => {
        $(pub fn $name(&self) -> Result<$record, files::FileError> {
            files::$read(&self.inside($file)?)
        })*
    };
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    root: PathBuf,
}

impl RunFolder {
    /// A run folder at `root`, which need not exist yet.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// A file or folder by its name in the layout.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// As [`RunFolder::path`], of a name that a record of the folder gave, or of a file to be
    /// read: a folder may come from somebody else.
    ///
    /// # Errors
    /// A name that leaves the folder, and one that is a link or leads through one.
    pub fn inside(&self, name: &str) -> Result<PathBuf, files::FileError> {
        foreign::inside(&self.root, name)
    }

    /// The outcomes of a set that a record names, after a step.
    pub fn recorded_outcomes(&self, set: &str, step: u64) -> Result<PathBuf, files::FileError> {
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

    /// Takes hold of the run; `None` when another process works on it.
    pub fn lock(&self) -> Result<Option<files::Lock>, files::FileError> {
        files::lock(&self.path("run.lock"))
    }

    /// Whether another process works on the run.
    pub fn is_locked(&self) -> Result<bool, files::FileError> {
        files::is_locked(&self.path("run.lock"))
    }

    /// Rollout steps of the checkpoints that are there, ascending.
    pub fn checkpoint_steps(&self) -> Result<Vec<u64>, files::FileError> {
        let path = self.path("checkpoints");
        if !path.is_dir() {
            return Ok(Vec::new());
        }
        let step = |name: &String| name.strip_prefix("step-")?.parse().ok();
        Ok(files::list(&path)?.iter().filter_map(step).collect())
    }

    /// SHA-256 of everything that the same run writes with the same bits, by its path under the
    /// folder: metrics, ledger, evaluations, rollouts and checkpoints.
    pub fn digests(&self) -> Result<BTreeMap<String, String>, files::FileError> {
        let mut names =
            ["metrics.jsonl", "ledger.jsonl", "evaluations.jsonl"].map(String::from).to_vec();
        let mut inside = |folder: String| -> Result<(), files::FileError> {
            for name in files::list(&self.path(&folder))? {
                names.push(format!("{folder}/{name}"));
            }
            Ok(())
        };
        inside("evaluations".to_string())?;
        inside("rollouts".to_string())?;
        for step in self.checkpoint_steps()? {
            inside(format!("checkpoints/step-{step:06}"))?;
        }
        let mut digests = BTreeMap::new();
        for name in names {
            let digest = files::sha256_file(&self.inside(&name)?)?;
            digests.insert(name, digest);
        }
        Ok(digests)
    }

    pub fn checkpoint(&self, step: u64) -> PathBuf {
        self.root.join(format!("checkpoints/step-{step:06}"))
    }
}
