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
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProblemOutcomes {
    pub problem: String,
    /// By sample number.
    pub samples: Vec<Sample>,
}

/// Errors: when `experiment.json` or `manifest.json` is missing, or a file cannot be understood.
pub fn load(run: &RunFolder) -> Result<RunReportLoaded, ReportError> {
    let is_folder = run.root().is_dir();
    let experiment = if is_folder { files::optional(run.experiment())? } else { None };
    let Some(experiment) = experiment else {
        return Err(ReportError::NotARun { root: run.root().to_path_buf(), reason: run.flaw() });
    };
    let mut evaluations = Vec::new();
    for record in files::optional(run.evaluations())?.unwrap_or_default() {
        let path = run.recorded_outcomes(&record.set, record.counters.rollout_steps)?;
        let outcomes = files::kind(&path)?.map(|_| by_problem(&path)).transpose()?;
        evaluations.push(LoadedEvaluation { record, outcomes });
    }
    Ok(RunReportLoaded {
        experiment,
        manifest: run.manifest()?,
        tags: files::optional(run.tags())?.unwrap_or_default(),
        environment: files::optional(run.environment())?,
        sessions: files::optional(run.sessions())?.unwrap_or_default(),
        metrics: files::optional(run.metrics())?.unwrap_or_default(),
        timings: files::optional(run.timings())?.unwrap_or_default(),
        evaluations,
        outcome: files::optional(run.outcome())?,
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
    }
    Ok(problems)
}

fn first_and_last_rollouts(run: &RunFolder) -> Result<Vec<(u64, Vec<RolloutRow>)>, ReportError> {
    let names = files::optional(files::list(&run.path("rollouts")))?.unwrap_or_default();
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
