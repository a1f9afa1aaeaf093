//! A stored experiment: resolved JSON, alone or in a cell's record, with the places of its inputs.

use crate::base::files;
use crate::experiment::compare::differing_keys;
use crate::experiment::{Experiment, ExperimentError, shipped, validate};
use crate::study::cell::packed;
use crate::study::{Cell, StudyError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// STUDY/cells, STUDY, and two folders more.
const RECORD_DEPTH: usize = 4;

/// Input → SHA-256.
pub type Digests = BTreeMap<String, String>;

pub fn is_stored(path: &Path) -> bool {
    path.to_string_lossy().ends_with(".json")
}

/// Relative paths start from `inputs`, else those of a record from the working folder, the folders around the record,
/// or this program. A record has digests of its inputs. Errors: an unreadable file, an experiment that cannot run.
pub fn read(
    path: &Path,
    inputs: Option<&Path>,
) -> Result<(Experiment, Option<Digests>), StudyError> {
    let is_record = || -> Result<bool, StudyError> {
        let value: serde_json::Value = files::read_json(path)?;
        Ok(value.get("record_sha256").is_some())
    };
    if packed::text(path)?.is_some() || is_record()? {
        let Cell { mut experiment, inputs: digests, .. } = Cell::read(path)?;
        match inputs {
            Some(folder) => experiment.start_from(folder),
            None => find_inputs(&mut experiment, path, &digests)?,
        }
        return Ok((experiment, Some(digests)));
    }
    let mut experiment: Experiment = files::read_json(path)?;
    let problems = validate::problems(&experiment).into_iter();
    let problems: Vec<String> =
        problems.map(|problem| format!("{}: {problem}", path.display())).collect();
    if !problems.is_empty() {
        return Err(ExperimentError::Invalid { problems }.into());
    }
    inputs.iter().for_each(|folder| experiment.start_from(folder));
    Ok((experiment, None))
}

fn find_inputs(
    experiment: &mut Experiment,
    record: &Path,
    digests: &Digests,
) -> Result<(), StudyError> {
    let absolute = std::path::absolute(record).unwrap_or_else(|_| record.to_path_buf());
    let around = absolute.ancestors().skip(1).take(RECORD_DEPTH).map(Path::to_path_buf);
    for folder in [PathBuf::new()].into_iter().chain(around) {
        let mut there = experiment.clone();
        there.start_from(&folder);
        if there.inputs.paths().iter().all(|path| path.exists()) {
            *experiment = there;
            return Ok(());
        }
    }
    let is_embedded = |(name, bytes): &(&str, &[u8])| {
        digests.get(&format!("base/{name}")) == Some(&files::sha256(bytes))
    };
    if experiment.inputs.data.is_generated() && shipped::MODEL.iter().all(is_embedded) {
        experiment.inputs.model = shipped::write_model()?;
    }
    Ok(())
}

/// A comparison with a record needs the same inputs. Errors: the inputs that differ.
pub fn check_inputs(record: &Path, own: &Digests, recorded: &Digests) -> Result<(), StudyError> {
    let differing = differing_keys(own, recorded);
    if differing.is_empty() {
        return Ok(());
    }
    let differing: Vec<&str> = differing.into_iter().map(String::as_str).collect();
    let reason = format!(
        "these are not the inputs of the record: {}; --inputs FOLDER says where they are",
        differing.join(", ")
    );
    Err(StudyError::invalid(record, reason))
}
