//! A study's cells as long-format tables: one row for each value, for readers with their own
//! tools.

use crate::records::tables::Error;
use crate::records::tables::columns::Columns;
use std::path::Path;

/// What every row says of its cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellKey {
    pub cell: String,
    /// Every `<grid>/<arm>` that the cell belongs to, separated by spaces.
    pub arms: String,
    pub seed: u64,
}

/// A metric of a rollout step.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricRow<'a> {
    pub key: &'a CellKey,
    /// Rollout step, from 1.
    pub step: u64,
    pub updates: u64,
    /// `stage/name`.
    pub metric: &'a str,
    pub value: f64,
}

/// An evaluation of a set.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationRow<'a> {
    pub key: &'a CellKey,
    pub ending: &'static str,
    pub set: &'a str,
    pub step: u64,
    pub updates: u64,
    pub generated_rollouts: u64,
    pub problems: u64,
    pub samples: u64,
    /// avg@k in [0, 1].
    pub avg_at_k: f64,
    /// cons@k in [0, 1].
    pub cons_at_k: f64,
    pub truncated_share: f64,
    pub response_tokens_mean: f64,
}

/// One response of an evaluation.
#[derive(Debug, Clone, PartialEq)]
pub struct OutcomeRow<'a> {
    pub key: &'a CellKey,
    pub set: &'a str,
    pub step: u64,
    /// The problem's place in the set, from 0.
    pub problem: u64,
    /// Sample number, from 0.
    pub sample: u64,
    pub correct: bool,
}

/// Writes the metrics as parquet.
pub fn write_metrics(path: &Path, rows: &[MetricRow]) -> Result<(), Error> {
    let mut columns = Columns::of(rows);
    key(&mut columns, |row| row.key);
    columns.u64("step", |row| row.step);
    columns.u64("updates", |row| row.updates);
    columns.text("metric", |row| row.metric);
    columns.f64("value", |row| row.value);
    columns.write(path)
}

/// Writes the evaluations as parquet.
pub fn write_evaluations(path: &Path, rows: &[EvaluationRow]) -> Result<(), Error> {
    let mut columns = Columns::of(rows);
    key(&mut columns, |row| row.key);
    columns.text("ending", |row| row.ending);
    columns.text("set", |row| row.set);
    columns.u64("step", |row| row.step);
    columns.u64("updates", |row| row.updates);
    columns.u64("generated_rollouts", |row| row.generated_rollouts);
    columns.u64("problems", |row| row.problems);
    columns.u64("samples", |row| row.samples);
    columns.f64("avg_at_k", |row| row.avg_at_k);
    columns.f64("cons_at_k", |row| row.cons_at_k);
    columns.f64("truncated_share", |row| row.truncated_share);
    columns.f64("response_tokens_mean", |row| row.response_tokens_mean);
    columns.write(path)
}

/// Writes the outcomes as parquet.
pub fn write_outcomes(path: &Path, rows: &[OutcomeRow]) -> Result<(), Error> {
    let mut columns = Columns::of(rows);
    key(&mut columns, |row| row.key);
    columns.text("set", |row| row.set);
    columns.u64("step", |row| row.step);
    columns.u64("problem", |row| row.problem);
    columns.u64("sample", |row| row.sample);
    columns.bool("correct", |row| row.correct);
    columns.write(path)
}

fn key<'a, R>(columns: &mut Columns<'a, R>, key: impl Fn(&'a R) -> &'a CellKey + Copy) {
    columns.text("cell", move |row| &key(row).cell);
    columns.text("arms", move |row| &key(row).arms);
    columns.u64("seed", move |row| key(row).seed);
}
