//! Typed records ↔ parquet: outcomes, rollouts, problems. Only this module uses polars, and `parquet` for
//! files too large to be held whole. Equal records give equal bytes, so SHA-256 identifies content.

#[macro_use]
pub mod columns;
pub mod csv_rows;
pub mod decode;
pub mod format;
pub mod graded;
pub mod long;
pub mod problem_rows;
pub mod graded_lines;
pub mod problems;

use crate::base::files;
use crate::records::tables::columns::{
    ColumnRecord, ColumnTable, Stored, read_records, write_records,
};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error(transparent)]
    File(#[from] files::FileError),
    #[error("{}: {refusal}", path.display())]
    Refused { path: PathBuf, refusal: Refusal },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("not a readable parquet file: {reason}")]
    Parquet { reason: String },
    #[error("no column `{column}`, the file has {}", if present.is_empty() { "none" } else { present })]
    MissingColumn { column: String, present: String },
    #[error("it is {found}; expected {expected}")]
    Format { found: String, expected: String },
    #[error("{what}: {candidates}")]
    Ambiguous { what: String, candidates: String },
    #[error("column `{column}` does not belong in this table")]
    ForeignColumn { column: String },
    /// From 0, as in dataframes.
    #[error("column `{column}`, row {row} (from 0): {reason}")]
    Cell { column: String, row: usize, reason: String },
}

impl Refusal {
    fn of(self, path: &Path) -> TableError {
        TableError::Refused { path: path.to_path_buf(), refusal: self }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutcomeRecord {
    pub problem: String,
    /// From 0 to k − 1.
    pub sample: u32,
    pub is_correct: bool,
    /// Stop token included.
    pub response_tokens: u32,
    /// At the limit, without a stop token.
    pub truncated: bool,
    /// The answer that the verifier read, normalised.
    pub prediction: Option<String>,
    pub answer: String,
    pub response: String,
    /// What a program returned; a rule gives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RolloutRow {
    /// In the rollout step, by order of sampling.
    pub group: u32,
    pub problem: String,
    pub question: String,
    pub answer: String,
    /// Earlier samplings of the problem in this step.
    pub attempt: u32,
    /// From 0 to G − 1.
    pub sample: u32,
    /// Part of the trained batch.
    pub trained: bool,
    pub is_correct: bool,
    pub prediction: Option<String>,
    /// R_i: the sum of the next two fields.
    pub reward: f64,
    /// Eq. 7.
    pub correctness_reward: f64,
    /// Eq. 13.
    pub overlong_penalty: f64,
    /// Â of Eq. 9.
    pub advantage: f64,
    /// At L_max, without a stop token.
    pub truncated: bool,
    /// Stop token included.
    pub tokens: Vec<u32>,
    /// When sampled, in nats; as many as `tokens`.
    pub rollout_log_probs: Vec<f64>,
    pub response: String,
}

table!(OutcomeRecord: problem, sample, is_correct, response_tokens, truncated, prediction, answer,
    response; reward);
table!(RolloutRow: group, problem, question, answer, attempt, sample, trained, is_correct,
    prediction, reward, correctness_reward, overlong_penalty, advantage, truncated, tokens,
    rollout_log_probs, response);
table!(StoredResponse: response, answer, truncated);

pub fn write_outcomes(path: &Path, outcomes: &[OutcomeRecord]) -> Result<(), TableError> {
    let mut columns = OutcomeRecord::columns(outcomes);
    if outcomes.iter().all(|row| row.reward.is_none()) {
        columns.retain(|column| column.name() != "reward");
    }
    columns::write(path, outcomes.len(), columns)
}

pub fn read_outcomes(path: &Path) -> Result<Vec<OutcomeRecord>, TableError> {
    read_records(path)
}

/// What a verifier reads of outcomes or rollouts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub response: String,
    pub answer: String,
    pub truncated: bool,
}

pub fn read_responses(path: &Path) -> Result<Vec<StoredResponse>, TableError> {
    let present = problem_rows::column_names(path)?;
    if let Some(column) =
        StoredResponse::NAMES.iter().find(|name| !present.contains(&name.to_string()))
    {
        let (column, present) = (column.to_string(), present.join(", "));
        return Err(Refusal::MissingColumn { column, present }.of(path));
    }
    ColumnTable::read_columns(path, Some(StoredResponse::NAMES))?.records()
}

pub fn write_rollouts(path: &Path, rollouts: &[RolloutRow]) -> Result<(), TableError> {
    write_records(path, rollouts)
}

/// In order.
pub fn read_rollouts(path: &Path) -> Result<Vec<RolloutRow>, TableError> {
    read_records(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use polars::prelude::Column;

    fn outcomes() -> Vec<OutcomeRecord> {
        (0..700u32)
            .map(|index| OutcomeRecord {
                problem: format!("dev/{:04}", index / 32),
                sample: index % 32,
                is_correct: index % 3 == 0,
                response_tokens: index,
                truncated: index % 7 == 0,
                prediction: (index % 2 == 0).then(|| index.to_string()),
                answer: "855".into(),
                response: format!("1+2=3;\nAnswer: {index} \u{1F600}"),
                reward: None,
            })
            .collect()
    }

    fn rollouts() -> Vec<RolloutRow> {
        (0..40u32)
            .map(|index| RolloutRow {
                group: index / 8,
                problem: format!("train/{index:05}"),
                question: "1+2?".into(),
                answer: "3".into(),
                attempt: index % 2,
                sample: index % 8,
                trained: index % 3 != 0,
                is_correct: index % 5 == 0,
                prediction: None,
                reward: -1.0 - f64::from(index) / 7.0,
                correctness_reward: -1.0,
                overlong_penalty: -f64::from(index) / 7.0,
                advantage: 0.1 + 0.2,
                truncated: index == 0,
                tokens: (0..index % 4).collect(),
                rollout_log_probs: (0..index % 4).map(|t| -f64::from(t) / 3.0).collect(),
                response: String::new(),
            })
            .collect()
    }

    #[test]
    fn outcomes_come_back_as_written_and_the_same_records_give_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut graded = outcomes();
        graded.iter_mut().skip(1).for_each(|row| row.reward = Some(f64::from(row.sample) / 3.0));
        for records in [outcomes(), Vec::new(), graded] {
            write_outcomes(&path("a"), &records).unwrap();
            write_outcomes(&path("b"), &records).unwrap();
            assert_eq!(read_outcomes(&path("a")).unwrap(), records);
            assert_eq!(files::read(&path("a")).unwrap(), files::read(&path("b")).unwrap());
        }
    }

    #[test]
    fn rollouts_come_back_bit_for_bit_and_the_same_records_give_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for records in [rollouts(), Vec::new()] {
            write_rollouts(&path("a"), &records).unwrap();
            write_rollouts(&path("b"), &records).unwrap();
            assert_eq!(read_rollouts(&path("a")).unwrap(), records);
            assert_eq!(files::read(&path("a")).unwrap(), files::read(&path("b")).unwrap());
        }
    }

    #[test]
    fn the_bytes_of_a_table_are_pinned() {
        // A change here (a new version of the parquet writer) changes every digest of a
        // table in a run folder.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outcomes.parquet");
        write_outcomes(&path, &outcomes()).unwrap();
        insta::assert_snapshot!(files::sha256_file(&path).unwrap());
    }

    #[test]
    fn errors_name_file_column_and_row() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let text =
            |error: TableError| error.to_string().replace(&folder.path().display().to_string(), "");
        write_outcomes(&path, &outcomes()).unwrap();
        let foreign = text(read_rollouts(&path).unwrap_err());
        assert_eq!(foreign, "/t.parquet: column `response_tokens` does not belong in this table");
        let column = Column::new("sample".into(), [0.5, 1.0]);
        columns::write(&path, 2, vec![Column::new("problem".into(), ["dev/0001"; 2]), column])
            .unwrap();
        assert_eq!(
            text(read_outcomes(&path).unwrap_err()),
            "/t.parquet: column `sample`, row 0 (from 0): expected an integer below 2^32, got 0.5"
        );
        let column = Column::new("problem".into(), [Some("dev/0001"), None]);
        columns::write(&path, 2, vec![column, Column::new("sample".into(), [3u32; 2])]).unwrap();
        let missing = text(read_outcomes(&path).unwrap_err());
        assert!(missing.starts_with("/t.parquet: no column `is_correct`"), "{missing}");
        let table = ColumnTable::read_columns(&path, None).unwrap();
        let cell = table.get::<String>(1, "problem").unwrap_err();
        assert_eq!(
            text(cell),
            "/t.parquet: column `problem`, row 1 (from 0): expected text, got null"
        );
        let names = OutcomeRecord::NAMES.iter().chain(&["note"]);
        let columns = names.map(|name| Column::new((*name).into(), [1u32])).collect();
        columns::write(&path, 1, columns).unwrap();
        assert_eq!(
            text(read_outcomes(&path).unwrap_err()),
            "/t.parquet: column `note` does not belong in this table"
        );
        files::write_atomic(&path, b"not parquet").unwrap();
        let refused = text(read_outcomes(&path).unwrap_err());
        assert!(refused.starts_with("/t.parquet: not a readable parquet file: "), "{refused}");
    }
}
