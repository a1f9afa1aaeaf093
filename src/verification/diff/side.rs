//! One run of a comparison, with the records that exist.

use crate::base::files;
use crate::experiment::Experiment;
use crate::records::Outcome;
use crate::records::ledger::{self, Kind, LedgerEntry};
use crate::records::{Components, EvaluationRecord, Manifest, RunFolder, StepMetrics};
use crate::verification::VerificationError;
use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct DiffSide {
    pub folder: RunFolder,
    pub experiment: Experiment,
    pub manifest: Manifest,
    pub environment: BTreeMap<String, String>,
    pub metrics: Vec<StepMetrics>,
    pub evaluations: Vec<EvaluationRecord>,
    /// `None`: missing, or the run is older than ledgers.
    pub ledger: Option<Vec<LedgerEntry>>,
    /// `None`: not finished.
    pub outcome: Option<Outcome>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiffSummary {
    /// As the user named it.
    pub folder: String,
    pub name: String,
    pub seed: u64,
    pub steps: u64,
    /// `finished`, `saturated`, `stalled`, `diverged`; `None` without an outcome.
    pub ending: Option<String>,
    pub ledger: bool,
}

impl DiffSide {
    pub fn read(folder: &RunFolder) -> Result<Self, VerificationError> {
        let manifest = folder.manifest().map_err(|source| {
            if is_missing(&source) {
                VerificationError::NotARun {
                    root: folder.root().to_path_buf(),
                    reason: source.to_string(),
                }
            } else {
                VerificationError::File(source)
            }
        })?;
        let outcome = optional(folder.outcome())?;
        // An unfinished run may have half a last line.
        let finished = outcome.is_some();
        Ok(Self {
            experiment: folder.experiment()?,
            manifest,
            environment: optional(folder.environment())?.map(|it| it.facts).unwrap_or_default(),
            metrics: lines(folder, "metrics.jsonl", finished)?.unwrap_or_default(),
            evaluations: lines(folder, "evaluations.jsonl", finished)?.unwrap_or_default(),
            ledger: lines(folder, ledger::FILE, finished)?,
            outcome,
            folder: folder.clone(),
        })
    }

    pub fn summary(&self) -> DiffSummary {
        let ending = |outcome: &Outcome| format!("{:?}", outcome.ending).to_lowercase();
        DiffSummary {
            folder: self.folder.root().display().to_string(),
            name: self.manifest.name.clone(),
            seed: self.manifest.seed,
            steps: self.steps(),
            ending: self.outcome.as_ref().map(ending),
            ledger: self.ledger.is_some(),
        }
    }

    /// The ledger decides if it exists.
    pub fn steps(&self) -> u64 {
        match &self.ledger {
            Some(entries) => {
                entries.iter().filter(|entry| entry.kind == Kind::RolloutStep).count() as u64
            }
            None => self.metrics.len() as u64,
        }
    }

    pub fn components(&self, kind: Kind, step: u64) -> Option<&Components> {
        let entries = self.ledger.as_ref()?;
        let entry = entries.iter().find(|entry| entry.kind == kind && entry.step == step)?;
        Some(&entry.components)
    }

    pub fn step_metrics(&self, step: u64) -> Option<&StepMetrics> {
        self.metrics.iter().find(|line| line.step == step)
    }

    /// Reads the manifest and the ledger's first line.
    pub fn identity(&self) -> BTreeMap<String, String> {
        let manifest = &self.manifest;
        let mut identity = self.components(Kind::Genesis, 0).cloned().unwrap_or_default();
        identity.extend(manifest.inputs.clone());
        identity.insert("arm".to_string(), manifest.arm_sha256.clone());
        identity.insert("seed".to_string(), manifest.seed.to_string());
        identity.insert("exactness".to_string(), manifest.exactness.clone());
        identity
    }
}

fn lines<T: DeserializeOwned>(
    folder: &RunFolder,
    name: &str,
    finished: bool,
) -> Result<Option<Vec<T>>, VerificationError> {
    let path = folder.inside(name)?;
    if !path.exists() {
        return Ok(None);
    }
    Ok(Some(if finished { files::read_lines(&path)? } else { files::complete_lines(&path)? }))
}

/// Does not read files with equal digests.
pub fn if_differing<T, E: Into<VerificationError>>(
    paths: &[PathBuf; 2],
    read: impl Fn(&Path) -> Result<T, E>,
) -> Result<Option<[T; 2]>, VerificationError> {
    if files::sha256_file(&paths[0])? == files::sha256_file(&paths[1])? {
        return Ok(None);
    }
    let read = |path: &Path| read(path).map_err(Into::into);
    Ok(Some([read(&paths[0])?, read(&paths[1])?]))
}

fn optional<T>(read: Result<T, files::FileError>) -> Result<Option<T>, VerificationError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn is_missing(error: &files::FileError) -> bool {
    matches!(error, files::FileError::Io { source, .. } if source.kind() == ErrorKind::NotFound)
}
