//! Other trainers: what they wrote (golden/engines) becomes a run, or is refused by name; one update of
//! theirs is one update of this harness.

use crate::bad_input::input::{Step, at, shell};
use crate::binary::json_lines;
use crate::engine_updates::FirstStep;
use crate::golden_data;
use crate::verify::copy;
use dapo::base::files;
use dapo::engines::run::{self, EngineOptions};
use dapo::engines::trl::{self, outputs::TrlOutputs, render, settings};
use dapo::engines::verl::settings::Cards;
use dapo::engines::{DemandRefusal, rendered};
use dapo::experiment::{Engine, Experiment, extends};
use dapo::records::RunFolder;
use dapo::report;
use dapo::training::run::inputs::{self, Inputs};
use dapo::training::{Metrics, RunEnded, Unfinished};
use dapo::verification::verify::{self, Options, VerifyVerdict};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const ARMS: [&str; 5] = ["grpo", "token-mean", "filter", "dr-grpo", "response-sum"];

fn golden() -> PathBuf {
    golden_data::folder("engines/trl")
}

fn prepared(arm: &str) -> Inputs {
    inputs::prepare(extends::load(&golden().join(format!("{arm}.toml"))).unwrap()).unwrap()
}

/// The norm of TRL's gradient before clipping, as it logged it.
fn logged_norm(arm: &str) -> f64 {
    let lines = files::read_text(&golden().join(arm).join("log.jsonl")).unwrap();
    json_lines(&lines)[0]["values"]["grad_norm"].as_f64().unwrap()
}

/// The same, made here of TRL's responses.
fn norm_here(inputs: &Inputs, folder: &Path) -> f64 {
    let mut outputs = TrlOutputs::open(inputs, folder, 1, None).unwrap();
    let mut step = FirstStep::of(inputs, &mut outputs);
    let members: Vec<usize> = (0..step.selected.rows.len()).collect();
    step.update(&members, 1, 1e-4).gradient_norm
}

#[test]
fn trl_and_this_harness_make_the_same_gradient_of_the_same_responses() {
    let folder = tempfile::tempdir().unwrap();
    for arm in ARMS {
        let outputs = folder.path().join(arm);
        outputs_of(arm, &outputs);
        let (theirs, ours) = (logged_norm(arm), norm_here(&prepared(arm), &outputs));
        assert!((theirs - ours).abs() < 1e-5 * theirs, "{arm}: TRL {theirs}, here {ours}");
    }
    // The responses of the arms are equal, and another arm's gradient of them is another.
    let other = norm_here(&prepared("grpo"), &folder.path().join("filter"));
    assert!((other - logged_norm("filter")).abs() > 0.1 * other);
}

/// A row of `engine_refusals.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    set: BTreeMap<String, String>,
    keys: Vec<String>,
}

/// An arm with the values of each row of an engine is refused by the names of the row's keys.
pub fn refused_by_name(
    engine: &str,
    arm: &Experiment,
    refusals: impl Fn(&Experiment) -> Vec<DemandRefusal>,
) {
    for Refused { set, keys } in rows::<Refused>(include_str!("engine_refusals.toml"), engine) {
        let mut json = serde_json::to_value(arm).unwrap();
        for (path, value) in &set {
            *at(&mut json, path) = serde_json::from_str(value).unwrap();
        }
        let refused = refusals(&serde_json::from_value(json).unwrap());
        assert!(refused.iter().map(|it| &it.key).eq(&keys), "{set:?}: {refused:?}");
    }
}

#[test]
fn what_trl_cannot_do_is_refused_by_the_name_of_its_key() {
    let refusals = |arm: &Experiment| settings::demand(arm, 1).finish().err().unwrap_or_default();
    refused_by_name("trl", &prepared("grpo").experiment, refusals);
    let paper = extends::load(&golden().join("../../../experiments/dapo.toml")).unwrap();
    let keys: Vec<String> = refusals(&paper).into_iter().map(|it| it.key).collect();
    let named = "numerics training.mini_batch_order dapo.dynamic_sampling dapo.advantage.epsilon";
    assert_eq!(keys.join(" "), named);
}

/// What a trainer wrote, as far as it is kept, with the base policy in place of the weights that are not.
pub fn golden_outputs(from: &Path, policies: &str, to: &Path) {
    copy(from, to);
    let policy = to.join(policies);
    files::create_folder(&policy).unwrap();
    let base = "$ROOT/golden/mini-aime/base";
    shell(&policy, &format!("cp {base}/*.safetensors {base}/config.json {base}/tokenizer.json ."));
}

fn outputs_of(arm: &str, to: &Path) {
    render::render(&prepared(arm), to, 1).unwrap();
    golden_outputs(&golden().join(arm), "policies/step-000001", to);
    write(&to.join("trainer/checkpoint-1/trainer_state.json"), b"{}");
}

pub fn write(path: &Path, bytes: &[u8]) {
    files::create_folder(path.parent().unwrap()).unwrap();
    files::write_atomic(path, bytes).unwrap();
}

/// Cards of verl.
pub const ONE: Cards = Cards { nodes: Some(1), per_node: Some(1) };

pub fn imported(inputs: &Inputs, outputs: &Path, to: &Path) -> Result<RunEnded, String> {
    let from = Some(outputs.to_path_buf());
    ran(inputs, EngineOptions { from, ..EngineOptions::default() }, to)
}

fn ran(inputs: &Inputs, options: EngineOptions, to: &Path) -> Result<RunEnded, String> {
    let (options, folder) = (EngineOptions { cards: ONE, ..options }, RunFolder::at(to));
    run::run(inputs, &folder, &options, Unfinished::Refuse, &|| false, &mut |_| ())
        .map_err(|error| error.to_string())
}

/// The run that outputs become, and the metrics of its first step; it verifies, and says whose it is.
pub fn verified_import(inputs: &Inputs, outputs: &Path, to: &Path) -> (RunFolder, Metrics) {
    let ended = imported(inputs, outputs, to).unwrap();
    assert!(matches!(ended, RunEnded::Finished(_)), "{ended:?}");
    let run = RunFolder::at(to);
    assert_eq!(run.manifest().unwrap().exactness, "imported");
    report::run::write(&run).unwrap();
    let verified = verify::verify(&run, &Options::default(), &mut |_| ()).unwrap();
    assert_eq!(verified.verdict, VerifyVerdict::Verified, "{:#?}", verified.checks);
    let another = "another trainer made the 1 rollout steps";
    assert!(verified.summary.contains(another), "{}", verified.summary);
    let metrics = run.metrics().unwrap().remove(0).metrics;
    (run, metrics)
}

#[test]
fn what_trl_wrote_becomes_a_run_that_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = folder.path().join("trl");
    outputs_of("token-mean", &outputs);
    let to = folder.path().join("run");
    let (run, metrics) = verified_import(&prepared("token-mean"), &outputs, &to);
    assert_eq!(run.experiment().unwrap().engine, Engine::Trl);
    assert_eq!(metrics["optimizer/gradient_norm_mean"], logged_norm("token-mean"));
    assert_eq!(metrics["effect/overlong_filtering_truncated_rollouts"], 3.0);
    assert!(metrics.contains_key("engine/entropy") && !metrics.contains_key("policy/entropy"));
}

/// A row of a table of what is spoilt.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spoilt {
    pub make: Vec<Step>,
    pub says: String,
}

/// The rows of a table.
pub fn rows<Row: DeserializeOwned>(tables: &str, name: &str) -> Vec<Row> {
    let mut tables: BTreeMap<String, toml::Value> = toml::from_str(tables).unwrap();
    let rows: Vec<Row> = tables.remove(name).unwrap().try_into().unwrap();
    assert!(!rows.is_empty(), "{name}");
    rows
}

/// Outputs that are spoilt as a row of `engine_outputs.toml` says are refused with its words.
pub fn spoilt_outputs_are_refused(engine: &str, inputs: &Inputs, put: impl Fn(&Path)) {
    for Spoilt { make, says } in rows(include_str!("engine_outputs.toml"), engine) {
        let folder = tempfile::tempdir().unwrap();
        let outputs = folder.path().join("outputs");
        put(&outputs);
        make.iter().for_each(|step| step.take(&outputs));
        let to = folder.path().join("run");
        let error = imported(inputs, &outputs, &to).unwrap_err();
        assert!(error.contains(&says), "{says}: {error}");
        // A folder of a run would be in the way of the next import.
        assert!(!says.starts_with("ended before") || !to.exists(), "{says}");
    }
}

#[test]
fn outputs_that_are_not_what_the_arm_makes_are_refused_by_name() {
    spoilt_outputs_are_refused("trl", &prepared("grpo"), |to| outputs_of("grpo", to));
}

#[test]
fn a_folder_with_outputs_is_not_rendered_for_another_arm() {
    let folder = tempfile::tempdir().unwrap();
    outputs_of("grpo", folder.path());
    render::render(&prepared("grpo"), folder.path(), 1).unwrap();
    let error = render::render(&prepared("token-mean"), folder.path(), 1).unwrap_err().to_string();
    assert!(error.contains("delta is not set there, and 10.0 for this experiment"), "{error}");
    assert!(error.contains("render into a folder of its own"), "{error}");
}

/// TRL's script with packages that do nothing: its prompts are lines that end with a newline alone.
#[test]
fn the_script_of_trl_refuses_another_number_of_processes() {
    let folder = tempfile::tempdir().unwrap();
    let script = rendered::script(render::SCRIPT, &trl::PACKAGES);
    write(&folder.path().join("train.py"), script.as_bytes());
    write(&folder.path().join("prompts.jsonl"), "{\"prompt\": \"a\u{2028}b\"}\n".as_bytes());
    let make = "mkdir trl; echo 'GRPOConfig = GRPOTrainer = None' > trl/__init__.py; echo 'get_soft_overlong_punishment = None' > trl/rewards.py
        echo 'set_num_threads = print' > torch.py; echo 'Dataset = None' > datasets.py; touch config.yaml
        echo 'AutoModelForCausalLM = AutoTokenizer = None; TrainerCallback = object' > transformers.py
        echo 'import json; safe_load = lambda text: json.load(open(\"settings\"))' > yaml.py
        echo '{\"harness.threads\": 1, \"harness.processes\": 2, \"harness.verifier\": \"rule\",' > settings
        echo '\"steps_per_generation\": 1, \"gradient_accumulation_steps\": 1}' >> settings
        ! python3 train.py 2> errors && grep -q 'accelerate launch --num_processes 2 train.py' errors";
    shell(folder.path(), make);
}

/// A Python that says what it has, and in which a trainer writes its outputs and fails: with all of them
/// there is a run, whose folder is returned; without its log the trainer is named. What was rendered is not
/// written again, as it may be read at that moment.
pub fn started_and_followed(
    (engine, version): (&str, &str),
    inputs: &Inputs,
    put: impl Fn(&Path),
    log: &str,
) -> (tempfile::TempDir, RunFolder) {
    let folder = tempfile::tempdir().unwrap();
    let (outputs, python) = (folder.path().join("outputs"), folder.path().join("python"));
    put(&outputs);
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = -c ]; then\n\
         echo '{{\"python\": \"3.11\", \"{engine}\": \"{version}\"}}'; exit; fi\n\
         cp -rn {}/. .\ntouch started\necho a last word >&2\nexit 3\n",
        outputs.display()
    );
    files::write_program(&python, &script).unwrap();
    let started = |python: &Path, run: &str| {
        let python = Some(python.display().to_string());
        ran(inputs, EngineOptions { python, ..EngineOptions::default() }, &folder.path().join(run))
    };
    let ended = started(&python, "run");
    assert!(matches!(ended, Ok(RunEnded::Finished(_))), "{ended:?}");
    let run = RunFolder::at(folder.path().join("run"));
    let facts = run.environment().unwrap().facts;
    assert_eq!(facts["engine"], format!("{engine}: python 3.11, {engine} {version}"));

    write(&outputs.join(log), b"");
    let error = started(&python, "run-2").unwrap_err();
    assert!(error.contains(&format!("{engine} ended before rollout step 1")), "{error}");
    assert!(error.contains("exit status: 3: a last word"), "{error}");
    let error = started(Path::new("no/python"), "run-3").unwrap_err();
    assert!(error.contains("no/python cannot be started"), "{error}");
    (folder, run)
}

#[test]
fn a_trainer_is_started_followed_and_named_when_it_ends_early() {
    let put = |to: &Path| outputs_of("grpo", to);
    started_and_followed(("trl", "1.16.0"), &prepared("grpo"), put, "log.jsonl");
}
