//! `cells.jsonl`: cells by number. Tasks on other machines name cells by it, so that a number never changes.

use crate::base::files::{self, FileError};
use crate::study::{Job, StudyError, ablate::AblateStudy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Paths are relative to the study's folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListedCell {
    pub index: u64,
    /// An arm that has it, and its seed.
    pub title: String,
    pub run: String,
    /// SHA-256 over arm, seed and inputs: a machine with other inputs refuses the cell.
    pub run_key: String,
    pub experiment: String,
    pub folder: String,
    pub record: String,
}

impl ListedCell {
    fn of(job: &Job, index: u64) -> Self {
        let run = job.run_name();
        let record = job.record.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self {
            index,
            title: job.title(),
            run_key: job.manifest.run_key.clone(),
            experiment: format!("experiments/{run}.json"),
            folder: format!("runs/{run}"),
            record: format!("cells/{record}"),
            run,
        }
    }
}

fn path(study: &AblateStudy) -> PathBuf {
    study.root().join("cells.jsonl")
}

fn read(study: &AblateStudy) -> Result<Vec<ListedCell>, StudyError> {
    let lines = files::optional(files::read_lines(&path(study)));
    let lines = lines.map_err(|error| match error {
        FileError::Line { .. } => StudyError::Listing { source: error },
        error => error.into(),
    });
    Ok(lines?.unwrap_or_default())
}

/// In the order of the jobs; jobs without a line in `cells.jsonl` take the next numbers.
pub fn numbers(study: &AblateStudy, jobs: &[Job]) -> Result<Vec<u64>, StudyError> {
    Ok(numbered(study, jobs)?.1)
}

fn numbered(study: &AblateStudy, jobs: &[Job]) -> Result<(Vec<ListedCell>, Vec<u64>), StudyError> {
    let mut listed = read(study)?;
    let places: BTreeMap<String, usize> =
        listed.iter().enumerate().map(|(place, cell)| (cell.run.clone(), place)).collect();
    let mut numbers = Vec::with_capacity(jobs.len());
    for job in jobs {
        let place = places.get(&job.run_name()).copied().unwrap_or(listed.len());
        let index = listed.get(place).map_or(listed.len() as u64, |cell| cell.index);
        let cell = ListedCell::of(job, index);
        match listed.get_mut(place) {
            Some(known) => *known = cell,
            None => listed.push(cell),
        }
        numbers.push(index);
    }
    Ok((listed, numbers))
}

/// Writes `cells.jsonl`, and experiment files of the jobs in `to_run`.
pub fn keep(study: &AblateStudy, jobs: &[Job], to_run: &[usize]) -> Result<(), StudyError> {
    let (listed, _) = numbered(study, jobs)?;
    for job in to_run.iter().map(|place| &jobs[*place]) {
        let path = study.experiment(&job.run_name());
        let text = files::canonical_json(&job.experiment);
        // Saves time: ten thousand files are usually there already.
        if !files::read_text(&path).is_ok_and(|known| known == text) {
            files::write_atomic(&path, text.as_bytes())?;
        }
    }
    Ok(files::write_lines(&path(study), &listed)?)
}

pub fn find(study: &AblateStudy, index: u64) -> Result<ListedCell, StudyError> {
    let listed = read(study)?;
    let count = listed.len();
    listed.into_iter().find(|cell| cell.index == index).ok_or_else(|| {
        let reason = format!("there is no cell {index}; it has {count} cells, from 0");
        StudyError::invalid(path(study), reason)
    })
}
