//! A study's cells as long-format tables, CSV or parquet. Without times, so that the same records give the same bytes.

use crate::base::files;
use crate::records::tables::columns::{self, ColumnRecord, write_records};
use crate::records::{CellKey, EvaluationRow, MetricRow, OutcomeRow};
use crate::report::{ReportError, text};
use crate::study::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type ExportRows<'a> = (Vec<MetricRow<'a>>, Vec<EvaluationRow<'a>>, Vec<OutcomeRow<'a>>);

/// `names`: SHA-256 of an arm → every `<grid>/<arm>`.
pub fn keys(cells: &[Cell], names: &BTreeMap<String, Vec<String>>) -> Vec<CellKey> {
    let key = |cell: &Cell| CellKey {
        cell: cell.file_name().trim_end_matches(".json").to_string(),
        arms: names.get(&cell.arm_sha256).map_or_else(|| cell.name.clone(), |it| it.join(" ")),
        seed: cell.seed,
    };
    cells.iter().map(key).collect()
}

fn rows<'a>(cells: &'a [Cell], keys: &'a [CellKey]) -> ExportRows<'a> {
    let (mut metrics, mut evaluations, mut outcomes) = ExportRows::default();
    for (cell, key) in cells.iter().zip(keys) {
        for (metric, values) in &cell.metrics {
            for ((counters, value), step) in cell.counters.iter().zip(values).zip(1..) {
                let Some(value) = *value else { continue };
                let updates = counters.updates;
                metrics.push(MetricRow { key, step, updates, metric, value });
            }
        }
        for evaluation in &cell.evaluations {
            let set = evaluation.set.as_str();
            let step = evaluation.counters.rollout_steps;
            evaluations.push(EvaluationRow {
                key,
                ending: cell.ending.name(),
                set,
                step,
                updates: evaluation.counters.updates,
                generated_rollouts: evaluation.generated_rollouts,
                problems: cell.problems.get(set).map_or(0, |problems| problems.count),
                samples: evaluation.samples,
                avg_at_k: evaluation.avg_at_k(),
                cons_at_k: cell.cons_at_k(evaluation),
                truncated_share: evaluation.truncated_share,
                response_tokens_mean: evaluation.response_tokens_mean,
                reward_mean: evaluation.reward_mean,
            });
            let samples = evaluation.samples.max(1);
            for (correct, number) in evaluation.outcomes.values().iter().zip(0u64..) {
                let (problem, sample, correct) = (number / samples, number % samples, *correct);
                outcomes.push(OutcomeRow { key, set, step, problem, sample, correct });
            }
        }
    }
    (metrics, evaluations, outcomes)
}

/// `metrics.parquet`, `evaluations.parquet` and `outcomes.parquet`. Errors: when a file cannot be written.
pub fn parquet(cells: &[Cell], keys: &[CellKey], out: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let (metrics, evaluations, outcomes) = rows(cells, keys);
    let paths = ["metrics", "evaluations", "outcomes"].map(|it| out.join(format!("{it}.parquet")));
    write_records(&paths[0], &metrics)?;
    write_records(&paths[1], &evaluations)?;
    write_records(&paths[2], &outcomes)?;
    Ok(paths.into())
}

/// The same as CSV, by RFC 4180 but with line feeds alone. Errors: when a file cannot be written.
pub fn csv(cells: &[Cell], keys: &[CellKey], out: &Path) -> Result<Vec<PathBuf>, ReportError> {
    let (metrics, evaluations, outcomes) = rows(cells, keys);
    let mut paths = Vec::new();
    for (name, lines) in [
        ("metrics.csv", lines(&metrics)),
        ("evaluations.csv", lines(&evaluations)),
        ("outcomes.csv", lines(&outcomes)),
    ] {
        files::write_atomic(&out.join(name), lines.as_bytes())?;
        paths.push(out.join(name));
    }
    Ok(paths)
}

fn lines<R: ColumnRecord>(records: &[R]) -> String {
    let line = |fields: Vec<String>| text::joined(fields.iter().map(|it| quoted(it)), ",") + "\n";
    columns::texts(records).map(line).collect()
}

/// Quotes a CSV field, with an apostrophe where a spreadsheet would read a formula; numbers keep their sign.
pub fn quoted(field: &str) -> String {
    let formula = field.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let field = if formula && field.parse::<f64>().is_err() {
        format!("'{field}")
    } else {
        field.to_string()
    };
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_csv_are_quoted_where_they_must_be() {
        assert_eq!(quoted("ladder/grpo add-one/grpo"), "ladder/grpo add-one/grpo");
        assert_eq!(quoted("a,\"b\"\nc"), "\"a,\"\"b\"\"\nc\"");
        assert_eq!((quoted("-0.5"), quoted("=1+1")), ("-0.5".to_string(), "'=1+1".to_string()));
    }
}
