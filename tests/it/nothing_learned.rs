//! A policy whose answers the verifier cannot read: every verb that meets it says so.

use crate::binary::{dapo, says, succeeded};

/// No response of the embedded benchmark has a box.
const UNREAD: [&str; 2] = ["--set", "reward.verifier=strict-box"];

#[test]
fn a_run_whose_every_response_is_wrong_is_stalled_and_says_that_no_answer_was_read() {
    let scratch = tempfile::tempdir().unwrap();
    let runs = scratch.path().join("runs").display().to_string();
    let out = format!("{runs}/stalled");
    let train = ["train", "experiments/smoke.toml", "--out", &out];
    let expected = [
        "warning[answer-missing]: probe: ",
        "warning: dev: 64 of 64 responses state no answer in a box",
        "stalled: every response of rollout step 1 was wrong",
        "\nStalled: every response was wrong. On mini-aime",
    ];
    says(dapo(&[&train[..], &UNREAD].concat()), 0, &expected);
    says(dapo(&["runs", &runs]), 0, &["stalled"]);
    succeeded(dapo(&["verify", &out]));
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
    let expected = [
        "warning: rollout step 1: 32 of 32 responses state no answer",
        "\nNo update had a gradient; the weights did not change; every response was wrong.",
    ];
    says(dapo(&[&train[..], &sampling, &UNREAD].concat()), 0, &expected);
}

#[test]
fn plan_and_eval_say_how_many_responses_state_no_answer() {
    let warnings =
        ["warning[answer-missing]: probe: 32 of 32 responses", "warning[nothing-to-learn]"];
    says(dapo(&[&["plan", "experiments/smoke.toml"][..], &UNREAD].concat()), 0, &warnings);
    let eval = ["eval", "experiments/smoke.toml", "--evaluation-set", "dev"];
    let warning = "warning: dev: 64 of 64 responses state no answer in a box";
    says(dapo(&[&eval[..], &UNREAD].concat()), 0, &[warning]);
    let (code, _, told) = dapo(&eval);
    assert_eq!((code, told.contains("state no answer")), (0, false), "{told}");
}
