//! Tests of problems as tables: what is written is read again row by row, and what is no such
//! table is refused with its column and row.

use super::*;
use crate::base::files;
use crate::records::tables::Refusal;
use crate::records::tables::problem_rows::{Head, WantedKeys, each_problem_row};
use parquet::column::writer::ColumnWriter;
use parquet::file::{properties::WriterProperties, writer::SerializedFileWriter};
use parquet::schema::parser;
use polars::prelude::NamedFrom;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

fn wanted() -> WantedKeys {
    let keys = |keys: &[&str]| keys.iter().map(ToString::to_string).collect();
    WantedKeys {
        question: keys(&["prompt"]),
        answer: keys(&["reward_model.ground_truth"]),
        others: keys(&["extra_info.index", "extra_info.raw_problem", "tags"]),
        all: false,
    }
}

/// The rows, or the refusal without the folder.
fn rows(path: &Path) -> Result<Vec<Value>, String> {
    rows_with(path, &wanted())
}

fn rows_with(path: &Path, wanted: &WantedKeys) -> Result<Vec<Value>, String> {
    let mut rows = Vec::new();
    let mut take = |head: &Head, row: Map<String, Value>| -> Result<(), TableError> {
        assert!(head.rows > 0);
        rows.push(Value::Object(row));
        Ok(())
    };
    let folder = path.parent().unwrap().display();
    match each_problem_row(path, wanted, &mut take) {
        Ok(()) => Ok(rows),
        Err(error) => Err(error.to_string().replace(&format!("{folder}/"), "")),
    }
}

/// A table of one row with these columns.
fn table(columns: Vec<Column>) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    columns::write(&path, 1, columns).unwrap();
    (folder, path)
}

fn structure(name: &str, field: Column) -> Column {
    StructChunked::from_columns(name.into(), 1, &[field]).unwrap().into_series().into()
}

fn messages(roles: &[&str]) -> Column {
    let contents = vec!["1+2?"; roles.len()];
    let fields = [Column::new("role".into(), roles), Column::new("content".into(), contents)];
    let series = StructChunked::from_columns("m".into(), roles.len(), &fields).unwrap();
    Series::new("prompt".into(), [series.into_series()]).into()
}

fn truth() -> Column {
    structure("reward_model", Column::new("ground_truth".into(), ["3"]))
}

#[test]
fn what_is_written_is_read_row_by_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let tags = ["sums".to_string(), "easy".to_string()];
    let written = |id: &'static str, tags| NamedProblem {
        data_source: Some("math_dapo"),
        id,
        prompt: "Solve: 1+2?",
        ground_truth: "3",
        raw_problem: "1+2?",
        tags,
        extra: None,
    };
    write_problems(&path, &[written("a", &[]), written("b", &tags)]).unwrap();
    let expected = |id: &str, tags: &[String]| {
        json!({
            "prompt": [{"role": "user", "content": "Solve: 1+2?"}],
            "reward_model": {"ground_truth": "3"},
            "extra_info": {"index": id, "raw_problem": "1+2?"},
            "tags": tags,
        })
    };
    assert_eq!(rows(&path).unwrap(), [expected("a", &[]), expected("b", &tags)]);
}

#[test]
fn fields_of_extra_info_are_kept_with_their_kinds_and_no_others_are_added() {
    let extras = [
        json!({"index": 3, "split": "train", "level": 2, "share": 1, "mixed": 1, "list": [1]}),
        json!({"split": "dev", "share": 0.5, "is_hard": true, "mixed": "b"}),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let row = |extra| NamedProblem {
        data_source: Some("gsm8k"),
        id: "a",
        prompt: "1+2?",
        ground_truth: "3",
        raw_problem: "1+2?",
        tags: &[],
        extra,
    };
    let written = [&extras[0], &extras[1]].map(|extra| row(extra.as_object()));
    write_problems(&path, &written).unwrap();
    let wanted = WantedKeys { all: true, ..wanted() };
    let mut found = Vec::new();
    let mut take = |_: &Head, row: Map<String, Value>| -> Result<(), TableError> {
        found.push((row["data_source"].clone(), row["extra_info"].clone()));
        Ok(())
    };
    each_problem_row(&path, &wanted, &mut take).unwrap();
    let expected = [
        json!({"index": 3, "level": 2, "mixed": "1", "share": 1.0, "split": "train"}),
        json!({"is_hard": true, "mixed": "b", "share": 0.5, "split": "dev"}),
    ];
    assert_eq!(found, expected.map(|extra| (json!("gsm8k"), extra)));
}

#[test]
fn all_messages_of_a_prompt_are_read_and_optional_columns_may_be_absent() {
    let (_folder, path) = table(vec![messages(&["system", "user"]), truth()]);
    let row = &rows(&path).unwrap()[0];
    assert_eq!(
        (&row["prompt"][0]["role"], &row["prompt"][1]["role"]),
        (&json!("system"), &json!("user"))
    );
    assert_eq!(row.as_object().unwrap().len(), 2);
}

#[test]
fn a_missing_field_is_named_with_what_is_there() {
    let model = structure("reward_model", Column::new("truth".into(), ["3"]));
    let (_folder, path) = table(vec![messages(&["user"]), model]);
    assert_eq!(
        rows(&path).unwrap_err(),
        "t.parquet: no column `reward_model.ground_truth`, the file has prompt, \
         reward_model.{truth}; name it with --answer-key KEY (`dapo data prepare`)"
    );
}

#[test]
fn a_file_that_is_cut_off_or_no_parquet_is_refused() {
    let (_folder, path) = table(vec![messages(&["user"]), truth()]);
    let whole = files::read(&path).unwrap();
    for bytes in [&whole[..whole.len() - 9], b"PAR1", b"", b"no table at all, but longer"] {
        files::write_atomic(&path, bytes).unwrap();
        let refusal = rows(&path).unwrap_err();
        assert!(refusal.starts_with("t.parquet: not a readable parquet file: "), "{refusal}");
    }
}

#[test]
fn an_error_of_the_caller_ends_the_reading() {
    let (_folder, path) = table(vec![messages(&["user"]), truth()]);
    let mut take = |_: &Head, _row| {
        Err(Refusal::MissingColumn { column: "c".into(), present: "x".into() }.of(Path::new("p")))
    };
    let error = each_problem_row(&path, &wanted(), &mut take).unwrap_err().to_string();
    assert_eq!(error, "p: no column `c`, the file has x");
}

/// As [`rows`], of one row in whose columns the text or the number stands.
fn raw(columns: &str, text: &[u8], number: i64) -> Result<Vec<Value>, String> {
    raw_with(columns, text, number, &wanted())
}

fn raw_with(
    columns: &str,
    text: &[u8],
    number: i64,
    wanted: &WantedKeys,
) -> Result<Vec<Value>, String> {
    rows_with(&raw_table(columns, text, number).1, wanted)
}

fn raw_table(columns: &str, text: &[u8], number: i64) -> (tempfile::TempDir, PathBuf) {
    let schema = parser::parse_message_type(&format!("message t {{ {columns} }}")).unwrap();
    let (mut bytes, properties) = (Vec::new(), WriterProperties::builder().build());
    let properties = Arc::new(properties);
    let mut file = SerializedFileWriter::new(&mut bytes, Arc::new(schema), properties).unwrap();
    let mut group = file.next_row_group().unwrap();
    while let Some(mut column) = group.next_column().unwrap() {
        match column.untyped() {
            ColumnWriter::ByteArrayColumnWriter(it) => {
                it.write_batch(&[text.to_vec().into()], None, None)
            }
            ColumnWriter::Int64ColumnWriter(it) => it.write_batch(&[number], None, None),
            _ => unreachable!("a column of another type"),
        }
        .unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    file.close().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    files::write_atomic(&path, &bytes).unwrap();
    (folder, path)
}

const PROMPT: &str = "required binary prompt;";

fn with_truth(kind: &str) -> String {
    format!("{PROMPT} required group reward_model {{ required {kind}; }}")
}

#[test]
fn a_columns_type_says_what_its_cells_are_and_not_their_value() {
    let all = WantedKeys { all: true, ..wanted() };
    let unmarked = "required binary prompt; required binary tags;";
    let marked = "required binary prompt (UTF8); required binary tags; required int64 local \
                  (TIMESTAMP(MICROS, false)); required int64 zoned (TIMESTAMP(MICROS, true));";
    let row = &raw_with(marked, b"abc", 1_000_000, &all).unwrap()[0];
    let day = "1970-01-01 00:00:01.000000";
    let expected =
        json!({"prompt": "abc", "tags": "YWJj", "local": day, "zoned": format!("{day} +00:00")});
    assert_eq!(row, &expected);
    assert_eq!(raw_with(unmarked, b"abc", 1, &all).unwrap()[0]["tags"], "abc");
    let refusal = raw_with(unmarked, b"\xff", 1, &all).unwrap_err();
    assert!(refusal.contains("its bytes are no text"), "{refusal}");
    let wanted = WantedKeys { answer: vec!["prompt".into()], ..wanted() };
    let row = &raw_with(marked, b"abc", 1, &wanted).unwrap()[0];
    assert_eq!(row, &json!({"prompt": "abc"}));
}

#[test]
fn a_decimal_has_its_shortest_form() {
    let column = with_truth("int64 ground_truth (DECIMAL(18, 3))");
    for (number, text) in [(2000, "2"), (-4500, "-4.5"), (0, "0"), (20_000, "20"), (5, "0.005")] {
        let row = &raw(&column, b"q", number).unwrap()[0];
        assert_eq!(row["reward_model"]["ground_truth"], text);
    }
}

#[test]
fn the_head_of_a_table_names_its_decimals_with_their_digits() {
    let decimals = |columns: &str| {
        let (_folder, path) = raw_table(columns, b"q", 5);
        let mut decimals = None;
        let mut take = |head: &Head, _| -> Result<(), TableError> {
            decimals = Some(head.decimals.clone());
            Ok(())
        };
        each_problem_row(&path, &wanted(), &mut take).unwrap();
        decimals.unwrap()
    };
    let named = vec![("reward_model.ground_truth".to_string(), 3)];
    assert_eq!(decimals(&with_truth("int64 ground_truth (DECIMAL(18, 3))")), named);
    assert_eq!(decimals(&with_truth("int64 ground_truth")), []);
}

#[test]
fn two_columns_of_a_name_times_and_bytes_that_are_no_text_are_refused() {
    let told = "expected text or a number, got dates, times or durations; write texts";
    for kind in ["TIMESTAMP(NANOS, true)", "TIMESTAMP_MILLIS", "TIME(MICROS, false)"] {
        let column = with_truth(&format!("int64 ground_truth ({kind})"));
        let refusal = raw(&column, b"q", 1).unwrap_err();
        let column = "column `reward_model.ground_truth`, row 0 (from 0)";
        assert_eq!(refusal, format!("t.parquet: {column}: {told}"));
    }
    let truth = with_truth("binary ground_truth");
    let refusal = raw(&truth, b"\xff\xfe", 1).unwrap_err();
    let told = "column `prompt`, row 0 (from 0): its bytes are no text; write it as text in UTF-8";
    assert_eq!(refusal, format!("t.parquet: {told}"));
    let twice = with_truth("int64 ground_truth; required int64 ground_truth");
    for (columns, name) in [(format!("{truth}{PROMPT}"), "prompt"), (twice, "ground_truth")] {
        let refusal = raw(&columns, b"q", 1).unwrap_err();
        let told = format!("two columns or fields are called `{name}`; rename one");
        assert_eq!(refusal, format!("t.parquet: not a readable parquet file: {told}"));
    }
}
