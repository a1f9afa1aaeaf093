//! Question and ground truth of a row by its keys: the release's, and those of GSM8K, MATH-500, AMC, AIME and the like.

pub mod beside;
pub mod truth;

use crate::base::files::{self, FileError};
use crate::base::visible;
use crate::records::tables::problems::PREPARED_ID;
use crate::records::{Index, Message};
use crate::task::data::schema::truth::{Reading, Truth, TruthRead};
use crate::task::data::{self, template, words};
use crate::task::reward::{answer, program};
use regex::Regex;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::path::Path;
use std::sync::LazyLock;

/// Which keys of a row hold its question and its ground truth, where they are not to be found by
/// their usual names.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub struct RowKeys {
    /// Key of the question in a file of problems; `a.b` is the key b inside a. Otherwise found:
    /// question, problem, query or prompt
    #[arg(long = "question-key", value_name = "KEY")]
    pub question: Option<String>,
    /// Key of the ground truth. Otherwise found: reward_model.ground_truth, answer, ground_truth,
    /// expected_answer, final_answer or solution, which must say the same where there are several
    #[arg(long = "answer-key", value_name = "KEY")]
    pub answer: Option<String>,
    /// Read the row's other keys, too.
    #[arg(skip)]
    pub columns: bool,
    /// Read `data_source` and `extra_info`, too.
    #[arg(skip)]
    pub origins: bool,
    /// With `columns`: read all keys as they stand.
    #[arg(skip)]
    pub rows: bool,
}

impl RowKeys {
    pub fn given(&self) -> Option<&'static str> {
        let question = self.question.as_ref().map(|_key| "--question-key");
        question.or(self.answer.as_ref().map(|_key| "--answer-key"))
    }
}

/// Keys of where a problem comes from, by which verl's functions choose how to grade.
pub const ORIGINS: [&str; 2] = ["data_source", "extra_info"];

/// Keys of a question as text, then the prompt: text, or messages.
pub const QUESTIONS: [&str; 4] = ["question", "problem", "query", "prompt"];

/// Keys of a ground truth; the last one may hold a worked solution.
pub const ANSWERS: [&str; 6] = [
    "reward_model.ground_truth",
    "answer",
    "ground_truth",
    "expected_answer",
    "final_answer",
    "solution",
];

/// Keys that are read beside them.
pub const OTHERS: [&str; 8] = [
    PREPARED_ID,
    "data_source",
    "reward_model.style",
    "extra_info.index",
    "extra_info.raw_problem",
    "tags",
    "id",
    "unique_id",
];

/// What stands in a row. A question as text is the only message and `raw_problem`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadRow {
    /// Decides verl's verifier.
    pub data_source: Option<String>,
    pub prompt: Vec<Message>,
    pub ground_truth: String,
    pub style: Option<String>,
    pub index: Option<Index>,
    /// `extra_info.raw_problem`: without a template.
    pub raw_problem: Option<String>,
    /// In our lines and prepared files, not in released ones.
    pub tags: Vec<String>,
    /// It promises that its index is unique: it has a key `id`.
    pub is_named: bool,
    pub keys: [String; 2],
    pub truth: Truth,
    /// Keys of [`beside::BESIDE_QUESTIONS`] with texts that the prompt does not have.
    pub unseen: Vec<String>,
    /// The row without its prompt, where it was asked for.
    pub columns: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {reason}")]
pub struct RowError {
    pub key: String,
    pub reason: String,
}

fn refuse<T>(key: &str, reason: impl Into<String>) -> Result<T, RowError> {
    Err(RowError { key: key.to_string(), reason: reason.into() })
}

/// Errors: a key that is absent, null or of another kind; contradicting keys, with the option that settles it.
pub fn read(row: &Map<String, Value>, keys: &RowKeys) -> Result<ReadRow, RowError> {
    let (question_key, prompt, raw_problem) = question(row, keys.question.as_deref())?;
    let chosen = keys.answer.as_deref();
    let stated = if keys.columns && !states_a_truth(row, chosen, &question_key) {
        let stated = Value::Object(other_columns(row, &question_key));
        TruthRead {
            key: OTHER_COLUMNS.to_string(),
            ground_truth: as_text(&stated),
            truth: Truth { readings: vec![Reading::OtherColumns], ..Truth::default() },
            for_program: Some(stated),
        }
    } else {
        truth::ground_truth(row, chosen, keys.columns)?
    };
    let is_named = at(row, "id").is_some() && !row.contains_key("prompt");
    let index = index(row, is_named)?;
    let tags = match at(row, "tags").as_deref() {
        None => Vec::new(),
        Some(Value::String(tag)) => vec![tag.clone()],
        Some(tags) => serde_json::from_value(tags.clone()).or_else(|_error| {
            refuse("tags", format!("expected a list of texts, got {}", shown(tags)))
        })?,
    };
    let (data_source, style) = (text(row, "data_source")?, text(row, "reward_model.style")?);
    let mut unseen = beside::unseen(row, [&question_key, &stated.key], &prompt);
    let content = prompt.last().map_or("", |message| &message.content);
    let inside = template::unwrap(content);
    let asked = raw_problem.as_deref().or(inside).unwrap_or(content);
    if inside.is_none() && words(content) != words(asked) {
        unseen.push("prompt".to_string());
    }
    let columns = if keys.rows {
        whole_row(row, keys, &stated, asked, &prompt)?
    } else {
        columns(row, keys, &stated)
    };
    let TruthRead { key: answer_key, ground_truth, truth, .. } = stated;
    Ok(ReadRow {
        data_source,
        prompt,
        ground_truth,
        style,
        index,
        raw_problem,
        tags,
        is_named,
        keys: [question_key, answer_key],
        truth,
        unseen,
        columns,
    })
}

fn index(row: &Map<String, Value>, is_named: bool) -> Result<Option<Index>, RowError> {
    let key = match at(row, PREPARED_ID) {
        Some(_) => PREPARED_ID,
        None if is_named => "id",
        None => "extra_info.index",
    };
    Ok(match at(row, key).as_deref() {
        None => match at(row, "unique_id").as_deref() {
            Some(Value::Number(number)) => Some(Index::Name(number.to_string())),
            _ => text(row, "unique_id")?.map(Index::Name),
        },
        Some(Value::String(text)) => Some(Index::Name(text.clone())),
        Some(Value::Number(number)) if is_named => Some(Index::Name(number.to_string())),
        Some(other) => {
            let reason = || format!("expected text or an integer, got {}", shown(other));
            let number = whole_number(other).map_or_else(|| refuse(key, reason()), Ok)?;
            Some(Index::Number(number))
        }
    })
}

fn text(row: &Map<String, Value>, key: &str) -> Result<Option<String>, RowError> {
    match at(row, key).as_deref() {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => refuse(key, format!("expected text, got {}", shown(other))),
    }
}

/// The row as it is, but for keys that are named.
fn whole_row(
    row: &Map<String, Value>,
    keys: &RowKeys,
    stated: &TruthRead,
    asked: &str,
    prompt: &[Message],
) -> Result<Map<String, Value>, RowError> {
    let mut columns = row.clone();
    if keys.question.is_some() {
        let [texts @ .., messages] = QUESTIONS;
        let is_other = |key: &str| texts.iter().any(|it| it.eq_ignore_ascii_case(key));
        columns.retain(|key, value| !is_other(key) || *value == asked);
        if let Some(stated) = columns.get_mut(messages) {
            *stated = json!(prompt);
        }
        columns.insert("question".to_string(), asked.into());
    }
    if let Some(truth) = stated.for_program.clone().filter(|_truth| keys.answer.is_some()) {
        let model = columns.entry("reward_model").or_insert_with(|| Map::new().into());
        *model = program::extra_info(model.take());
        if !model.is_object() {
            *model = Map::new().into();
        }
        model["ground_truth"] = truth;
        let read = truth::ground_truth(&columns, None, true);
        if stated.ground_truth.is_empty() && !read.is_ok_and(|it| it.ground_truth.is_empty()) {
            let reason = "it is empty, and in the written file another key of the row would be the ground truth; \
                          leave the row out, or that key";
            return refuse(&stated.key, reason);
        }
    }
    Ok(columns)
}

fn columns(row: &Map<String, Value>, keys: &RowKeys, stated: &TruthRead) -> Map<String, Value> {
    let mut columns = if keys.columns { row.clone() } else { Map::new() };
    if keys.origins {
        let own = ORIGINS.iter().filter_map(|key| Some((key.to_string(), row.get(*key)?.clone())));
        columns.extend(own);
    }
    columns.remove("prompt");
    columns.remove(PREPARED_ID);
    if let Some(stated) = columns.get_mut("extra_info") {
        *stated = program::extra_info(stated.take());
    }
    if let Some(value) = &stated.for_program {
        // A column of that name may be another than the one that was chosen.
        let read = Value::from(stated.ground_truth.as_str());
        if columns.get("ground_truth").unwrap_or(&read) != value {
            columns.insert("ground_truth".to_string(), value.clone());
        }
    }
    columns
}

fn whole_number(value: &Value) -> Option<i64> {
    let float = value.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 9e15);
    value.as_i64().or(float.map(|float| float as i64))
}

/// The value at a key, or at `a.b`, where it is not null; an object may stand there as JSON in a text.
fn at<'a>(row: &'a Map<String, Value>, key: &'a str) -> Option<Cow<'a, Value>> {
    let exact = row.get(key).filter(|value| !value.is_null());
    if let Some(value) = exact.or_else(|| Some(spellings(row, key).next()?.1)) {
        return Some(Cow::Borrowed(value));
    }
    let (first, rest) = key.split_once('.')?;
    match row.get(first)? {
        Value::Object(inner) => at(inner, rest),
        Value::String(text) if text.starts_with('{') => {
            let inner: Map<String, Value> = serde_json::from_str(text).ok()?;
            at(&inner, rest).map(|value| Cow::Owned(value.into_owned()))
        }
        _ => None,
    }
}

/// AIME 2024 has `Problem` and `Answer`, GPQA `Question`.
fn spellings<'a>(
    row: &'a Map<String, Value>,
    key: &'a str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    row.iter().filter(move |(name, value)| {
        name.eq_ignore_ascii_case(key) && !value.is_null() && value.as_str() != Some("")
    })
}

/// Errors: keys that differ in their case alone and say something else.
fn one_spelling(row: &Map<String, Value>, key: &str, what: &str) -> Result<(), RowError> {
    let mut stated = spellings(row, key).map(|(name, value)| (name, words(&as_text(value))));
    if let Some((first, known)) = stated.next() {
        return stated.find(|(_, text)| *text != known).map_or(Ok(()), |(name, text)| {
            let [known, text] = [known, text].map(|text| shown_text(&text));
            let advice = format!("--{what}-key says which one is meant (`dapo data prepare`)");
            refuse(name, format!("it says `{text}`, `{first}` says `{known}`; {advice}"))
        });
    }
    match key.split_once('.').map(|(first, rest)| (row.get(first), rest)) {
        Some((Some(Value::Object(inner)), rest)) => one_spelling(inner, rest, what),
        _ => Ok(()),
    }
}

fn at_or_empty<'a>(row: &'a Map<String, Value>, key: &'a str) -> Option<Cow<'a, Value>> {
    let is_empty = |(name, value): &(&String, &Value)| {
        name.eq_ignore_ascii_case(key) && value.as_str() == Some("")
    };
    at(row, key).or_else(|| row.iter().find(is_empty).map(|(_, value)| Cow::Borrowed(value)))
}

fn absent<T>(row: &Map<String, Value>, what: &str, keys: &[&str]) -> Result<T, RowError> {
    let null = keys.iter().find(|key| row.get(**key).is_some_and(Value::is_null));
    if let Some(key) = null {
        let advice = format!("leave the row out, or name another key with --{what}-key");
        return refuse(key, format!("it is null, or NaN in a table; {advice}"));
    }
    let present: Vec<String> = row.keys().take(16).map(|key| shown_text(key)).collect();
    let (known, present) = (keys.join("`, `"), present.join(", "));
    let reason = format!(
        "missing: no key `{known}`, the row has {present}; name it with --{what}-key KEY (`dapo data prepare`){}",
        if what == "answer" {
            ", or grade by a program, which reads the row as it is (--for-program of `data audit` and `data prepare`)"
        } else {
            ""
        }
    );
    refuse(what, reason)
}

type QuestionRead = (String, Vec<Message>, Option<String>);

fn question(row: &Map<String, Value>, chosen: Option<&str>) -> Result<QuestionRead, RowError> {
    let user = |content: &str| vec![Message::new("user", content)];
    let keys = chosen.map_or(QUESTIONS.to_vec(), |key| vec![key]);
    let mut question: Option<(&str, String)> = None;
    let mut messages: Option<Vec<Message>> = None;
    for &key in &keys {
        if chosen.is_none() {
            one_spelling(row, key, "question")?;
        }
        let Some(value) = at_or_empty(row, key) else { continue };
        let in_text = value.as_str().filter(|text| text.starts_with("[{"));
        let value = match in_text.and_then(|text| serde_json::from_str(text).ok()) {
            Some(inside) => Cow::Owned(inside),
            None => value,
        };
        match &*value {
            Value::String(text) if key == "prompt" => {
                messages = Some(user(text));
                let text = template::unwrap(text).unwrap_or(text);
                question = question.or_else(|| Some((key, text.to_string())));
            }
            Value::String(text) => match &question {
                Some((first, other)) if data::identity(other) != data::identity(text) => {
                    let reason = format!(
                        "it differs from `{first}`; --question-key says which one is meant (`dapo data prepare`)"
                    );
                    return refuse(key, reason);
                }
                Some(_) => {}
                None => question = Some((key, text.clone())),
            },
            Value::Array(_) => {
                let expected = "expected a list of messages, each with role and content";
                let mut list = value.into_owned();
                list.as_array_mut().into_iter().flatten().try_for_each(|message| {
                    join_parts(message).or_else(|reason| refuse(key, reason))
                })?;
                let list = serde_json::from_value(list);
                let list = list.or_else(|error| refuse(key, format!("{expected}: {error}")))?;
                messages = Some(list);
            }
            other => {
                let expected = "expected text or a list of messages";
                return refuse(key, format!("{expected}, got {}", shown(other)));
            }
        }
    }
    match (question, messages) {
        (Some((key, text)), None) => Ok((key.to_string(), user(&text), Some(text))),
        (Some((key, text)), Some(messages)) => {
            let prompt = messages.last().map_or("", |message| &message.content);
            if words(prompt).contains(&words(&text)) {
                Ok((key.to_string(), messages, Some(text)))
            } else {
                let advice = "--question-key says which one is meant (`dapo data prepare`)";
                refuse("prompt", format!("it does not hold `{key}`; {advice}"))
            }
        }
        (None, Some(messages)) => {
            let raw = at(row, "extra_info.raw_problem").filter(|_| chosen.is_none());
            match raw.as_deref() {
                None => Ok((keys[keys.len() - 1].to_string(), messages, None)),
                Some(Value::String(raw)) => Ok(("prompt".into(), messages, Some(raw.clone()))),
                Some(other) => {
                    refuse("extra_info.raw_problem", format!("expected text, got {}", shown(other)))
                }
            }
        }
        (None, None) => absent(row, "question", &keys),
    }
}

/// Templates write the texts of a message's parts one after the other. Errors: another part.
fn join_parts(message: &mut Value) -> Result<(), String> {
    let Some(Value::Array(parts)) = message.get("content") else { return Ok(()) };
    let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_string);
    let texts: Vec<Option<String>> = parts.iter().map(text).collect();
    if let Some(other) = texts.iter().position(Option::is_none) {
        return Err(format!(
            "the content of a message has the part {}, and a policy reads text alone: leave the row out, or write what \
             it says as text",
            shown(&parts[other])
        ));
    }
    message["content"] = texts.into_iter().flatten().collect::<String>().into();
    Ok(())
}

/// In place of a key: a program reads what it needs out of a row that states no ground truth.
const OTHER_COLUMNS: &str = "(other columns)";

/// In a table of several tasks a row has the columns of the others, too: null is absent where another column has a value.
fn states_a_truth(row: &Map<String, Value>, chosen: Option<&str>, question_key: &str) -> bool {
    let is_null = |key: &str| row.get(key).is_some_and(Value::is_null);
    chosen.is_some()
        || ANSWERS.into_iter().any(|key| at_or_empty(row, key).is_some())
        || (ANSWERS.into_iter().any(is_null)
            && other_columns(row, question_key).values().all(Value::is_null))
}

pub fn other_columns(row: &Map<String, Value>, question_key: &str) -> Map<String, Value> {
    let is_other = |key: &str| ![question_key, "prompt", "id", "unique_id"].contains(&key);
    let others = row.iter().filter(|(key, _)| is_other(key));
    others.map(|(key, value)| (key.clone(), value.clone())).collect()
}

pub fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| files::canonical_json_line(value), str::to_string)
}

pub fn parse_line<T: DeserializeOwned>(
    path: &Path,
    line: usize,
    bytes: &[u8],
) -> Result<Option<T>, FileError> {
    files::parse_line(path, line, bytes).map_err(|error| match (error, not_finite(bytes)) {
        (FileError::Line { path, line, .. }, Some(reason)) => {
            FileError::Line { path, line, reason }
        }
        (error, _) => error,
    })
}

pub fn not_finite(json: &[u8]) -> Option<String> {
    static TOKENS: LazyLock<Regex> =
        LazyLock::new(|| answer::pattern(r#""(?:[^"\\]|\\.)*"|\b(NaN|Infinity)\b"#));
    let text = std::str::from_utf8(json).ok()?;
    let word = TOKENS.captures_iter(text).find_map(|it| Some(it.get(1)?.as_str()))?;
    Some(format!(
        "{word} is no JSON: write null (pandas does with `to_json`), or leave the row out"
    ))
}

/// Why a program gets no row with such an integer.
pub fn inexact(integer: &str) -> String {
    let integer = shown_text(integer);
    format!("the integer {integer} is beyond 64 bits and would be rounded; write it as text")
}

fn shown(value: &Value) -> String {
    shown_text(&value.to_string())
}

fn shown_text(text: &str) -> String {
    visible::start(text, 60).replace('\r', "\\r").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
