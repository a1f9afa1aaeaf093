//! `dapo compare`: tables, run folders and what it refuses.

use crate::binary::{Output, dapo_in, failed, succeeded};
use crate::run_fixture;
use assert_cmd::Command;
use dapo::base::files;
use serde_json::{Value, json};
use std::path::Path;

fn compare(folder: &Path, arguments: &[&str]) -> Output {
    dapo_in(folder, &[&["compare"], arguments].concat())
}

/// A table in which sample `j` of problem `i` is correct where `(7·i + 5·j) % 10` is below `tenths`.
fn table(header: &str, problems: u64, samples: u64, tenths: u64) -> String {
    let rows = (0..problems).flat_map(|i| (0..samples).map(move |j| (i, j)));
    let row = |(i, j)| format!("{i},{j},{}\n", u8::from((7 * i + 5 * j + i * j) % 10 < tenths));
    format!("{header}\n{}", rows.map(row).collect::<String>())
}

#[test]
fn two_csv_tables_give_text_markdown_and_json_with_the_same_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, tenths| {
        let text = table("question_id,repeat,correct", 30, 8, tenths);
        files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
    };
    write("base.csv", 3);
    write("tuned.csv", 7);
    let (code, text, talk) = compare(folder.path(), &["base.csv", "tuned.csv"]);
    assert_eq!((code, &*talk), (0, ""));
    insta::assert_snapshot!(text);
    let (_, markdown, _) = compare(folder.path(), &["base.csv", "tuned.csv", "--markdown"]);
    let (_, json, _) = compare(folder.path(), &["base.csv", "tuned.csv", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let difference = json["paired"]["difference"].as_f64().unwrap();
    let shown = format!("{:+.1}", 100.0 * difference);
    assert!(text.contains(&shown) && markdown.contains(&shown), "{shown}");
    assert_eq!(json["between_runs"], Value::Null);
    assert_eq!(json["changes"].as_array().unwrap().len(), 30);
}

#[test]
fn run_folders_are_compared_by_the_last_evaluation_of_a_set() {
    let folder = tempfile::tempdir().unwrap();
    run_fixture::finished(&folder.path().join("one"));
    run_fixture::finished(&folder.path().join("two"));
    failed(
        compare(folder.path(), &["one", "two"]),
        3,
        "one: several sets were evaluated, choose one with --evaluation-set: dev, mini-aime, mini-aime-plus",
    );
    let (code, json, talk) =
        compare(folder.path(), &["one", "two", "--evaluation-set", "mini-aime", "--json"]);
    assert_eq!(code, 0, "{talk}");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["a"]["accuracy"]["problems"], 30);
    assert_eq!(json["a"]["accuracy"]["samples"], 32);
    assert_eq!(json["paired"]["difference"], 0.0);
    // The same checkpoint twice: nothing changed, so that no interval is offered.
    assert_eq!(json["paired"]["uncertainties"][1]["interval"], Value::Null);
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
    };
    write("a.csv", &table("problem,sample,correct", 12, 4, 5));
    write("b.csv", &table("problem,sample,correct", 10, 4, 5));
    write("no.csv", "problem,correct\n1,1\n");
    write("bad.parquet", "PAR1 not parquet PAR1");
    let refused = |arguments: &[&str], code: i32, words: &str| {
        let (got, text, talk) = compare(folder.path(), arguments);
        assert_eq!((got, &*text), (code, ""), "{talk}");
        assert!(talk.contains(words), "{talk}");
    };
    refused(&["a.csv", "b.csv"], 3, "a.csv and b.csv are not about the same problems: 2 problems");
    refused(&["a.csv", "no.csv"], 3, "no.csv: no column `sample`");
    refused(&["a.csv", "bad.parquet"], 3, "bad.parquet: not a readable parquet file");
    refused(&["a.csv", "nowhere.csv"], 3, "nowhere.csv");
    refused(&["a.csv"], 2, "");
    refused(&["a.csv", "a.csv", "--level", "2"], 2, "--level must be between");
    let (code, text, _) = compare(folder.path(), &["a.csv", "b.csv", "--common-problems"]);
    assert_eq!(code, 0);
    assert!(text.contains("only the 10 problems"), "{text}");
    let no_sample = ["no.csv", "no.csv", "--no-sample-column"];
    let (text, _) = succeeded(compare(folder.path(), &no_sample));
    assert!(text.contains("one problem says nothing about others"), "{text}");
}

#[test]
fn lines_of_verl_and_lm_eval_are_compared_and_what_is_ambiguous_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, lines: &mut dyn Iterator<Item = Value>| {
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
    };
    let each = |shift: i64| (0..48).map(move |at| (at / 4, (at * 7 + at / 4 + shift) % 3 == 0));
    let verl = |shift: i64, step: i64| {
        each(shift).map(move |(problem, right)| {
            json!({"input": format!("What is {problem}?"), "output": "Answer: 1", "gts": "1",
                "score": if right { 1.0 } else { -1.0 }, "step": step})
        })
    };
    let sample = |problem: i64, filter: &str, right: bool| {
        json!({"doc_id": problem, "doc": {"question": "q"}, "target": "#### 1", "resps": [["1"]],
            "filtered_resps": ["1"], "filter": filter, "metrics": ["exact_match"],
            "exact_match": if right { 1.0 } else { 0.0 }, "doc_hash": format!("{problem:064}")})
    };
    write("a.jsonl", &mut verl(0, 5));
    write("b.jsonl", &mut verl(1, 5));
    write("steps.jsonl", &mut verl(1, 5).chain(verl(1, 6)));
    for (name, shift) in [("samples_a.jsonl", 0), ("samples_b.jsonl", 1)] {
        write(
            name,
            &mut (0..24).map(|at| {
                let filter = ["strict-match", "flexible-extract"][at as usize % 2];
                sample(at / 2, filter, (at + shift) % 4 < 2)
            }),
        );
    }
    let mut two = sample(0, "none", true);
    two["metrics"] = json!(["acc", "acc_norm"]);
    write("metrics.jsonl", &mut std::iter::once(two));
    write(
        "own.jsonl",
        &mut each(0).map(|(problem, right)| json!({"id": problem, "grade": {"correct": right}})),
    );
    let nested = json!({"id": 1, "strict": {"acc": 1}, "loose": {"acc": 1}});
    write("nested.jsonl", &mut std::iter::once(nested));
    let (code, shown, talk) = compare(folder.path(), &["a.jsonl", "b.jsonl", "--json"]);
    assert_eq!((code, &*talk), (0, ""));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["a"]["accuracy"]["problems"], 12);
    assert_eq!(shown["a"]["accuracy"]["samples"], 4);
    let strict = ["--correct-column", "exact_match,strict-match"];
    for (sides, flags, words) in [
        (["samples_a.jsonl", "samples_b.jsonl"], &strict[..], "correct `exact_match`"),
        (["own.jsonl", "own.jsonl"], &["--no-sample-column"], "correct `grade.correct`"),
    ] {
        let (shown, _) = succeeded(compare(folder.path(), &[&sides[..], flags].concat()));
        assert!(shown.contains(words), "{shown}");
    }
    for (name, words) in [
        ("steps.jsonl", "rollouts of several steps, a file of one is compared: 5, 6"),
        ("samples_a.jsonl", "exact_match,flexible-extract or exact_match,strict-match"),
        ("metrics.jsonl", "choose one with --correct-column: acc, acc_norm"),
    ] {
        let (code, _, talk) = compare(folder.path(), &[name, name]);
        assert_eq!(code, 3, "{talk}");
        assert!(talk.contains(name) && talk.contains(words), "{talk}");
    }
    let (_, _, talk) =
        compare(folder.path(), &["nested.jsonl", "nested.jsonl", "--no-sample-column"]);
    assert!(talk.contains("loose.acc, strict.acc"), "{talk}");
}

#[test]
fn a_file_of_another_format_is_named_as_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes, words) in [
        ("a.csv", &b"\x1f\x8b\x08rest"[..], "a gzip archive"),
        ("a.jsonl", b"[\n  {\"id\": 1}\n]\n", "one JSON list"),
        ("b.jsonl", b"{\n  \"id\": 1\n}\n", "one JSON document over several lines"),
        ("a.parquet", b"SQLite format 3\0rest", "an SQLite database"),
        ("b.parquet", b"PK\x03\x04rest", "a zip archive"),
        ("c.parquet", b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
        ("a.arrow", b"ARROW1\0\0", "an Arrow or Feather file"),
        ("d.jsonl", b"<!DOCTYPE html>", "an HTML or XML page"),
    ] {
        files::write_atomic(&folder.path().join(name), bytes).unwrap();
        failed(compare(folder.path(), &[name, name]), 3, &format!("{name}: it is {words}"));
        let mut grade = Command::cargo_bin("dapo").unwrap();
        let output = grade.current_dir(folder.path()).args(["grade", name]).output().unwrap();
        let talk = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(3) && talk.contains(words), "{talk}");
    }
}

#[test]
fn a_gate_that_so_few_runs_cannot_decide_is_inconclusive() {
    let folder = tempfile::tempdir().unwrap();
    let names = |side: &str, runs: usize| (0..runs).map(|it| format!("{side}{it}.csv")).collect();
    for (side, tenths) in [("a", 7), ("b", 3)] {
        for run in 0..5u64 {
            let text = table("id,sample,correct", 30, 8 + run, tenths);
            let path = folder.path().join(format!("{side}{run}.csv"));
            files::write_atomic(&path, text.as_bytes()).unwrap();
        }
    }
    let gate = |[a, b]: [&str; 2], runs: usize, rest: &[&str]| {
        let (a, b): (Vec<String>, Vec<String>) = (names(a, runs), names(b, runs));
        let mut line = vec!["--a"];
        line.extend(a.iter().map(String::as_str));
        line.push("--b");
        line.extend(b.iter().map(String::as_str));
        line.extend(rest);
        let (code, _, talk) = compare(folder.path(), &line);
        (code, talk)
    };
    let worse: [&str; 2] = ["--fail-if", "worse"];
    let (code, talk) = gate(["a", "b"], 3, &worse);
    assert!(code == 6 && talk.contains("nothing can be decided"), "{code} {talk}");
    assert_eq!(gate(["a", "b"], 5, &worse).0, 4);
    assert_eq!(gate(["b", "a"], 5, &worse).0, 0);
    assert_eq!(gate(["b", "a"], 5, &["--fail-if", "different"]).0, 4);
    assert_eq!(gate(["b", "a"], 5, &["--fail-if", "worse", "--margin", "3"]).0, 0);
    assert_eq!(gate(["a", "b"], 5, &["--fail-if", "worse", "--margin", "3"]).0, 4);
    assert_eq!(gate(["a", "b"], 5, &["--fail-if", "worse", "--margin", "90"]).0, 0);
    assert_eq!(gate(["a", "b"], 5, &["--margin", "3"]).0, 2);
    // One run a side: the problems are the unit.
    let single = |set: &[&str]| compare(folder.path(), &[set, &worse[..]].concat()).0;
    assert_eq!(single(&["a0.csv", "b0.csv"]), 4);
    assert_eq!(single(&["a0.csv", "a0.csv"]), 0);
}
