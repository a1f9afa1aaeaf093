//! `dapo data`: what it writes and how it refuses.

use crate::binary::{line_in, succeeded};
use crate::transcript::play;
use dapo::base::files;
use dapo::experiment::{Data, MiniAimeVariant};
use dapo::task::data::schema::RowKeys;
use dapo::task::data::{self, problem_file, problem_file::ProblemFile};
use polars::prelude::{Column, DataFrame, ParquetWriter};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

fn prepare(folder: &Path, rest: &str) {
    succeeded(line_in(folder, &format!("data prepare {rest}")));
}

fn parquet(path: &Path, columns: Vec<Column>) {
    let mut parquet = Vec::new();
    let mut frame = DataFrame::new(1, columns).unwrap();
    ParquetWriter::new(&mut parquet).finish(&mut frame).unwrap();
    files::write_atomic(path, &parquet).unwrap();
}

fn digests(folder: &Path) -> Value {
    files::read_json(&folder.join("digests.json")).unwrap()
}

#[test]
fn prepared_mini_aime_is_the_embedded_benchmark() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path(), "mini-aime --out .");
    let path = |name: &str| folder.path().join(format!("{name}.parquet"));
    let test = vec![path("mini-aime"), path("mini-aime-plus")];
    let prepared = Data::Files { train: path("train"), dev: path("dev"), test };
    let embedded = Data::MiniAime { variant: MiniAimeVariant::Standard };
    let [prepared, embedded] = [prepared, embedded].map(|sets| data::load(&sets).unwrap());
    assert!(prepared == embedded);
    let digests = digests(folder.path());
    assert_eq!(digests["train"]["sha256"], data::digest(&embedded.train));
    assert_eq!(digests["train"]["problems"], 17_000);
    assert_eq!(digests["dev"]["file_sha256"], files::sha256_file(&path("dev")).unwrap());
}

#[test]
fn questions_with_several_answers_are_left_out_and_listed() {
    play(tempfile::tempdir().unwrap().path(), include_str!("data/several.txt"));
}

#[test]
fn texts_that_a_writer_of_parquet_left_unmarked_are_texts() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = |name: &str, text: &str| Column::new(name.into(), [text.as_bytes()]);
    let columns = vec![
        bytes("question", "What is 1 + 1?"),
        bytes("answer", "2"),
        Column::new("share".into(), [0.1_f32]),
        Column::new("picture".into(), [&b"\xff\x00"[..]]),
    ];
    let path = folder.path().join("set.parquet");
    parquet(&path, columns);
    let keys = RowKeys { columns: true, ..RowKeys::default() };
    let file = problem_file::read_with(&path, &keys).unwrap();
    assert_eq!((&*file.problems[0].question, &*file.problems[0].answer), ("What is 1 + 1?", "2"));
    let columns = file.columns.values().next().unwrap();
    assert_eq!((&columns["share"], &columns["picture"]), (&json!(0.1), &json!("/wA=")));
}

#[test]
fn an_audit_counts_tokens_in_the_chat_template_and_names_an_end_of_turn_that_stops_nothing() {
    play(tempfile::tempdir().unwrap().path(), include_str!("data/audit.txt"));
}

#[test]
fn a_leak_is_found_however_it_is_written_and_what_looks_alike_is_left_to_a_person() {
    play(tempfile::tempdir().unwrap().path(), include_str!("data/leak.txt"));
}

#[test]
fn a_prepared_file_gives_a_program_the_source_and_extra_info_of_its_file_under_the_same_ids() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let rows = [
        json!({"question": "1 + 1?", "answer": 2, "extra_info": {"index": 77, "unit": "kg"}}),
        json!({"question": "1 + 2?", "answer": 3, "data_source": "own", "extra_info": {"index": 78, "raw_problem": "1 + 2?"}}),
        json!({"question": "1 + 3?", "answer": 4, "extra_info": {"index": 79}}),
    ];
    files::write_lines(&folder.join("p.jsonl"), &rows).unwrap();
    files::write_lines(&folder.join("bare.jsonl"), &[json!({"question": "1?", "answer": 1})])
        .unwrap();
    prepare(folder, "p.jsonl --hold-out 1 --out out");
    prepare(folder, "bare.jsonl --out out");
    let keys = RowKeys { columns: true, ..RowKeys::default() };
    let read = |file: &str| problem_file::read_with(&folder.join(file), &keys).unwrap();
    let own = read("p.jsonl");
    let mut ids = BTreeSet::new();
    for prepared in ["out/p.parquet", "out/p-dev.parquet"].map(read) {
        for id in prepared.columns.keys() {
            let of = |file: &ProblemFile, key: &str| {
                file.columns[id].get(key).cloned().unwrap_or_default()
            };
            for key in ["data_source", "extra_info"] {
                assert_eq!(of(&prepared, key), of(&own, key), "{id} {key}");
            }
            ids.insert(id.clone());
        }
    }
    assert!(ids.iter().eq(["p/77", "p/78", "p/79"]), "{ids:?}");
    let bare = read("out/bare.parquet");
    let columns = &bare.columns["bare/00000"];
    assert!(columns["data_source"].is_null() && !columns.contains_key("extra_info"), "{columns:?}");
}

#[test]
fn what_a_program_grades_is_prepared_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    play(folder.path(), include_str!("data/for_program.txt"));
    let keys = RowKeys { columns: true, ..RowKeys::default() };
    let problems = |set: &str| {
        let path = folder.path().join("out").join(set).with_extension("jsonl");
        problem_file::read_with(&path, &keys).unwrap().problems
    };
    let digests = digests(&folder.path().join("out"));
    for set in ["set", "set-dev"] {
        assert_eq!(digests[set]["sha256"], data::digest(&problems(set)));
    }
}

#[test]
fn rows_that_count_for_nothing_leave_the_others_and_are_listed() {
    play(tempfile::tempdir().unwrap().path(), include_str!("data/rows.txt"));
}

#[test]
fn preparing_again_replaces_nothing_that_is_read_and_leaves_no_old_part() {
    play(tempfile::tempdir().unwrap().path(), include_str!("data/again.txt"));
}

#[test]
fn columns_of_a_table_that_differ_in_their_case_alone_and_contradict_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("set.parquet");
    for (other, is_refused) in [("2", true), ("1", false)] {
        let text = |name: &str, text: &str| Column::new(name.into(), [text]);
        parquet(&path, vec![text("question", "q"), text("Answer", other), text("answer", "1")]);
        let error = problem_file::read(&path).err().map(|error| error.to_string());
        let error = error.unwrap_or_default();
        let is_told = error.contains("`Answer` says") && error.contains("--answer-key");
        assert_eq!((!error.is_empty(), is_told), (is_refused, is_refused), "{error}");
    }
}
