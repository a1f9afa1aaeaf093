//! `dapo data grade`.

use crate::binary::{Output, dapo_in, failed, succeeded};
use dapo::base::files;
use dapo::records::tables::{self, OutcomeRecord};
use serde_json::{Value, json};
use std::path::Path;

/// `dapo data grade` on this text.
fn grade(lines: &str, flags: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    files::write_atomic(&folder.path().join("responses.jsonl"), lines.as_ref()).unwrap();
    dapo_in(folder.path(), &[&["grade", "responses.jsonl"], flags].concat())
}

fn parse(lines: &str) -> Vec<Value> {
    let lines = lines.lines().filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_released_verifiers_cases_come_out_line_by_line() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    for (folder, count) in [("verl", 50), ("verifier", 207)] {
        let text = files::read_text(&golden.join(folder).join("math_dapo_cases.jsonl")).unwrap();
        // Pause tokens exist in verl's signature alone.
        let lines = text.lines().filter(|line| !line.contains("pause_tokens_index"));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let (code, out, errors) = grade(&text, &[]);
        assert_eq!((code, errors.as_str()), (0, ""));
        let (cases, graded) = (parse(&text), parse(&out));
        assert_eq!((cases.len(), graded.len()), (count, count));
        for (case, graded) in cases.iter().zip(&graded) {
            assert_eq!(&case["expected"], graded, "{}", case["name"]);
        }
    }
}

#[test]
fn a_line_has_score_acc_and_pred_in_this_order() {
    let (_, out, _) = grade("{\"response\": \"Answer: 540\", \"ground_truth\": \"540\"}\n", &[]);
    assert_eq!(out, "{\"score\":1.0,\"acc\":true,\"pred\":\"540\"}\n");
    let strict = json!({"response": "540", "ground_truth": "540", "strict_box_verify": true});
    let (_, out, _) = grade(&strict.to_string(), &[]);
    assert_eq!(out, "{\"score\":-1.0,\"acc\":false,\"pred\":null}\n");
}

#[test]
fn explain_adds_the_match_both_sides_and_the_reason() {
    let line = json!({"response": "Answer: x = 1,024.", "ground_truth": "1 024"}).to_string();
    let (code, out, _) = grade(&line, &["--explain"]);
    assert_eq!(code, 0);
    let expected = json!({
        "score": -1.0, "acc": false, "pred": "1,024.",
        "matched": "x = 1,024.",
        "normalised_prediction": "1,024.",
        "normalised_ground_truth": "1024",
        "reason": "the same but for stars, a final full stop, a minus sign or the form of a number; strings are compared",
    });
    assert_eq!(parse(&out), [expected]);
    assert!(out.starts_with("{\"score\":-1.0,\"acc\":false,\"pred\":"));
}

#[test]
fn an_empty_file_gives_no_lines_and_a_warning() {
    let told = "warning: there is no response to grade\n".to_string();
    assert_eq!(grade("", &[]), (0, String::new(), told));
}

#[test]
fn a_summary_counts_responses_by_why_they_were_rejected() {
    let line = |response: &str| json!({"response": response, "ground_truth": "540"}).to_string();
    let responses = ["Answer: 540", "Answer: 540", "Answer: 541", "**Answer:** 540.", "I think"];
    let text = responses.map(line).join("\n");
    let (code, out, _) = grade(&text, &["--summary"]);
    assert_eq!(code, 0);
    insta::assert_snapshot!(out);
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
    };
    let outcomes = [outcome("Answer: 540", false), outcome("so 540 + ", true)];
    tables::write_outcomes(&path, &outcomes).unwrap();
    let graded = |flags: &[&str]| {
        let arguments = [&["grade", "outcomes.parquet"], flags].concat();
        succeeded(dapo_in(folder.path(), &arguments)).0
    };
    let scores: Vec<Value> = parse(&graded(&[])).iter().map(|line| line["score"].clone()).collect();
    assert_eq!(scores, [json!(1.0), json!(-1.0)]);
    let summary = graded(&["--summary"]);
    let rejected = summary.lines().find(|line| line.contains("rejected")).unwrap();
    let cells = rejected.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
    let cells: Vec<&str> = cells.collect();
    assert_eq!(cells[2..5], ["1", "50.0 %", "1"], "{rejected}");
}

#[test]
fn dumps_of_verl_and_samples_of_lm_eval_are_graded() {
    let dump = json!({"input": "q", "output": "Answer: 7", "gts": "7", "score": 1.0, "step": 1});
    let other = json!({"input": "q", "output": "Answer: 8", "gts": 7, "score": -1.0, "step": 1});
    let scores = |text: &str| -> Vec<Value> {
        let (out, _) = succeeded(grade(text, &[]));
        parse(&out).iter().map(|line| line["score"].clone()).collect()
    };
    assert_eq!(scores(&format!("{dump}\n{other}\n")), [json!(1.0), json!(-1.0)]);
    let sample = |filter: &str| {
        json!({"doc_id": 0, "doc": {}, "target": "3 + 4 = 7\n#### 7", "filter": filter,
            "resps": [["Answer: 7", "Answer: 9"]], "filtered_resps": ["7"], "exact_match": 1.0})
    };
    let text = format!("{}\n{}\n", sample("strict-match"), sample("flexible-extract"));
    assert_eq!(scores(&text), [json!(1.0), json!(-1.0)]);
    let (_, _, talk) = grade(&text, &[]);
    assert!(talk.contains("1 lines of other filters"), "{talk}");
    let mut choices = sample("none");
    choices["resps"] = json!([[[-1.5, false]]]);
    let no_text = "responses.jsonl:1: resps has -1.5, which is not a text";
    failed(grade(&choices.to_string(), &[]), 3, no_text);
    let mut none = dump.clone();
    none["gts"] = Value::Null;
    failed(grade(&none.to_string(), &[]), 3, "gts: expected text or a number, got null");
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
        assert_eq!(parse(&line)[0]["score"], score);
    }
    drop(to);
    assert!(child.wait().unwrap().success());
}
