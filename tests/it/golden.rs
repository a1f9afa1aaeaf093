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

#[test]
fn every_vector_and_edge_case_of_verl_and_of_its_verifier_holds() {
    for (folder, files, expected) in
        [("verl", 14, 176), ("verl-edge", 12, 397), ("verifier", 2, 387)]
    {
        let paths = vector_files(folder);
        let mut cases = 0;
        for path in &paths {
            let report = check_file(path);
            assert_eq!(report.failures, Vec::<String>::new(), "{}", path.display());
            cases += report.cases;
        }
        assert_eq!((paths.len(), cases), (files, expected), "{folder}");
    }
}

/// Every leaf of a JSON value by its pointer, with other values.
fn changes(value: &Value, pointer: &str) -> Vec<(String, Value)> {
    let others = match value {
        Value::Array(items) => {
            let inside = |(at, item)| changes(item, &format!("{pointer}/{at}"));
            return items.iter().enumerate().flat_map(inside).collect();
        }
        Value::Object(items) => {
            let inside = |(key, item): (&String, _)| {
                changes(item, &format!("{pointer}/{}", key.replace('/', "~1")))
            };
            return items.iter().flat_map(inside).collect();
        }
        Value::Number(number) => vec![json!(number.as_f64().unwrap() + 1e-3)],
        Value::String(text) if text == "NaN" => vec![json!(0.5)],
        Value::String(text) => vec![json!(format!("{text}!")), json!(null)],
        Value::Bool(flag) => vec![json!(!flag)],
        Value::Null => vec![json!(1.5)],
    };
    others.into_iter().map(|other| (pointer.to_string(), other)).collect()
}

#[test]
fn no_output_can_change_unnoticed() {
    let folder = tempfile::tempdir().unwrap();
    let mut noticed = 0;
    for path in vector_files("verl") {
        let text = files::read_text(&path).unwrap();
        let file: Value = if path.extension().unwrap() == "jsonl" {
            Value::Array(files::parse_lines(&path, text.as_bytes()).unwrap())
        } else {
            serde_json::from_str(&text).unwrap()
        };
        let cases = file.get("cases").unwrap_or(&file).as_array().unwrap();
        let copy = folder.path().join(path.file_name().unwrap()).with_extension("json");
        for case in [&cases[0], &cases[cases.len() - 1]] {
            let mut keys = ["outputs", "expected", "output"].into_iter();
            let key = keys.find(|key| case.get(*key).is_some()).unwrap();
            let all = changes(&case[key], &format!("/{key}"));
            // Ends and middle stand for long lists of rows.
            let step = if all.len() < 40 { 1 } else { all.len() / 20 };
            for (pointer, other) in all.iter().step_by(step) {
                let mut case = case.clone();
                *case.pointer_mut(pointer).unwrap() = other.clone();
                files::write_json(&copy, &json!({ "cases": [case] })).unwrap();
                // An output that is also an input, of a kind that cannot be read, panics.
                let failures = std::panic::catch_unwind(|| check_file(&copy).failures);
                let is_noticed = failures.map_or(true, |failures| !failures.is_empty());
                assert!(is_noticed, "{}: {pointer} {other}", path.display());
                noticed += 1;
            }
        }
    }
    assert!(noticed > 400, "{noticed}");
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
