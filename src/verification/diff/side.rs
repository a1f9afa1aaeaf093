//! One run of a comparison, with the records that exist.

use crate::base::files;
use crate::records::audit::Unreadable;
use crate::records::ledger::{Kind, LedgerEntry};
use crate::records::{Components, RunFolder, RunRecords};
use crate::verification::VerificationError;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct DiffSide {
    pub folder: RunFolder,
    pub records: RunRecords,
    pub environment: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DiffSummary {
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
        let records = RunRecords::read(folder).map_err(|Unreadable { name, source }| {
            if name == "manifest.json" && source.is_missing() {
                VerificationError::NotARun(folder.clone())
            } else {
                VerificationError::File(source)
            }
        })?;
        let environment = files::optional(folder.environment())?.map(|it| it.facts);
        let environment = environment.unwrap_or_default();
        Ok(Self { folder: folder.clone(), records, environment })
    }

    pub fn summary(&self) -> DiffSummary {
        let RunRecords { manifest, outcome, .. } = &self.records;
        DiffSummary {
            folder: self.folder.root().display().to_string(),
            name: manifest.name.clone(),
            seed: manifest.seed,
            steps: self.steps(),
            ending: outcome.as_ref().map(|outcome| outcome.ending.name().to_string()),
            ledger: self.has_ledger(),
        }
    }

    pub fn has_ledger(&self) -> bool {
        !self.records.ledger.is_empty()
    }

    /// The ledger decides if it exists.
    pub fn steps(&self) -> u64 {
        let ledger = &self.records.ledger;
        let chained = ledger.iter().filter(|entry| entry.kind == Kind::RolloutStep).count();
        if self.has_ledger() { chained as u64 } else { self.records.steps() }
    }

    pub fn entry(&self, kind: Kind, step: u64) -> Option<&LedgerEntry> {
        self.records.ledger.iter().find(|entry| entry.kind == kind && entry.step == step)
    }

    pub fn components(&self, kind: Kind, step: u64) -> Option<&Components> {
        Some(&self.entry(kind, step)?.components)
    }

    /// Reads the manifest and the ledger's first line.
    pub fn identity(&self) -> BTreeMap<String, String> {
        let manifest = &self.records.manifest;
        let mut identity = self.components(Kind::Genesis, 0).cloned().unwrap_or_default();
        identity.extend(manifest.inputs.clone());
        identity.insert("arm".to_string(), manifest.arm_sha256.clone());
        identity.insert("seed".to_string(), manifest.seed.to_string());
        identity.insert("exactness".to_string(), manifest.exactness.clone());
        identity
    }

    pub fn contradicting(&self) -> BTreeMap<&'static str, String> {
        let RunRecords { manifest, experiment, .. } = &self.records;
        let seed = experiment.execution.seed.to_string();
        let stated = [
            ("arm", experiment.arm_sha256(), manifest.arm_sha256.clone()),
            ("seed", seed, manifest.seed.to_string()),
        ];
        let differing = stated.into_iter().filter(|(_, here, there)| here != there);
        differing.map(|(name, here, _)| (name, here)).collect()
    }
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
