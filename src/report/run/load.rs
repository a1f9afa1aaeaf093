//! Everything that a report is made from: the records of a run folder and its tables. What an
//! unfinished run has not written yet is empty; what is there but unreadable is an error.

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
    /// `tags.json`; empty where no problem has any.
    pub tags: Tags,
    pub environment: Option<Environment>,
    pub sessions: Vec<Session>,
    pub metrics: Vec<StepMetrics>,
    pub timings: Vec<StepTimings>,
    /// `evaluations.jsonl`, each with its outcomes when the table is there.
    pub evaluations: Vec<LoadedEvaluation>,
    pub outcome: Option<Outcome>,
    /// (rollout step, its rollouts): the first and the last step with a table.
    pub rollouts: Vec<(u64, Vec<RolloutRow>)>,
}

/// An evaluation with its single outcomes.
pub struct LoadedEvaluation {
    pub record: EvaluationRecord,
    /// By problem, in the table's order; `None` when there is no table.
    pub outcomes: Option<Vec<ProblemOutcomes>>,
    /// SHA-256 of the table as it is now.
    pub outcomes_sha256: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProblemOutcomes {
    pub problem: String,
    /// In order of the sample number.
    pub samples: Vec<Sample>,
    /// Of the same samples.
    pub truncated: Vec<bool>,
    /// Of the same samples.
    pub response_tokens: Vec<u32>,
}

/// Reads a run folder.
///
/// # Errors
/// When `experiment.json` or `manifest.json` is missing, or a file that is there cannot be
/// understood. The message names it.
pub fn load(run: &RunFolder) -> Result<RunReportLoaded, ReportError> {
    let experiment = run.experiment().map_err(|source| {
        if is_missing(&source) {
            ReportError::NotARun { root: run.root().to_path_buf(), source }
        } else {
            ReportError::File(source)
        }
    })?;
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
    let mut order: Vec<String> = Vec::new();
    let mut position = BTreeMap::new();
    for row in &rows {
        position.entry(row.problem.clone()).or_insert_with(|| {
            order.push(row.problem.clone());
            order.len() - 1
        });
    }
    rows.sort_by_key(|row| (position[&row.problem], row.sample));
    let mut problems: Vec<ProblemOutcomes> = order
        .into_iter()
        .map(|problem| ProblemOutcomes { problem, ..ProblemOutcomes::default() })
        .collect();
    for row in rows {
        let problem = &mut problems[position[&row.problem]];
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

/// A file that is not there is no error: an unfinished run lacks some.
pub fn optional<T>(result: Result<T, files::FileError>) -> Result<Option<T>, files::FileError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_missing(error: &files::FileError) -> bool {
    matches!(error, files::FileError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}
