//! `dapo doctor`: what a machine says of itself.

use assert_cmd::Command;
use serde_json::Value;

#[test]
fn the_doctor_states_facts_and_every_check_holds() {
    let output = Command::cargo_bin("dapo").unwrap().args(["doctor", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let examined: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(examined["facts"]["libtorch_cpu_sha256"].as_str().unwrap().len(), 64);
    let checks = examined["checks"].as_array().unwrap();
    assert!(checks.len() == 6 && checks.iter().all(|check| check["held"] == true), "{checks:?}");
}
