//! `dapo doctor`: what a machine says of itself, and how two differ.

use crate::binary::{dapo, failed, succeeded};
use assert_cmd::Command;
use dapo::base::files;
use dapo::verification::Examination;

#[test]
fn the_doctor_agrees_with_itself_and_names_what_differs() {
    let (stdout, _) = succeeded(dapo(&["doctor", "--json"]));
    let mut examined: Examination = serde_json::from_str(&stdout).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("there.json");
    let compare = |examined: &Examination| {
        files::write_json(&path, examined).unwrap();
        dapo(&["doctor", "--compare", path.to_str().unwrap()])
    };
    let (code, stdout, _) = compare(&examined);
    assert!(
        code == 0 && stdout.contains("operations give the same bits here and there"),
        "{stdout}"
    );
    examined.fingerprint.operations.insert("softmax".into(), "0".repeat(64));
    let (code, stdout, _) = compare(&examined);
    assert!(code == 4 && stdout.contains("operations differ: softmax\n"), "{stdout}");
    files::write_atomic(&path, b"{}").unwrap();
    failed(dapo(&["doctor", "--compare", path.to_str().unwrap()]), 3, "there.json");
}

#[test]
fn a_lower_instruction_set_changes_the_fingerprint_and_the_doctor_names_the_operations() {
    let examine = |capability: Option<&str>| -> Examination {
        let mut command = Command::cargo_bin("dapo").unwrap();
        command.args(["doctor", "--json"]).env_remove("ATEN_CPU_CAPABILITY");
        command.envs(capability.map(|value| ("ATEN_CPU_CAPABILITY", value)));
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
    };
    let (here, lower) = (examine(None), examine(Some("default")));
    let found = dapo::verification::doctor::compare(&here, &lower);
    let has_vectors = here.cpu_flags["avx2"];
    assert_eq!(found.operations.contains(&"softmax".to_string()), has_vectors, "{found:?}");
    assert_eq!(found.facts["ATEN_CPU_CAPABILITY"], ["not set", "default"]);
    // Exact by construction: sums of products of bf16 values in f64.
    assert!(!found.operations.contains(&"linear-64-rows-f64-of-bf16".to_string()));
}
