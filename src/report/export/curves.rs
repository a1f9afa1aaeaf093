//! Curves of a run or cell: scalars over updates (the paper's x-axis), a name and settings; no times.

use crate::base::files;
use crate::records::event_file::Scalar;
use crate::records::{CellKey, EvaluationRecord, RunFolder, StepMetrics};
use crate::report::ReportError;
use crate::study::Cell;
use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub struct RunCurves {
    /// Plain characters: it becomes a path.
    pub name: String,
    pub group: String,
    /// The experiment.
    pub config: Value,
    pub scalars: Vec<Scalar>,
    /// By the name that its outcome or cell has; `None` of a run that goes on or broke off.
    pub ending: Option<&'static str>,
}

/// The name is `<grid>.<arm>/seed-<n>`.
pub fn of_cell(cell: &Cell, key: &CellKey) -> RunCurves {
    let mut scalars = Vec::new();
    for (tag, values) in &cell.metrics {
        for (counters, value) in cell.counters.iter().zip(values) {
            let Some(value) = *value else { continue };
            scalars.push(Scalar { tag: tag.clone(), step: counters.updates, value });
        }
    }
    for evaluation in &cell.evaluations {
        scalars.extend(of_evaluation(
            (&evaluation.set, evaluation.counters.updates),
            evaluation.avg_at_k(),
            (evaluation.response_tokens_mean, evaluation.reward_mean),
            evaluation.generated_rollouts as f64,
        ));
    }
    named_curves(named(key), &cell.experiment, scalars, Some(cell.ending.name()))
}

/// Named by its folder or, in a study, by its cell. Errors: when its records cannot be read.
pub fn of_run(run: &RunFolder, key: Option<&CellKey>) -> Result<RunCurves, ReportError> {
    let ending = files::optional(run.outcome())?.map(|outcome| outcome.ending.name());
    let (metrics, records): (Vec<StepMetrics>, Vec<EvaluationRecord>) = if ending.is_some() {
        (run.metrics()?, run.evaluations()?)
    } else {
        let [metrics, evaluations] =
            ["metrics.jsonl", "evaluations.jsonl"].map(|name| run.inside(name));
        (files::complete_lines(&metrics?)?, files::complete_lines(&evaluations?)?)
    };
    let mut scalars = Vec::new();
    for line in &metrics {
        let step = line.counters.updates;
        let values = line.metrics.iter().filter(|(_, value)| value.is_finite());
        scalars.extend(values.map(|(tag, value)| Scalar { tag: tag.clone(), step, value: *value }));
    }
    for record in &records {
        let until = record.counters.rollout_steps;
        let generated = metrics.iter().filter(|line| line.step <= until);
        scalars.extend(of_evaluation(
            (&record.set, record.counters.updates),
            record.avg_at_k,
            (record.response_tokens_mean, record.reward_mean),
            generated
                .filter_map(|line| line.metrics.get("rollout/generated_rollouts"))
                .fold(0.0, |sum, it| sum + it),
        ));
    }
    let experiment = run.experiment()?;
    let names = match key {
        Some(key) => named(key),
        None => {
            let path = std::path::absolute(run.root()).unwrap_or_else(|_| run.root().into());
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            (plain(&name), plain(&experiment.name))
        }
    };
    Ok(named_curves(names, &experiment, scalars, ending))
}

fn named_curves(
    (name, group): (String, String),
    experiment: &impl serde::Serialize,
    mut scalars: Vec<Scalar>,
    ending: Option<&'static str>,
) -> RunCurves {
    // Trackers draw points in the order of arrival.
    scalars.sort_by_key(|scalar| scalar.step);
    let config = serde_json::to_value(experiment).unwrap_or_default();
    RunCurves { name, group, config, scalars, ending }
}

fn named(key: &CellKey) -> (String, String) {
    let first = plain(key.arms.split(' ').next().unwrap_or_default());
    let group = if first.is_empty() { key.cell.clone() } else { first };
    (format!("{group}/seed-{}", key.seed), group)
}

/// The name comes from a record and becomes a path.
fn plain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_+.".contains(c) { c } else { '.' };
    let name: String = name.chars().take(120).map(plain).collect();
    name.trim_start_matches('.').to_owned()
}

fn of_evaluation(
    (set, step): (&str, u64),
    avg_at_k: f64,
    (response_tokens_mean, reward_mean): (f64, Option<f64>),
    generated_rollouts: f64,
) -> impl Iterator<Item = Scalar> {
    let all = [
        ("avg_at_k", avg_at_k),
        ("response_tokens_mean", response_tokens_mean),
        ("generated_rollouts", generated_rollouts),
    ];
    let all = all.into_iter().chain(reward_mean.map(|mean| ("reward_mean", mean)));
    all.map(move |(name, value)| Scalar { tag: format!("evaluation/{set}/{name}"), step, value })
}
