//! A policy whose answers the verifier cannot read: every verb that meets it says so.

use assert_cmd::Command;

/// No response of the embedded benchmark has a box.
const UNREAD: [&str; 2] = ["--set", "reward.verifier=strict-box"];

fn dapo(arguments: &[&str]) -> (i32, String, String) {
    let root = env!("CARGO_MANIFEST_DIR");
    let output =
        Command::cargo_bin("dapo").unwrap().current_dir(root).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_run_whose_every_response_is_wrong_is_stalled_and_says_that_no_answer_was_read() {
    let scratch = tempfile::tempdir().unwrap();
    let runs = scratch.path().join("runs").display().to_string();
    let out = format!("{runs}/stalled");
    let train = ["train", "experiments/smoke.toml", "--out", &out];
    let (code, _, told) = dapo(&[&train[..], &UNREAD].concat());
    assert_eq!(code, 0, "{told}");
    for expected in [
        "warning[answer-missing]: probe: ",
        "warning: dev: 64 of 64 responses state no answer in a box",
        "stalled: every response of rollout step 1 was wrong",
        "\nStalled: every response was wrong. On mini-aime",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    let (_, listed, _) = dapo(&["runs", &runs]);
    assert!(listed.contains("stalled"), "{listed}");
    let (code, verified, told) = dapo(&["verify", &out]);
    assert_eq!(code, 0, "{verified}{told}");
    let cells = scratch.path().join("cells").display().to_string();
    let (code, _, told) = dapo(&["runs", "cells", &cells, "--run", &out]);
    assert!(code != 101, "{told}");
}

#[test]
fn a_run_without_any_gradient_says_so() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("run").display().to_string();
    let sampling = [
        ["--set", "dapo.dynamic_sampling.kind=none"],
        ["--set", "dapo.overlong.punishment.kind=none"],
        ["--set", "optimizer.weight_decay=0"],
    ]
    .concat();
    let train = ["train", "experiments/smoke.toml", "--no-plan", "--out", &out];
    let (code, _, told) = dapo(&[&train[..], &sampling, &UNREAD].concat());
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("warning: rollout step 1: 32 of 32 responses state no answer"), "{told}");
    let headline =
        "\nNo update had a gradient; the weights did not change; every response was wrong.";
    assert!(told.contains(headline), "{told}");
}

#[test]
fn plan_and_eval_say_how_many_responses_state_no_answer() {
    let (code, _, told) = dapo(&[&["plan", "experiments/smoke.toml"][..], &UNREAD].concat());
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("warning[answer-missing]: probe: 32 of 32 responses"), "{told}");
    assert!(told.contains("warning[nothing-to-learn]"), "{told}");
    let eval = ["eval", "experiments/smoke.toml", "--evaluation-set", "dev"];
    let (code, _, told) = dapo(&[&eval[..], &UNREAD].concat());
    assert_eq!(code, 0, "{told}");
    assert!(told.contains("warning: dev: 64 of 64 responses state no answer in a box"), "{told}");
    let (code, _, told) = dapo(&eval);
    assert_eq!((code, told.contains("state no answer")), (0, false), "{told}");
}
