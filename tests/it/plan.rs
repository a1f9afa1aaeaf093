//! `dapo plan`, and the plan of a training run, as a user meets them.

use crate::binary::{dapo, failed, succeeded};
use dapo::base::files;
use dapo::training::RunPlan;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn experiments() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments")
}

/// An experiment file that extends a shipped one.
fn arm(folder: &Path, parent: &str, text: &str) -> String {
    let path = folder.join("arm.toml");
    let text = format!("extends = {:?}\n{text}", experiments().join(parent).display());
    files::write_atomic(&path, text.as_bytes()).unwrap();
    path.display().to_string()
}

#[test]
fn every_shipped_experiment_can_be_planned() {
    let mut planned = 0;
    for folder in [experiments(), experiments().join("arms")] {
        // What a study declares and what it judges are no experiments.
        let others = ["bases.toml", "study.toml", "claims.toml"];
        let is_experiment =
            |name: &&String| name.ends_with(".toml") && !others.contains(&name.as_str());
        for name in files::list(&folder).unwrap().iter().filter(is_experiment) {
            let path = folder.join(name).display().to_string();
            let (out, _) = succeeded(dapo(&["plan", &path, "--no-probe", "--json"]));
            let plan: RunPlan = serde_json::from_str(&out).unwrap();
            assert!(plan.probe.is_none() && plan.work.updates > 0, "{name}");
            planned += 1;
        }
    }
    assert!(planned >= 8, "{planned}");
}

/// Replaces what is measured by a word; counts stay.
fn without_measurements(value: &mut Value, path: &str) {
    let measured = ["probe", "memory", "disk", "run_key", "warnings"];
    let kept = ["memory.parts"];
    match value {
        Value::Object(entries) => {
            for (name, entry) in entries {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                without_measurements(entry, &path);
            }
        }
        Value::Array(entries) if !path.starts_with("work") => {
            entries.iter_mut().for_each(|entry| without_measurements(entry, path));
            entries.truncate(1);
        }
        Value::Number(_) | Value::String(_) | Value::Null
            if measured.iter().any(|start| path.starts_with(start)) && !kept.contains(&path) =>
        {
            *value = Value::String("[measured]".into());
        }
        Value::Number(_) if path.contains("expected") && path.starts_with("work") => {
            *value = Value::String("[measured]".into());
        }
        _ => (),
    }
}

#[test]
fn a_plan_with_a_probe_is_a_json_value_of_a_known_shape_and_draws_the_same_each_time() {
    let path = experiments().join("smoke.toml").display().to_string();
    let planned = || {
        let (out, _) = succeeded(dapo(&["plan", &path, "--json"]));
        let plan: RunPlan = serde_json::from_str(&out).unwrap();
        let probe = plan.probe.clone().unwrap();
        let drawn = (probe.groups, probe.accuracy, probe.response_tokens_mean, probe.useful_share);
        (out, plan, probe, drawn)
    };
    let (out, plan, probe, drawn) = planned();
    assert_eq!(planned().3, drawn);
    assert!(probe.accuracy > 0.0 && probe.truncated_share < 0.5, "{probe:?}");
    // One of the eight groups that the probe draws.
    assert_eq!(probe.useful_share, 0.125, "{probe:?}");
    assert!(plan.memory.needed_bytes > 5e7 && plan.disk.most_bytes > plan.disk.needed_bytes);
    let mut shape: Value = serde_json::from_str(&out).unwrap();
    without_measurements(&mut shape, "");
    shape["warnings"] = Value::String("[measured]".into());
    insta::assert_snapshot!(files::canonical_json(&shape));
}

#[test]
fn odd_sizes_are_planned_without_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let data = |count: usize| {
        let lines: Vec<String> = (0..count)
            .map(|n| {
                format!("{{\"id\": \"p{n}\", \"question\": \"{n}+1?\", \"answer\": \"{}\"}}", n + 1)
            })
            .collect();
        let place = |name: &str| folder.path().join(name).display().to_string();
        let (train, dev) = (place("train.jsonl"), place("dev.jsonl"));
        files::write_atomic(Path::new(&train), lines.join("\n").as_bytes()).unwrap();
        let other = r#"{"id": "d", "question": "100+1?", "answer": "101"}"#;
        files::write_atomic(Path::new(&dev), other.as_bytes()).unwrap();
        format!("[inputs.data]\nkind = \"files\"\ntrain = {train:?}\ndev = {dev:?}\ntest = []")
    };
    let huge = "[training]\nrollout_steps = 16777216\n[execution]\ngeneration_batch_rollouts = 16777216\nmicro_batch_rollouts = 16777216";
    let (code, out, talk) = dapo(&["plan", &arm(folder.path(), "smoke.toml", huge), "--no-probe"]);
    assert!(code == 0 || talk.contains("disk-short"), "{code} {talk}");
    assert!(out.contains("e") && talk.contains("data-repeats"), "{out} {talk}");
    let (_, talk) = succeeded(dapo(&["plan", &arm(folder.path(), "smoke.toml", &data(3))]));
    assert!(talk.contains("warning[data-repeats]: ") && talk.contains("[data-smaller-than-round]"));
    failed(dapo(&["plan", &arm(folder.path(), "smoke.toml", &data(0))]), 3, "no problems");
}

#[test]
fn a_run_is_planned_before_it_begins_and_not_again() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let path = experiments().join("smoke.toml").display().to_string();
    let train = ["train", &path, "--verbose", "--out", &out.display().to_string()];
    let (_, talk) = succeeded(dapo(&train));
    assert!(talk.contains("plan of smoke"), "{talk}");
    let size = |name: &str| files::size_bytes(&out.join(name)).unwrap();
    let written: u64 = ["rollouts", "evaluations", "checkpoints"].into_iter().map(size).sum();
    let (planned, _) = succeeded(dapo(&["plan", &path, "--json"]));
    let plan: RunPlan = serde_json::from_str(&planned).unwrap();
    // Bytes are no matter of luck.
    let disk = written as f64 / plan.disk.needed_bytes;
    assert!((0.75..1.25).contains(&disk), "{disk}");
    let (code, _, talk) = dapo(&train);
    assert!(code == 0 && !talk.contains("plan of smoke"), "{talk}");
}
