//! `dapo plan`, and the plan of a training run, as a user meets them.

use crate::binary::{json, line_in, says, succeeded};
use crate::repository;
use crate::transcript::play;
use dapo::base::files;
use dapo::training::RunPlan;
use serde_json::Value;

fn plan(arguments: &str) -> RunPlan {
    let line = format!("plan {arguments} --json");
    serde_json::from_value(json(line_in(&repository::root(), &line))).unwrap()
}

#[test]
fn every_shipped_experiment_can_be_planned() {
    let mut planned = 0;
    for folder in ["experiments", "experiments/arms"] {
        // What a study declares and what it judges are no experiments.
        let others = ["bases.toml", "study.toml", "claims.toml"];
        let names = files::list(&repository::root().join(folder)).unwrap().into_iter();
        for name in names.filter(|name| name.ends_with(".toml") && !others.contains(&&name[..])) {
            let plan = plan(&format!("{folder}/{name} --no-probe"));
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
    let planned = || json(line_in(&repository::root(), "plan experiments/smoke.toml --json"));
    let mut shape = planned();
    let plan: RunPlan = serde_json::from_value(shape.clone()).unwrap();
    let again: RunPlan = serde_json::from_value(planned()).unwrap();
    let drawn = |plan: &RunPlan| {
        let probe = plan.probe.as_ref().unwrap();
        (probe.groups, probe.accuracy, probe.response_tokens_mean, probe.useful_share)
    };
    assert_eq!(drawn(&plan), drawn(&again));
    let probe = plan.probe.unwrap();
    assert!(probe.accuracy > 0.0 && probe.truncated_share < 0.5, "{probe:?}");
    // One of the eight groups that the probe draws.
    assert_eq!(probe.useful_share, 0.125, "{probe:?}");
    assert!(plan.memory.needed_bytes > 5e7 && plan.disk.most_bytes > plan.disk.needed_bytes);
    without_measurements(&mut shape, "");
    shape["warnings"] = Value::String("[measured]".into());
    insta::assert_snapshot!(files::canonical_json(&shape));
}

#[test]
fn odd_sizes_are_planned_without_a_crash() {
    play(tempfile::tempdir().unwrap().path(), include_str!("plan/odd_sizes.txt"));
}

#[test]
fn a_run_is_planned_before_it_begins_and_not_again() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let line = format!("train experiments/smoke.toml --verbose --out {}", out.display());
    says(line_in(&repository::root(), &line), 0, &["plan of smoke"]);
    let plan = plan("experiments/smoke.toml");
    // Bytes are no matter of luck. The first checkpoint went when the second was there.
    let written = files::size_bytes(&out).unwrap() as f64 + plan.disk.checkpoint_bytes;
    let disk = written / plan.disk.needed_bytes;
    assert!((0.75..1.25).contains(&disk), "{disk}");
    let (_, talk) = succeeded(line_in(&repository::root(), &line));
    assert!(!talk.contains("plan of smoke"), "{talk}");
}
