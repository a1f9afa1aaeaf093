//! Jobs (each arm with each seed, once) and what exists of each on disk.

use crate::base::files::{self, FileKind};
use crate::base::workers;
use crate::experiment::{Arm, Experiment, Grid, compare};
use crate::records::{Manifest, RunFolder, StepMetrics, audit};
use crate::study::{Cell, CellEnding, StudyError, ablate::AblateStudy, cell};
use crate::training::{TrainingError, run::inputs};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// `<grid>/<arm>` of every grid that has it.
    pub arms: Vec<String>,
    /// It has the job's seed and one thread.
    pub experiment: Experiment,
    pub manifest: Manifest,
    pub record: PathBuf,
    pub folder: RunFolder,
    pub state: JobState,
}

#[derive(Debug, Clone, PartialEq)]
pub enum JobState {
    Missing,
    Unfinished { steps: u64 },
    // The run folder has an outcome; there is no record yet.
    Ended,
    Recorded(Box<Cell>),
    Failed(Box<Cell>),
    Unusable { reason: String },
}

impl JobState {
    pub fn name(&self) -> String {
        match self {
            Self::Missing => "to run".to_string(),
            Self::Unfinished { steps } => format!("unfinished, {steps} steps"),
            Self::Ended => "to record".to_string(),
            Self::Recorded(cell) => cell.ending.name().to_string(),
            Self::Failed(_) => "failed".to_string(),
            Self::Unusable { .. } => "unusable, to run again".to_string(),
        }
    }

    pub fn cell(&self) -> Option<&Cell> {
        match self {
            Self::Recorded(cell) | Self::Failed(cell) => Some(cell),
            _ => None,
        }
    }
}

impl Job {
    pub fn title(&self) -> String {
        let arm = self.arms.first().map_or("", String::as_str);
        format!("{arm} seed {}", self.manifest.seed)
    }

    pub fn run_name(&self) -> String {
        let name = self.folder.root().file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    pub fn steps(&self) -> u64 {
        self.experiment.training.rollout_steps
    }

    /// Recorded rollout steps; an ended run takes no further step, whatever was planned.
    pub fn steps_done(&self) -> u64 {
        match self.state {
            JobState::Recorded(_) | JobState::Failed(_) | JobState::Ended => self.steps(),
            JobState::Unfinished { steps } => steps,
            JobState::Missing | JobState::Unusable { .. } => 0,
        }
    }

    pub fn share_done(&self) -> f64 {
        self.steps_done() as f64 / self.steps().max(1) as f64
    }

    pub fn is_to_run(&self, retry_failed: bool) -> bool {
        match self.state {
            JobState::Recorded(_) => false,
            JobState::Failed(_) => retry_failed,
            _ => true,
        }
    }

    /// Which checkpoints are kept is no part of a run's identity and changes no number.
    pub fn keep_last_checkpoint_only(&mut self) {
        self.experiment.checkpoints.keep_last = 1;
        self.experiment.checkpoints.keep_every = 0;
    }
}

/// All arms of the first seed first, so that seeds complete in order. An arm in several grids is one job.
pub fn jobs(study: &AblateStudy, grids: &[Grid]) -> Result<Vec<Job>, StudyError> {
    // The weights of a base policy are loaded for the first cell that begins with it.
    let mut loaded = BTreeSet::new();
    let mut jobs = listed(study, grids, |experiment| {
        let first = loaded.insert(experiment.inputs.model.clone());
        let prepare = if first { inputs::prepare } else { inputs::prepare_without_weights };
        Ok(prepare(experiment.clone())?.manifest)
    })?;
    let states = workers::on_all_cores(&jobs, state);
    for (job, state) in jobs.iter_mut().zip(states) {
        job.state = state?;
    }
    Ok(jobs)
}

/// As [`jobs`], with every state [`JobState::Missing`] and without checks of the arms.
pub fn unchecked(study: &AblateStudy, grids: &[Grid]) -> Result<Vec<Job>, StudyError> {
    listed(study, grids, inputs::identified)
}

fn listed(
    study: &AblateStudy,
    grids: &[Grid],
    mut manifest: impl FnMut(&Experiment) -> Result<Manifest, TrainingError>,
) -> Result<Vec<Job>, StudyError> {
    // What cannot be read is refused once, not by every cell.
    cell::packed::beside(&files::foreign::inside(study.root(), "cells")?)?;
    let mut names = BTreeSet::new();
    if let Some(grid) = grids.iter().find(|grid| !names.insert(&grid.name)) {
        return Err(StudyError::SameName { name: grid.name.clone() });
    }
    let mut manifests: BTreeMap<(String, PathBuf), Manifest> = BTreeMap::new();
    let mut jobs: Vec<Job> = Vec::new();
    let mut places: BTreeMap<(&str, u64), usize> = BTreeMap::new();
    let runs = match files::kind(&study.runs())? {
        Some(FileKind::Folder) => files::list(&study.runs())?,
        _ => Vec::new(),
    };
    // `<name>-seed<seed>-<key>` by its end.
    let runs: BTreeMap<&str, &str> =
        runs.iter().filter_map(|run| Some((&run[run.rfind("-seed")?..], &run[..]))).collect();
    for (grid, arm, seed) in in_turn(grids) {
        let title = format!("{}/{}", grid.name, arm.name);
        let experiment = executed(&arm.experiment, seed);
        let hash = &arm.arm_sha256;
        if let Some(place) = places.get(&(hash.as_str(), seed)) {
            let job = &mut jobs[*place];
            if job.experiment.inputs != experiment.inputs {
                let first = job.arms.first().cloned().unwrap_or_default();
                return Err(StudyError::SharedArm { first, second: title });
            }
            job.arms.push(title);
            continue;
        }
        let read = (hash.clone(), experiment.inputs.model.clone());
        if !manifests.contains_key(&read) {
            let manifest = manifest(&experiment).map_err(|source| StudyError::Arm {
                arm: title.clone(),
                source: Box::new(source),
            })?;
            manifests.insert(read.clone(), manifest);
        }
        places.insert((hash, seed), jobs.len());
        jobs.push(job(study, title, experiment, manifests[&read].clone(), &runs)?);
    }
    Ok(jobs)
}

fn in_turn(grids: &[Grid]) -> impl Iterator<Item = (&Grid, &Arm, u64)> {
    let most = grids.iter().map(|grid| grid.seeds.len()).max().unwrap_or(0);
    let seeds = (0..most).flat_map(move |turn| {
        grids.iter().filter_map(move |grid| Some((grid, *grid.seeds.get(turn)?)))
    });
    seeds.flat_map(|(grid, seed)| grid.arms.iter().map(move |arm| (grid, arm, seed)))
}

fn executed(experiment: &Experiment, seed: u64) -> Experiment {
    let mut experiment = experiment.clone();
    experiment.execution.seed = seed;
    experiment.execution.threads = 1;
    experiment.of_its_seed()
}

fn job(
    study: &AblateStudy,
    title: String,
    experiment: Experiment,
    manifest: Manifest,
    runs: &BTreeMap<&str, &str>,
) -> Result<Job, StudyError> {
    let seed = experiment.execution.seed;
    let mut manifest = Manifest { seed, ..manifest };
    let of_format = |records| {
        let experiment = Experiment { records, ..experiment.clone() };
        let run_key = inputs::run_key(&experiment, &manifest.inputs);
        let Manifest { arm_sha256, exactness, .. } = &manifest;
        let file = cell::file_name(arm_sha256, &run_key, exactness, seed);
        (experiment, run_key, study.cells().join(file))
    };
    // The study may use an older format of records.
    let newest = of_format(experiment.records);
    let earlier = experiment.records.map(|_| of_format(None));
    let is_there = |(_, run_key, record): &(_, String, PathBuf)| -> Result<bool, StudyError> {
        Ok(cell::head(record)?.is_some_and(|head| head.run_key == *run_key))
    };
    let (mut experiment, run_key, record) = match earlier {
        Some(earlier) if is_there(&earlier)? => earlier,
        _ => newest,
    };
    manifest.run_key = run_key;
    let end = format!("-seed{seed}-{}", &manifest.run_key[..8]);
    // Another grid may have begun the run under its own name.
    let begun = runs.get(end.as_str()).map(|name| (*name).to_string());
    let name = begun.unwrap_or_else(|| format!("{}{end}", experiment.name));
    experiment.name = name.trim_end_matches(&end).to_string();
    manifest.name.clone_from(&experiment.name);
    Ok(Job {
        arms: vec![title],
        record,
        folder: RunFolder::at(study.runs().join(name)),
        experiment,
        manifest,
        state: JobState::Missing,
    })
}

pub fn state(job: &Job) -> Result<JobState, StudyError> {
    let ended = has_outcome(&job.folder)?;
    let unusable = |reason: String| Ok(JobState::Unusable { reason });
    if !cell::is_there(&job.record)? {
        if ended {
            return Ok(JobState::Ended);
        }
        if let Some(file) = audit::lost(&job.folder)? {
            return unusable(format!("{}: its {file} is missing", job.folder.root().display()));
        }
        return Ok(match files::kind(&job.folder.path("manifest.json"))? {
            Some(_) => JobState::Unfinished { steps: steps_done(&job.folder) },
            None => JobState::Missing,
        });
    }
    let cell = match Cell::read(&job.record) {
        Ok(cell) => cell,
        Err(error) => return unusable(error.contradiction()?),
    };
    let (name, manifest) = (job.record.display(), &job.manifest);
    if cell.arm_sha256 != manifest.arm_sha256 || cell.seed != manifest.seed {
        return unusable(format!("{name}: it is the record of another arm or seed"));
    }
    if cell.inputs != manifest.inputs {
        let keys = compare::differing_keys(&cell.inputs, &manifest.inputs);
        let what = keys.into_iter().cloned().collect::<Vec<_>>().join(", ");
        return Err(StudyError::OtherInputs { path: job.record.clone(), what });
    }
    if cell.run_key != manifest.run_key {
        return unusable(format!("{name}: its `run_key` does not follow from its experiment"));
    }
    match (cell.ending, ended) {
        (CellEnding::Failed, true) => Ok(JobState::Ended),
        (CellEnding::Failed, false) => Ok(JobState::Failed(Box::new(cell))),
        (_, true) => match misfit(job, &cell)? {
            Some(file) => unusable(format!("{name}: {file} of its run folder is another one")),
            None => Ok(JobState::Recorded(Box::new(cell))),
        },
        (_, false) if files::kind(job.folder.root())?.is_some() => {
            unusable(format!("{name}: its run folder has no outcome.json"))
        }
        // A study that was received or committed has no run folders.
        (_, false) => Ok(JobState::Recorded(Box::new(cell))),
    }
}

fn misfit(job: &Job, cell: &Cell) -> Result<Option<String>, StudyError> {
    for name in audit::RECORDS {
        let path = job.folder.inside(name)?;
        let is_file = files::kind(&path)? == Some(FileKind::File);
        let digest = is_file.then(|| files::sha256_file(&path)).transpose()?;
        if digest.as_ref() != cell.digests.get(name) {
            return Ok(Some(name.to_string()));
        }
    }
    Ok(None)
}

pub fn has_outcome(folder: &RunFolder) -> Result<bool, StudyError> {
    Ok(files::kind(&folder.path("outcome.json"))?.is_some())
}

pub fn steps_done(folder: &RunFolder) -> u64 {
    let lines = files::complete_lines::<StepMetrics>(&folder.path("metrics.jsonl"));
    // The process that resumes the run reports an unreadable file.
    lines.map_or(0, |lines| lines.len() as u64)
}
