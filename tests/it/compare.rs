//! `dapo compare`: tables, run folders and what it refuses.

use crate::binary::{Output, failed, json, line_in, succeeded};
use crate::run_fixture;
use crate::transcript::play;
use dapo::base::files;
use serde_json::{Value, json};
use std::path::Path;

fn compare(folder: &Path, line: &str) -> Output {
    line_in(folder, &format!("compare {line}"))
}

/// Writes a table in which sample `j` of problem `i` is correct where `(7·i + 5·j + i·j) % 10` is below
/// `tenths`.
fn write_table(path: &Path, samples: u64, tenths: u64) {
    let rows = (0..30).flat_map(|i| (0..samples).map(move |j| (i, j)));
    let row = |(i, j)| format!("{i},{j},{}\n", u8::from((7 * i + 5 * j + i * j) % 10 < tenths));
    let text = format!("question_id,repeat,correct\n{}", rows.map(row).collect::<String>());
    files::write_atomic(path, text.as_bytes()).unwrap();
}

#[test]
fn two_csv_tables_give_text_markdown_and_json_with_the_same_numbers() {
    let folder = tempfile::tempdir().unwrap();
    write_table(&folder.path().join("base.csv"), 8, 3);
    write_table(&folder.path().join("tuned.csv"), 8, 7);
    let compared = |flags: &str| compare(folder.path(), &format!("base.csv tuned.csv {flags}"));
    let (text, talk) = succeeded(compared(""));
    assert_eq!(talk, "");
    insta::assert_snapshot!(text);
    let (markdown, _) = succeeded(compared("--markdown"));
    let json: Value = json(compared("--json"));
    let difference = json["paired"]["difference"].as_f64().unwrap();
    let shown = format!("{:+.1}", 100.0 * difference);
    assert!(text.contains(&shown) && markdown.contains(&shown), "{shown}");
    assert_eq!(json["between_runs"], Value::Null);
    assert_eq!(json["changes"].as_array().unwrap().len(), 30);
}

#[test]
fn run_folders_are_compared_by_the_last_evaluation_of_a_set() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["one", "two"] {
        run_fixture::finished(&folder.path().join(name));
    }
    let several =
        "one: several sets were evaluated, choose one with --evaluation-set: dev, mini-aime, ";
    failed(compare(folder.path(), "one two"), 3, several);
    let json = json(compare(folder.path(), "one two --evaluation-set mini-aime --json"));
    let accuracy = &json["a"]["accuracy"];
    assert_eq!((&accuracy["problems"], &accuracy["samples"]), (&json!(30), &json!(32)));
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
    let (shown, talk) = succeeded(compare(folder.path(), "a.jsonl b.jsonl --json"));
    assert_eq!(talk, "");
    let accuracy = &serde_json::from_str::<Value>(&shown).unwrap()["a"]["accuracy"];
    assert_eq!((&accuracy["problems"], &accuracy["samples"]), (&json!(12), &json!(4)));
    play(folder.path(), include_str!("compare/lines.txt"));
}

#[test]
fn a_gate_that_so_few_runs_cannot_decide_is_inconclusive() {
    let folder = tempfile::tempdir().unwrap();
    for (side, tenths) in [("a", 7), ("b", 3)] {
        for run in 0..5 {
            write_table(&folder.path().join(format!("{side}{run}.csv")), 8 + run, tenths);
        }
    }
    play(folder.path(), include_str!("compare/gates.txt"));
}

#[test]
fn a_page_shows_the_difference_and_the_courses_of_runs_beside_the_same_words() {
    play(tempfile::tempdir().unwrap().path(), include_str!("compare/page.txt"));
}
