//! Problems in the schema of the released data (DAPO-Math-17k, AIME 2024), which verl reads too.

use crate::algorithm::Problem;
use crate::records::tables::{TableError, columns};
use polars::chunked_array::builder::get_list_builder;
use polars::prelude::{
    Column, IntoSeries, ListBuilderTrait, NamedFrom, PolarsResult, Series, StructChunked,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::Path;

/// verl picks the verifier of Eq. 7 by this name (verl/utils/reward_score/__init__.py:59).
const DATA_SOURCE: &str = "math_dapo";

/// The problem's id in a prepared file, whose `extra_info` is that of the source.
pub const PREPARED_ID: &str = "dapo_id";

/// The released files have this style.
const STYLE: &str = "rule-lighteval/MATH_v2";

/// `extra_info.index`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Index {
    /// AIME 2024 counts its problems.
    Number(i64),
    /// DAPO-Math-17k has UUIDs, our files the problem's id.
    Name(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub role: String,
    /// Released files: the question inside its template.
    pub content: String,
}

impl Message {
    pub fn new(role: &str, content: impl Into<String>) -> Self {
        Self { role: role.to_string(), content: content.into() }
    }
}

/// One row each, atomically; with a column `tags` when any problem has one.
pub fn write_problems(path: &Path, rows: &[NamedProblem]) -> Result<(), TableError> {
    let text = |name: &str, values: Vec<&str>| Column::new(name.into(), values);
    let all = |value: &'static str| vec![value; rows.len()];
    let truths = rows.iter().map(|row| row.ground_truth).collect();
    let reward_model = [text("ground_truth", truths), text("style", all(STYLE))];
    let ids = rows.iter().map(|row| row.id).collect();
    let (extra_info, id) = if rows.iter().any(|row| row.extra.is_some()) {
        (extra_fields(rows), Some(text(PREPARED_ID, ids)))
    } else {
        let raw = rows.iter().map(|row| row.raw_problem).collect();
        (vec![text("index", ids), text("raw_problem", raw)], None)
    };
    let sources: Vec<Option<&str>> = rows.iter().map(|row| row.data_source).collect();
    let mut columns = vec![
        Column::new("data_source".into(), sources),
        prompt_column(rows).expect("the messages have one schema"),
        text("ability", all("MATH")),
    ];
    let structs = [("reward_model", &reward_model[..]), ("extra_info", &extra_info)];
    for (name, fields) in structs.into_iter().filter(|(_, fields)| !fields.is_empty()) {
        let column = StructChunked::from_columns(name.into(), rows.len(), fields)
            .expect("the fields have one value a row");
        columns.push(column.into_series().into());
    }
    columns.extend(id);
    if rows.iter().any(|row| !row.tags.is_empty()) {
        let lists: Vec<Series> =
            rows.iter().map(|row| Series::new("tags".into(), row.tags)).collect();
        columns.push(Column::new("tags".into(), lists));
    }
    columns::write(path, rows.len(), columns)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedProblem<'a> {
    pub data_source: Option<&'a str>,
    /// For `extra_info.index`, or with `extra` for [`PREPARED_ID`].
    pub id: &'a str,
    pub prompt: &'a str,
    /// For `reward_model.ground_truth`.
    pub ground_truth: &'a str,
    pub raw_problem: &'a str,
    pub tags: &'a [String],
    /// Of a file: `extra_info` has its fields that [`is_field`], and no others.
    pub extra: Option<&'a Map<String, Value>>,
}

impl<'a> NamedProblem<'a> {
    /// `prompt` is the rendered prompt.
    pub fn new(problem: &'a Problem, prompt: &'a str, tags: &'a [String]) -> Self {
        Self {
            data_source: Some(DATA_SOURCE),
            id: &problem.id,
            prompt,
            ground_truth: &problem.answer,
            raw_problem: &problem.question,
            tags,
            extra: None,
        }
    }
}

/// Whether `extra_info` can have a field of this value.
pub fn is_field(value: &Value) -> bool {
    !value.is_array() && !value.is_object()
}

/// Each field of `extra_info` by its name: numbers, truth values or texts; of several kinds texts.
fn extra_fields(rows: &[NamedProblem]) -> Vec<Column> {
    let all = rows.iter().filter_map(|row| row.extra).flatten();
    let names: BTreeSet<&str> = all
        .filter(|(_, value)| is_field(value) && !value.is_null())
        .map(|(name, _)| name.as_str())
        .collect();
    names.into_iter().map(|name| extra_field(rows, name)).collect()
}

fn extra_field(rows: &[NamedProblem], name: &str) -> Column {
    let value = |row: &NamedProblem| -> Option<Value> {
        let stated = row.extra?.get(name).filter(|it| is_field(it) && !it.is_null())?;
        // The question is read from there.
        Some(if name == "raw_problem" { row.raw_problem.into() } else { stated.clone() })
    };
    let values: Vec<Option<Value>> = rows.iter().map(value).collect();
    let all_are = |kind: fn(&Value) -> bool| values.iter().flatten().all(kind);
    let of = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    let each = || values.iter().map(Option::as_ref);
    if all_are(Value::is_boolean) {
        Column::new(name.into(), each().map(|it| it?.as_bool()).collect::<Vec<_>>())
    } else if all_are(Value::is_i64) {
        Column::new(name.into(), each().map(|it| it?.as_i64()).collect::<Vec<_>>())
    } else if all_are(Value::is_number) {
        Column::new(name.into(), each().map(|it| it?.as_f64()).collect::<Vec<_>>())
    } else {
        Column::new(name.into(), each().map(|it| it.map(of)).collect::<Vec<_>>())
    }
}

/// list<struct{content, role}> with one user message a row.
fn prompt_column(rows: &[NamedProblem]) -> PolarsResult<Column> {
    let contents: Vec<&str> = rows.iter().map(|row| row.prompt).collect();
    let roles = vec!["user"; rows.len()];
    let fields = [Column::new("content".into(), contents), Column::new("role".into(), roles)];
    let messages: Series =
        StructChunked::from_columns("prompt".into(), rows.len(), &fields)?.into_series();
    let dtype = messages.dtype();
    let mut builder = get_list_builder(dtype, rows.len(), rows.len(), "prompt".into());
    for row in 0..rows.len() {
        builder.append_series(&messages.slice(row as i64, 1))?;
    }
    Ok(builder.finish().into_series().into())
}

#[cfg(test)]
pub fn write_one_row(
    path: &Path,
    texts: &[(&str, &str)],
    bytes: &[(&str, &[u8])],
) -> Result<(), TableError> {
    let texts = texts.iter().map(|(name, text)| Column::new((*name).into(), [*text]));
    let bytes = bytes.iter().map(|(name, bytes)| Column::new((*name).into(), [*bytes]));
    columns::write(path, 1, texts.chain(bytes).collect())
}

#[cfg(test)]
mod tests;
