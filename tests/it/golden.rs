//! `dapo golden`, and that the committed vectors hold.

use assert_cmd::Command;
use dapo::verification::verl_vectors::{check_file, vector_files};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn golden(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(folder)
}

/// Exit code, stdout and stderr of `dapo golden` on this path.
fn run(path: &Path, flags: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("dapo").unwrap().arg("golden").arg(path).args(flags).output();
    let output = output.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn all_hold(folder: &str) -> (usize, usize) {
    let paths = vector_files(&golden(folder)).unwrap();
    let mut cases = 0;
    for path in &paths {
        let report = check_file(path).unwrap();
        assert_eq!(report.failures, [], "{}", path.display());
        assert_eq!(
            (report.passed, report.unread_inputs.len()),
            (report.cases, 0),
            "{}",
            path.display()
        );
        cases += report.cases;
    }
    (paths.len(), cases)
}

#[test]
fn every_vector_of_verls_own_functions_holds() {
    assert_eq!(all_hold("verl"), (14, 176));
}

#[test]
fn every_edge_case_holds() {
    assert_eq!(all_hold("verl-edge"), (12, 397));
}

#[test]
fn every_case_of_the_verifier_holds() {
    assert_eq!(all_hold("verifier"), (2, 387));
}

#[test]
fn the_table_names_every_file_and_counts_its_cases() {
    let (code, table, errors) = run(&golden("verl"), &[]);
    assert_eq!((code, errors.as_str()), (0, ""));
    let row = table.lines().find(|line| line.contains("math_dapo_cases.jsonl")).unwrap();
    let cells: Vec<&str> = row.split('|').map(str::trim).collect();
    assert_eq!(cells[1..6], ["math_dapo_cases.jsonl", "math_dapo_cases", "50", "50", "0.0e0"]);
    assert_eq!(table.lines().count(), 16);
    let (code, json, _) = run(&golden("verl").join("agg_loss.json"), &["--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["files"][0]["passed"]), (0, &json!(16)));
}

/// Every leaf of a JSON value, changed one at a time.
fn changed(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) => (0..items.len())
            .flat_map(|i| changed(&items[i]).into_iter().map(move |new| (i, new)))
            .map(|(i, new)| {
                let mut items = items.clone();
                items[i] = new;
                Value::Array(items)
            })
            .collect(),
        Value::Object(items) => items
            .iter()
            .flat_map(|(key, item)| changed(item).into_iter().map(move |new| (key.clone(), new)))
            .map(|(key, new)| {
                let mut items = items.clone();
                items.insert(key, new);
                Value::Object(items)
            })
            .collect(),
        Value::Number(number) => vec![json!(number.as_f64().unwrap() + 1e-3)],
        Value::String(text) if text == "NaN" => vec![json!(0.5)],
        Value::String(text) => vec![json!(format!("{text}!")), json!(null)],
        Value::Bool(flag) => vec![json!(!flag)],
        Value::Null => vec![json!(1.5)],
    }
}

#[test]
fn no_output_can_change_unnoticed() {
    let folder = tempfile::tempdir().unwrap();
    let mut changes = 0;
    for path in vector_files(&golden("verl")).unwrap() {
        let text = dapo::base::files::read_text(&path).unwrap();
        let lines = path.extension().unwrap() == "jsonl";
        let file: Value = if lines {
            text.lines()
                .filter(|line| !line.is_empty())
                .map(|line| serde_json::from_str::<Value>(line).unwrap())
                .collect()
        } else {
            serde_json::from_str(&text).unwrap()
        };
        let cases = file.get("cases").unwrap_or(&file).as_array().unwrap();
        let copy = folder.path().join(path.file_name().unwrap());
        let stem = copy.with_extension("json");
        for case in [&cases[0], &cases[cases.len() - 1]] {
            let key =
                ["outputs", "expected", "output"].into_iter().find(|key| case.get(*key).is_some());
            let key = key.unwrap();
            // Ends and middle stand for long lists of rows.
            let all = changed(&case[key]);
            let chosen = (0..all.len()).filter(|i| all.len() < 40 || i % (all.len() / 20) == 0);
            for i in chosen {
                let mut case = case.clone();
                case[key] = all[i].clone();
                dapo::base::files::write_atomic(
                    &stem,
                    json!({ "cases": [case] }).to_string().as_bytes(),
                )
                .unwrap();
                let noticed = match check_file(&stem) {
                    Ok(report) => report.passed == 0 && !report.failures.is_empty(),
                    Err(_) => true,
                };
                assert!(noticed, "{}: change {i}: {}", path.display(), all[i]);
                changes += 1;
            }
        }
    }
    assert!(changes > 400, "{changes}");
}

fn write(folder: &Path, name: &str, value: &Value) {
    dapo::base::files::write_atomic(&folder.join(name), value.to_string().as_bytes()).unwrap();
}

fn case() -> Value {
    json!({
        "name": "two_tokens",
        "inputs": {"loss_mat": [[1.0, 2.0]], "loss_mask": [[1, 1]], "loss_agg_mode": "token-mean"},
        "outputs": {"loss": 1.5}
    })
}

#[test]
fn a_wrong_value_is_named_with_both_numbers_and_exits_4() {
    let folder = tempfile::tempdir().unwrap();
    let mut wrong = case();
    wrong["outputs"]["loss"] = json!(1.6);
    wrong["outputs"]["grad_loss"] = json!([[0.5, 0.5]]);
    write(folder.path(), "agg_loss.json", &json!([case(), wrong]));
    let (code, out, _) = run(folder.path(), &[]);
    assert_eq!(code, 4);
    assert!(out.contains("| 2     | 1      |"), "{out}");
    assert!(out.contains("agg_loss.json: two_tokens: loss: got 1.5, want 1.6"), "{out}");
    assert!(out.contains("grad_loss: got an output that the adapter does not know"), "{out}");
}

#[test]
fn what_cannot_be_read_exits_3_and_the_rest_is_still_checked() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "agg_loss.json", &json!({"meta": {}, "cases": [case()]}));
    write(folder.path(), "made_up.json", &json!([]));
    let mut ragged = case();
    ragged["inputs"]["logprob"] = json!([[1.0], [1.0, 2.0]]);
    write(folder.path(), "kl_penalty.json", &json!([ragged]));
    dapo::base::files::write_atomic(
        &folder.path().join("lr_schedule.json"),
        "{\"cases\": [".as_bytes(),
    )
    .unwrap();
    dapo::base::files::write_atomic(&folder.path().join("README.md"), "not a vector".as_bytes())
        .unwrap();
    let (code, out, errors) = run(folder.path(), &[]);
    assert_eq!(code, 3);
    assert!(out.contains("agg_loss.json"), "{out}");
    assert!(errors.contains("made_up.json: unknown function `made_up`"), "{errors}");
    assert!(
        errors.contains("kl_penalty.json: case `two_tokens`: `logprob[1]`: lists of equal length"),
        "{errors}"
    );
    assert!(errors.contains("lr_schedule.json: EOF while parsing"), "{errors}");
    assert_eq!(errors.lines().count(), 3);
}

#[test]
fn a_missing_or_empty_folder_exits_3() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, errors) = run(folder.path(), &[]);
    assert_eq!(code, 3);
    assert!(errors.contains("there is no .json or .jsonl file"), "{errors}");
    let (code, _, errors) = run(&folder.path().join("none"), &[]);
    assert_eq!(code, 3);
    assert!(errors.contains("none: No such file"), "{errors}");
}

#[test]
fn an_input_that_nobody_reads_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut more = case();
    more["inputs"]["entropy_coeff"] = json!(0.1);
    more["inputs"]["dp_group"] = json!(null);
    write(folder.path(), "agg_loss.json", &json!([more]));
    let (code, out, _) = run(folder.path(), &[]);
    assert_eq!(code, 0);
    assert!(out.contains("two_tokens: entropy_coeff: this input is not read"), "{out}");
    assert!(!out.contains("dp_group"), "{out}");
}

#[test]
fn a_note_can_widen_the_tolerance() {
    let folder = tempfile::tempdir().unwrap();
    let mut near = case();
    near["outputs"]["loss"] = json!(1.500_01);
    write(folder.path(), "agg_loss.json", &json!([near]));
    assert_eq!(run(folder.path(), &[]).0, 4);
    near["note"] = json!("compare with tolerance 1e-4");
    write(folder.path(), "agg_loss.json", &json!([near]));
    assert_eq!(run(folder.path(), &[]).0, 0);
}
