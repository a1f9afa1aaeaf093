//! The rows of a file of problems, one at a time and in one form, whatever the file's format:
//! parquet in the released schema, JSON lines in the same schema, or JSON lines of our own.

use crate::base::files::{self, foreign};
use crate::records::tables::{problem_rows::each_problem_row, problems};
use crate::records::{Index, Message, ProblemRow};
use crate::task::{TaskError, data::template};
use serde::{Deserialize, Deserializer, Serialize, de::IgnoredAny};
use std::io;
use std::path::Path;

/// Format of a file of problems.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    Parquet,
    /// `*.jsonl`: each line in the released schema, or `{"id"?, "question", "answer", "tags"?}`.
    JsonLines,
}

impl Format {
    /// The format by the file's name.
    pub fn of(path: &Path) -> Result<Self, TaskError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("parquet") => Ok(Self::Parquet),
            Some("jsonl") => Ok(Self::JsonLines),
            _ => Err(TaskError::Format { path: path.to_path_buf() }),
        }
    }
}

/// One row with its place in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRow {
    /// From 0; a blank line of a JSON-lines file is none.
    pub number: usize,
    /// Rows of the file, where that is known beforehand (parquet), else bytes.
    pub total: u64,
    /// How much of `total` has been read with this row.
    pub done: u64,
    /// It promises that its index is unique: a line of our own form with an `id`.
    pub is_named: bool,
    /// What stands there. A line of our own form has its question as the only message and as
    /// `raw_problem`.
    pub row: ProblemRow,
}

impl SourceRow {
    /// The question: `raw_problem`; without one, the last message without the released template
    /// where it matches exactly, else the last message as it is.
    pub fn question(&self) -> &str {
        let prompt = self.row.prompt.last().map_or("", |message| &message.content);
        let raw = self.row.raw_problem.as_deref();
        raw.unwrap_or_else(|| template::unwrap(prompt).unwrap_or(prompt))
    }

    /// Whether the prompt is one message of the user: what training takes. A system message
    /// would be lost.
    pub fn is_one_user_message(&self) -> bool {
        matches!(&self.row.prompt[..], [message] if message.role == "user")
    }
}

/// Calls `each` with every row in order. Only one row is held at a time.
pub fn each_row(
    path: &Path,
    each: &mut dyn FnMut(SourceRow) -> Result<(), TaskError>,
) -> Result<(), TaskError> {
    let mut number = 0;
    match Format::of(path)? {
        Format::Parquet => each_problem_row(path, &mut |total, row| {
            let done = number as u64 + 1;
            each(SourceRow { number, total, done, is_named: false, row })?;
            number += 1;
            Ok(())
        }),
        Format::JsonLines => {
            let file = foreign::open(path)?;
            // A pipe has no size: there is nothing to compare with then.
            let total = files::file_bytes(path).unwrap_or(0);
            let reader = io::BufReader::with_capacity(1 << 18, file);
            let mut done = 0;
            foreign::each_line(path, reader, foreign::DATA, |line, bytes| {
                done += bytes.len() as u64 + 1;
                let Some((row, is_named)) = parse(path, line, bytes)? else { return Ok(()) };
                each(SourceRow { number, total, done: done.min(total), is_named, row })?;
                number += 1;
                Ok(())
            })
        }
    }
}

/// One line; `None` when it is blank. The key `prompt` tells the released schema.
fn parse(
    path: &Path,
    number: usize,
    line: &[u8],
) -> Result<Option<(ProblemRow, bool)>, files::FileError> {
    let form: Option<Form> = files::parse_line(path, number, line)?;
    match form {
        None => Ok(None),
        Some(Form { prompt: Some(IgnoredAny) }) => {
            let row: Option<ProblemRow> = files::parse_line(path, number, line)?;
            Ok(row.map(|row| (row, false)))
        }
        Some(Form { prompt: None }) => {
            let line: Option<OwnLine> = files::parse_line(path, number, line)?;
            Ok(line.map(|line| {
                let is_named = line.id.is_some();
                (line.into_row(), is_named)
            }))
        }
    }
}

/// What tells the two kinds of lines apart.
#[derive(Deserialize)]
struct Form {
    prompt: Option<IgnoredAny>,
}

/// A line of our own form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnLine {
    #[serde(default, deserialize_with = "some_text_or_integer")]
    id: Option<String>,
    question: String,
    #[serde(deserialize_with = "problems::text_or_integer")]
    answer: String,
    #[serde(default)]
    tags: Vec<String>,
}

impl OwnLine {
    fn into_row(self) -> ProblemRow {
        let message = Message { role: "user".to_string(), content: self.question.clone() };
        ProblemRow {
            prompt: vec![message],
            ground_truth: self.answer,
            index: self.id.map(Index::Name),
            raw_problem: Some(self.question),
            tags: self.tags,
            ..ProblemRow::default()
        }
    }
}

fn some_text_or_integer<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    problems::text_or_integer(from).map(Some)
}
