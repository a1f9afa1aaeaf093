//! The committed vectors of verl and of its verifier hold, and a wrong one is noticed.

use crate::golden_data::folder;
use crate::verl_vectors::check_file;
use dapo::base::files;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The vector files of a golden folder.
fn vector_files(name: &str) -> Vec<PathBuf> {
    let names = files::list(&folder(name)).unwrap().into_iter();
    let names = names.filter(|name| name.ends_with(".json") || name.ends_with(".jsonl"));
    names.map(|file| folder(name).join(file)).collect()
}

fn all_hold(folder: &str) -> (usize, usize) {
    let paths = vector_files(folder);
    let mut cases = 0;
    for path in &paths {
        let report = check_file(path);
        assert_eq!(report.failures, Vec::<String>::new(), "{}", path.display());
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
    for path in vector_files("verl") {
        let text = files::read_text(&path).unwrap();
        let lines = path.extension().unwrap() == "jsonl";
        let file: Value = if lines {
            Value::Array(files::parse_lines(&path, text.as_bytes()).unwrap())
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
                // An output that is also an input, of a kind that cannot be read, panics.
                let report = std::panic::catch_unwind(|| check_file(&stem));
                let noticed = report.map_or(true, |report| !report.failures.is_empty());
                assert!(noticed, "{}: change {i}: {}", path.display(), all[i]);
                changes += 1;
            }
        }
    }
    assert!(changes > 400, "{changes}");
}

/// The failures of `agg_loss.json` with this case changed.
fn failures(change: fn(&mut Value)) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("agg_loss.json");
    let mut case = json!({
        "name": "two_tokens",
        "inputs": {"loss_mat": [[1.0, 2.0]], "loss_mask": [[1, 1]], "loss_agg_mode": "token-mean"},
        "outputs": {"loss": 1.5}
    });
    change(&mut case);
    files::write_json(&path, &[case]).unwrap();
    check_file(&path).failures
}

#[test]
fn a_wrong_value_is_named_with_both_numbers() {
    let wrong = failures(|case| case["outputs"] = json!({"loss": 1.6, "other": [[0.5, 0.5]]}));
    let named = ["loss: got 1.5, want 1.6", "other: an output that the adapter does not know"];
    assert_eq!(wrong, named.map(|what| format!("two_tokens: {what}")));
}

#[test]
fn an_input_that_nobody_reads_is_a_failure() {
    let more = failures(|case| {
        case["inputs"]["entropy_coeff"] = json!(0.1);
        case["inputs"]["dp_group"] = json!(null);
    });
    assert_eq!(more, ["two_tokens: entropy_coeff: not read"]);
}

#[test]
fn a_note_can_widen_the_tolerance() {
    assert_eq!(failures(|case| case["outputs"]["loss"] = json!(1.500_01)).len(), 1);
    let wide = failures(|case| {
        case["outputs"]["loss"] = json!(1.500_01);
        case["note"] = json!("tolerance 1e-4: why");
    });
    assert_eq!(wide, Vec::<String>::new());
}
