//! A run as a crate. What other programs say of them is in `golden/provenance/`.

use crate::provenance::finished;
use crate::{golden_data, run_fixture};
use dapo::algorithm::Problem;
use dapo::base::files;
use dapo::experiment::{Data, MiniAimeVariant, extends};
use dapo::records::{Ending, RunFolder, Session};
use dapo::report;
use dapo::report::export::{curves, ro_crate, statement};
use dapo::report::{CurveSender, RunCurves, Tracker};
use dapo::task::data::embedded::mini_aime;
use dapo::training::Unfinished;
use dapo::training::run::{self, inputs};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A real run of two steps, with its report.
fn trained(root: &Path) -> RunFolder {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/smoke.toml");
    let mut experiment = extends::load(&path).unwrap();
    experiment.rollout.max_response_tokens = 48;
    experiment.training.rollout_steps = 2;
    experiment.inputs.data = small_data(root);
    experiment.evaluation.samples = [("dev", 1), ("test", 2)].map(|(n, k)| (n.into(), k)).into();
    let inputs = inputs::prepare(experiment).unwrap();
    let run = RunFolder::at(root.join("run"));
    run::run(&inputs, &run, Unfinished::Refuse, &|| false, &mut |_| ()).unwrap();
    report::run::write(&run).unwrap();
    run
}

/// Some problems of the embedded benchmark, as files.
fn small_data(root: &Path) -> Data {
    let problems = mini_aime::generate(MiniAimeVariant::Standard).train;
    let write = |name: &str, from: usize, count: usize| -> PathBuf {
        let path = root.join(name);
        let line = |problem: &Problem| {
            format!("{}\n", json!({ "question": problem.question, "answer": problem.answer }))
        };
        let lines: String = problems[from..from + count].iter().map(line).collect();
        files::write_atomic(&path, lines.as_bytes()).unwrap();
        path
    };
    Data::Files {
        train: write("train.jsonl", 0, 256),
        dev: write("dev.jsonl", 300, 4),
        test: vec![write("test.jsonl", 500, 4)],
    }
}

#[test]
fn a_trained_run_is_stated_and_crated() {
    let folder = tempfile::tempdir().unwrap();
    let run = trained(folder.path());
    let sessions: Vec<Session> = run.sessions().unwrap();
    let (Some(began), Some(ended)) = (sessions[0].started_ms, sessions[0].ended_ms) else {
        panic!("a session records its times: {sessions:?}")
    };
    assert!(began <= ended);
    let stated = statement::write(&run).unwrap();
    let (count, problems) = statement::check(&run).unwrap();
    assert_eq!((count, problems), (stated.subject.len(), Vec::new()));
    assert_eq!(stated.predicate["seed"], 1);
    assert_eq!(stated.predicate["ledger_head"].as_str().unwrap().len(), 64);
    let mut more: Value = files::read_json(&run.path(statement::NAME)).unwrap();
    more["subject"][0]["digest"]["sha512"] = json!("00");
    files::write_json(&run.path(statement::NAME), &more).unwrap();
    let refused = statement::check(&run).unwrap_err().to_string();
    assert!(refused.contains("has digests beside its SHA-256"), "{refused}");
    statement::write(&run).unwrap();

    let metadata: Value = files::read_json(&run.path(ro_crate::NAME)).unwrap();
    let files_in_it = entities(&metadata).values().filter(|it| it["@type"] == "File").count();
    assert!(files_in_it > 15, "{files_in_it}");
}

/// A program in place of Python that keeps what it is told.
fn listener(folder: &Path) -> PathBuf {
    let path = folder.join("listener");
    let program = format!("#!/bin/sh\ncat > {}/told\n", folder.display());
    files::write_atomic(&path, program.as_bytes()).unwrap();
    assert!(Command::new("chmod").arg("+x").arg(&path).status().unwrap().success());
    path
}

#[test]
fn a_tracker_is_told_each_value_once_however_often_a_run_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let run = trained(folder.path());
    let whole = curves::of_run(&run, None).unwrap();
    assert!(whole.ended && whole.name == "run" && whole.group == "smoke", "{whole:?}");
    let half = RunCurves {
        scalars: whole.scalars[..whole.scalars.len() / 2].to_vec(),
        ended: false,
        ..whole.clone()
    };
    let python = listener(folder.path());
    let mut sender = CurveSender::new(Tracker::Wandb, folder.path(), "p", &python).unwrap();
    for curves in [&half, &half, &whole, &whole] {
        sender.send(curves).unwrap();
    }
    assert_eq!(sender.end().unwrap(), Vec::<PathBuf>::new());
    let told = files::read_text(&folder.path().join("told")).unwrap();
    let lines: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&lines[0]["group"], &lines[0]["config"]["name"]),
        (&json!("smoke"), &json!("smoke"))
    );
    assert_eq!(lines.last().unwrap()["end"], true);
    let mut values: Vec<(String, u64, f64)> = Vec::new();
    for line in &lines[1..lines.len() - 1] {
        for (tag, value) in line["values"].as_object().unwrap() {
            values.push((tag.clone(), line["step"].as_u64().unwrap(), value.as_f64().unwrap()));
        }
    }
    values.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    let mut expected: Vec<(String, u64, f64)> =
        whole.scalars.iter().map(|it| (it.tag.clone(), it.step, it.value)).collect();
    expected.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    assert_eq!(values, expected);

    // Event files that were followed hold the same records as one that was written at once.
    let files_of = |sends: &[&RunCurves], out: &str| {
        let out = folder.path().join(out);
        let mut sender = CurveSender::new(Tracker::Tensorboard, &out, "p", &python).unwrap();
        sends.iter().for_each(|curves| sender.send(curves).unwrap());
        files::read(&sender.end().unwrap()[0]).unwrap()
    };
    assert_eq!(files_of(&[&half, &whole], "followed"), files_of(&[&whole], "once"));

    let nowhere = CurveSender::new(Tracker::Mlflow, folder.path(), "p", Path::new("/no/python"));
    assert!(nowhere.unwrap_err().to_string().contains("/no/python"));
    let fails = CurveSender::new(Tracker::Trackio, folder.path(), "p", Path::new("/bin/false"));
    assert!(fails.unwrap().end().unwrap_err().to_string().contains("ended with"));
}

fn entities(metadata: &Value) -> BTreeMap<String, Value> {
    let graph = metadata["@graph"].as_array().unwrap();
    graph.iter().map(|it| (it["@id"].as_str().unwrap().to_string(), it.clone())).collect()
}

/// Type and keys of each kind of entity of a crate, files and settings taken together.
fn structure(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let mut kinds: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (id, entity) in entities(metadata) {
        let kind = entity["@type"].as_str().unwrap();
        let name = match kind {
            "File" | "PropertyValue" => kind.to_string(),
            _ => format!("{kind} {id}"),
        };
        kinds.entry(name).or_default().extend(entity.as_object().unwrap().keys().cloned());
    }
    kinds
}

#[test]
fn a_crate_has_the_structure_of_the_one_that_the_validator_accepted() {
    let (_folder, run) = finished();
    let ours: Value = files::read_json(&run.path(ro_crate::NAME)).unwrap();
    let golden = golden_data::folder("provenance").join("ro-crate-metadata.json");
    let golden: Value = files::read_json(&golden).unwrap();
    assert_eq!(ours["@context"], golden["@context"]);
    assert_eq!(structure(&ours), structure(&golden));
    let all = entities(&ours);
    for name in ["metrics.jsonl", "report.html", "checkpoints/step-000040/model.safetensors"] {
        assert_eq!(all[name]["sha256"], files::sha256_file(&run.path(name)).unwrap(), "{name}");
    }
    assert_eq!(all["#run"]["startTime"], "2026-11-20T08:00:00.000+00:00");
    // Whatever is referred to by a relative id is described.
    let described: BTreeSet<&String> = all.keys().collect();
    let mut referred = Vec::new();
    references(&ours["@graph"], &mut referred);
    let outside = |id: &&String| !described.contains(*id) && !id.starts_with("https://w3id.org/");
    assert_eq!(referred.iter().filter(outside).collect::<Vec<_>>(), Vec::<&String>::new());
}

/// Every `{"@id": …}` that has no other key.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        Value::Object(object) => match (object.len(), object.get("@id")) {
            (1, Some(Value::String(id))) => found.push(id.clone()),
            _ => object.values().for_each(|value| references(value, found)),
        },
        _ => {}
    }
}

#[test]
fn a_diverged_run_is_a_failed_action_and_an_unfinished_one_has_no_crate() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::started(&folder.path().join("started"));
    report::run::write(&run).unwrap();
    assert!(!run.path(ro_crate::NAME).exists());
    let (_folder, run) = finished();
    let mut outcome = run.outcome().unwrap();
    outcome.ending = Ending::Diverged;
    outcome.reason = "rollout step 3, the loss is not finite".into();
    files::write_json(&run.path("outcome.json"), &outcome).unwrap();
    let action = entities(&ro_crate::metadata(&run).unwrap())["#run"].clone();
    assert_eq!(action["actionStatus"], "http://schema.org/FailedActionStatus");
    assert_eq!(action["error"], outcome.reason);
}
