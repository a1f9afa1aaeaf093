//! The records of a study in one file, `STUDY/records.jsonl.xz`: each line is what `cells/NAME.json` would have.
//! A record in it is read by the path that its own file would have.

use crate::base::files::{self, foreign};
use crate::study::StudyError;
use crate::study::cell::{self, MAX_BYTES};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

pub const FILE: &str = "records.jsonl.xz";

const LIMITS: foreign::ForeignLimits =
    foreign::ForeignLimits { bytes: 512 << 20, line_bytes: MAX_BYTES, lines: 1 << 17 };

/// The texts of records by file name.
pub type PackedRecords = Arc<BTreeMap<String, String>>;

#[derive(Deserialize)]
struct RecordIdentity {
    arm_sha256: String,
    run_key: String,
    exactness: String,
    seed: u64,
}

/// The records packed beside a folder `cells`; none where there is no such file. It is read once a process.
/// Errors: a file that is not whole or too large; a line that is no record; a record that is there twice.
pub fn beside(cells: &Path) -> Result<PackedRecords, StudyError> {
    static READ: Mutex<BTreeMap<(PathBuf, u64), PackedRecords>> = Mutex::new(BTreeMap::new());
    let path = foreign::inside(cells.parent().unwrap_or(cells), FILE)?;
    if files::kind(&path)?.is_none() {
        return Ok(PackedRecords::default());
    }
    let key = (path.clone(), files::size_bytes(&path)?);
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(records) = read.get(&key) {
        return Ok(Arc::clone(records));
    }
    let records = Arc::new(all(&path)?);
    read.insert(key, Arc::clone(&records));
    Ok(records)
}

/// The record that a path `STUDY/cells/NAME.json` without a file names. Errors: as [`beside`].
pub fn text(path: &Path) -> Result<Option<String>, StudyError> {
    let Some(cells) = path.parent().filter(|folder| folder.ends_with("cells")) else {
        return Ok(None);
    };
    if files::kind(path)?.is_some() {
        return Ok(None);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok(beside(cells)?.get(name.as_ref()).cloned())
}

fn all(path: &Path) -> Result<BTreeMap<String, String>, StudyError> {
    let mut records = BTreeMap::new();
    foreign::each_line_of_xz(path, LIMITS, |number, line| {
        let invalid =
            |reason: String| StudyError::invalid(path, format!("line {number}: {reason}"));
        let text = std::str::from_utf8(line).map_err(|_| invalid("not UTF-8".to_string()))?;
        if text.trim().is_empty() {
            return Err(invalid("it is empty, and each line is the record of a run".to_string()));
        }
        let identity: RecordIdentity = serde_json::from_str(text)
            .map_err(|error| invalid(foreign::without_values(&error.to_string())))?;
        let RecordIdentity { arm_sha256, run_key, exactness, seed } = identity;
        let name = cell::file_name(&arm_sha256, &run_key, &exactness, seed);
        match records.insert(name.clone(), format!("{text}\n")) {
            None => Ok(()),
            Some(_) => Err(invalid(format!("the record {name} is there twice"))),
        }
    })?;
    if records.is_empty() {
        return Err(StudyError::invalid(path, "it has no record"));
    }
    Ok(records)
}
