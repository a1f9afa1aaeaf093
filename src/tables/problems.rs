//! Problems in the schema of the released data (DAPO-Math-17k and AIME 2024),
//! which verl reads too.

use crate::records::Problem;
use crate::tables::Error;
use crate::tables::columns::Columns;
use crate::tables::columns::Table;
use crate::tables::columns::integer;
use crate::tables::columns::shown;
use polars::chunked_array::builder::get_list_builder;
use polars::prelude::AnyValue;
use polars::prelude::Column;
use polars::prelude::DataType;
use polars::prelude::IntoSeries;
use polars::prelude::ListBuilderTrait;
use polars::prelude::PolarsResult;
use polars::prelude::Series;
use polars::prelude::StructChunked;
use std::path::Path;

/// verl picks the verifier of Eq. 7 by this name (verl/utils/reward_score/__init__.py:59).
const DATA_SOURCE: &str = "math_dapo";

/// `reward_model.style` of the released files.
const STYLE: &str = "rule-lighteval/MATH_v2";

/// What identifies a row in `extra_info.index`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Index {
    /// AIME 2024 counts its problems.
    Number(i64),
    /// DAPO-Math-17k has UUIDs; files written here have the problem's id.
    Name(String),
}

/// One row in the released schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProblemRow {
    /// Content of the single user message: the question inside its template.
    pub prompt: String,
    /// `reward_model.ground_truth`.
    pub ground_truth: String,
    /// `extra_info.index`.
    pub index: Option<Index>,
    /// `extra_info.raw_problem`: the question without a template.
    pub raw_problem: Option<String>,
}

/// Reads all rows in order. `extra_info` and its fields are optional, every other column is
/// ignored.
///
/// # Errors
/// When a column is missing, a cell has another type, or a prompt is anything but one user
/// message (a system message would be lost).
pub fn read_problems(path: &Path) -> Result<Vec<ProblemRow>, Error> {
    let names = ["prompt", "reward_model", "extra_info"];
    let table = Table::read_columns(path, Some(&names))?;
    let prompts = table.column("prompt")?;
    let truths = table.column("reward_model.ground_truth")?;
    let indices = table.column("extra_info.index").ok();
    let raw_problems = table.column("extra_info.raw_problem").ok();
    let cell = |column: &Column, row| -> AnyValue<'static> {
        column.get(row).expect("columns are as long as the table").into_static()
    };
    (0..prompts.len())
        .map(|row| {
            let error = |column, expected, value: &AnyValue| {
                table.cell_error(column, row, expected, shown(value))
            };
            let truth = cell(&truths, row);
            let truth = truth
                .get_str()
                .ok_or_else(|| error("reward_model.ground_truth", "text", &truth))?;
            let index = match indices.as_ref().map(|column| cell(column, row)) {
                None | Some(AnyValue::Null) => None,
                Some(value) => match (value.get_str(), integer(&value)) {
                    (Some(name), _) => Some(Index::Name(name.to_string())),
                    (None, Some(number)) => Some(Index::Number(number)),
                    (None, None) => {
                        return Err(error("extra_info.index", "text or an integer", &value));
                    }
                },
            };
            let raw_problem = match raw_problems.as_ref().map(|column| cell(column, row)) {
                None | Some(AnyValue::Null) => None,
                Some(value) => match value.get_str() {
                    Some(text) => Some(text.to_string()),
                    None => return Err(error("extra_info.raw_problem", "text or null", &value)),
                },
            };
            let prompt = cell(&prompts, row);
            let prompt = user_message(&prompt).ok_or_else(|| {
                error("prompt", "a list of one {content, role} with role `user`", &prompt)
            })?;
            Ok(ProblemRow { prompt, ground_truth: truth.to_string(), index, raw_problem })
        })
        .collect()
}

/// The content of the only message, which the user wrote.
fn user_message(prompt: &AnyValue) -> Option<String> {
    let AnyValue::List(messages) = prompt else { return None };
    let field = |name: &str| -> Option<String> {
        let field = messages.struct_().ok()?.field_by_name(name).ok()?;
        let value = field.get(0).ok()?;
        value.get_str().map(str::to_string)
    };
    let alone = messages.len() == 1 && field("role")? == "user";
    if alone { field("content") } else { None }
}

/// Writes problems in the released schema, one row each, atomically.
///
/// # Errors
/// When the file cannot be written.
pub fn write_problems(path: &Path, rows: &[NamedProblem]) -> Result<(), Error> {
    let mut columns = Columns::of(rows);
    columns.text("data_source", |_| DATA_SOURCE);
    columns.push(prompt_column(rows).expect("the messages have one schema"));
    columns.text("ability", |_| "MATH");
    let text = |name: &str, values: Vec<&str>| Column::new(name.into(), values);
    let all = |value: &'static str| vec![value; rows.len()];
    let truths = rows.iter().map(|row| row.ground_truth).collect();
    let reward_model = [text("ground_truth", truths), text("style", all(STYLE))];
    let indices = rows.iter().map(|row| row.id).collect();
    let raw = rows.iter().map(|row| row.raw_problem).collect();
    let extra_info = [text("index", indices), text("raw_problem", raw)];
    for (name, fields) in [("reward_model", reward_model), ("extra_info", extra_info)] {
        let column = StructChunked::from_columns(name.into(), rows.len(), &fields)
            .expect("the fields have one value a row");
        columns.push(column.into_series().into());
    }
    columns.write(path)
}

/// A problem to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedProblem<'a> {
    /// Goes into `extra_info.index`.
    pub id: &'a str,
    /// The question inside its template.
    pub prompt: &'a str,
    /// Goes into `reward_model.ground_truth`.
    pub ground_truth: &'a str,
    /// The question alone.
    pub raw_problem: &'a str,
}

impl<'a> NamedProblem<'a> {
    /// A problem whose prompt was rendered as `prompt`.
    pub fn new(problem: &'a Problem, prompt: &'a str) -> Self {
        Self {
            id: &problem.id,
            prompt,
            ground_truth: &problem.answer,
            raw_problem: &problem.question,
        }
    }
}

/// list<struct{content, role}> with one user message a row.
fn prompt_column(rows: &[NamedProblem]) -> PolarsResult<Column> {
    let contents: Vec<&str> = rows.iter().map(|row| row.prompt).collect();
    let roles = vec!["user"; rows.len()];
    let fields = [Column::new("content".into(), contents), Column::new("role".into(), roles)];
    let messages: Series =
        StructChunked::from_columns("prompt".into(), rows.len(), &fields)?.into_series();
    let dtype: &DataType = messages.dtype();
    let mut builder = get_list_builder(dtype, rows.len(), rows.len(), "prompt".into());
    for row in 0..rows.len() {
        builder.append_series(&messages.slice(row as i64, 1))?;
    }
    Ok(builder.finish().into_series().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use polars::prelude::NamedFrom;

    /// The refusal of a table whose one row has this prompt column.
    fn refusal(prompt: Column, index: Column) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let mut columns = Columns::of(&[()]);
        columns.push(prompt);
        let truth = Column::new("ground_truth".into(), ["3"]);
        let model = StructChunked::from_columns("reward_model".into(), 1, &[truth]).unwrap();
        columns.push(model.into_series().into());
        let extra = StructChunked::from_columns("extra_info".into(), 1, &[index]).unwrap();
        columns.push(extra.into_series().into());
        columns.write(&path).unwrap();
        let error = read_problems(&path).unwrap_err().to_string();
        error.replace(&format!("{}/", folder.path().display()), "")
    }

    fn messages(roles: &[&str]) -> Column {
        let contents = vec!["1+2?"; roles.len()];
        let fields = [Column::new("role".into(), roles), Column::new("content".into(), contents)];
        let series = StructChunked::from_columns("m".into(), roles.len(), &fields).unwrap();
        Series::new("prompt".into(), [series.into_series()]).into()
    }

    #[test]
    fn a_prompt_that_is_not_one_user_message_is_refused() {
        let expected = "t.parquet: column `prompt`, row 0 (from 0): expected a list of one \
                        {content, role} with role `user`, got ";
        let text = Column::new("prompt".into(), ["1+2?"]);
        for prompt in [messages(&["system", "user"]), messages(&["system"]), text] {
            let error = refusal(prompt, Column::new("index".into(), [1i64]));
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn an_index_that_is_neither_text_nor_an_integer_is_refused() {
        assert_eq!(
            refusal(messages(&["user"]), Column::new("index".into(), [0.5])),
            "t.parquet: column `extra_info.index`, row 0 (from 0): expected text or an integer, \
             got 0.5"
        );
    }

    #[test]
    fn a_missing_field_is_named_with_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let mut columns = Columns::of(&[()]);
        columns.push(messages(&["user"]));
        let truth = Column::new("truth".into(), ["3"]);
        let model = StructChunked::from_columns("reward_model".into(), 1, &[truth]).unwrap();
        columns.push(model.into_series().into());
        columns.write(&path).unwrap();
        let error = read_problems(&path).unwrap_err().to_string();
        let expected = "no column `reward_model.ground_truth`, the file has prompt, \
                        reward_model.{truth}";
        assert!(error.ends_with(expected), "{error}");
    }
}
