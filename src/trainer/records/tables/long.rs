//! A study's cells as long-format tables, one row for each value.

use crate::records::tables::columns::ColumnWritten;
use polars::prelude::Column;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellKey {
    pub cell: String,
    /// `<grid>/<arm>` of all its arms, separated by spaces.
    pub arms: String,
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct MetricRow<'a> {
    pub key: &'a CellKey,
    /// From 1.
    pub step: u64,
    pub updates: u64,
    /// `stage/name`.
    pub metric: &'a str,
    pub value: f64,
}

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
    /// In [0, 1].
    pub avg_at_k: f64,
    /// `None`: no response names an answer.
    pub cons_at_k: Option<f64>,
    pub truncated_share: f64,
    pub response_tokens_mean: f64,
    pub reward_mean: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct OutcomeRow<'a> {
    pub key: &'a CellKey,
    pub set: &'a str,
    pub step: u64,
    /// Place in the set, from 0.
    pub problem: u64,
    /// From 0.
    pub sample: u64,
    pub correct: bool,
}

impl ColumnWritten for &CellKey {
    fn put<'r>(_name: &str, values: impl Iterator<Item = &'r Self>, columns: &mut Vec<Column>)
    where
        Self: 'r,
    {
        let keys: Vec<&CellKey> = values.copied().collect();
        String::put("cell", keys.iter().map(|key| &key.cell), columns);
        String::put("arms", keys.iter().map(|key| &key.arms), columns);
        u64::put("seed", keys.iter().map(|key| &key.seed), columns);
    }
}

columns!(MetricRow<'_>: key, step, updates, metric, value);
columns!(EvaluationRow<'_>: key, ending, set, step, updates, generated_rollouts, problems, samples,
    avg_at_k, cons_at_k, truncated_share, response_tokens_mean, reward_mean);
columns!(OutcomeRow<'_>: key, set, step, problem, sample, correct);
