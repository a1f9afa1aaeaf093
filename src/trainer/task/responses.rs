//! Responses to grade, from a file: JSON lines of this program, of verl and of lm-eval, and tables of a run folder.

use crate::base::files::foreign;
use crate::base::visible;
use crate::experiment::Verifier;
use crate::records::StoredResponse;
use crate::records::tables::{self, csv_rows, format};
use crate::task::data::schema::{self, truth};
use crate::task::reward::program::Asked;
use crate::task::{Explanation, Reading, TaskError, reward};
use serde::de::{DeserializeOwned, Error, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::Arc;

#[derive(Debug, Default, PartialEq, Deserialize)]
pub struct ResponseLine {
    pub response: String,
    /// `None`: not stated; as null, it may stand under a key of problems.
    #[serde(default, deserialize_with = "stated")]
    ground_truth: Option<Value>,
    strict_box_verify: Option<bool>,
    /// Cut at the limit, where a table records it.
    #[serde(skip)]
    pub truncated: bool,
    #[serde(skip)]
    pub is_of_a_table: bool,
    #[serde(skip)]
    file: Arc<str>,
    #[serde(skip)]
    row: usize,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl ResponseLine {
    fn new(response: String, ground_truth: impl Into<Value>, others: Map<String, Value>) -> Self {
        Self { response, ground_truth: Some(ground_truth.into()), others, ..Self::default() }
    }

    pub fn place(&self) -> String {
        let Self { file, row, .. } = self;
        if self.is_of_a_table { format!("{file}: row {row}") } else { format!("{file}:{row}") }
    }

    /// As a function sees it: `prompt` (verl's `input`), `data_source`, `extra_info`, `completion_ids` by their names;
    /// without `extra_info` the extra columns are the other keys, or `extra` of a line that a run wrote ([`Asked`]).
    pub fn asked(&self) -> Asked {
        let mut others = self.others.clone();
        let prompt = others.remove("prompt").or(others.remove("input"));
        let prompt = prompt.unwrap_or_else(|| Value::from(""));
        let completion_ids =
            others.remove("completion_ids").and_then(|ids| serde_json::from_value(ids).ok());
        if others.contains_key("data_source") && others.get("extra").is_some_and(Value::is_object) {
            let extra = others.remove("extra").unwrap_or_default();
            others.entry("extra_info").or_insert(extra);
            if let Some(Value::Object(columns)) = others.remove("columns") {
                others.extend(columns);
            }
        }
        let asked = Asked::new(prompt, self.response.clone(), String::new(), others);
        Asked { ground_truth: self.for_program(), completion_ids, ..asked }
    }

    fn for_program(&self) -> Value {
        if let Some(stated) = self.ground_truth.as_ref().filter(|value| !value.is_null()) {
            return stated.clone();
        }
        let read = truth::ground_truth(&self.others, None, true).ok();
        let others = || Value::Object(schema::other_columns(&self.others, "question"));
        read.and_then(|read| read.for_program).unwrap_or_else(others)
    }

    /// A text, or the JSON of what only a program reads.
    pub fn ground_truth(&self) -> String {
        schema::as_text(&self.for_program())
    }

    pub fn disregard_rule(&mut self) -> bool {
        self.strict_box_verify.take().is_some()
    }

    /// By the rules that the line states, else by `usual`. Errors: why its ground truth is no one answer.
    pub fn graded(&self, usual: Verifier) -> Result<(Verifier, Explanation), String> {
        let verifier = match self.strict_box_verify {
            Some(true) => Verifier::StrictBox,
            Some(false) => Verifier::AnswerLine,
            None => usual,
        };
        let truth = self.truth(&mut Vec::new());
        let truth = truth.map_err(|reason| format!("its ground truth is {reason}"))?;
        Ok((verifier, reward::explain(&self.response, &truth, verifier)))
    }

    /// What was done to the ground truth, to compare it.
    pub fn readings(&self) -> Vec<Reading> {
        let mut readings = Vec::new();
        let _truth = self.truth(&mut readings);
        readings
    }

    /// As in a file of problems. A run has read it before it wrote a table, and a line that states the released
    /// verifier's mode is a call of it, which takes the text as it stands.
    fn truth(&self, readings: &mut Vec<Reading>) -> Result<String, String> {
        match &self.ground_truth {
            Some(Value::String(text)) if self.is_of_a_table || self.strict_box_verify.is_some() => {
                Ok(text.clone())
            }
            None | Some(Value::Null) => {
                let read = truth::ground_truth(&self.others, None, false);
                let read = read.map_err(|error| {
                    let keys: Vec<&str> = self.others.keys().take(16).map(String::as_str).collect();
                    let keys = if keys.is_empty() { "no other key".into() } else { keys.join(", ") };
                    let usual = schema::ANSWERS.join("`, `");
                    let is_missing = error.reason.starts_with("missing");
                    let null = self.ground_truth.as_ref().filter(|_| is_missing);
                    let null = null.map(|_| "ground_truth").or_else(|| {
                        error.reason.starts_with("it is null").then_some(error.key.as_str())
                    });
                    if let Some(key) = null {
                        format!("null in `{key}`; state it, or leave the line out")
                    } else if is_missing {
                        format!(
                            "not in `ground_truth`; answer: missing: no key `{usual}`, the line has {}: state it as \
                             `ground_truth`",
                            visible::shortened(&keys, 200)
                        )
                    } else {
                        format!("not in `ground_truth`; {error}: state it as `ground_truth`")
                    }
                })?;
                readings.extend(read.truth.readings);
                Ok(read.ground_truth)
            }
            Some(stated) => truth::taken(stated, readings),
        }
    }
}

#[derive(Debug, Default)]
pub struct Responses {
    pub lines: Vec<ResponseLine>,
    /// Lines of lm-eval that repeat the responses of another filter.
    pub left_out: usize,
}

/// Errors: a file of another format, or a line that cannot be read, by its number.
pub fn read(path: &Path) -> Result<Responses, TaskError> {
    let expected = "parquet or JSON lines";
    format::check(path, expected, true)?;
    let is_named = |name: &str| path.extension().is_some_and(|it| it.eq_ignore_ascii_case(name));
    if is_named("csv") || is_named("tsv") {
        let (found, expected) = ("CSV".to_string(), expected.to_string());
        let refusal = tables::Refusal::Format { found, expected };
        return Err(tables::TableError::Refused { path: path.to_path_buf(), refusal }.into());
    }
    let file: Arc<str> = path.display().to_string().into();
    if is_named("parquet") {
        let line = |StoredResponse { response, answer, truncated }| ResponseLine {
            truncated,
            is_of_a_table: true,
            ..ResponseLine::new(response, answer, Map::new())
        };
        let lines = tables::read_responses(path)?.into_iter().map(line);
        let placed = |(line, row)| ResponseLine { file: file.clone(), row, ..line };
        return Ok(Responses { lines: lines.zip(1..).map(placed).collect(), left_out: 0 });
    }
    let mut responses = Responses::default();
    let mut first_filter: Option<Option<String>> = None;
    let reader = std::io::BufReader::new(foreign::open(path)?);
    foreign::each_line(path, reader, foreign::DATA, |number, bytes| -> Result<(), TaskError> {
        if let Some(integer) = foreign::inexact_integer(bytes) {
            return Err(csv_rows::at(path, number, schema::inexact(integer)).into());
        }
        let lines = &mut responses.lines;
        let before = lines.len();
        match parse_line(path, number, bytes)? {
            Some(Form { gts: true, .. }) => {
                let dump: Option<VerlDump> = schema::parse_line(path, number, bytes)?;
                lines
                    .extend(dump.map(|dump| ResponseLine::new(dump.output, dump.gts, dump.others)));
            }
            Some(Form { resps: true, .. }) => {
                let sample: Option<LmEvalSample> = schema::parse_line(path, number, bytes)?;
                let Some(sample) = sample else { return Ok(()) };
                if *first_filter.get_or_insert_with(|| sample.filter.clone()) != sample.filter {
                    responses.left_out += 1;
                    return Ok(());
                }
                let of_line = sample.lines();
                lines.extend(of_line.map_err(|reason| csv_rows::at(path, number, reason))?);
            }
            Some(_) => lines.extend(schema::parse_line::<ResponseLine>(path, number, bytes)?),
            None => {}
        }
        for line in &mut lines[before..] {
            (line.file, line.row) = (file.clone(), number);
        }
        Ok(())
    })?;
    Ok(responses)
}

pub fn parse_line<T: DeserializeOwned>(
    path: &Path,
    number: usize,
    bytes: &[u8],
) -> Result<Option<T>, TaskError> {
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii();
    if let Ok(text) = std::str::from_utf8(text)
        && !text.is_empty()
        && !text.starts_with('{')
    {
        let reason = format!(
            "`{}` is no JSON object, and each line is one, such as {{\"response\": \"Answer: 7\", \"ground_truth\": \"7\"}}; \
             CSV is not read",
            visible::shortened(text, 40)
        );
        return Err(csv_rows::at(path, number, reason).into());
    }
    Ok(schema::parse_line(path, number, bytes)?)
}

#[derive(Deserialize)]
struct Form {
    // True for null, too.
    #[serde(default, deserialize_with = "present")]
    gts: bool,
    #[serde(default, deserialize_with = "present")]
    resps: bool,
}

fn stated<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

fn present<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(from).map(|_| true)
}

#[derive(Deserialize)]
struct VerlDump {
    output: String,
    #[serde(deserialize_with = "ground_truth")]
    gts: Value,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// As it is: a program may read any value.
fn ground_truth<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
    let value = Value::deserialize(from)?;
    if value.is_null() {
        return Err(D::Error::custom("expected a ground truth, got null"));
    }
    Ok(value)
}

/// lm-eval writes these: responses to a document, once for each filter.
#[derive(Deserialize)]
struct LmEvalSample {
    target: Value,
    resps: Value,
    filter: Option<String>,
}

impl LmEvalSample {
    fn lines(self) -> Result<Vec<ResponseLine>, String> {
        let truth = truth::answer(&self.target).map_err(|reason| format!("target: {reason}"))?;
        let mut lines = Vec::new();
        let mut left = vec![self.resps];
        while let Some(value) = left.pop() {
            match value {
                Value::String(text) => {
                    lines.push(ResponseLine::new(text, truth.clone(), Map::new()));
                }
                Value::Array(inside) => left.extend(inside.into_iter().rev()),
                other => {
                    return Err(format!(
                        "resps has {}, which is not a text: likelihoods of choices cannot be graded",
                        visible::shortened(&other.to_string(), 40)
                    ));
                }
            }
        }
        Ok(lines)
    }
}
