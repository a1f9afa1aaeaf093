//! The walkthrough of `experiments/own-task/README.md`: its commands, on its files.

use assert_cmd::Command;
use dapo::base::files;
use dapo::records::RunFolder;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/own-task")
}

fn dapo() -> Command {
    let mut command = Command::cargo_bin("dapo").unwrap();
    command.current_dir(folder());
    command
}

#[test]
fn a_task_of_ones_own_trains_evaluates_and_reports() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("run");
    dapo().args(["train", "own-task.toml", "--threads", "1", "--out"]).arg(&out).assert().success();
    let run = RunFolder::at(&out);
    let evaluations = run.evaluations().unwrap();
    let of = |set: &str, step: u64| {
        let record = evaluations
            .iter()
            .find(|record| record.set == set && record.counters.rollout_steps == step)
            .unwrap_or_else(|| panic!("{set} at step {step}"));
        (record.problems, record.samples)
    };
    assert_eq!((of("dev", 0), of("dev", 2)), ((8, 2), (8, 2)));
    assert_eq!((of("test", 0), of("test", 2)), ((8, 4), (8, 4)));
    let rows = dapo::records::tables::read_rollouts(&run.rollouts(1)).unwrap();
    assert!(rows.iter().all(|row| row.problem.starts_with("train/")));
    let page = files::read_text(&run.path("report.md")).unwrap();
    assert!(page.contains("test by the tags of its problems."), "{page}");
    // The base policy can do some of it: otherwise there would be nothing to train on.
    assert!(rows.iter().any(|row| row.is_correct) && rows.iter().any(|row| !row.is_correct));
}

#[test]
fn a_base_policy_is_made_of_written_solutions() {
    let scratch = tempfile::tempdir().unwrap();
    let base = scratch.path().join("base");
    let make = |seed: &[&str]| {
        let command = ["model", "pretrain", "recipe.toml", "--out"];
        let made = dapo().args(command).arg(&base).args(seed).assert().success();
        String::from_utf8_lossy(&made.get_output().stdout).split(' ').next().unwrap().to_string()
    };
    let digest = make(&["--seed", "2"]);
    assert_ne!(digest, make(&[]), "another seed makes another base policy");
    assert_eq!(digest, make(&["--seed", "2"]), "a recipe makes the same base policy again");
    let log = files::read_text(&base.join("config.json")).unwrap();
    // Digits, `+=;?`, and the letters of `Answer: `, with padding and stop token.
    assert!(log.contains("\"vocab_size\": 24"), "{log}");
    let prompts = scratch.path().join("prompts.jsonl");
    files::write_atomic(&prompts, b"{\"prompt\": \"347+162?\"}\n").unwrap();
    let generate = ["model", "generate", "--max-tokens", "8", "--seed", "1", "--model"];
    dapo().args(generate).arg(&base).arg("--prompts").arg(&prompts).assert().success();
}

#[test]
fn preparing_leaves_out_what_is_evaluated() {
    let scratch = tempfile::tempdir().unwrap();
    let both = scratch.path().join("both.jsonl");
    let read = |name: &str| files::read(&folder().join(name)).unwrap();
    files::write_atomic(&both, &[read("train.jsonl"), read("dev.jsonl")].concat()).unwrap();
    let output = dapo()
        .args(["data", "prepare", "--without", "dev.jsonl", "--without", "test.jsonl", "--json"])
        .arg(&both)
        .arg("--out")
        .arg(scratch.path())
        .assert()
        .success();
    let digests: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    assert_eq!(digests["both"]["problems"], 48);
    let talk = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
    assert!(talk.contains("left out: 8 problems of dev.jsonl"), "{talk}");
    assert!(talk.contains("left out: 0 problems of test.jsonl"), "{talk}");
}

#[test]
fn the_example_files_hold_disjoint_problems_and_the_verifier_reads_the_documented_line() {
    let line = "{\"response\": \"Answer: 509\", \"ground_truth\": \"509\"}";
    let output = dapo().args(["grade", "/dev/stdin", "--explain"]).write_stdin(line).assert();
    let output = output.success();
    let graded: Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    assert_eq!(graded["acc"], true);
    let experiment = dapo::experiment::extends::load(&folder().join("own-task.toml")).unwrap();
    dapo::task::data::load(&experiment.inputs.data).unwrap();
}
