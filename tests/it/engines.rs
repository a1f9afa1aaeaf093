//! Other trainers: what they wrote (golden/engines) becomes a run, or is refused by name; one update of
//! theirs is one update of this harness.

use crate::bad_input::input::Step;
use dapo::algorithm::{Selection, StepTotals};
use dapo::base::{Purpose, files, rng::stream};
use dapo::engines::run::{self, EngineOptions};
use dapo::engines::trl::{outputs::TrlOutputs, settings};
use dapo::engines::{DemandRefusal, Outputs as _};
use dapo::experiment::{Engine, Experiment, extends};
use dapo::policy::{Policy, batch::Cut, frozen};
use dapo::records::RunFolder;
use dapo::report;
use dapo::training::run::inputs::{self, Inputs};
use dapo::training::update::{self, Settings};
use dapo::training::{MiniBatch, RunEnded, Unfinished};
use dapo::verification::verify::{self, Options, VerifyVerdict};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const ARMS: [&str; 5] = ["grpo", "token-mean", "filter", "dr-grpo", "response-sum"];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/engines/trl")
}

fn prepared(arm: &str) -> Inputs {
    inputs::prepare(extends::load(&golden().join(format!("{arm}.toml"))).unwrap()).unwrap()
}

/// The norm of TRL's gradient before clipping, as it logged it.
fn logged_norm(arm: &str) -> f64 {
    let text = files::read_text(&golden().join(arm).join("log.jsonl")).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
    line["values"]["grad_norm"].as_f64().unwrap()
}

/// The same, made here of TRL's responses.
fn norm_here(inputs: &Inputs, folder: &Path) -> f64 {
    let experiment = &inputs.experiment;
    let mut outputs = TrlOutputs::open(inputs, folder, 1, None).unwrap();
    let mut selection =
        Selection::new(&experiment.dapo, experiment.training.prompts_per_step, Vec::new());
    selection.add_round(outputs.step(1).unwrap().groups).unwrap();
    let selected = selection.select();
    let mut policy = Policy::new(inputs.base_policy().unwrap(), &experiment.optimizer);
    let cut = Cut::of(&experiment.execution);
    let old = frozen::read(policy.model(), &selected.rows, 1.0, cut).unwrap();
    let members: Vec<usize> = (0..selected.rows.len()).collect();
    let totals = StepTotals {
        tokens: selected.rows.iter().map(|row| row.loss_tokens()).sum(),
        mini_batches: 1,
        max_response_tokens: experiment.rollout.max_response_tokens,
    };
    let batch = MiniBatch {
        rows: &selected.rows,
        members: &members,
        old_log_probs: &old.log_probs,
        ref_log_probs: None,
        sampler_log_probs: None,
        choice: &stream(1, Purpose::TokenChoice, &[]),
        totals,
    };
    let settings = Settings { dapo: &experiment.dapo, temperature: 1.0, cut };
    update::update(&mut policy, &batch, &settings, 1e-4).unwrap().gradient_norm
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

fn refused(change: impl Fn(&mut Experiment)) -> Vec<String> {
    let mut experiment = prepared("grpo").experiment;
    change(&mut experiment);
    let refusals = settings::settings(&experiment, 1).err().unwrap_or_default();
    refusals.into_iter().map(|DemandRefusal { key, .. }| key).collect()
}

#[test]
fn what_trl_cannot_do_is_refused_by_the_name_of_its_key() {
    use dapo::algorithm::{Aggregation, Std, TokenMeanUnit};
    use dapo::experiment::MiniBatchOrder;
    use dapo::numerics::Numerics;
    assert_eq!(refused(|_| ()), Vec::<String>::new());
    assert_eq!(refused(|it| it.numerics = Numerics::Exact), ["numerics"]);
    assert_eq!(refused(|it| it.dapo.advantage.epsilon = 1e-6), ["dapo.advantage.epsilon"]);
    assert_eq!(refused(|it| it.dapo.advantage.std = Std::Population), ["dapo.advantage.std"]);
    assert_eq!(refused(|it| it.dapo.overlong.filter = true), ["dapo.overlong.filter"]);
    assert_eq!(refused(|it| it.training.epochs_per_step = 2), ["training.epochs_per_step"]);
    assert_eq!(
        refused(|it| it.training.mini_batch_order = MiniBatchOrder::ShuffledGroups),
        ["training.mini_batch_order"]
    );
    let per_group = |it: &mut Experiment| {
        it.dapo.aggregation = Aggregation::TokenMean;
        it.dapo.token_mean_unit = TokenMeanUnit::Group;
    };
    assert_eq!(refused(per_group), ["dapo.token_mean_unit"]);
    let paper = extends::load(&golden().join("../../../experiments/dapo.toml")).unwrap();
    let keys: Vec<String> =
        settings::settings(&paper, 1).unwrap_err().into_iter().map(|it| it.key).collect();
    assert_eq!(
        keys,
        [
            "numerics",
            "training.mini_batch_order",
            "dapo.dynamic_sampling",
            "dapo.advantage.epsilon"
        ]
    );
}

/// A copy of what TRL wrote for an arm, with the base policy in place of the weights that are not
/// kept.
fn outputs_of(arm: &str, to: &Path) {
    let from = golden().join(arm);
    for name in ["log.jsonl", "prompts.jsonl", "rollouts/step-000001-rank-0.jsonl"] {
        write(&to.join(name), &files::read(&from.join(name)).unwrap());
    }
    let base = golden().join("../../mini-aime/base");
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        let bytes = files::read(&base.join(name)).unwrap();
        write(&to.join("policies/step-000001").join(name), &bytes);
    }
    write(&to.join("trainer/checkpoint-1/trainer_state.json"), b"{}");
}

pub fn write(path: &Path, bytes: &[u8]) {
    files::create_folder(path.parent().unwrap()).unwrap();
    files::write_atomic(path, bytes).unwrap();
}

fn imported(arm: &str, outputs: &Path, to: &Path) -> Result<RunEnded, String> {
    let options = EngineOptions { from: Some(outputs.to_path_buf()), ..EngineOptions::default() };
    let (inputs, folder) = (prepared(arm), RunFolder::at(to));
    run::run(&inputs, &folder, &options, Unfinished::Refuse, &|| false, &mut |_| ())
        .map_err(|error| error.to_string())
}

#[test]
fn what_trl_wrote_becomes_a_run_that_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let (outputs, run) = (folder.path().join("trl"), folder.path().join("run"));
    outputs_of("token-mean", &outputs);
    let ended = imported("token-mean", &outputs, &run).unwrap();
    assert!(matches!(ended, RunEnded::Finished(_)), "{ended:?}");
    let run = RunFolder::at(&run);
    assert_eq!(run.manifest().unwrap().exactness, "imported");
    assert_eq!(run.experiment().unwrap().engine, Engine::Trl);
    let metrics = run.metrics().unwrap().remove(0).metrics;
    assert_eq!(metrics["optimizer/gradient_norm_mean"], logged_norm("token-mean"));
    assert_eq!(metrics["effect/overlong_filtering_truncated_rollouts"], 3.0);
    assert!(metrics.contains_key("engine/entropy") && !metrics.contains_key("policy/entropy"));
    report::run::write(&run).unwrap();
    let found = verify::verify(&run, &Options::default(), &mut |_| ()).unwrap();
    assert_eq!(found.verdict, VerifyVerdict::Verified, "{:#?}", found.checks);
    assert!(
        found.summary.contains("another trainer made the 1 rollout steps"),
        "{}",
        found.summary
    );
}

/// A row of a table of what is spoilt.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spoilt {
    pub make: Vec<Step>,
    pub says: String,
}

/// The rows of a table.
pub fn spoilt(tables: &str, name: &str) -> Vec<Spoilt> {
    let mut tables: BTreeMap<String, Vec<Spoilt>> = toml::from_str(tables).unwrap();
    tables.remove(name).unwrap()
}

/// What trainers wrote.
pub const OUTPUTS: &str = include_str!("engine_outputs.toml");

#[test]
fn outputs_that_are_not_what_the_arm_makes_are_refused_by_name() {
    for Spoilt { make, says } in spoilt(OUTPUTS, "trl") {
        let folder = tempfile::tempdir().unwrap();
        let outputs = folder.path().join("trl");
        outputs_of("grpo", &outputs);
        make.iter().for_each(|step| step.take(&outputs));
        let error = imported("grpo", &outputs, &folder.path().join("run")).unwrap_err();
        assert!(error.contains(&says), "{says}: {error}");
    }
}

/// A Python that says what it has, and in which a trainer writes these outputs and ends with 3.
pub fn pretended(folder: &Path, outputs: &Path, versions: &str) -> String {
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = -c ]; then echo '{versions}'; exit; fi\n\
         cp -r {}/. .\necho a last word >&2\nexit 3\n",
        outputs.display()
    );
    let path = folder.join("python");
    files::write_atomic(&path, script.as_bytes()).unwrap();
    assert!(std::process::Command::new("chmod").arg("+x").arg(&path).status().unwrap().success());
    path.display().to_string()
}

#[test]
fn a_trainer_is_started_followed_and_named_when_it_ends_early() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = folder.path().join("outputs");
    outputs_of("grpo", &outputs);
    let versions = "{\"python\": \"3.11\", \"trl\": \"1.16.0\"}";
    let python = pretended(folder.path(), &outputs, versions);
    let options = EngineOptions { python: python.clone(), ..EngineOptions::default() };
    let (inputs, run) = (prepared("grpo"), RunFolder::at(folder.path().join("run")));
    let ended = run::run(&inputs, &run, &options, Unfinished::Refuse, &|| false, &mut |_| ());
    // Everything was written before the process failed.
    assert!(matches!(ended, Ok(RunEnded::Finished(_))), "{ended:?}");
    let facts = run.environment().unwrap().facts;
    assert_eq!(facts["engine"], "trl: python 3.11, trl 1.16.0");

    write(&folder.path().join("outputs/log.jsonl"), b"");
    let run = RunFolder::at(folder.path().join("run-2"));
    let ended = run::run(&inputs, &run, &options, Unfinished::Refuse, &|| false, &mut |_| ());
    let error = ended.unwrap_err().to_string();
    assert!(error.contains("trl ended before rollout step 1"), "{error}");
    assert!(error.contains("exit status: 3: a last word"), "{error}");

    let none = EngineOptions { python: "no/python".to_string(), ..EngineOptions::default() };
    let ended = run::run(&inputs, &run, &none, Unfinished::Resume, &|| false, &mut |_| ());
    assert!(ended.unwrap_err().to_string().contains("no/python cannot be started"));
}
