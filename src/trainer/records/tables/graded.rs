//! What a table of (problem, sample, correct) from others is read as. Column names are the caller's or usual ones.

use crate::records::tables::{Refusal, TableError};
use std::path::Path;

/// AIME with 32 samples has 960.
pub const MOST_ROWS: usize = 1 << 22;

/// Limit of a problem's or a sample's name.
pub const MOST_NAME_BYTES: usize = 1024;

/// Best first.
pub const PROBLEM_NAMES: [&str; 6] =
    ["problem", "problem_id", "question_id", "task_id", "doc_id", "id"];

pub const SAMPLE_NAMES: [&str; 5] = ["sample", "sample_id", "sample_index", "repeat", "attempt"];

pub const CORRECT_NAMES: [&str; 4] = ["is_correct", "correct", "score", "acc"];

/// Columns of other names than [`PROBLEM_NAMES`], [`SAMPLE_NAMES`] and [`CORRECT_NAMES`].
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ColumnNames {
    /// Column of the problem's id.
    #[arg(long = "problem-column", value_name = "NAME")]
    pub problem: Option<String>,
    /// Column of the sample's number.
    #[arg(long = "sample-column", value_name = "NAME")]
    pub sample: Option<String>,
    /// Take each row of a problem as a sample, in their order; there is no sample column.
    #[arg(long = "no-sample-column", conflicts_with = "sample")]
    pub no_sample: bool,
    /// Column of correctness.
    #[arg(long = "correct-column", value_name = "NAME")]
    pub correct: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graded {
    pub problem: String,
    /// `None` without such a column.
    pub sample: Option<String>,
    pub is_correct: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GradedTable {
    pub rows: Vec<Graded>,
    /// Names for problem, sample and correct.
    pub columns: (String, Option<String>, String),
}

pub fn choose(
    path: &Path,
    names: &ColumnNames,
    present: &[String],
) -> Result<(String, Option<String>, String), TableError> {
    let find = |wanted: &Option<String>, usual: &[&str]| -> Result<String, TableError> {
        let has = |name: &str| present.iter().any(|column| column == name);
        let found = match wanted {
            Some(name) => has(name).then(|| name.clone()),
            None => usual.iter().find(|name| has(name)).map(ToString::to_string),
        };
        found.ok_or_else(|| {
            let column = wanted.clone().unwrap_or_else(|| usual.join("`, `"));
            Refusal::MissingColumn { column, present: present.join(", ") }.of(path)
        })
    };
    let sample = if names.no_sample { None } else { Some(find(&names.sample, &SAMPLE_NAMES)?) };
    let problem = find(&names.problem, &PROBLEM_NAMES)?;
    Ok((problem, sample, find(&names.correct, &CORRECT_NAMES)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::files;
    use crate::records::tables::{columns, graded_lines};
    use parquet::data_type::Int32Type;
    use parquet::file::{properties::WriterProperties, writer::SerializedFileWriter};
    use parquet::schema::parser;
    use polars::prelude::Column;
    use serde_json::json;
    use std::sync::Arc;

    fn csv(name: &str, text: &str, names: &ColumnNames) -> Result<GradedTable, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        files::write_atomic(&path, text.as_bytes()).unwrap();
        let place = format!("{}/", folder.path().display());
        graded_lines::read(&path, names).map_err(|error| error.to_string().replace(&place, ""))
    }

    fn usual(text: &str) -> Result<GradedTable, String> {
        csv("t.csv", text, &ColumnNames::default())
    }

    #[test]
    fn the_usual_names_and_truth_values_are_recognised() {
        let table = usual("\u{feff}id,repeat,model,correct\n1,0,x,True\n1, 1 ,x,0\n2,0,x,1.0\n");
        let table = table.unwrap();
        assert_eq!(table.columns, ("id".into(), Some("repeat".into()), "correct".into()));
        let rows: Vec<_> = table.rows.iter().map(|row| (&*row.problem, row.is_correct)).collect();
        assert_eq!(rows, [("1", true), ("1", false), ("2", true)]);
        assert_eq!(table.rows[1].sample.as_deref(), Some("1"));
        let tabs = csv("t.tsv", "problem\tsample\tacc\na,b\t0\t1\n", &ColumnNames::default());
        assert_eq!(tabs.unwrap().rows[0].problem, "a,b");
        let names = ColumnNames { no_sample: true, ..ColumnNames::default() };
        assert_eq!(csv("t.csv", "problem,acc\na,1\n", &names).unwrap().rows[0].sample, None);
    }

    #[test]
    fn nan_is_refused_only_where_it_is_read() {
        let lines = |key: &str| {
            let row =
                json!({"problem": "a", "sample": 0, "acc": 1, "logp": -1.5, "text": "NaN \"NaN"});
            let line = row.to_string();
            let value = format!("\"{key}\":{}", row[key]);
            let text = format!("{line}\n{}\n", line.replace(&value, &format!("\"{key}\":NaN")));
            csv("t.jsonl", &text, &ColumnNames::default())
        };
        assert_eq!(lines("logp").unwrap().rows.len(), 2);
        for key in ["problem", "sample", "acc"] {
            let refusal = lines(key).unwrap_err();
            assert!(refusal.starts_with(&format!("t.jsonl:2: `{key}`: expected ")), "{refusal}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_csv_file_is_said_with_its_line() {
        let refused = |text: &str| usual(text).unwrap_err();
        assert_eq!(
            refused("problem,n,is_correct\n"),
            "t.csv: no column `sample`, `sample_id`, `sample_index`, `repeat`, `attempt`, \
             the file has problem, n, is_correct"
        );
        assert_eq!(
            refused("problem,sample,score\na,0,1\na,1,0.5\n"),
            "t.csv:3: `score`: expected true, false, 0 or 1, got `0.5`; name another with --correct-column"
        );
        assert_eq!(
            refused("problem,sample,score\n,0,1\n"),
            "t.csv:2: `problem`: expected text of at most 1024 bytes or an integer, got ``; \
             name another with --problem-column"
        );
        assert_eq!(
            refused("problem,problem,sample\n"),
            "t.csv:1: two columns are called `problem`"
        );
        assert!(refused("problem,sample,acc\na,0\n").starts_with("t.csv:2: "));
        assert!(refused("").contains("no column"));
        let bytes = "problem,sample,acc\n\"a,0,1\n".to_string();
        assert!(usual(&bytes).is_err());
        let names = ColumnNames { correct: Some("ok".into()), ..ColumnNames::default() };
        let missing = csv("t.csv", "problem,sample,acc\n", &names).unwrap_err();
        assert_eq!(missing, "t.csv: no column `ok`, the file has problem, sample, acc");
    }

    #[test]
    fn parquet_with_integers_or_booleans_reads_the_same_and_other_columns_do_no_harm() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        let write = |as_number: bool| {
            let score = if as_number {
                Column::new("score".into(), [1.0, 0.0])
            } else {
                Column::new("score".into(), [true, false])
            };
            let id = "id".into();
            let ids =
                if as_number { Column::new(id, [7.0, 7.0]) } else { Column::new(id, [7u32, 7]) };
            let columns = vec![
                ids,
                Column::new("sample".into(), [0u32, 1]),
                score,
                Column::new("response".into(), ["x", "x"]),
            ];
            columns::write(&path, 2, columns).unwrap();
            graded_lines::read(&path, &ColumnNames::default()).unwrap()
        };
        let table = write(true);
        assert_eq!(table, write(false));
        assert_eq!(
            table.rows[1],
            Graded { problem: "7".into(), sample: Some("1".into()), is_correct: false }
        );
        let names = ColumnNames { problem: Some("response".into()), ..ColumnNames::default() };
        assert_eq!(graded_lines::read(&path, &names).unwrap().rows[0].problem, "x");
        let names = ColumnNames { correct: Some("id".into()), ..ColumnNames::default() };
        let error = graded_lines::read(&path, &names).unwrap_err().to_string();
        assert!(error.contains("t.parquet:1: `id`: expected true, false, 0 or 1, got `7`"));
        let names = ColumnNames { correct: Some("ok".into()), ..ColumnNames::default() };
        let error = graded_lines::read(&path, &names).unwrap_err().to_string();
        assert!(error.ends_with("no column `ok`, the file has id, sample, score, response"));
    }

    #[test]
    fn parquet_with_dates_and_small_integers_is_read() {
        let schema = "message t { required int32 day (DATE); required int32 id;
            required int32 sample (INT_8); required int32 correct (UINT_8); }";
        let schema = Arc::new(parser::parse_message_type(schema).unwrap());
        let properties = Arc::new(WriterProperties::builder().build());
        let mut bytes = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut bytes, schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            column.typed::<Int32Type>().write_batch(&[1, 0], None, None).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.close().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.parquet");
        files::write_atomic(&path, &bytes).unwrap();
        let rows = graded_lines::read(&path, &ColumnNames::default()).unwrap().rows;
        let row = |it: &str, is_correct| Graded {
            problem: it.into(),
            sample: Some(it.into()),
            is_correct,
        };
        assert_eq!(rows, [row("1", true), row("0", false)]);
    }
}
