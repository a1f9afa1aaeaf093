//! A file of problems: parquet in the released schema, or JSON lines.
//!
//! The released files repeat themselves: AIME 2024 is 30 problems × 32 copies, DAPO-Math-17k
//! about 17,400 × 103. Rows with the same prompt and the same answer are one problem.

use crate::data::Error;
use crate::data::set_name;
use crate::data::template;
use crate::files;
use crate::records::Problem;
use crate::tables::problems::Index;
use crate::tables::problems::ProblemRow;
use crate::tables::problems::read_problems;
use serde::Deserialize;
use serde::Deserializer;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::path::Path;

/// How many conflicting prompts a message lists.
const LISTED_CONFLICTS: usize = 10;

/// What a file holds, without repetitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProblemFile {
    /// Rows or records of the file.
    pub records: usize,
    /// Problems in the order of their first record, without those of `conflicts`.
    pub problems: Vec<Problem>,
    /// Prompts that stand in the file with more than one answer.
    pub conflicts: Vec<Conflict>,
}

/// A prompt with more than one answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The text that the records share.
    pub prompt: String,
    /// Each answer with its first record (from 0).
    pub answers: Vec<(String, usize)>,
}

impl ProblemFile {
    /// The problems, when no prompt has conflicting answers. `path` is for the message.
    ///
    /// # Errors
    /// [`Error::Conflicts`], with the first ten.
    pub fn consistent(self, path: &Path) -> Result<Vec<Problem>, Error> {
        if self.conflicts.is_empty() {
            return Ok(self.problems);
        }
        let one = |conflict: &Conflict| {
            let answers: Vec<String> = conflict
                .answers
                .iter()
                .map(|(answer, record)| format!("`{answer}` (record {record})"))
                .collect();
            let question = template::unwrap(&conflict.prompt).unwrap_or(&conflict.prompt);
            let start: String = question.chars().take(60).collect();
            format!("{start:?} has {}", answers.join(" and "))
        };
        let count = self.conflicts.len();
        let mut listed: Vec<String> =
            self.conflicts.iter().take(LISTED_CONFLICTS).map(one).collect();
        if count > LISTED_CONFLICTS {
            listed.push(format!("{} more", count - LISTED_CONFLICTS));
        }
        let listed = listed.join("; ");
        Err(Error::Conflicts { path: path.to_path_buf(), count, listed })
    }
}

/// One record before repetitions are removed.
struct Record {
    /// Records with the same text are the same problem.
    prompt: String,
    question: String,
    answer: String,
    id: Option<String>,
}

/// Reads `*.parquet` or `*.jsonl`.
///
/// Parquet, in the released schema: the question is `extra_info.raw_problem`; without one,
/// the prompt's text without the released template where it matches exactly, else the
/// prompt's text as it is. The id is `extra_info.index` when it is text and
/// `<file stem>/<index>` when it is a number; when a problem has none or two share one (an
/// index is not promised to be unique), every problem is `<file stem>/<position>`.
///
/// JSON lines: `{"id"?, "question", "answer"}`; id and answer may be integers. A problem
/// without id is `<file stem>/<position>`.
///
/// # Errors
/// When the file is missing or malformed, has no problems, an empty question or answer, or
/// two JSON lines share an id. Conflicting answers are returned, not an error here.
pub fn read(path: &Path) -> Result<ProblemFile, Error> {
    let stem = set_name(path);
    let extension = path.extension().and_then(|extension| extension.to_str());
    let (records, ids_are_promised) = match extension {
        Some("parquet") => {
            let rows = read_problems(path)?;
            (rows.into_iter().map(|row| from_row(row, &stem)).collect::<Vec<_>>(), false)
        }
        Some("jsonl") => {
            let lines: Vec<Line> = files::read_data_lines(path)?;
            (lines.into_iter().map(from_line).collect(), true)
        }
        _ => return Err(Error::Format { path: path.to_path_buf() }),
    };
    if records.is_empty() {
        return Err(Error::Empty { path: path.to_path_buf() });
    }
    for (record, content) in records.iter().enumerate() {
        let blank = |field| Error::Blank { path: path.to_path_buf(), record, field };
        if content.question.trim().is_empty() {
            return Err(blank("question"));
        }
        if content.answer.trim().is_empty() {
            return Err(blank("answer"));
        }
    }
    let count = records.len();
    let (kept, conflicts) = without_repetitions(records);
    let problems = if ids_are_promised {
        with_promised_ids(kept, path, &stem)?
    } else {
        with_indices(kept, &stem)
    };
    Ok(ProblemFile { records: count, problems, conflicts })
}

fn from_row(row: ProblemRow, stem: &str) -> Record {
    let ProblemRow { prompt, ground_truth, index, raw_problem } = row;
    let question = match raw_problem {
        Some(raw) => raw,
        None => template::unwrap(&prompt).unwrap_or(&prompt).to_string(),
    };
    let id = index.map(|index| match index {
        Index::Number(number) => format!("{stem}/{number}"),
        Index::Name(name) => name,
    });
    Record { prompt, question, answer: ground_truth, id }
}

/// One line of a JSON-lines file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default, deserialize_with = "optional_text_or_integer")]
    id: Option<String>,
    question: String,
    #[serde(deserialize_with = "text_or_integer")]
    answer: String,
}

fn text_or_integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => Ok(text),
        serde_json::Value::Number(number) if !number.is_f64() => Ok(number.to_string()),
        other => Err(serde::de::Error::custom(format!("expected text or an integer, got {other}"))),
    }
}

fn optional_text_or_integer<'de, D>(deserializer: D) -> Result<Option<String>, D::Error>
where
    D: Deserializer<'de>,
{
    text_or_integer(deserializer).map(Some)
}

fn from_line(line: Line) -> Record {
    let Line { id, question, answer } = line;
    Record { prompt: question.clone(), question, answer, id }
}

/// The first record of each prompt that has one answer, and the prompts that have several.
fn without_repetitions(records: Vec<Record>) -> (Vec<Record>, Vec<Conflict>) {
    let mut answers: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for (index, record) in records.iter().enumerate() {
        let known = answers.entry(&record.prompt).or_default();
        if !known.iter().any(|(answer, _)| *answer == record.answer) {
            known.push((&record.answer, index));
        }
    }
    let mut conflicts: Vec<Conflict> = answers
        .iter()
        .filter(|(_, answers)| answers.len() > 1)
        .map(|(prompt, answers)| Conflict {
            prompt: prompt.to_string(),
            answers: answers.iter().map(|(text, index)| (text.to_string(), *index)).collect(),
        })
        .collect();
    conflicts.sort_by_key(|conflict| conflict.answers[0].1);
    let firsts: BTreeSet<usize> =
        answers.values().filter(|answers| answers.len() == 1).map(|answers| answers[0].1).collect();
    let kept = records
        .into_iter()
        .enumerate()
        .filter(|(index, _)| firsts.contains(index))
        .map(|(_, record)| record)
        .collect();
    (kept, conflicts)
}

fn with_indices(records: Vec<Record>, stem: &str) -> Vec<Problem> {
    let distinct: BTreeSet<&String> = records.iter().filter_map(|r| r.id.as_ref()).collect();
    let usable = distinct.len() == records.len();
    let problem = |(position, record): (usize, Record)| {
        let id = record.id.filter(|_| usable).unwrap_or_else(|| positional(stem, position));
        Problem { id, question: record.question, answer: record.answer }
    };
    records.into_iter().enumerate().map(problem).collect()
}

fn with_promised_ids(records: Vec<Record>, path: &Path, stem: &str) -> Result<Vec<Problem>, Error> {
    let mut questions: BTreeMap<String, String> = BTreeMap::new();
    let mut problems = Vec::new();
    for (position, record) in records.into_iter().enumerate() {
        let id = record.id.unwrap_or_else(|| positional(stem, position));
        match questions.entry(id.clone()) {
            Entry::Vacant(free) => free.insert(record.question.clone()),
            Entry::Occupied(first) => {
                let path = path.to_path_buf();
                let (first, second) = (first.get().clone(), record.question);
                return Err(Error::DuplicateId { path, id, first, second });
            }
        };
        problems.push(Problem { id, question: record.question, answer: record.answer });
    }
    Ok(problems)
}

fn positional(stem: &str, position: usize) -> String {
    format!("{stem}/{position:05}")
}

#[cfg(test)]
mod tests;
