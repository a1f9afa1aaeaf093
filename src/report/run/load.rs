//! Reads what a report needs. Files that an unfinished run lacks are empty; unreadable ones are errors.

use crate::base::files;
use crate::experiment::Experiment;
use crate::records::Tags;
use crate::records::{
    Environment, EvaluationRecord, Manifest, Outcome, RolloutRow, RunFolder, Session, StepMetrics,
    StepTimings, tables,
};
use crate::report::ReportError;
use crate::statistics::Sample;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

pub struct RunReportLoaded {
    pub experiment: Experiment,
    pub manifest: Manifest,
    /// `tags.json`; may be empty.
    pub tags: Tags,
    pub environment: Option<Environment>,
    pub sessions: Vec<Session>,
    pub metrics: Vec<StepMetrics>,
    pub timings: Vec<StepTimings>,
    /// `evaluations.jsonl`, with outcomes when the table exists.
    pub evaluations: Vec<LoadedEvaluation>,
    pub outcome: Option<Outcome>,
    /// (rollout step, rollouts) of the first and last step with a table.
    pub rollouts: Vec<(u64, Vec<RolloutRow>)>,
}

pub struct LoadedEvaluation {
    pub record: EvaluationRecord,
    /// In the table's order.
    pub outcomes: Option<Vec<ProblemOutcomes>>,
    pub outcomes_sha256: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProblemOutcomes {
    pub problem: String,
    /// By sample number, like the two fields below.
    pub samples: Vec<Sample>,
    pub truncated: Vec<bool>,
    pub response_tokens: Vec<u32>,
}

/// Errors: when `experiment.json` or `manifest.json` is missing, or a file cannot be understood.
pub fn load(run: &RunFolder) -> Result<RunReportLoaded, ReportError> {
    let Some(experiment) = optional(run.experiment())? else {
        return Err(ReportError::NotARun { root: run.root().to_path_buf(), reason: run.flaw() });
    };
    let mut evaluations = Vec::new();
    for record in optional(run.evaluations())?.unwrap_or_default() {
        let path = run.recorded_outcomes(&record.set, record.counters.rollout_steps)?;
        let outcomes_sha256 = optional(files::sha256_file(&path))?;
        let outcomes = outcomes_sha256.as_ref().map(|_| by_problem(&path)).transpose()?;
        evaluations.push(LoadedEvaluation { record, outcomes, outcomes_sha256 });
    }
    Ok(RunReportLoaded {
        experiment,
        manifest: run.manifest()?,
        tags: optional(run.tags())?.unwrap_or_default(),
        environment: optional(run.environment())?,
        sessions: optional(run.sessions())?.unwrap_or_default(),
        metrics: optional(run.metrics())?.unwrap_or_default(),
        timings: optional(run.timings())?.unwrap_or_default(),
        evaluations,
        outcome: optional(run.outcome())?,
        rollouts: first_and_last_rollouts(run)?,
    })
}

fn by_problem(path: &Path) -> Result<Vec<ProblemOutcomes>, ReportError> {
    let mut rows = tables::read_outcomes(path)?;
    let mut problems: Vec<ProblemOutcomes> = Vec::new();
    let mut places = BTreeMap::new();
    for row in &rows {
        places.entry(row.problem.clone()).or_insert_with(|| {
            let problem = row.problem.clone();
            problems.push(ProblemOutcomes { problem, ..ProblemOutcomes::default() });
            problems.len() - 1
        });
    }
    rows.sort_by_key(|row| row.sample);
    for row in rows {
        let problem = &mut problems[places[&row.problem]];
        problem.samples.push(Sample { is_correct: row.is_correct, prediction: row.prediction });
        problem.truncated.push(row.truncated);
        problem.response_tokens.push(row.response_tokens);
    }
    Ok(problems)
}

fn first_and_last_rollouts(run: &RunFolder) -> Result<Vec<(u64, Vec<RolloutRow>)>, ReportError> {
    let names = optional(files::list(&run.path("rollouts")))?.unwrap_or_default();
    let step = |name: &String| -> Option<u64> {
        name.strip_prefix("step-")?.strip_suffix(".parquet")?.parse().ok()
    };
    let steps: BTreeSet<u64> = names.iter().filter_map(step).collect();
    let chosen: BTreeSet<u64> = steps.first().into_iter().chain(steps.last()).copied().collect();
    let read = |step: u64| {
        let path = run.inside(&format!("rollouts/step-{step:06}.parquet"))?;
        Ok((step, tables::read_rollouts(&path)?))
    };
    chosen.into_iter().map(read).collect()
}

/// Unfinished runs lack files, which is no error.
pub fn optional<T>(result: Result<T, files::FileError>) -> Result<Option<T>, files::FileError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_missing(error: &files::FileError) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound};
    matches!(error, files::FileError::Io { source, .. } if [NotFound, NotADirectory].contains(&source.kind()))
}
