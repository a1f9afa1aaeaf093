//! The committed vectors of verl and of its verifier hold, and a wrong one is noticed.

use crate::verl_vectors::{FileReport, check_file, vector_files};
use dapo::base::files;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn golden(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(folder)
}

fn all_hold(folder: &str) -> (usize, usize) {
    let paths = vector_files(&golden(folder)).unwrap();
    let mut cases = 0;
    for path in &paths {
        let report = check_file(path).unwrap();
        let failures: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
        assert!(failures.is_empty(), "{}: {failures:#?}", path.display());
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
        let text = files::read_text(&path).unwrap();
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
                files::write_atomic(&stem, json!({ "cases": [case] }).to_string().as_bytes())
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
    files::write_atomic(&folder.join(name), value.to_string().as_bytes()).unwrap();
}

fn case() -> Value {
    json!({
        "name": "two_tokens",
        "inputs": {"loss_mat": [[1.0, 2.0]], "loss_mask": [[1, 1]], "loss_agg_mode": "token-mean"},
        "outputs": {"loss": 1.5}
    })
}

/// The report of `agg_loss.json` with these cases.
fn report(cases: &Value) -> FileReport {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "agg_loss.json", cases);
    check_file(&folder.path().join("agg_loss.json")).unwrap()
}

#[test]
fn a_wrong_value_is_named_with_both_numbers() {
    let mut wrong = case();
    wrong["outputs"]["loss"] = json!(1.6);
    wrong["outputs"]["grad_loss"] = json!([[0.5, 0.5]]);
    let report = report(&json!([case(), wrong]));
    assert_eq!((report.cases, report.passed), (2, 1));
    let named: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
    assert!(named.contains(&"two_tokens: loss: got 1.5, want 1.6".to_string()), "{named:?}");
    let unknown = "two_tokens: grad_loss: got an output that the adapter does not know";
    assert!(named.iter().any(|line| line.starts_with(unknown)), "{named:?}");
}

#[test]
fn what_cannot_be_read_is_an_error_that_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let error = |name: &str| check_file(&folder.path().join(name)).unwrap_err().to_string();
    write(folder.path(), "made_up.json", &json!([]));
    let mut ragged = case();
    ragged["inputs"]["logprob"] = json!([[1.0], [1.0, 2.0]]);
    write(folder.path(), "kl_penalty.json", &json!([ragged]));
    files::write_atomic(&folder.path().join("lr_schedule.json"), b"{\"cases\": [").unwrap();
    assert!(error("made_up.json").contains("made_up.json: unknown function `made_up`"));
    assert!(
        error("kl_penalty.json")
            .contains("kl_penalty.json: case `two_tokens`: `logprob[1]`: lists of equal length")
    );
    assert!(error("lr_schedule.json").contains("lr_schedule.json: EOF while parsing"));
}

#[test]
fn a_missing_or_empty_folder_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = |path: &Path| vector_files(path).unwrap_err().to_string();
    assert!(error(folder.path()).contains("there is no .json or .jsonl file"));
    assert!(error(&folder.path().join("none")).contains("none: No such file"));
}

#[test]
fn an_input_that_nobody_reads_is_reported() {
    let mut more = case();
    more["inputs"]["entropy_coeff"] = json!(0.1);
    more["inputs"]["dp_group"] = json!(null);
    assert_eq!(report(&json!([more])).unread_inputs, ["two_tokens: entropy_coeff"]);
}

#[test]
fn a_note_can_widen_the_tolerance() {
    let mut near = case();
    near["outputs"]["loss"] = json!(1.500_01);
    assert_eq!(report(&json!([near])).passed, 0);
    near["note"] = json!("compare with tolerance 1e-4");
    assert_eq!(report(&json!([near])).passed, 1);
}
