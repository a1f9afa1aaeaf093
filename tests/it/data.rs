//! `dapo data`: what it writes and how it refuses.

use crate::binary::{line_in, succeeded};
use crate::transcript::play;
use dapo::base::files;
use dapo::experiment::{Data, MiniAimeVariant};
use dapo::task::data::schema::RowKeys;
use dapo::task::data::{self, problem_file};
use polars::prelude::{Column, DataFrame, ParquetWriter};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

fn prepare(folder: &Path, rest: &str) {
    succeeded(line_in(folder, &format!("data prepare {rest}")));
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
fn held_out_problems_are_a_set_of_their_own_whatever_the_order_of_the_rows() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path();
    let write = |name: &str, numbers: &[u32]| {
        let line = |n: &u32| json!({"question": format!("{n} + {n}?"), "answer": 2 * n});
        let lines: Vec<Value> = numbers.iter().map(line).collect();
        files::write_lines(&folder.join(name), &lines).unwrap();
    };
    let mut numbers: Vec<u32> = (1..=40).collect();
    let held_out = ["up", "down"].map(|out| {
        write("set.jsonl", &numbers);
        numbers.reverse();
        prepare(folder, &format!("set.jsonl --hold-out 7 --out {out}"));
        let [train, dev] = ["set", "set-dev"].map(|set| {
            let file = problem_file::read(&folder.join(out).join(set).with_extension("parquet"));
            let problems = file.unwrap().problems.into_iter();
            problems.map(|problem| problem.question).collect::<BTreeSet<String>>()
        });
        assert_eq!((train.len(), dev.len(), train.intersection(&dev).count()), (33, 7, 0));
        dev
    });
    assert_eq!(held_out[0], held_out[1]);
    // Another file goes beside it, and what is known of the first stays.
    write("other.jsonl", &[50]);
    prepare(folder, "other.jsonl --out up");
    let digests = digests(&folder.join("up"));
    let sets = digests.as_object().unwrap().keys();
    assert!(sets.eq(["other", "set", "set-dev"]), "{digests}");
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
    let mut parquet = Vec::new();
    let mut frame = DataFrame::new(1, columns).unwrap();
    ParquetWriter::new(&mut parquet).finish(&mut frame).unwrap();
    let path = folder.path().join("set.parquet");
    files::write_atomic(&path, &parquet).unwrap();
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
