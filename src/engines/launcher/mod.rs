//! Cells on other machines: jobs that were submitted to Slurm or Ray, and their states. A job runs
//! `dapo cell run`; its record is in the study's folder, which all machines see.
//!
//! ```text
//! STUDY/launcher/jobs.jsonl      submitted jobs, one a line
//! STUDY/launcher/slurm-<n>.sh    the script of an array job
//! STUDY/launcher/*.log           output of cells under Slurm
//! ```

pub mod program;
pub mod slurm;
pub mod ray;

use crate::base::{files, visible};
use crate::engines::EngineError;
use crate::study::ablate::AblateStudy;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Who runs the cells of a study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Launcher {
    /// Processes on this machine.
    Local,
    /// Whoever runs the commands that are printed.
    Command,
    /// Array jobs of Slurm.
    Slurm,
    /// Jobs of Ray.
    Ray,
}

impl Launcher {
    pub fn name(self) -> String {
        self.to_possible_value().map_or(String::new(), |value| value.get_name().to_string())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchedJob {
    pub launcher: Launcher,
    /// Slurm's array number, or Ray's submission id.
    pub id: String,
    /// The cell of task 0.
    pub first: u64,
    pub cells: Vec<u64>,
    /// Address of Ray's head, or Slurm's cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LauncherState {
    Queued,
    Running,
}

/// A cell that no launcher has is absent.
pub type LauncherStates = BTreeMap<u64, LauncherState>;

pub fn folder(study: &AblateStudy) -> PathBuf {
    study.root().join("launcher")
}

fn jobs_file(study: &AblateStudy) -> PathBuf {
    folder(study).join("jobs.jsonl")
}

pub fn launched(study: &AblateStudy) -> Result<Vec<LaunchedJob>, EngineError> {
    Ok(files::parse_lines(&jobs_file(study), &lines(study)?.0)?)
}

/// The whole lines of `jobs.jsonl`, and the start of one that a kill, a full disk or a copy left.
fn lines(study: &AblateStudy) -> Result<(Vec<u8>, Vec<u8>), EngineError> {
    let mut lines = files::optional(files::read(&jobs_file(study)))?.unwrap_or_default();
    let end = lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
    let rest = lines.split_off(end);
    Ok((lines, rest))
}

pub fn cut_off(study: &AblateStudy) -> Result<Option<String>, EngineError> {
    let (_, rest) = lines(study)?;
    let sentence = || {
        let (path, rest) = (jobs_file(study), String::from_utf8_lossy(&rest).into_owned());
        format!(
            "{}: its last line is cut off and does not count: {}; if squeue or ray list jobs shows the job, let it end \
             or cancel it before cells are handed over",
            path.display(),
            visible::shortened(&rest, 200)
        )
    };
    Ok((!rest.is_empty()).then(sentence))
}

fn keep(study: &AblateStudy, job: &LaunchedJob) -> Result<(), EngineError> {
    files::create_folder(&folder(study))?;
    let (whole, rest) = lines(study)?;
    if !rest.is_empty() {
        files::write_atomic(&jobs_file(study), &whole)?;
    }
    Ok(files::append_line(&jobs_file(study), job)?)
}

/// The errors are of launchers that could not be asked.
pub fn states(study: &AblateStudy) -> Result<(LauncherStates, Vec<EngineError>), EngineError> {
    let jobs = launched(study)?;
    let of = |launcher| jobs.iter().filter(|job| job.launcher == launcher).collect::<Vec<_>>();
    let answers = [slurm::states(&of(Launcher::Slurm)), ray::states(&of(Launcher::Ray))];
    let (mut states, mut silent) = (LauncherStates::new(), Vec::new());
    for answer in answers {
        match answer {
            Ok(known) => states.extend(known),
            Err(error) => silent.push(error),
        }
    }
    Ok((states, silent))
}
