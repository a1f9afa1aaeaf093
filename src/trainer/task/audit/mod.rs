//! What a file of problems holds: repetitions, contradictions, answers that the verifier cannot accept, prompts that
//! are not the release's, and digests. The audit reads every row and judges nothing by its name or its size.

mod collect;
mod findings;

use crate::task::data::problem_file::{Readings, Unseen};
use crate::task::data::source::{self, Format};
use crate::task::{RowKeys, SourceRow, TaskError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Entries of a list that is there to be looked at.
pub const LISTED: usize = 10;

const MOST_NAMES: usize = 64;

pub struct AuditOptions<'a> {
    pub keys: RowKeys,
    /// Tokens of a row's prompt, and with what they were counted; else characters are counted.
    pub tokens: Option<TokenCount<'a>>,
    /// A longer prompt is a finding (the release's `max_prompt_length`).
    pub max_prompt_tokens: u64,
    /// Prompts of a rollout step, for the length of an epoch.
    pub prompts_per_step: u64,
}

pub struct TokenCount<'a> {
    pub described: String,
    pub count: &'a dyn Fn(&SourceRow) -> Result<u64, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Audit {
    pub file: String,
    pub format: Format,
    pub bytes: u64,
    pub file_sha256: String,
    pub known_as: Option<String>,
    /// No rule reads the ground truths.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub for_program: bool,
    pub rows: u64,
    /// Distinct questions, however they are spaced.
    pub problems: u64,
    pub content: AuditContent,
    pub copies: Copies,
    pub prompts: AuditPrompts,
    pub answers: Answers,
    pub conflicts: Conflicts,
    pub indices: Indices,
    /// Rows of each `data_source` (an empty name: none).
    pub data_sources: BTreeMap<String, u64>,
    /// Rows of each `reward_model.style` (an empty name: none).
    pub styles: BTreeMap<String, u64>,
    /// Rows by the keys that were read: question, ground truth.
    pub keys: BTreeMap<String, u64>,
    /// Ground truths that stand in the file otherwise than they are read.
    pub readings: Readings,
    /// Columns that may belong to the question and that no prompt shows, with their rows.
    pub unseen: Unseen,
    pub findings: Vec<AuditFinding>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AuditContent {
    /// Of all rows as a multiset: the same whatever their order.
    pub rows_sha256: String,
    /// Of all (question, answer) as a set: whatever the order, the repetitions and the template around the question.
    pub problems_sha256: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Copies {
    pub fewest: u64,
    pub most: u64,
    pub mean: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct AuditPrompts {
    /// Rows whose prompt is exactly the released template around a question.
    pub released_template: u64,
    /// Rows with a system message, and how many different ones: training takes one of all rows.
    pub with_system: u64,
    pub systems: u64,
    /// Rows whose prompt is one user message without that template.
    pub other_template: u64,
    /// Rows whose prompt is anything else than one user message, or one behind a system message: training refuses them.
    pub not_one_user_message: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_refused: Option<String>,
    /// Rows of the released template whose `raw_problem` is another question.
    pub raw_problem_differs: u64,
    pub blank: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blank_rows: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blank_answers: Vec<usize>,
    /// Problems whose question stands in the file with different spacing.
    pub spaced_differently: u64,
    pub lengths: Lengths,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Lengths {
    pub unit: String,
    pub shortest: u64,
    pub median: u64,
    pub percentile_95: u64,
    pub longest: u64,
    /// How many have more tokens than the limit; `None` when characters were counted.
    pub over_limit: Option<u64>,
    pub limit_tokens: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Answers {
    pub distinct: u64,
    /// Integers in decimal digits.
    pub integers: u64,
    pub negative: u64,
    /// Of these, above 999, the largest answer of an AIME.
    pub above_999: u64,
    /// Of these, with a leading zero or a plus sign: strings are compared.
    pub padded: u64,
    pub blank: u64,
    pub other: u64,
    pub other_listed: Vec<String>,
    /// Those for which `Answer: <ground truth>` is graded wrong, or saying nothing is graded right.
    pub unverifiable: u64,
    pub unverifiable_listed: Vec<String>,
    /// The same in the other forms in which an answer is asked for: form → how many, and the first.
    pub unverifiable_otherwise: BTreeMap<String, (u64, String)>,
    pub shared: u64,
    /// The most shared of them, with their number of problems.
    pub shared_listed: Vec<(String, u64)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Conflicts {
    pub problems: u64,
    pub rows: u64,
    pub listed: Vec<ConflictListed>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConflictListed {
    pub question: String,
    pub answers: Vec<(String, u64)>,
}

/// `extra_info.index`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Indices {
    pub integers: u64,
    pub texts: u64,
    pub missing: u64,
    pub distinct: u64,
    /// Indices that stand beside several problems: grouping by them would merge problems.
    pub of_several_problems: u64,
    pub doubled_ids: u64,
    pub several_listed: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditFinding {
    pub kind: FindingKind,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    Note,
    /// Something will go wrong, or silently otherwise than expected.
    Warning,
}

/// Reads the whole file. `progress` is called now and then with how much of how much was read.
/// About 70 bytes are held for a row, and the answers and 200 bytes for a problem.
pub fn audit(
    path: &Path,
    options: &AuditOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Audit, TaskError> {
    let format = Format::of(path)?;
    let mut collected = collect::Collected::default();
    source::each_row(path, &options.keys, &mut |row| {
        collected.take(path, &row, options)?;
        if row.number % 4096 == 4095 {
            progress(row.done, row.total);
        }
        Ok(())
    })?;
    if collected.rows() == 0 {
        return Err(TaskError::Empty { path: path.to_path_buf() });
    }
    let audit = collected.finish(path, format, options)?;
    Ok(Audit { findings: findings::of(&audit, options), ..audit })
}

#[cfg(test)]
mod tests;
