//! `dapo grade`.

use assert_cmd::Command;
use serde_json::Value;
use serde_json::json;
use std::path::Path;

/// Exit code, stdout and stderr of `dapo grade` on this text.
fn grade(lines: &str, flags: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("responses.jsonl");
    dapo::files::write_atomic(&path, lines.as_ref()).unwrap();
    let output = Command::cargo_bin("dapo").unwrap().arg("grade").arg(&path).args(flags).output();
    let output = output.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn parse(lines: &str) -> Vec<Value> {
    lines
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn the_released_verifiers_cases_come_out_line_by_line() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    for (folder, count) in [("verl", 50), ("verifier", 207)] {
        let text =
            dapo::files::read_text(&golden.join(folder).join("math_dapo_cases.jsonl")).unwrap();
        // Pause tokens exist in verl's signature alone.
        let text: String = text
            .lines()
            .filter(|line| !line.contains("pause_tokens_index"))
            .map(|line| format!("{line}\n"))
            .collect();
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
fn a_bad_line_is_named_and_nothing_is_printed() {
    let good = "{\"response\": \"Answer: 1\", \"ground_truth\": \"1\"}\n";
    for (bad, expected) in [
        ("{\"response\": \"Answer: 1\"}", "missing field `ground_truth`"),
        ("{\"response\": 1, \"ground_truth\": \"1\"}", "response: invalid type"),
        (
            "{\"response\": \"\", \"ground_truth\": \"1\", \"strict_box_verify\": 2}",
            "strict_box_verify: invalid type",
        ),
        ("nonsense", "expected"),
    ] {
        let (code, out, errors) = grade(&format!("{good}\n{bad}\n{good}"), &[]);
        assert_eq!((code, out.as_str()), (3, ""), "{bad}");
        assert!(errors.contains("responses.jsonl:3: ") && errors.contains(expected), "{errors}");
    }
    let output =
        Command::cargo_bin("dapo").unwrap().args(["grade", "no/such/file"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn an_empty_file_gives_no_lines() {
    assert_eq!(grade("", &[]), (0, String::new(), String::new()));
}
