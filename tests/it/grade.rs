//! `dapo data grade`.

use crate::binary::{Output, json_lines, line_in, succeeded};
use crate::golden_data;
use crate::transcript::play;
use dapo::base::files;
use dapo::records::tables::{self, OutcomeRecord};
use serde_json::{Value, json};

/// `dapo data grade` on this text.
fn grade(lines: &str, flags: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    files::write_atomic(&folder.path().join("responses.jsonl"), lines.as_ref()).unwrap();
    line_in(folder.path(), &format!("data grade responses.jsonl {flags}"))
}

fn scores(lines: &str) -> Vec<Value> {
    json_lines(lines).iter().map(|line| line["score"].clone()).collect()
}

#[test]
fn the_released_verifiers_cases_come_out_line_by_line() {
    for (folder, count) in [("verl", 50), ("verifier", 207)] {
        let cases = golden_data::folder(folder).join("math_dapo_cases.jsonl");
        let text = files::read_text(&cases).unwrap();
        // Pause tokens exist in verl's signature alone.
        let lines = text.lines().filter(|line| !line.contains("pause_tokens_index"));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let (code, out, errors) = grade(&text, "");
        assert_eq!((code, errors.as_str()), (0, ""));
        let (cases, graded) = (json_lines(&text), json_lines(&out));
        assert_eq!((cases.len(), graded.len()), (count, count));
        for (case, graded) in cases.iter().zip(&graded) {
            assert_eq!(&case["expected"], graded, "{}", case["name"]);
        }
    }
}

#[test]
fn a_line_has_score_acc_and_pred_in_this_order_and_the_reasons_that_are_asked_for() {
    play(tempfile::tempdir().unwrap().path(), include_str!("grade/lines.txt"));
}

#[test]
fn a_summary_counts_responses_by_why_they_were_rejected() {
    let line = |response: &str| json!({"response": response, "ground_truth": "540"}).to_string();
    let responses = ["Answer: 540", "Answer: 540", "Answer: 541", "**Answer:** 540.", "I think"];
    let text = responses.map(line).join("\n");
    insta::assert_snapshot!(succeeded(grade(&text, "--summary")).0);
}

#[test]
fn a_table_of_outcomes_is_graded_as_lines_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("outcomes.parquet");
    let outcome = |response: &str, truncated| OutcomeRecord {
        problem: "p".into(),
        sample: 0,
        is_correct: false,
        response_tokens: 3,
        truncated,
        prediction: None,
        answer: "540".into(),
        response: response.into(),
        reward: None,
    };
    let outcomes = [outcome("Answer: 540", false), outcome("so 540 + ", true)];
    tables::write_outcomes(&path, &outcomes).unwrap();
    let graded = |flags: &str| {
        succeeded(line_in(folder.path(), &format!("data grade outcomes.parquet {flags}"))).0
    };
    assert_eq!(scores(&graded("")), [1.0, -1.0]);
    files::write_atomic(&folder.path().join("own.py"), b"def grade(a, b): return b in a\n")
        .unwrap();
    let by_program = line_in(folder.path(), "data grade outcomes.parquet --verifier own.py");
    let (out, talk) = succeeded(by_program);
    assert_eq!(scores(&out), [1.0, 1.0]);
    assert!(talk.contains("a table has no prompts and no further columns"), "{talk}");
    let summary = graded("--summary");
    let rejected = summary.lines().find(|line| line.contains("rejected")).unwrap();
    let cells = rejected.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
    let cells: Vec<&str> = cells.collect();
    assert_eq!(cells[2..5], ["1", "50.0 %", "1"], "{rejected}");
}

#[test]
fn a_line_is_answered_before_the_next_is_there() {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};
    let mut command = Command::new(env!("CARGO_BIN_EXE_dapo"));
    command.args(["grade", "/dev/stdin", "--follow"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut to, mut from) =
        (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for (answer, score) in [("4", 1.0), ("5", -1.0), ("4", 1.0)] {
        writeln!(to, "{}", json!({"response": format!("Answer: {answer}"), "ground_truth": "4"}))
            .unwrap();
        let mut line = String::new();
        from.read_line(&mut line).unwrap();
        assert_eq!(scores(&line), [score]);
    }
    drop(to);
    assert!(child.wait().unwrap().success());
}
