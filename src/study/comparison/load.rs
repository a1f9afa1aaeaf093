//! Reads a side's runs from a table, a cell record, a run folder, or a folder of these.

use crate::base::files::{self, FileKind, foreign};
use crate::base::visible;
use crate::experiment::diagnose;
use crate::records::{
    ColumnNames, Counters, Ending, GradedTable, RunFolder,
    tables::{format, graded_lines},
};
use crate::statistics::Counts;
use crate::study::{Cell, StudyError, cell, comparison::EvaluatedRun};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[derive(Debug, Clone, Default, clap::Args)]
pub struct ComparisonOptions {
    #[command(flatten)]
    pub columns: ColumnNames,
    /// Evaluation set of run folders and cell records that have several.
    #[arg(long = "evaluation-set", value_name = "NAME")]
    pub set: Option<String>,
    /// Allow problems with different numbers of samples.
    #[arg(long)]
    pub unequal_samples: bool,
}

/// Each path is a run, or a folder whose entries are runs. Errors: a file that cannot be read, or that is given twice.
pub fn side<P: AsRef<Path>>(
    paths: &[P],
    options: &ComparisonOptions,
) -> Result<Vec<EvaluatedRun>, StudyError> {
    let mut runs = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        match files::kind(path)? {
            Some(FileKind::Folder) if !is_run(path)? => {
                for name in files::list(path)? {
                    if is_left_out(&name) {
                        continue;
                    }
                    let inside = foreign::inside(path, &name)?;
                    if name != "index.html" || !is_list_of_runs(&inside)? {
                        runs.push(run(&inside, options)?);
                    }
                }
            }
            _ => runs.push(run(path, options)?),
        }
    }
    let mut known = BTreeMap::new();
    for run in &runs {
        let path = &run.path;
        if let Some(first) = known.insert(state(run), path) {
            let reason = format!("the same file as {}; name a training run once", first.display());
            return Err(StudyError::invalid(path, reason));
        }
    }
    match (runs.is_empty(), paths.first()) {
        (true, Some(path)) => Err(StudyError::invalid(path.as_ref(), "no run is in this folder")),
        _ => Ok(runs),
    }
}

pub fn check_differ(a: &[EvaluatedRun], b: &[EvaluatedRun]) -> Result<(), StudyError> {
    let known: BTreeSet<String> = a.iter().map(state).collect();
    if let Some(run) = b.iter().find(|run| known.contains(&state(run))) {
        return Err(StudyError::invalid(&run.path, "given on both sides: name runs that differ"));
    }
    Ok(())
}

/// A packed record is no file of its own.
fn state(run: &EvaluatedRun) -> String {
    files::state(&run.path).unwrap_or_else(|_not_there| run.path.display().to_string())
}

fn is_left_out(name: &str) -> bool {
    name.starts_with('.')
        || files::leftovers::is_partial(name)
        || files::leftovers::is_set_aside(name)
}

fn is_list_of_runs(page: &Path) -> Result<bool, StudyError> {
    Ok(files::read_text(page)?.contains("<body class=\"index\">"))
}

fn is_run(folder: &Path) -> Result<bool, StudyError> {
    Ok(files::kind(&folder.join("evaluations.jsonl"))? == Some(FileKind::File))
}

fn run(path: &Path, options: &ComparisonOptions) -> Result<EvaluatedRun, StudyError> {
    if files::kind(path)? == Some(FileKind::Folder) {
        return run_folder(path, options);
    }
    let name = path.to_string_lossy();
    let is_document = !format::has_lines(path) && !format::begins(path, b"[");
    if name.ends_with(".json") && is_document {
        let read = cell(path, options);
        let is_of_lm_eval = |document: &Value| document["results"].is_object();
        if read.is_err() && files::read_json(path).is_ok_and(|it| is_of_lm_eval(&it)) {
            let reason = "these are lm-eval's results, which have no outcomes of problems: run it with --log_samples, \
                          and name its samples_….jsonl";
            return Err(StudyError::invalid(path, reason));
        }
        read
    } else {
        table(path, path, &options.columns, options)
    }
}

fn run_folder(path: &Path, options: &ComparisonOptions) -> Result<EvaluatedRun, StudyError> {
    if !is_run(path)? {
        return Err(StudyError::invalid(path, "it is neither a run folder nor a table"));
    }
    let folder = RunFolder::at(path);
    let evaluations = folder.evaluations()?;
    let set = choose(path, evaluations.iter().map(|record| record.set.as_str()), options)?;
    let outcome = files::optional(folder.outcome())?;
    let (state, end) = match &outcome {
        Some(outcome) => (outcome.ending.name(), outcome.counters),
        None => {
            let metrics = files::optional(folder.metrics())?.unwrap_or_default();
            ("unfinished", metrics.last().map(|step| step.counters).unwrap_or_default())
        }
    };
    let diverged = outcome.is_some_and(|outcome| outcome.ending == Ending::Diverged);
    let last = evaluations.iter().rfind(|record| record.set == set);
    let last = last.map(|record| record.counters).filter(|it| it.is_result_of(end, diverged));
    let at = last.ok_or_else(|| no_result(path, &set, (state, end)))?;
    let outcomes = folder.recorded_outcomes(&set, at.rollout_steps)?;
    let name = |name: &str| Some(name.to_string());
    let columns = ColumnNames {
        problem: name("problem"),
        sample: name("sample"),
        correct: name("is_correct"),
        no_sample: false,
    };
    let mut run = table(path, &outcomes, &columns, options)?;
    run.remarks = vec![evaluated(&set, at, (state, end))];
    run.set = Some(set);
    Ok(run)
}

fn evaluated(set: &str, at: Counters, (state, end): (&str, Counters)) -> String {
    let what = format!("set `{set}`, last evaluation; updates: {}", at.updates);
    if state == "finished" {
        return what;
    }
    let (step, steps) = (at.rollout_steps, end.rollout_steps);
    format!("{what}; the run is {state}: evaluated at rollout step {step} of {steps} recorded")
}

fn no_result(path: &Path, set: &str, (state, end): (&str, Counters)) -> StudyError {
    let reason = format!(
        "only the base policy was evaluated on set `{set}`, which is no result of the run ({state}, updates: {}); \
         name another set with --evaluation-set, or leave the run out",
        end.updates
    );
    StudyError::invalid(path, reason)
}

/// A cell has only a digest of its problems: each problem's name is that digest and its place.
fn cell(path: &Path, options: &ComparisonOptions) -> Result<EvaluatedRun, StudyError> {
    let cell = Cell::read(path)?;
    let sets = cell.evaluations.iter().map(|evaluation| evaluation.set.as_str());
    let set = choose(path, sets, options)?;
    let end = (cell.ending.name(), cell.counters.last().copied().unwrap_or_default());
    let (Some(last), Some(ids)) = (cell.last_evaluation(&set), cell.problems.get(&set)) else {
        return Err(no_result(path, &set, end));
    };
    let digest = ids.sha256.get(..8).unwrap_or(&ids.sha256);
    let problem = |(index, counts)| (format!("{set}/{digest}/{index:05}"), counts);
    let problems = last.counts().into_iter().enumerate().map(problem).collect();
    let checked = format!(
        "problems of a cell are named by their place; the fields of its record were checked against each other; {}",
        cell::ONLY_TRAINING
    );
    let remarks = vec![evaluated(&set, last.counters, end), checked];
    Ok(EvaluatedRun { path: path.to_path_buf(), problems, remarks, set: Some(set) })
}

fn choose<'a>(
    path: &Path,
    sets: impl Iterator<Item = &'a str>,
    options: &ComparisonOptions,
) -> Result<String, StudyError> {
    let sets: BTreeSet<&str> = sets.collect();
    let known = sets.iter().copied().collect::<Vec<_>>().join(", ");
    let reason = match (&options.set, sets.len()) {
        (Some(set), _) if sets.contains(set.as_str()) => return Ok(set.clone()),
        (Some(set), _) => {
            let names = Vec::from_iter(sets.iter().map(ToString::to_string));
            let near = diagnose::nearest(set, &names);
            let near = near.map_or(String::new(), |name| format!("; did you mean {name}?"));
            format!("no evaluation of set `{set}`, only of {known}{near}")
        }
        (None, 1) => return Ok(known),
        (None, 0) => "nothing was evaluated".to_string(),
        (None, _) => {
            format!("several sets were evaluated, choose one with --evaluation-set: {known}")
        }
    };
    Err(StudyError::invalid(path, reason))
}

fn table(
    shown: &Path,
    path: &Path,
    columns: &ColumnNames,
    options: &ComparisonOptions,
) -> Result<EvaluatedRun, StudyError> {
    let table = graded_lines::read(path, columns)?;
    let problems = counts(shown, &table, options.unequal_samples)?;
    let (problem, sample, correct) = &table.columns;
    let sample = sample.as_ref().map_or("none".to_string(), |name| format!("`{name}`"));
    let remarks =
        vec![format!("columns: problem `{problem}`, sample {sample}, correct `{correct}`")];
    Ok(EvaluatedRun { path: shown.to_path_buf(), problems, remarks, set: None })
}

fn counts(
    path: &Path,
    table: &GradedTable,
    unequal_samples: bool,
) -> Result<BTreeMap<String, Counts>, StudyError> {
    let mut problems: BTreeMap<String, Counts> = BTreeMap::new();
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    for row in &table.rows {
        if let Some(sample) = &row.sample
            && !seen.insert((&row.problem, sample))
        {
            let (problem, sample) = (cut(&row.problem), cut(sample));
            let reason = format!(
                "problem {problem:?} has sample {sample:?} twice; \
                 several training runs belong into several files"
            );
            return Err(StudyError::invalid(path, reason));
        }
        let counts =
            problems.entry(row.problem.clone()).or_insert(Counts { correct: 0, samples: 0 });
        counts.samples += 1;
        counts.correct += u64::from(row.is_correct);
    }
    let Some((first, Counts { samples: k, .. })) = problems.first_key_value() else {
        return Err(StudyError::invalid(path, "the table has no rows"));
    };
    let other = problems.iter().find(|(_, counts)| counts.samples != *k);
    if let (Some((name, counts)), false) = (other, unequal_samples) {
        let (first, name) = (cut(first), cut(name));
        let reason = format!(
            "problem {first:?} has {k} samples and problem {name:?} has {}; \
             --unequal-samples gives every problem the same weight",
            counts.samples
        );
        return Err(StudyError::invalid(path, reason));
    }
    Ok(problems)
}

fn cut(text: &str) -> String {
    visible::start(text, 80)
}
