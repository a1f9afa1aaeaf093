//! Checks of a report: digests of files, and statistics computed again from single outcomes. Failed ones are shown.

use crate::base::files;
use crate::records::{Ending, RunFolder};
use crate::report::{LoadedEvaluation, ReportError, RunReportLoaded, run::load, text};
use crate::statistics::estimators;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReportCheck {
    pub what: String,
    pub held: bool,
    pub detail: String,
}

/// Rounding of a sum over problems.
const TOLERANCE: f64 = 1e-12;

/// Errors: when a file with a digest is there but cannot be read.
pub fn checks(run: &RunFolder, loaded: &RunReportLoaded) -> Result<Vec<ReportCheck>, ReportError> {
    let mut checks = Vec::new();
    if let Some(outcome) = &loaded.outcome {
        checks.push(digests(run, &outcome.digests)?);
        let diverged = outcome.ending == Ending::Diverged;
        let recorded = loaded.metrics.last().map(|step| step.counters).unwrap_or_default();
        checks.push(ReportCheck {
            what: "the clocks at the end are those of the last recorded step".to_owned(),
            // A step with nothing to train on generates only.
            held: recorded.rollout_steps == outcome.counters.rollout_steps
                && (recorded.updates == outcome.counters.updates || diverged),
            detail: format!(
                "{} and {} recorded, {} and {} at the end{}",
                text::counted(recorded.rollout_steps as usize, "rollout step", "rollout steps"),
                text::updates(recorded.updates),
                outcome.counters.rollout_steps,
                outcome.counters.updates,
                if diverged { ", with those of the step that diverged" } else { "" }
            ),
        });
    }
    if !loaded.evaluations.is_empty() {
        checks.push(outcome_tables(loaded));
        checks.push(statistics(loaded));
    }
    checks.extend(times(loaded));
    Ok(checks)
}

fn times(loaded: &RunReportLoaded) -> Option<ReportCheck> {
    let (timings, sessions) = (loaded.timings.iter().zip(1..), loaded.sessions.iter().zip(1..));
    let timings = timings.filter(|(it, _)| !it.are_possible());
    let sessions = sessions.filter(|(it, _)| it.went_back());
    let line = |line| format!("line {line} of timings.jsonl is not counted");
    let session =
        |number| format!("session {number} ended before it started, its clock was set back");
    let wrong = timings.map(|(_, it)| line(it)).chain(sessions.map(|(_, it)| session(it)));
    let wrong: Vec<String> = wrong.collect();
    let total = loaded.timings.len() + loaded.sessions.len();
    (!wrong.is_empty())
        .then(|| checked("every time is one that a clock shows", total, "records", &wrong))
}

fn digests(
    run: &RunFolder,
    digests: &BTreeMap<String, String>,
) -> Result<ReportCheck, ReportError> {
    let mut wrong = Vec::new();
    let is_checkpoints = |name: &str| name.starts_with("checkpoints/");
    for (name, expected) in digests {
        // Users may delete whole checkpoints to save room.
        if is_checkpoints(name) && is_removed(run, name) {
            continue;
        }
        // A path outside the folder is no file of the run.
        let Ok(path) = run.inside(name) else {
            wrong.push(format!("{} names nothing inside the folder", text::visible(name)));
            continue;
        };
        match load::optional(files::sha256_file(&path))? {
            Some(digest) if digest == *expected => {}
            Some(_) => wrong.push(format!("{} differs", text::visible(name))),
            None => wrong.push(format!("{} is missing", text::visible(name))),
        }
    }
    let total = digests.keys().filter(|name| !is_checkpoints(name)).count();
    let what = "every file that the run wrote has the digest of outcome.json";
    Ok(checked(what, total, "files, and the checkpoints that are there", &wrong))
}

/// The file's whole checkpoint was deleted.
fn is_removed(run: &RunFolder, name: &str) -> bool {
    let folder = name.rsplit_once('/').and_then(|(folder, _)| run.inside(folder).ok());
    folder.is_some_and(|folder| files::kind(&folder).is_ok_and(|kind| kind.is_none()))
}

fn outcome_tables(loaded: &RunReportLoaded) -> ReportCheck {
    let wrong = loaded.evaluations.iter().filter_map(|evaluation| {
        match evaluation.outcomes_sha256.as_ref() {
            None => Some(format!("{}: no table", place(evaluation))),
            Some(digest) if *digest == evaluation.record.outcomes_sha256 => None,
            Some(_) => Some(format!("{} differs", place(evaluation))),
        }
    });
    let wrong: Vec<String> = wrong.collect();
    let what = "every evaluation's table of outcomes has the digest of its record";
    checked(what, loaded.evaluations.len(), "tables", &wrong)
}

fn place(evaluation: &LoadedEvaluation) -> String {
    let record = &evaluation.record;
    format!("{} at step {}", text::visible(&record.set), record.counters.rollout_steps)
}

fn statistics(loaded: &RunReportLoaded) -> ReportCheck {
    let with_table = |it: &&LoadedEvaluation| it.outcomes.is_some();
    let compared: Vec<&LoadedEvaluation> = loaded.evaluations.iter().filter(with_table).collect();
    let wrong = compared.iter().filter(|evaluation| !follows(evaluation));
    let wrong: Vec<String> =
        wrong.map(|it| format!("{} does not follow from its outcomes", place(it))).collect();
    let what = "avg@k, both standard errors, pass@k, cons@k, truncated share and length follow from the outcomes";
    checked(what, compared.len(), "evaluations computed again", &wrong)
}

fn follows(evaluation: &LoadedEvaluation) -> bool {
    let (record, outcomes) = (&evaluation.record, evaluation.outcomes.iter().flatten());
    let problems: Vec<_> = outcomes.clone().map(|problem| problem.samples.clone()).collect();
    let Ok(again) = estimators::summary(&problems) else { return false };
    let truncated = outcomes.clone().flat_map(|problem| &problem.truncated);
    let tokens =
        mean(outcomes.flat_map(|problem| &problem.response_tokens).map(|it| f64::from(*it)));
    let numbers = [
        (again.avg_at_k, record.avg_at_k),
        (again.standard_error_fixed_problems, record.standard_error_fixed_problems),
        (again.standard_error_new_problems, record.standard_error_new_problems),
        (again.cons_at_k, record.cons_at_k),
        (mean(truncated.map(|it| f64::from(*it))), record.truncated_share),
    ];
    let passes = again.pass_at_k.values().copied().zip(record.pass_at_k.values().copied());
    let close = |(a, b): (f64, f64)| (a - b).abs() <= TOLERANCE;
    (again.problems, again.samples) == (record.problems, record.samples)
        && again.pass_at_k.keys().eq(record.pass_at_k.keys())
        && numbers.into_iter().chain(passes).all(close)
        // Token counts are sums of integers; only the division rounds.
        && (tokens - record.response_tokens_mean).abs() <= 1e-9 * tokens.max(1.0)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}

/// Of so many things, those that are wrong.
fn checked(what: &str, total: usize, of: &str, wrong: &[String]) -> ReportCheck {
    let detail = if wrong.is_empty() {
        format!("{total} {of}")
    } else {
        format!("{} of {total} {of}: {}", wrong.len(), wrong.join("; "))
    };
    ReportCheck { what: what.to_owned(), held: wrong.is_empty(), detail }
}
