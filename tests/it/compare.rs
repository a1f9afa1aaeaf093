//! `dapo compare`: tables, run folders and what it refuses.

use crate::binary::{Output, dapo_in, failed, line_in, succeeded};
use crate::run_fixture;
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
    let several =
        "one: several sets were evaluated, choose one with --evaluation-set: dev, mini-aime, ";
    failed(compare(folder.path(), &["one", "two"]), 3, several);
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
fn lines_of_verl_and_lm_eval_are_compared_and_what_is_ambiguous_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, lines: &mut dyn Iterator<Item = Value>| {
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
    };
    let each = |shift: i64| (0..48).map(move |at| (at / 4, (at * 7 + at / 4 + shift) % 3 == 0));
    for (side, shift) in [("a", 0), ("b", 1)] {
        let of_verl = |(problem, right): (i64, bool)| {
            json!({"input": format!("What is {problem}?"), "output": "Answer: 1", "gts": "1",
                "score": if right { 1.0 } else { -1.0 }, "step": 5})
        };
        write(&format!("{side}.jsonl"), &mut each(shift).map(of_verl));
        let of_lm_eval = |at: i64| {
            let filter = ["strict-match", "flexible-extract"][at as usize % 2];
            json!({"doc_id": at / 2, "doc": {"question": "q"}, "target": "#### 1",
                "resps": [["1"]], "filtered_resps": ["1"], "filter": filter,
                "metrics": ["exact_match"], "doc_hash": format!("{:064}", at / 2),
                "exact_match": if (at + shift) % 4 < 2 { 1.0 } else { 0.0 }})
        };
        write(&format!("samples_{side}.jsonl"), &mut (0..24).map(of_lm_eval));
    }
    let own = |(problem, right)| json!({"id": problem, "grade": {"correct": right}});
    write("own.jsonl", &mut each(0).map(own));
    let (code, shown, talk) = compare(folder.path(), &["a.jsonl", "b.jsonl", "--json"]);
    assert_eq!((code, &*talk), (0, ""));
    let accuracy = &serde_json::from_str::<Value>(&shown).unwrap()["a"]["accuracy"];
    assert_eq!((&accuracy["problems"], &accuracy["samples"]), (&json!(12), &json!(4)));
    let samples = ["samples_a.jsonl", "samples_b.jsonl"];
    let strict = ["--correct-column", "exact_match,strict-match"];
    for (sides, flags, words) in [
        (samples, &strict[..], "correct `exact_match`"),
        (["own.jsonl", "own.jsonl"], &["--no-sample-column"], "correct `grade.correct`"),
    ] {
        let (shown, _) = succeeded(compare(folder.path(), &[&sides[..], flags].concat()));
        assert!(shown.contains(words), "{shown}");
    }
    let named = "exact_match,flexible-extract or exact_match,strict-match";
    failed(compare(folder.path(), &samples), 3, named);
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
    let (code, talk) = gate(["a", "b"], 5, &worse);
    assert!(code == 4 && talk.contains("--fail-if: failed: B is worse than A, by "), "{talk}");
    let (code, talk) = gate(["b", "a"], 5, &worse);
    let passed = "--fail-if: passed: it is not shown that B is worse than A";
    assert!(code == 0 && talk.contains(passed), "{talk}");
    // Runs without any difference are within every margin.
    assert_eq!(gate(["a", "a"], 5, &["--fail-if", "worse", "--margin", "3"]).0, 0);
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

#[test]
fn a_page_shows_the_difference_and_the_courses_of_runs_beside_the_same_words() {
    let folder = tempfile::tempdir().unwrap();
    for (side, slope) in [("a", 2), ("b", 3)] {
        for seed in 1..=6 {
            let line = |step: u64| format!("{step},0.{}\n", 100 + slope * step + seed * (step % 7));
            let text = format!("step,val/acc\n{}", (0..50).map(line).collect::<String>());
            let name = format!("{side}-s{seed}.csv");
            files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
        }
    }
    let of = |side: &str| {
        (1..=6).map(|seed| format!("{side}-s{seed}.csv")).collect::<Vec<_>>().join(" ")
    };
    let line = format!(
        "compare --curves {} --against {} --metric val/acc --html page.html",
        of("b"),
        of("a")
    );
    let (text, _) = succeeded(line_in(folder.path(), &line));
    let page = files::read_text(&folder.path().join("page.html")).unwrap();
    assert!(page.contains("B is better than A") && text.contains("B is better than A"), "{text}");
    for part in
        ["id=\"difference\"", "id=\"courses\"", "A (6 runs)", "What these files cannot show"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(page.matches("<svg").count() >= 3 && !page.contains("<script"));
    let write = |name: &str, tenths| {
        let text = table("question_id,repeat,correct", 30, 8, tenths);
        files::write_atomic(&folder.path().join(name), text.as_bytes()).unwrap();
    };
    write("<b>.csv", 3);
    write("tuned.csv", 7);
    succeeded(line_in(folder.path(), "compare <b>.csv tuned.csv --html sides.html"));
    let page = files::read_text(&folder.path().join("sides.html")).unwrap();
    assert!(page.contains("points on the same problems.") && !page.contains("<b>"));
    let (code, _, talk) =
        line_in(folder.path(), "compare <b>.csv tuned.csv --html tuned.csv/x.html");
    assert_ne!(code, 0, "{talk}");
}
