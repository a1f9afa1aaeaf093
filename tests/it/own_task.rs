//! The walkthrough of `experiments/own-task/README.md`: its commands, on its files.

use crate::binary::{line_in, succeeded};
use crate::repository;
use dapo::base::files;
use dapo::records::{EvaluationRecord, RunFolder, tables};
use serde_json::Value;
use std::path::PathBuf;

fn folder() -> PathBuf {
    repository::root().join("experiments/own-task")
}

fn dapo(line: &str) -> (String, String) {
    succeeded(line_in(&folder(), line))
}

#[test]
fn a_task_of_ones_own_trains_evaluates_and_reports() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("run");
    dapo(&format!("train own-task.toml --threads 1 --out {}", out.display()));
    let run = RunFolder::at(&out);
    let evaluations = run.evaluations().unwrap();
    for (set, step, problems, samples) in
        [("dev", 0, 8, 2), ("dev", 2, 8, 2), ("test", 0, 8, 4), ("test", 2, 8, 4)]
    {
        let is_meant =
            |record: &&EvaluationRecord| record.set == set && record.counters.rollout_steps == step;
        let record = evaluations.iter().find(is_meant);
        let counts = record.map(|record| (record.problems, record.samples));
        assert_eq!(counts, Some((problems, samples)), "{set} at step {step}");
    }
    let rows = tables::read_rollouts(&run.rollouts(1)).unwrap();
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
    let make = |seed: &str| {
        let line = format!("model pretrain recipe.toml --out {} {seed}", base.display());
        dapo(&line).0.split(' ').next().unwrap().to_string()
    };
    let digest = make("--seed 2");
    assert_ne!(digest, make(""), "another seed makes another base policy");
    assert_eq!(digest, make("--seed 2"), "a recipe makes the same base policy again");
    let log = files::read_text(&base.join("config.json")).unwrap();
    // Digits, `+=;?`, and the letters of `Answer: `, with padding and stop token.
    assert!(log.contains("\"vocab_size\": 24"), "{log}");
    let prompts = scratch.path().join("prompts.jsonl");
    files::write_atomic(&prompts, b"{\"prompt\": \"347+162?\"}\n").unwrap();
    let (base, prompts) = (base.display(), prompts.display());
    dapo(&format!("model generate --max-tokens 8 --seed 1 --model {base} --prompts {prompts}"));
}

#[test]
fn preparing_leaves_out_what_is_evaluated() {
    let scratch = tempfile::tempdir().unwrap();
    let both = scratch.path().join("both.jsonl");
    let read = |name: &str| files::read(&folder().join(name)).unwrap();
    files::write_atomic(&both, &[read("train.jsonl"), read("dev.jsonl")].concat()).unwrap();
    let (both, out) = (both.display(), scratch.path().display());
    let sets = "--without dev.jsonl --without test.jsonl";
    let (json, talk) = dapo(&format!("data prepare {sets} --json {both} --out {out}"));
    let digests: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(digests["both"]["problems"], 48);
    assert!(talk.contains("left out: 8 problems of dev.jsonl"), "{talk}");
    assert!(talk.contains("left out: 0 problems of test.jsonl"), "{talk}");
}
