//! verl as an engine: what an arm asks of it, what a configuration of it does, and what it wrote becomes a
//! run. `golden/engines/verl` has what verl 0.9.1 and 0.7.1 composed, and what 0.9.1 wrote when it trained.

use crate::binary::{ended, json_lines, succeeded};
use crate::engine_updates::FirstStep;
use crate::engines::{
    ONE, golden_outputs, refused_by_name, rows, spoilt_outputs_are_refused, started_and_followed,
    verified_import, write,
};
use crate::repository;
use dapo::algorithm::objective::Sums;
use dapo::base::files;
use dapo::engines::rendered;
use dapo::engines::verl::settings::{self, Cards};
use dapo::engines::verl::{compose, compose::Composed, outputs::VerlOutputs, render};
use dapo::experiment::{Engine, Experiment, extends, starter};
use dapo::training::run::inputs;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

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

#[test]
fn what_verl_cannot_do_is_refused_by_the_name_of_its_key() {
    let on = |arm: &Experiment, per_node| {
        settings::demand(arm, Cards { nodes: Some(1), per_node: Some(per_node) }).finish()
    };
    refused_by_name("verl", &dapo(), |arm| on(arm, 1).err().unwrap_or_default());
    // Two cards share a mini-batch of sixteen rollouts, three cannot.
    assert!(on(&dapo(), 2).is_ok());
    assert_eq!(on(&dapo(), 3).unwrap_err()[0].key, "training.mini_batch_rollouts");
}

#[test]
fn verl_makes_of_the_rendered_overrides_what_the_arm_asks() {
    let composed = composed("dapo-0.9.1");
    assert_eq!(composed.validation, None);
    let others = |arm: &Experiment| {
        let effective = composed.beside(settings::demand(arm, ONE).finish().unwrap());
        let others = effective.into_iter().filter(|setting| !setting.agrees());
        others.map(|effective| effective.setting.name).collect::<Vec<_>>()
    };
    let mut asked = dapo();
    assert_eq!(others(&asked), [""; 0]);
    assert_eq!(traps("dapo-0.9.1", &asked), [""; 0]);
    // The comparison can fail.
    asked.dapo.clip.high = 0.3;
    assert_eq!(others(&asked), ["actor_rollout_ref.actor.clip_ratio_high"]);
}

#[test]
fn the_papers_setting_is_one_that_verl_can_run() {
    let experiment =
        |name: &str| extends::load(&repository::root().join("experiments").join(name)).unwrap();
    let cards = Cards { nodes: Some(16), per_node: Some(8) };
    let all = settings::demand(&experiment("engines/dapo-verl.toml"), cards).finish().unwrap();
    for (name, value) in [
        ("actor_rollout_ref.actor.ppo_mini_batch_size", 32),
        ("actor_rollout_ref.rollout.n", 16),
        ("trainer.save_freq", 5),
    ] {
        let setting = all.iter().find(|setting| setting.name == name);
        assert_eq!(setting.map(|setting| &setting.value), Some(&json!(value)), "{name}");
    }
    // The embedded text of the paper's arm is the file.
    let (mut paper, file) = (starter::paper().unwrap(), experiment("qwen2.5/paper-32b.toml"));
    paper.inputs = file.inputs.clone();
    assert_eq!(paper, file);
}

fn traps(name: &str, asked: &Experiment) -> Vec<String> {
    let found = dapo::engines::verl::traps::found(&composed(name), asked).0;
    found.into_iter().map(|trap| format!("{} {}", trap.name, trap.key)).collect()
}

#[derive(Deserialize)]
struct Traps {
    configuration: String,
    has: Vec<String>,
    lacks: Vec<String>,
}

#[test]
fn every_trap_of_a_configuration_is_named() {
    let paper = starter::paper().unwrap();
    let table = rows(include_str!("engine_traps.toml"), "verl");
    for Traps { configuration, has, lacks } in table {
        let names = traps(&configuration, &paper);
        let missing: Vec<_> = has.iter().filter(|name| !names.contains(name)).collect();
        let is_false = |name: &&String| lacks.iter().any(|trap| name.starts_with(trap));
        let false_ones: Vec<_> = names.iter().filter(is_false).collect();
        assert_eq!((missing, false_ones), (vec![], vec![]), "{configuration}: {names:#?}");
    }
    // The script's arithmetic and defaults were filled in.
    assert_eq!(composed("plain-0.9.1").get("data.max_response_length"), Some(&json!(20480)));
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
        "# dapo.clip.high\nactor_rollout_ref.actor.clip_ratio_high=0.028\n",
        "+reward.reward_kwargs.overlong_buffer_cfg.len=16\n",
        "actor_rollout_ref.actor.optim.override_optimizer_config={eps:0.0001}\n",
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
        ("trainer.save_freq=2", "take a divisor of 1"),
    ] {
        let error = render::all_settings(&inputs, ONE, &[text.to_string()]).unwrap_err();
        let error = error.to_string();
        assert!(error.contains(reason) && error.contains(text), "{error}");
    }
    let mut begun = dapo();
    begun.prompt.response_prefix = Some("12".into());
    let inputs = inputs::prepare_without_weights(begun).unwrap();
    render::render(&inputs, folder.path(), ONE, &[]).unwrap();
    let text = files::read_text(&folder.path().join("overrides.txt")).unwrap();
    assert!(text.contains("+reward.custom_reward_function.reward_kwargs.response_prefix=\"12\"\n"));
    let mut contents = Vec::new();
    let each = &mut |row: dapo::task::SourceRow| {
        contents.push(row.read.prompt[0].content.clone());
        Ok(())
    };
    let (path, keys) = (folder.path().join("train.parquet"), dapo::task::RowKeys::default());
    dapo::task::data::source::each_row(&path, &keys, each).unwrap();
    assert!(contents.iter().all(|content| content.ends_with("?12")), "{contents:?}");
}

/// What verl wrote of the arms: the golden outputs, or those of `just test-verl`.
fn written() -> PathBuf {
    std::env::var_os("DAPO_VERL_ARMS").map_or_else(golden, PathBuf::from)
}

/// What verl wrote of an arm, with the base policy in place of its weights.
fn dumped_by(arm: &str, to: &Path) {
    let experiment = extends::load(&golden().join(format!("{arm}.toml"))).unwrap();
    let inputs = inputs::prepare_without_weights(experiment).unwrap();
    render::render(&inputs, to, ONE, &[]).unwrap();
    golden_outputs(&written().join(arm), "checkpoints/global_step_1/actor/huggingface", to);
    write(&to.join("checkpoints/global_step_1/data.pt"), b"");
    write(&to.join("checkpoints/latest_checkpointed_iteration.txt"), b"1");
}

fn dumped(to: &Path) {
    dumped_by("dapo", to);
}

/// A line of `updates.jsonl`.
#[derive(Deserialize)]
struct Update {
    learning_rate: f64,
    loss: f64,
    grad_norm: f64,
    rows: Vec<UpdateRow>,
}

#[derive(Deserialize)]
struct UpdateRow {
    prompt: Vec<u32>,
    response: Vec<u32>,
    advantage: f64,
    old_log_probs: Vec<f64>,
}

/// Names of the arms that verl ran: of the golden ones all.
fn arms() -> Vec<String> {
    let names = files::list(&golden()).unwrap();
    let arms = names.iter().filter_map(|name| name.strip_suffix(".toml")).map(str::to_owned);
    let ran = |arm: &String| written() == golden() || written().join(arm).is_dir();
    arms.filter(ran).collect()
}

#[test]
fn verl_and_this_harness_make_the_same_updates_of_the_same_responses() {
    let close = |theirs: f64, ours: f64, most: f64| (theirs - ours).abs() <= most;
    let folder = tempfile::tempdir().unwrap();
    let (mut largest, mut clipped) = (0.0_f64, BTreeMap::new());
    for arm in arms() {
        let outputs = folder.path().join(&arm);
        dumped_by(&arm, &outputs);
        let experiment = extends::load(&golden().join(format!("{arm}.toml"))).unwrap();
        let inputs = inputs::prepare(experiment).unwrap();
        let updates: Vec<Update> = files::read_lines(&outputs.join("updates.jsonl")).unwrap();
        let mut reader = VerlOutputs::open(&inputs, &outputs, None).unwrap();
        let mut step = FirstStep::of(&inputs, &mut reader);
        let mut left: Vec<usize> = (0..step.selected.rows.len()).collect();
        let mut clipped_shares = Vec::new();
        for (number, update) in updates.iter().enumerate() {
            let about = format!("{arm}, update {}", number + 1);
            let mut members = Vec::new();
            for row in &update.rows {
                let tokens = [&row.prompt[..], &row.response].concat();
                let same = |at: &&usize| step.selected.rows[**at].tokens == tokens;
                let at = *left.iter().find(same).expect(&about);
                left.retain(|other| *other != at);
                members.push(at);
                let ours = &step.selected.rows[at];
                assert!(close(row.advantage, ours.advantage, 2e-6), "{about}: advantage");
                assert_eq!(row.response.len() as u64, ours.loss_tokens(), "{about}");
                for (theirs, ours) in row.old_log_probs.iter().zip(&step.old_log_probs[at]) {
                    assert!(close(*theirs, *ours, 1e-5), "{about}: π_old {theirs} {ours}");
                }
            }
            let count = updates.len() as u64;
            let here = step.update(&members, count, update.learning_rate);
            let (loss, norm) = (here.sums.loss, here.gradient_norm);
            // A loss is a difference of terms of size 1.
            assert!(close(update.loss, loss, 1e-5 * loss.abs().max(0.1)), "{about}: {here:?}");
            assert!(close(update.grad_norm, norm, 1e-5 * norm), "{about}: {norm}");
            largest = largest.max((update.grad_norm - norm).abs() / norm.max(f64::MIN_POSITIVE));
            let Sums { clipped_low, clipped_high, tokens, .. } = here.sums;
            clipped_shares.push((clipped_low + clipped_high) as f64 / tokens as f64);
        }
        assert!(left.is_empty(), "{arm}: rows in no update");
        let share = clipped_shares.iter().sum::<f64>() / clipped_shares.len() as f64;
        let theirs = step.metrics["engine/clip_fraction"];
        assert!(close(theirs, share, 1e-6), "{arm}: clipped {theirs} {share}");
        clipped.insert(arm, share);
    }
    for arm in ["grpo", "clip-higher", "dapo", "gspo"] {
        assert!(clipped.get(arm).is_none_or(|share| *share > 0.01), "{clipped:?}");
    }
    assert!(!clipped.is_empty(), "no arm in {}", written().display());
    println!("largest relative difference of a norm: {largest:.1e}; clipped: {clipped:.3?}");
}

#[test]
fn what_verl_wrote_becomes_a_run_that_verifies() {
    let folder = tempfile::tempdir().unwrap();
    let outputs = folder.path().join("verl");
    dumped(&outputs);
    // A resumed process validates first, and the import reads the step that trained.
    let line = b"{\"step\":1,\"data\":{\"val-core/train/acc/mean@1\":0.5,\"val-aux/num_turns/mean\":2,\"timing_s/testing\":1.5}}\n";
    write(&outputs.join("logs/2.jsonl"), line);
    let inputs = inputs::prepare(dapo()).unwrap();
    let (run, metrics) = verified_import(&inputs, &outputs, &folder.path().join("run"));
    let updates: Vec<Update> = files::read_lines(&outputs.join("updates.jsonl")).unwrap();
    let norm = updates.iter().map(|update| update.grad_norm).sum::<f64>() / updates.len() as f64;
    assert!((metrics["optimizer/gradient_norm_mean"] - norm).abs() < 1e-12 * norm);
    assert!(metrics["engine/evicted_groups"] > 0.0);
    assert_eq!(metrics["train/groups"], 8.0);
    // verl counted the same tokens, stop tokens included.
    assert_eq!(metrics["engine/retokenised_difference"], 0.0);
    // What only all generated groups would tell is absent, but for their number.
    let of_all = metrics.keys().filter(|name| name.starts_with("rollout/"));
    assert!(of_all.eq(["rollout/generated_rollouts"]));
    assert!(!metrics.contains_key("effect/dynamic_sampling_dropped_share"));
    let surplus = metrics.get("engine/discarded_surplus_groups").copied().unwrap_or_default();
    let groups = 8.0 + metrics["engine/evicted_groups"] + surplus;
    assert_eq!(metrics["rollout/generated_rollouts"], 8.0 * groups);
    let mut cell = dapo::study::cell::build::build(&run).unwrap();
    let last = cell.evaluations.last().unwrap();
    assert_eq!(last.generated_rollouts as f64, 8.0 * groups);
    cell.metrics.insert("rollout/generated_rollouts".to_owned(), vec![None]);
    let refused = dapo::study::cell::check::check(&cell.sealed()).unwrap_err();
    assert!(refused.contains("`rollout/generated_rollouts` of a rollout step"), "{refused}");
    // Our shaped rewards have verl's mean.
    let shaped = metrics["train/reward_mean"];
    assert!((shaped - metrics["engine/score_mean"]).abs() < 1e-6, "{shaped}");
}

#[test]
fn without_dynamic_sampling_a_step_has_the_problems_that_it_draws() {
    use dapo::algorithm::DynamicSampling;
    use dapo::engines::Outputs as _;
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
    let prompts = json_lines(&files::read_text(&folder.path().join("prompts.jsonl")).unwrap());
    let drawn = rendered::drawn(&inputs, 8);
    let ids: Vec<&str> = drawn.iter().map(|&at| inputs.data.train[at].id.as_str()).collect();
    let path = folder.path().join("rollouts/1.jsonl");
    let mut lines = json_lines(&files::read_text(&path).unwrap());
    for (number, line) in lines.iter_mut().enumerate() {
        let id = ids[7 - number / 8];
        let prompt = prompts.iter().find(|prompt| prompt["problem"] == id).unwrap();
        (line["input"], line["gts"]) = (prompt["prompt"].clone(), prompt["answer"].clone());
        line["score"] = (-1.0).into();
    }
    files::write_lines(&path, &lines).unwrap();
    let log = folder.path().join("logs/1.jsonl");
    let mut logged = json_lines(&files::read_text(&log).unwrap());
    let step = logged.iter_mut().find(|line| line["step"] == 1).unwrap();
    for of in ["mean", "max", "min"] {
        step["data"][format!("critic/score/{of}")] = (-1.0).into();
    }
    files::write_lines(&log, &logged).unwrap();
    let groups = read().unwrap().groups;
    assert!(groups.iter().map(|group| group.prompt.problem.id.as_str()).eq(ids));
}

#[test]
fn dumps_that_are_not_what_the_arm_makes_are_refused_by_name() {
    spoilt_outputs_are_refused("verl", &inputs::prepare(dapo()).unwrap(), dumped);
}

#[test]
fn verl_is_started_followed_and_named_when_it_ends_early() {
    let inputs = inputs::prepare(dapo()).unwrap();
    let (_folder, run) = started_and_followed(("verl", "0.9.1"), &inputs, dumped, "logs/1.jsonl");
    assert!(run.path("engine/overrides.txt").is_file());
}

/// The script of a run that was ended: (checkpoints, whole steps, steps with responses alone) → the checkpoint it goes on from.
#[test]
fn verl_goes_on_from_the_newest_checkpoint_whose_steps_are_whole() {
    let script = include_str!("../../src/engines/verl/train.py");
    let script = rendered::script(script, &["no-such-package"]);
    let (script, _) = script.rsplit_once("main()").unwrap();
    let script = format!(
        "{script}\nnote_versions()\nstep = newest_checkpoint()\nforget_after(step)\nprint(step)\n"
    );
    let cases: [(&[u64], u64, u64, u64); 5] = [
        (&[], 0, 0, 0),
        (&[8], 11, 0, 8),
        // Ended between the checkpoint and the responses, and between these and the log.
        (&[8, 16], 15, 0, 8),
        (&[8, 16], 15, 1, 8),
        (&[2], 1, 1, 0),
    ];
    for (checkpoints, whole, more, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        write(&place("train.py"), script.as_bytes());
        let newest = place("checkpoints/latest_checkpointed_iteration.txt");
        for step in checkpoints {
            write(&place(&format!("checkpoints/global_step_{step}/data.pt")), b"");
            write(&newest, step.to_string().as_bytes());
        }
        let line = |step, name: &str| json!({"step": step, "data": {name: 1}}).to_string() + "\n";
        let lines: String = (1..=whole).map(|step| line(step, "actor/lr\u{2028}")).collect();
        write(&place("logs/1.jsonl"), (lines + &line(whole + 1, "val/a")).as_bytes());
        for step in 1..=whole + more {
            write(&place(&format!("rollouts/{step}.jsonl")), b"{}\n");
        }
        let (printed, _) = succeeded(ended(Command::new("python3").arg(place("train.py"))));
        assert_eq!(printed.lines().last(), Some(&*expected.to_string()), "{printed}");
        let versions = files::read_text(&place("versions.json")).unwrap();
        assert!(versions.starts_with("{\"python\": \"3."), "{versions}");
        let newest = files::read_text(&newest).ok();
        assert_eq!(newest, (expected > 0).then(|| expected.to_string()), "{checkpoints:?}");
        let dumps = files::list(&place("rollouts")).unwrap_or_default().len() as u64;
        assert_eq!(dumps, expected, "{checkpoints:?}, {whole}");
    }
}
