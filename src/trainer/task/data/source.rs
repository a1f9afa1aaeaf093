//! Rows of a file of problems in one form: parquet, JSON lines, a JSON list or CSV, in a schema that [`schema`] knows.

use crate::base::files::{self, foreign};
use crate::base::visible;
use crate::records::tables::csv_rows;
use crate::records::tables::problem_rows::{self, each_problem_row};
use crate::records::{Message, tables};
use crate::task::data::{schema, template};
use crate::task::{ReadRow, Reading, RowKeys, TaskError};
use serde::Serialize;
use serde_json::{Map, Value};
use std::io;
use std::path::Path;

/// Format of a file of problems.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    #[default]
    Parquet,
    /// `*.jsonl`: each line an object.
    JsonLines,
    /// `*.json`: a list of objects, or an object a line.
    Json,
    /// `*.csv` or `*.tsv` with a line of names: texts alone; an empty cell is no value.
    Csv,
}

impl Format {
    pub fn of(path: &Path) -> Result<Self, TaskError> {
        let extension = path.extension().and_then(|extension| extension.to_str());
        match extension.map(str::to_ascii_lowercase).as_deref() {
            Some("parquet") => Ok(Self::Parquet),
            Some("jsonl") => Ok(Self::JsonLines),
            Some("json") if tables::format::has_lines(path) => Ok(Self::JsonLines),
            Some("json") => Ok(Self::Json),
            Some("csv" | "tsv") => Ok(Self::Csv),
            _ => Err(TaskError::Format { path: path.to_path_buf() }),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRow {
    /// From 0; a blank line of a JSON-lines file is none.
    pub number: usize,
    /// Where it stands, for a message: line `:3` from 1, or `: row 3 (from 0)`.
    pub place: String,
    /// Rows of the file, where that is known beforehand (parquet), else bytes.
    pub total: u64,
    /// How much of `total` has been read with this row.
    pub done: u64,
    pub read: ReadRow,
}

impl SourceRow {
    /// `raw_problem`; else the last message, without the released template where it matches exactly.
    pub fn question(&self) -> &str {
        let prompt = self.read.prompt.last().map_or("", |message| &message.content);
        let raw = self.read.raw_problem.as_deref();
        raw.unwrap_or_else(|| template::unwrap(prompt).unwrap_or(prompt))
    }

    pub fn trained(&self) -> Vec<Message> {
        let mut prompt = self.read.prompt.clone();
        if let Some(last) = prompt.last_mut()
            && template::unwrap(&last.content).is_none()
        {
            last.content = self.question().to_string();
        }
        prompt
    }

    /// The system message before one message of the user. Training takes no other prompt; the error has its roles.
    pub fn system(&self) -> Result<Option<&str>, String> {
        match &self.read.prompt[..] {
            [user] if user.role == "user" => Ok(None),
            [system, user] if system.role == "system" && user.role == "user" => {
                Ok(Some(&system.content))
            }
            other => Err(refused(other)),
        }
    }
}

fn refused(messages: &[Message]) -> String {
    let roles: Vec<&str> = messages.iter().map(|it| it.role.as_str()).collect();
    let count = |role: &str| roles.iter().filter(|it| **it == role).count();
    let (systems, developers) = (count("system"), count("developer"));
    let known = systems + developers + count("user") + count("assistant");
    let is_joined = systems + developers == 1 && ["system", "developer"].contains(&roles[0]);
    let advice = [
        (developers > 0, "call the role `developer` `system`"),
        (
            systems + developers > 0 && !is_joined,
            "join the instructions into one `system` message at the beginning",
        ),
        (roles.last() != Some(&"user"), "end with the question of the `user`, without a response"),
        (
            count("user") > 1 || count("assistant") > 0,
            "state turns that all rows begin with as `[[prompt.examples]]` of the experiment file, and write those of \
             the row's own into its question",
        ),
        (known < roles.len(), "leave out messages of other roles, or write them into the question"),
    ];
    let advice: Vec<&str> =
        advice.iter().filter_map(|(is_due, text)| is_due.then_some(*text)).collect();
    let more = roles.len().saturating_sub(8);
    let shown = visible::start(&roles[..roles.len() - more].join(", "), 160);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("`{shown}`{more}: {}", advice.join("; "))
}

const LIST: &str = "it is a JSON list, and *.jsonl has an object a line: call the file *.json";

const ROWS: &str = "; write `[{\"question\": …, \"answer\": …}, …]`, or an object a line";

type Each<'a> = &'a mut dyn FnMut(SourceRow) -> Result<(), TaskError>;

/// Calls `each` with one row after another. Errors: a row that [`schema::read`] refuses, a file of another kind.
pub fn each_row(path: &Path, keys: &RowKeys, each: Each) -> Result<(), TaskError> {
    match Format::of(path)? {
        Format::Parquet => each_of_parquet(path, keys, each),
        Format::JsonLines => each_of_lines(path, keys, each),
        Format::Json => each_of_list(path, keys, each),
        Format::Csv => each_of_csv(path, keys, each),
    }
}

fn each_of_parquet(path: &Path, keys: &RowKeys, each: Each) -> Result<(), TaskError> {
    let chosen = |key: &Option<String>, usual: &[&str]| match key {
        Some(key) => vec![key.clone()],
        None => usual.iter().map(ToString::to_string).collect(),
    };
    let origins = if keys.origins { &schema::ORIGINS[..] } else { &[] };
    let beside = [&schema::beside::BESIDE_QUESTIONS[..], &schema::beside::MEDIA];
    let others = [&schema::OTHERS[..], &beside.concat(), origins].concat();
    let wanted = problem_rows::WantedKeys {
        question: chosen(&keys.question, &schema::QUESTIONS),
        answer: chosen(&keys.answer, &schema::ANSWERS),
        others: others.iter().map(ToString::to_string).collect(),
        all: keys.columns,
    };
    let mut number = 0;
    each_problem_row(path, &wanted, &mut |head, row: Map<String, Value>| {
        let mut read = schema::read(&row, keys).map_err(|error| {
            let schema::RowError { key: column, reason } = error;
            let refusal = tables::Refusal::Cell { column, row: number, reason };
            tables::TableError::Refused { path: path.to_path_buf(), refusal }
        })?;
        note_decimal(&mut read, &head.decimals);
        let named = read.keys.iter().map(String::as_str).chain(schema::OTHERS);
        let named: Vec<&str> = named.filter_map(|key| key.split('.').next()).collect();
        let is_unseen = |column: &&String| {
            row.get(*column).is_none_or(|value| !value.is_null())
                && !named.contains(&column.as_str())
                && !read.unseen.contains(column)
        };
        let unseen: Vec<String> = head.binary.iter().filter(is_unseen).cloned().collect();
        read.unseen.extend(unseen);
        let (place, done) = (format!(": row {number} (from 0)"), number as u64 + 1);
        let row = SourceRow { number, place, total: head.rows, done, read };
        number += 1;
        each(row)
    })
}

fn note_decimal(read: &mut ReadRow, decimals: &[(String, usize)]) {
    let [_, key] = &read.keys;
    let is_at = |path: &str| {
        let rest = path.get(key.len()..).filter(|_| path[..key.len()].eq_ignore_ascii_case(key));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let Some((_, scale)) = decimals.iter().find(|(path, _)| is_at(path)) else { return };
    let text = &read.ground_truth;
    let (whole, behind) = text.split_once('.').unwrap_or((text, ""));
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b"-.".contains(&byte));
    if !text.is_empty() && is_number && behind.len() < *scale {
        let stated = format!("{whole}.{behind:0<scale$}");
        read.truth.readings.push(Reading::ShortDecimal);
        read.truth.stated.get_or_insert(stated);
    }
}

fn each_of_lines(path: &Path, keys: &RowKeys, each: Each) -> Result<(), TaskError> {
    let file = foreign::open(path)?;
    // A pipe has no size: there is nothing to compare with then.
    let total = files::file_bytes(path).unwrap_or(0);
    let reader = io::BufReader::with_capacity(1 << 18, file);
    let (mut number, mut done) = (0, 0);
    foreign::each_line(path, reader, foreign::DATA, |line, bytes| {
        done += bytes.len() as u64 + 1;
        let parsed = schema::parse_line(path, line, bytes).map_err(|error| {
            let is_list = line == 1 && bytes.trim_ascii_start().starts_with(b"[");
            if is_list { csv_rows::at(path, line, LIST.to_string()) } else { error.into() }
        })?;
        let Some(row) = parsed else { return Ok(()) };
        if let Some(integer) = inexact(keys, bytes) {
            return Err(csv_rows::at(path, line, integer).into());
        }
        let read = schema::read(&row, keys)
            .map_err(|error| csv_rows::at(path, line, error.to_string()))?;
        let (place, done) = (format!(":{line}"), done.min(total));
        let row = SourceRow { number, place, total, done, read };
        number += 1;
        each(row)
    })
}

fn each_of_list(path: &Path, keys: &RowKeys, each: Each) -> Result<(), TaskError> {
    let bytes = foreign::read_up_to(path, foreign::HELD_DATA.bytes)?;
    foreign::refuse_packed(path, &bytes)?;
    let refuse = |reason| files::FileError::Json { path: path.to_path_buf(), reason };
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let rows: Vec<Map<String, Value>> = serde_json::from_slice(text).map_err(|error| {
        let reason = schema::not_finite(text).filter(|_| error.is_syntax());
        let error = files::in_words(&error.to_string());
        refuse(reason.unwrap_or_else(|| format!("it is no list of objects: {error}{ROWS}")))
    })?;
    inexact(keys, text).map_or(Ok(()), |integer| Err(refuse(integer)))?;
    let total = rows.len() as u64;
    for (number, row) in rows.iter().enumerate() {
        let done = number as u64 + 1;
        let read = schema::read(row, keys)
            .map_err(|error| refuse(format!("row {number} (from 0): {error}")))?;
        let place = format!(": row {number} (from 0)");
        each(SourceRow { number, place, total, done, read })?;
    }
    Ok(())
}

fn inexact(keys: &RowKeys, json: &[u8]) -> Option<String> {
    let is_for_program = keys.columns || keys.origins;
    foreign::inexact_integer(json).filter(|_| is_for_program).map(schema::inexact)
}

fn each_of_csv(path: &Path, keys: &RowKeys, each: Each) -> Result<(), TaskError> {
    let (header, rows) = csv_rows::read(path)?;
    let rows = rows.collect::<Result<Vec<csv_rows::CsvRow>, _>>()?;
    let total = rows.len() as u64;
    for (number, (line, row)) in rows.iter().enumerate() {
        let cells = |is_taken: fn(&str) -> bool| -> Map<String, Value> {
            let cells = header.iter().zip(row).filter(|(_, cell)| is_taken(cell.trim()));
            cells.map(|(name, cell)| (name.to_string(), cell.into())).collect()
        };
        // An empty question or answer is empty rather than missing.
        let read = schema::read(&cells(|cell| !cell.is_empty()), keys)
            .or_else(|error| schema::read(&cells(|_| true), keys).map_err(|_| error))
            .map_err(|error| csv_rows::at(path, *line, error.to_string()))?;
        let (place, done) = (format!(":{line}"), number as u64 + 1);
        each(SourceRow { number, place, total, done, read })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ground_truth_that_lost_zeros_of_a_decimal_column_says_how_it_stands_in_the_file() {
        let decimals = [("Answer".to_string(), 2), ("other".to_string(), 9)];
        let stated = |key: &str, text: &str| {
            let keys = ["question".to_string(), key.to_string()];
            let mut read = ReadRow { keys, ground_truth: text.into(), ..ReadRow::default() };
            note_decimal(&mut read, &decimals);
            assert_eq!(read.truth.stated.is_some(), !read.truth.readings.is_empty());
            read.truth.stated
        };
        for (text, stands) in [("1.5", "1.50"), ("-2", "-2.00"), ("0", "0.00")] {
            assert_eq!(stated("answer", text).as_deref(), Some(stands));
        }
        let as_they_stand = [("answer", "1.25"), ("answer", "x"), ("answers", "1"), ("ans", "1")];
        for (key, text) in as_they_stand {
            assert_eq!(stated(key, text), None, "{key} {text}");
        }
    }
}
