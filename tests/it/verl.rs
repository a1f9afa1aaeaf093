//! verl as an engine: what an arm asks of it, what a configuration of it does, and what it wrote becomes a
//! run. `golden/engines/verl` has what verl 0.9.1 and 0.7.1 composed and dumped.

use crate::engines::{OUTPUTS, Spoilt, pretended, spoilt, write};
use crate::repository;
use dapo::base::files;
use dapo::engines::run::{self, EngineOptions};
use dapo::engines::verl::settings::{self, Cards};
use dapo::engines::verl::{compose, compose::Composed, render};
use dapo::engines::{DemandRefusal, Effective};
use dapo::experiment::{Engine, Experiment, extends, starter};
use dapo::records::RunFolder;
use dapo::report;
use dapo::training::run::inputs;
use dapo::training::{RunEnded, Unfinished};
use dapo::verification::verify::{self, Options, VerifyVerdict};
use serde_json::Value;
use std::path::{Path, PathBuf};

const ONE: Cards = Cards { nodes: 1, per_node: 1 };

fn golden() -> PathBuf {
    repository::root().join("golden/engines/verl")
}

fn dapo() -> Experiment {
    extends::load(&golden().join("dapo.toml")).unwrap()
}

/// As it was recorded, without Python.
fn composed(name: &str) -> Composed {
    compose::of_file("no-python", &golden().join(format!("composed/{name}.json"))).unwrap()
}

fn refused(change: impl Fn(&mut Experiment)) -> Vec<String> {
    let mut experiment = dapo();
    change(&mut experiment);
    let refusals = settings::demand(&experiment, ONE).finish().err().unwrap_or_default();
    refusals.into_iter().map(|DemandRefusal { key, .. }| key).collect()
}

#[test]
fn what_verl_cannot_do_is_refused_by_the_name_of_its_key() {
    use dapo::algorithm::{
        DynamicSampling, LogRatioClamp, Punishment, Std, Surplus, TokenMeanUnit,
    };
    use dapo::experiment::{MiniBatchOrder, WarmUpStart};
    use dapo::numerics::Numerics;
    assert_eq!(refused(|_| ()), Vec::<String>::new());
    assert_eq!(refused(|it| it.numerics = Numerics::Exact), ["numerics"]);
    assert_eq!(refused(|it| it.execution.weights = None), ["execution.weights"]);
    assert_eq!(refused(|it| it.dapo.advantage.epsilon = 1e-4), ["dapo.advantage.epsilon"]);
    assert_eq!(refused(|it| it.dapo.advantage.std = Std::Population), ["dapo.advantage.std"]);
    assert_eq!(refused(|it| it.dapo.overlong.filter = true), ["dapo.overlong.filter"]);
    assert_eq!(
        refused(|it| it.dapo.token_mean_unit = TokenMeanUnit::Group),
        ["dapo.token_mean_unit"]
    );
    let none = LogRatioClamp::None {};
    assert_eq!(refused(|it| it.dapo.log_ratio_clamp = none), ["dapo.log_ratio_clamp"]);
    assert_eq!(refused(|it| it.optimizer.non_finite = None), ["optimizer.non_finite"]);
    let key = ["training.mini_batch_order"];
    assert_eq!(refused(|it| it.training.mini_batch_order = MiniBatchOrder::LengthBands), key);
    let key = ["training.mini_batch_rollouts"];
    assert_eq!(refused(|it| it.training.mini_batch_rollouts = 2), key);
    assert_eq!(refused(|it| it.rollout.prompts_per_round = 12), ["rollout.prompts_per_round"]);
    let warm_up = |it: &mut Experiment| {
        it.optimizer.warm_up.rollout_steps = 5;
        it.optimizer.warm_up.start = WarmUpStart::FirstStep;
    };
    assert_eq!(refused(warm_up), ["optimizer.warm_up.start"]);
    let sampling = |it: &mut Experiment| {
        let DynamicSampling::Resample { max_rounds, surplus, .. } = &mut it.dapo.dynamic_sampling
        else {
            panic!("the arm resamples");
        };
        (*max_rounds, *surplus) = (10, Surplus::Carry);
    };
    let keys = ["dapo.dynamic_sampling.max_rounds", "dapo.dynamic_sampling.surplus"];
    assert_eq!(refused(sampling), keys);
    let factor = |it: &mut Experiment| {
        let Punishment::Soft { factor, .. } = &mut it.dapo.overlong.punishment else { return };
        *factor = 2.0;
    };
    assert_eq!(refused(factor), ["dapo.overlong.punishment.factor"]);
    // Two cards share a mini-batch of eight rollouts, three cannot.
    let on = |per_node| settings::demand(&dapo(), Cards { nodes: 1, per_node }).finish();
    assert!(on(2).is_ok());
    assert_eq!(on(3).unwrap_err()[0].key, "training.mini_batch_rollouts");
}

#[test]
fn verl_makes_of_the_rendered_overrides_what_the_arm_asks() {
    let all = settings::demand(&dapo(), ONE).finish().unwrap();
    let composed = composed("dapo-0.9.1");
    assert_eq!(composed.validation, None);
    let effective = composed.beside(all);
    let other: Vec<&Effective> = effective.iter().filter(|it| !it.agrees()).collect();
    assert!(other.is_empty(), "{other:#?}");
    assert_eq!(traps("dapo-0.9.1", &dapo()), Vec::<String>::new());
    // The comparison can fail.
    let mut asked = dapo();
    asked.dapo.clip.high = 0.3;
    let effective = composed.beside(settings::demand(&asked, ONE).finish().unwrap());
    let other: Vec<&str> =
        effective.iter().filter(|it| !it.agrees()).map(|it| it.setting.name.as_str()).collect();
    assert_eq!(other, ["actor_rollout_ref.actor.clip_ratio_high"]);
}

#[test]
fn the_papers_setting_is_one_that_verl_can_run() {
    let path = repository::root().join("experiments/engines/dapo-verl.toml");
    let experiment = extends::load(&path).unwrap();
    let all = settings::demand(&experiment, Cards { nodes: 16, per_node: 8 }).finish().unwrap();
    let value = |name: &str| {
        let found = all.iter().find(|setting| setting.name == name);
        found.unwrap_or_else(|| panic!("{name}")).value.clone()
    };
    assert_eq!(value("actor_rollout_ref.actor.ppo_mini_batch_size"), 32);
    assert_eq!(value("actor_rollout_ref.rollout.n"), 16);
    assert_eq!(value("trainer.save_freq"), 5);
    // The embedded text of the paper's arm is the file.
    let file = repository::root().join("experiments/qwen2.5/paper-32b.toml");
    let mut paper = starter::paper().unwrap();
    let file = extends::load(&file).unwrap();
    paper.inputs = file.inputs.clone();
    assert_eq!(paper, file);
}

fn traps(name: &str, asked: &Experiment) -> Vec<String> {
    let found = dapo::engines::verl::traps::traps(&composed(name), asked);
    found.into_iter().map(|trap| format!("{} {}", trap.name, trap.key)).collect()
}

#[test]
fn every_trap_of_a_configuration_is_named() {
    let paper = starter::paper().unwrap();
    let actor = |name: &str| format!("actor_rollout_ref.actor.{name}");
    let has = |name: &str, trap: &str, key: &str| {
        let found = traps(name, &paper);
        assert!(found.contains(&format!("{trap} {key}")), "{name}, {trap} {key}: {found:#?}");
    };
    let lacks = |name: &str, trap: &str| {
        let found = traps(name, &paper);
        assert!(!found.iter().any(|it| it.starts_with(trap)), "{name}, {trap}: {found:#?}");
    };
    // The reward keys of earlier versions: 0.7.1 reads them, 0.9.1 does not.
    let old = "reward_model.reward_kwargs.overlong_buffer_cfg.enable";
    has("legacy-reward-0.9.1", "legacy-reward-key", "reward_model.reward_manager");
    has("legacy-reward-0.9.1", "legacy-reward-key", old);
    has("legacy-reward-0.9.1", "no-length-penalty", "reward.reward_manager.name");
    lacks("legacy-reward-0.7.1", "legacy-reward-key");
    lacks("legacy-reward-0.7.1", "no-length-penalty");
    has("legacy-reward-0.7.1", "overlong-log", "reward.reward_kwargs.overlong_buffer_cfg.log");
    let filter = |name: &str| format!("algorithm.filter_groups.{name}");
    has("filter-0.9.1", "filter-metric", &filter("metric"));
    has("filter-0.9.1", "cap-ignored", &filter("max_num_gen_batches"));
    has("filter-0.9.1", "gen-batch-size", "data.gen_batch_size");
    lacks("filter-0.9.1", "no-length-penalty");
    lacks("filter-before-0.9-0.9.1", "filter-metric");
    has("filter-before-0.9-0.7.1", "no-dynamic-sampling", &filter("enable"));
    has("filter-before-0.9-0.7.1", "unknown-key", &filter("enable"));
    lacks("filter-before-0.9-0.9.1", "no-dynamic-sampling");
    lacks("filter-before-0.9-0.9.1", "unknown-key");
    for version in ["0.9.1", "0.7.1"] {
        let plain = &format!("plain-{version}");
        has(plain, "default-estimator", "algorithm.adv_estimator");
        has(plain, "mini-batch-in-prompts", &actor("ppo_mini_batch_size"));
        has(plain, "dual-clip", &actor("clip_ratio_c"));
        has(plain, "warm-up-from-zero", &actor("optim.lr_warmup_steps"));
        has(plain, "greedy-validation", "actor_rollout_ref.rollout.val_kwargs.temperature");
        has(plain, "validation-samples", "actor_rollout_ref.rollout.val_kwargs.n");
        lacks(&format!("legacy-reward-{version}"), "mini-batch-in-prompts");
        lacks(&format!("legacy-reward-{version}"), "warm-up-from-zero");
    }
    has("plain-0.9.1", "order-of-completion", &actor("shuffle"));
    has("plain-0.9.1", "boxed-answers", "reward.custom_reward_function.path");
    has("plain-0.9.1", "grad-clip", &actor("grad_clip"));
    lacks("plain-0.7.1", "boxed-answers");
    lacks("filter-0.9.1", "order-of-completion");
    lacks("filter-0.9.1", "default-estimator");
    // The script's arithmetic and defaults were filled in.
    assert_eq!(composed("plain-0.9.1").get("data.max_response_length"), Some(&Value::from(20480)));
}

#[test]
fn rendered_overrides_and_tables_are_those_of_the_arm() {
    let folder = tempfile::tempdir().unwrap();
    let inputs = inputs::prepare_without_weights(dapo()).unwrap();
    assert_eq!(inputs.experiment.engine, Engine::Verl);
    let free = ["actor_rollout_ref.rollout.tensor_model_parallel_size=2".to_string()];
    render::render(&inputs, folder.path(), ONE, &free).unwrap();
    let text = files::read_text(&folder.path().join("overrides.txt")).unwrap();
    for part in [
        "# dapo.clip.high\nactor_rollout_ref.actor.clip_ratio_high=0.28\n",
        "+reward.reward_kwargs.overlong_buffer_cfg.len=16\n",
        "actor_rollout_ref.actor.optim.override_optimizer_config={eps:1e-8}\n",
        "custom_chat_template=\"{% for message in messages %}{{ message['content'] }}{% endfor %}\"\n",
        "# --engine-set\nactor_rollout_ref.rollout.tensor_model_parallel_size=2\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let rows = dapo::task::data::problem_file::read(&folder.path().join("train.parquet"));
    let prompts = files::read_text(&folder.path().join("prompts.jsonl")).unwrap();
    assert_eq!(rows.unwrap().problems.len(), prompts.lines().count());
    for (text, reason) in [
        ("actor_rollout_ref.actor.clip_ratio_high=0.3", "the experiment decides"),
        ("trainer.save_freq", "expected KEY=VALUE"),
    ] {
        let error =
            render::all_settings(&inputs, ONE, &[text.to_string()]).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains(text), "{error}");
    }
}

/// What verl's own functions wrote, with the base policy as the weights after the step.
fn dumped(to: &Path) {
    for name in ["prompts.jsonl", "logs/1.jsonl", "rollouts/1.jsonl"] {
        write(&to.join(name), &files::read(&golden().join("dapo").join(name)).unwrap());
    }
    let base = golden().join("../../mini-aime/base");
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        let bytes = files::read(&base.join(name)).unwrap();
        write(&to.join("checkpoints/global_step_1/actor/huggingface").join(name), &bytes);
    }
    write(&to.join("checkpoints/global_step_1/data.pt"), b"");
    write(&to.join("checkpoints/latest_checkpointed_iteration.txt"), b"1");
}

fn ran(options: &EngineOptions, to: &Path) -> Result<RunEnded, String> {
    let (inputs, folder) = (inputs::prepare(dapo()).unwrap(), RunFolder::at(to));
    run::run(&inputs, &folder, options, Unfinished::Refuse, &|| false, &mut |_| ())
        .map_err(|error| error.to_string())
}

fn imported(outputs: &Path, to: &Path) -> Result<RunEnded, String> {
    let from = Some(outputs.to_path_buf());
    ran(&EngineOptions { from, cards: ONE, ..EngineOptions::default() }, to)
}

#[test]
fn what_verl_wrote_becomes_a_run_that_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let (outputs, run) = (folder.path().join("verl"), folder.path().join("run"));
    dumped(&outputs);
    let ended = imported(&outputs, &run).unwrap();
    assert!(matches!(ended, RunEnded::Finished(_)), "{ended:?}");
    let run = RunFolder::at(&run);
    assert_eq!(run.manifest().unwrap().exactness, "imported");
    let metrics = run.metrics().unwrap().remove(0).metrics;
    assert_eq!(metrics["optimizer/gradient_norm_mean"], 0.5);
    assert_eq!(metrics["engine/evicted_groups"], 3.0);
    assert_eq!(metrics["train/groups"], 4.0);
    // verl counted the same tokens, stop tokens included.
    assert_eq!(metrics["engine/retokenised_difference"], 0.0);
    // What only all generated groups would tell is absent.
    let of_all = metrics.keys().find(|name| name.starts_with("rollout/"));
    assert_eq!((of_all, metrics.get("effect/dynamic_sampling_dropped_share")), (None, None));
    // Our shaped rewards have verl's mean.
    let shaped = metrics["train/reward_mean"];
    assert!((shaped - metrics["engine/score_mean"]).abs() < 1e-12, "{shaped}");
    report::run::write(&run).unwrap();
    let found = verify::verify(&run, &Options::default(), &mut |_| ()).unwrap();
    assert_eq!(found.verdict, VerifyVerdict::Verified, "{:#?}", found.checks);
}

#[test]
fn a_resumed_process_validates_first_and_the_import_reads_the_step_that_trained() {
    let folder = tempfile::tempdir().unwrap();
    let (outputs, run) = (folder.path().join("verl"), folder.path().join("run"));
    dumped(&outputs);
    let line = b"{\"step\":1,\"data\":{\"val-core/train/acc/mean@1\":0.5,\"val-aux/num_turns/mean\":2,\"timing_s/testing\":1.5}}\n";
    write(&outputs.join("logs/2.jsonl"), line);
    let ended = imported(&outputs, &run).unwrap();
    assert!(matches!(ended, RunEnded::Finished(_)), "{ended:?}");
}

#[test]
fn without_dynamic_sampling_a_step_has_the_problems_that_it_draws() {
    use dapo::algorithm::DynamicSampling;
    use dapo::engines::{Outputs as _, verl::outputs::VerlOutputs};
    let folder = tempfile::tempdir().unwrap();
    dumped(folder.path());
    let mut experiment = dapo();
    experiment.dapo.dynamic_sampling = DynamicSampling::None {};
    let inputs = inputs::prepare_without_weights(experiment).unwrap();
    let read = || VerlOutputs::open(&inputs, folder.path(), None).unwrap().step(1);
    // The dump has groups of later draws.
    let error = read().unwrap_err().to_string();
    assert!(error.contains("this step does not draw train/"), "{error}");
    // With the texts of the first draws it is read, in their order whatever that of the dump.
    let prompts = files::read_text(&folder.path().join("prompts.jsonl")).unwrap();
    let prompts: Vec<Value> = prompts.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let drawn = dapo::engines::rendered::drawn(&inputs, 4);
    let ids: Vec<&str> = drawn.iter().map(|&at| inputs.data.train[at].id.as_str()).collect();
    let path = folder.path().join("rollouts/1.jsonl");
    let text = files::read_text(&path).unwrap();
    let mut lines = String::new();
    for (number, line) in text.lines().enumerate() {
        let prompt = prompts.iter().find(|it| it["problem"] == ids[3 - number / 4]).unwrap();
        let mut line: Value = serde_json::from_str(line).unwrap();
        (line["input"], line["gts"]) = (prompt["prompt"].clone(), prompt["answer"].clone());
        line["score"] = (-1.0).into();
        lines += &format!("{line}\n");
    }
    write(&path, lines.as_bytes());
    let groups = read().unwrap().groups;
    let found: Vec<&str> = groups.iter().map(|it| it.prompt.problem.id.as_str()).collect();
    assert_eq!(found, ids);
}

#[test]
fn dumps_that_are_not_what_the_arm_makes_are_refused_by_name() {
    for Spoilt { make, says } in spoilt(OUTPUTS, "verl") {
        let folder = tempfile::tempdir().unwrap();
        let outputs = folder.path().join("verl");
        dumped(&outputs);
        make.iter().for_each(|step| step.take(&outputs));
        let error = imported(&outputs, &folder.path().join("run")).unwrap_err();
        assert!(error.contains(&says), "{says}: {error}");
    }
}

#[test]
fn verl_is_started_followed_and_named_when_it_ends_early() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = folder.path().join("outputs");
    dumped(&outputs);
    let versions = "{\"python\": \"3.11\", \"verl\": \"0.9.1\"}";
    let python = pretended(folder.path(), &outputs, versions);
    let options = EngineOptions { python, cards: ONE, ..EngineOptions::default() };
    let run = folder.path().join("run");
    let ended = ran(&options, &run);
    // Everything was written before the process failed.
    assert!(matches!(ended, Ok(RunEnded::Finished(_))), "{ended:?}");
    let facts = RunFolder::at(&run).environment().unwrap().facts;
    assert_eq!(facts["engine"], "verl: python 3.11, verl 0.9.1");
    assert!(run.join("engine/overrides.txt").is_file());

    write(&outputs.join("logs/1.jsonl"), b"");
    let error = ran(&options, &folder.path().join("run-2")).unwrap_err();
    assert!(error.contains("verl ended before rollout step 1"), "{error}");
    assert!(error.contains("exit status: 3: a last word"), "{error}");
}
