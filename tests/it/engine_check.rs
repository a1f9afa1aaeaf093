//! `dapo engine check` on what users have: the committed command lines of verl's examples and of its recipes
//! (`golden/engines/verl/samples`), each form of a configuration, and files that are none.

use crate::binary::{dapo, says};
use crate::engines::ONE;
use crate::repository;
use dapo::algorithm::{AtCap, DynamicSampling};
use dapo::base::files;
use dapo::engines::configuration::{self, Configured};
use dapo::engines::trl::written::TrlConfig;
use dapo::engines::verl::compose::{self, Composed};
use dapo::engines::verl::settings::{self, Cards};
use dapo::engines::verl::traps;
use dapo::experiment::{Experiment, WarmUp, extends, starter};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SENTENCE: &str = "run the command of your training with --cfg job at its end";

fn written(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    files::write_atomic(&path, text.as_bytes()).unwrap();
    path
}

fn read(path: &Path) -> Composed {
    compose::of_file("no-python", path).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(path: &Path) -> String {
    compose::of_file("no-python", path).unwrap_err().to_string()
}

/// A row of `engine_stated.toml`.
#[derive(Deserialize)]
struct StatedRow {
    stated: String,
    traps: Vec<String>,
    warm_up: Option<WarmUp>,
}

fn stated_rows(trainer: &str) -> Vec<StatedRow> {
    let text = include_str!("engine_stated.toml");
    let mut rows: BTreeMap<String, Vec<StatedRow>> = toml::from_str(text).unwrap();
    rows.remove(trainer).unwrap()
}

/// As `written` of the samples' generate.py.
fn bits(value: &Value) -> String {
    match value {
        Value::Object(all) => {
            let all: BTreeMap<&String, String> =
                all.iter().map(|(key, value)| (key, bits(value))).collect();
            let all: Vec<String> = all.iter().map(|(key, bits)| format!("{key}:{bits}")).collect();
            format!("{{{}}}", all.join(","))
        }
        Value::Array(all) => format!("[{}]", all.iter().map(bits).collect::<Vec<_>>().join(",")),
        Value::Number(number) if number.is_f64() => {
            format!("{:016x}", number.as_f64().unwrap().to_bits())
        }
        other => other.to_string(),
    }
}

/// A file of samples.
#[derive(Deserialize)]
struct Samples {
    bases: BTreeMap<String, String>,
    samples: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    script: String,
    overrides: Vec<String>,
    /// The output of `--cfg job`: a base, and of each edit its line, lines that are gone, and new ones.
    base: String,
    edits: Vec<(usize, usize, Vec<String>)>,
    resolved: String,
}

/// Samples with what `--cfg job` prints.
fn samples() -> Vec<(Sample, String)> {
    let mut samples = Vec::new();
    for version in ["0.7.1", "0.9.1"] {
        let path = repository::root().join(format!("golden/engines/verl/samples/{version}.json"));
        let file: Samples = files::read_json(&path).unwrap();
        for sample in file.samples {
            let mut lines: Vec<&str> = file.bases[&sample.base].lines().collect();
            for (at, gone, new) in sample.edits.iter().rev() {
                lines.splice(*at..at + gone, new.iter().map(String::as_str));
            }
            let text = lines.join("\n") + "\n";
            samples.push((sample, text));
        }
    }
    samples
}

#[test]
fn every_sample_is_what_hydra_composes_or_refused_with_the_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let samples = samples();
    assert!(samples.len() >= 60, "{}", samples.len());
    for (Sample { script, overrides, resolved, .. }, text) in &samples {
        let path = written(folder.path(), "job", text);
        let (configured, left_out) = configuration::read(&path, &["trainer"], "").unwrap();
        let (Configured::Values(values), true) = (configured, left_out.is_empty()) else {
            panic!("{script}");
        };
        assert_eq!(&files::sha256(bits(&values).as_bytes()), resolved, "{script}");
        assert!(!read(&path).partial, "{script}");
        let list: String = overrides.iter().map(|word| format!("- {}\n", json!(word))).collect();
        let error = refused(&written(folder.path(), "overrides.yaml", &list));
        let composed = error.contains("overrides are composed by verl");
        assert!(composed && error.contains(SENTENCE), "{script}: {error}");
        let words = overrides.join(" \\\n  ");
        let command = format!("set -x\npython3 -m verl.trainer.main_ppo {words} \"$@\"\n");
        let path = written(folder.path(), "run.sh", &command);
        let error = refused(&path);
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        assert!(error.contains(SENTENCE) && error.lines().count() == 1, "{error}");
    }
}

/// A value as Python prints it, nested tables on lines of their own.
fn python(value: &Value) -> String {
    match value {
        Value::Null => "None".to_string(),
        Value::Bool(it) => if *it { "True" } else { "False" }.to_string(),
        Value::String(text) => format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'")),
        Value::Array(all) => format!("[{}]", all.iter().map(python).collect::<Vec<_>>().join(", ")),
        Value::Object(all) => {
            let all = all.iter().map(|(key, value)| format!("'{key}': {}", python(value)));
            format!("{{{}}}", all.collect::<Vec<_>>().join(",\n "))
        }
        other => other.to_string(),
    }
}

#[test]
fn each_form_of_a_configuration_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (_, sample) = samples().pop().unwrap();
    let job = read(&written(folder.path(), "job", &sample));
    let noise = "INFO 08-22 12:00:00 loading\nWARNING: a: b\n2026-08-22 step:1 - loss:0.5\n";
    let mut wandb = "wandb_version: 1\n\n_wandb:\n  desc: null\n  value:\n    t: {}\n".to_string();
    for (table, value) in job.effective.as_object().unwrap() {
        write!(wandb, "{table}:\n  desc: null\n  value: {value}\n").unwrap();
    }
    let dictionary = python(&job.effective);
    let ray = "\u{1b}[36m(TaskRunner pid=123, ip=10.0.0.1)\u{1b}[0m ";
    let other = "(WorkerDict pid=7) {'note': 1}\n";
    let interleaved = dictionary.replacen('\n', &format!("\n{other}"), 3);
    let from_ray = |text: &str| -> String {
        let before = |line: &str| if line.starts_with("(Worker") { "" } else { ray };
        text.lines().map(|line| format!("{}{line}\n", before(line))).collect()
    };
    for (form, text) in [
        ("noise", format!("{noise}{sample}\n{noise}")),
        ("prefixed", format!("{noise}{}{noise}", from_ray(&sample))),
        ("crlf", sample.replace('\n', "\r\n")),
        ("wandb", wandb),
        ("json", job.effective.to_string()),
        ("pretty", serde_json::to_string_pretty(&job.effective).unwrap()),
        ("dictionary", format!("{noise}{dictionary}\n{noise}")),
        ("ray", format!("{noise}{other}{}{other}{noise}", from_ray(&interleaved))),
        ("twice", format!("{dictionary}\nagain\n{dictionary}\n")),
    ] {
        assert_eq!(read(&written(folder.path(), "any-name.txt", &text)), job, "{form}");
    }
    let other = dictionary.replace("'total_epochs': ", "'total_epochs': 9");
    let two = format!("{dictionary}\n{other}\n");
    let error = refused(&written(folder.path(), "two", &two));
    assert!(error.contains("two configurations, at the lines 1 and"), "{error}");
}

#[test]
fn what_a_file_does_not_state_is_in_no_trap_and_no_default() {
    let folder = tempfile::tempdir().unwrap();
    let text = "actor_rollout_ref:\n  actor:\n    clip_ratio_high: 0.28\n    clip_ratio_low: 0.2\n    \
                fsdp_config: {model_dtype: bf16}\n  rollout: {n: '${oc.env:GROUP}'}\n";
    let path = written(folder.path(), "part.yaml", text);
    let (part, paper) = (read(&path), starter::paper().unwrap());
    let found = traps::found(&part, &paper).0;
    assert_eq!(found.iter().map(|it| it.name).collect::<Vec<_>>(), ["low-precision-weights"]);
    let (rows, _) = traps::compared(&part, &paper, Cards::default());
    let stated: Vec<&str> =
        rows.iter().filter(|it| it.value.is_some()).map(|it| it.setting.name.as_str()).collect();
    let actor = "actor_rollout_ref.actor";
    let asked = ["fsdp_config.model_dtype", "clip_ratio_low", "clip_ratio_high"];
    assert_eq!(stated, asked.map(|name| format!("{actor}.{name}")));
    // The same without anything that differs: nothing was decided.
    let path = written(folder.path(), "same.yaml", &text.replace("bf16", "fp32"));
    let checked = dapo(&["engine", "check", "verl", path.to_str().unwrap()]);
    says(checked, 6, &["not stated", "0 of "]);
}

#[test]
fn a_key_that_verl_takes_in_place_of_another_is_in_a_trap() {
    let folder = tempfile::tempdir().unwrap();
    let paper = starter::paper().unwrap();
    for StatedRow { stated, traps, .. } in stated_rows("verl") {
        let text = format!("actor_rollout_ref:\n  {stated}\n");
        let found = traps::found(&read(&written(folder.path(), "part.yaml", &text)), &paper).0;
        let found: Vec<String> = found.iter().map(|it| format!("{} {}", it.name, it.key)).collect();
        assert_eq!(found, traps, "{stated}");
    }
}

/// What the paper's arm is told of a configuration of `golden/engines/verl/recipes`: keys that differ, and traps.
fn told(text: &str) -> (Composed, Vec<String>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let (composed, paper) = (read(&written(folder.path(), "job", text)), starter::paper().unwrap());
    let (rows, _) = traps::compared(&composed, &paper, Cards::default());
    let is_known = composed.engine() != "fsdp" || rows.iter().all(|it| it.value.is_some());
    assert!(is_known, "{rows:#?}");
    let differing = rows.into_iter().filter(|it| !it.agrees()).map(|it| it.setting.name);
    let actor = |name: String| name.replace("actor_rollout_ref.actor.", "");
    let short = |name: String| actor(name).replace("algorithm.filter_groups.", "");
    let differing = differing.map(short).collect();
    let found = traps::found(&composed, &paper).0.into_iter();
    let found = found.map(|it| format!("{} {}", it.name, short(it.key))).collect();
    (composed, differing, found)
}

fn recipe(name: &str) -> String {
    let path = format!("golden/engines/verl/recipes/{name}.yaml");
    files::read_text(&repository::root().join(path)).unwrap()
}

#[test]
fn the_released_recipe_is_compared_with_what_its_own_trainer_reads() {
    let differing = [
        "shuffle",
        "trainer.total_training_steps",
        "data.truncation",
        "clip_ratio_c",
        "optim.lr_warmup_steps",
    ];
    for name in ["dapo-0.4.1", "dapo-0.7.0"] {
        let (composed, rows, found) = told(&recipe(name));
        assert!(composed.recipe, "{name}");
        assert_eq!(rows, differing, "{name}");
        let names: Vec<&str> = found.iter().map(|it| it.split(' ').next().unwrap()).collect();
        let expected = ["dual-clip", "loss-normaliser", "warm-up-from-zero", "validation-samples"];
        assert_eq!(names, expected, "{name}");
        let mut paper = starter::paper().unwrap();
        let refused = |paper: &Experiment| -> Vec<String> {
            let refusals = traps::compared(&composed, paper, Cards::default()).1;
            refusals.into_iter().map(|it| it.key).collect()
        };
        let mut all = refused(&paper);
        let is_of_sampling = |it: &String| it.contains("sampling") || it.contains("per_round");
        assert!(!all.iter().any(is_of_sampling), "{all:?}");
        if let DynamicSampling::Resample { at_cap, .. } = &mut paper.dapo.dynamic_sampling {
            *at_cap = AtCap::Train;
        }
        all.push("dapo.dynamic_sampling.at_cap".to_string());
        assert_eq!(refused(&paper), all);
    }
}

#[test]
fn what_an_earlier_actor_does_not_read_is_no_agreement() {
    let text = recipe("dapo-0.7.0");
    for (from, to, row, trap) in [
        ("    grad_clip: 1.0", "    grad_clip: 0.3", "grad_clip", "grad-clip optim.clip_grad"),
        ("clip_grad: 1.0", "clip_grad: 0.3", "", "grad-clip optim.clip_grad"),
        ("shuffle: false", "shuffle: true", "shuffle", "no-shuffle shuffle"),
        ("strategy: fsdp", "strategy: megatron", "shuffle", "loss-normaliser loss_agg_mode"),
        ("token-mean", "seq-mean-token-sum-norm", "loss_agg_mode", "loss-normaliser loss_agg_mode"),
        ("metric: acc", "metric: score", "metric", "filter-metric metric"),
        ("max_num_gen_batches: 10", "max_num_gen_batches: 5", "max_num_gen_batches", ""),
        ("gen_batch_size: 1536", "gen_batch_size: 512", "data.gen_batch_size", ""),
    ] {
        assert!(text.contains(from), "{from}");
        let (_, rows, found) = told(&text.replacen(from, to, 1));
        assert!(row.is_empty() || rows.iter().any(|it| it == row), "{to}: {rows:?}");
        assert!(trap.is_empty() || found.iter().any(|it| it == trap), "{to}: {found:?}");
    }
    let engine = text
        .replace("use_legacy_worker_impl: auto", "use_legacy_worker_impl: disable")
        .replace("shuffle: false", "shuffle: true")
        .replace("    grad_clip: 1.0", "    grad_clip: 0.3");
    let (_, rows, found) = told(&engine);
    assert!(!rows.iter().any(|it| it == "shuffle" || it.contains("clip_grad")), "{rows:?}");
    assert!(found.contains(&"grad-clip grad_clip".to_string()), "{found:?}");
    assert!(!found.iter().any(|it| it.starts_with("loss-normaliser")), "{found:?}");
    let text = recipe("gspo-0.6.1");
    let (_, rows, found) = told(&text);
    assert!(found.contains(&"loss-normaliser loss_agg_mode".to_string()), "{found:?}");
    assert!(rows.iter().any(|it| it == "loss_agg_mode"), "{rows:?}");
    // Nothing filters groups there, or punishes a length.
    let lacking = |it: &String| it == "enable" || it.contains("overlong");
    assert!(rows.iter().any(lacking), "{rows:?}");
}

#[test]
fn each_setting_that_render_writes_is_one_that_check_looks_at() {
    let source = files::read_text(&repository::root().join("src/engines/verl/traps.rs")).unwrap();
    for file in ["experiments/engines/dapo-verl.toml", "golden/engines/verl/dapo.toml"] {
        let arm = extends::load(&repository::root().join(file)).unwrap();
        for setting in settings::demand(&arm, ONE).into_parts().0 {
            let name = &setting.name;
            let excuse =
                |(of, why): (&String, &String)| name.starts_with(of.as_str()) && !why.is_empty();
            let excused = settings::KEYS.not_held.iter().any(excuse);
            assert!(settings::KEYS.is_held(name) || excused, "{name}");
        }
    }
    // A trap of its own is one that the traps name.
    let not_held = settings::KEYS.not_held.iter();
    for (name, why) in not_held.filter(|(_, why)| why.contains("trap of its own")) {
        assert!(source.contains(name.as_str()), "{name}: {why}");
    }
}

#[test]
fn hostile_files_are_refused_in_little_time() {
    let folder = tempfile::tempdir().unwrap();
    let mut bomb = "trainer:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_string();
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(bomb, "  a{level}: &a{level} [{aliases}]").unwrap();
    }
    let keys: String = (0..100_000).map(|key| format!("  k{key}: 1\n")).collect();
    let lists: String = (0..100_000).map(|key| format!("- a.k{key}=1\n")).collect();
    let texts = [
        bomb,
        format!("trainer:\n{keys}"),
        format!("trainer: {}", "[".repeat(1_000_000)),
        format!("trainer: {}", "{a: ".repeat(1_000_000)),
        format!("{{'trainer': {}", "[".repeat(1_000_000)),
        format!("{{\"trainer\": {}", "[".repeat(1_000_000)),
        "trainer: \0\n".to_string(),
        String::new(),
        "\n".repeat(32 << 20),
        format!("{}trainer: {{a: 1}}\n", "#\n".repeat(100_000)),
        "a".repeat(40 << 20),
        "trainer:\n\u{1}\n".repeat(100_000),
        lists,
        "{'trainer': {}}\n".repeat(200_000),
        "trainer: {a: 1}\n".repeat(2),
    ];
    for (number, text) in texts.iter().enumerate() {
        let path = written(folder.path(), "hostile", text);
        let started = Instant::now();
        let error = refused(&path);
        let taken = started.elapsed();
        assert!(taken < Duration::from_secs(8), "{number}: {taken:?}");
        assert!(error.contains("hostile") && error.len() < 1000, "{number}: {error}");
    }
    assert!(refused(Path::new("/dev/zero")).contains("/dev/zero"));
    assert!(TrlConfig::of_file("no-python", Path::new("/dev/zero"), 1).is_err());
}

fn trl(folder: &Path, text: &str) -> TrlConfig {
    TrlConfig::of_file("no-python", &written(folder, "grpo", text), 8).unwrap()
}

#[test]
fn every_trap_of_a_grpo_config_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let paper = starter::paper().unwrap();
    let names =
        |config: &TrlConfig| config.traps(&paper).iter().map(|it| it.name).collect::<Vec<_>>();
    let mut whole = json!({"loss_type": "bnpo", "epsilon": 0.2, "epsilon_high": null, "steps_per_generation": 8,
        "gradient_accumulation_steps": 8, "num_iterations": 1, "num_generations": 16, "scale_rewards": true,
        "mask_truncated_completions": true, "beta": 0.04, "temperature": 1.0, "learning_rate": 1e-6,
        "per_device_train_batch_size": 4});
    let config = trl(folder.path(), &whole.to_string());
    assert!(config.unread(&paper).is_empty());
    let all =
        "loss-normaliser steps-per-generation no-clip-higher truncated-completions kl no-refill";
    assert_eq!(names(&config).join(" "), all);
    let (rows, refusals) = config.compared(&paper, 1);
    let row = |name: &str| rows.iter().find(|it| it.setting.name == name).unwrap();
    assert_eq!(row("epsilon_high").value, Some(json!(0.2)));
    let agreeing = ["epsilon_high", "epsilon", "scale_rewards"].map(|name| row(name).agrees());
    assert_eq!(agreeing, [false, true, true]);
    assert!(refusals.iter().any(|it| it.key == "dapo.dynamic_sampling"));
    // A whole one may set more.
    (whole["optim"], whole["fsdp"]) = (json!("sgd"), Value::Null);
    whole["output_dir"] = json!("out");
    let unread = trl(folder.path(), &whole.to_string()).unread(&paper);
    assert_eq!(unread.iter().map(|it| it.key.as_str()).collect::<Vec<_>>(), ["optim"]);
    for sizes in ["300", "512\nsteps_per_generation: 4"] {
        let text = format!("per_device_train_batch_size: 64\ngeneration_batch_size: {sizes}\n");
        assert!(names(&trl(folder.path(), &text)).contains(&"batch-sizes"), "{sizes}");
    }
    // W&B's wrappers and YAML; what is not stated is in no trap.
    let wandb = "wandb_version: 1\nscale_rewards: {value: batch}\nepsilon: {value: 1e-1}\n";
    let config = trl(folder.path(), wandb);
    assert_eq!(names(&config), ["scale-rewards", "no-refill"]);
    assert!(config.unasked.is_some());
    for (name, text) in [("x.sh", "python train.py\n"), ("training_args.bin", "PK\u{3}\u{4}")] {
        let path = written(folder.path(), name, text);
        let error = TrlConfig::of_file("no-python", &path, 1).unwrap_err().to_string();
        assert!(error.contains("config.to_json_string()") && error.contains(name), "{error}");
    }
    assert!(refused(&folder.path().join("training_args.bin")).contains(SENTENCE));
}

#[test]
fn a_correction_of_vllms_ratio_that_is_not_asked_for_is_a_trap() {
    let folder = tempfile::tempdir().unwrap();
    let mut paper = starter::paper().unwrap();
    let is_found = |text: &str, asked: &Experiment| {
        let found = trl(folder.path(), &format!("beta: 0.0\n{text}\n")).traps(asked);
        found.iter().any(|it| it.name == "importance-correction")
    };
    let correction = "vllm_importance_sampling_correction";
    let off = format!("use_vllm: true\n{correction}: false");
    assert!(is_found("use_vllm: true", &paper));
    assert!(is_found(&format!("use_vllm: true\n{correction}: true"), &paper));
    for text in ["use_vllm: false", &off, &format!("{correction}: true")] {
        assert!(!is_found(text, &paper), "{text}");
    }
    paper.dapo.method =
        serde_json::from_value(json!({"kind": "tis", "level": "token", "cap": 2.0})).unwrap();
    assert!(!is_found("use_vllm: true", &paper));
}

#[test]
fn a_value_that_trl_filled_in_is_said_to_be_its_default() {
    let folder = tempfile::tempdir().unwrap();
    let paper = starter::paper().unwrap();
    let mut config = trl(folder.path(), "beta: 0.04\ntop_k: null\n");
    (config.version, config.filled) = (Some("0.17.0".to_string()), vec!["beta".to_string()]);
    let said = config.traps(&paper).into_iter().find(|it| it.name == "kl").unwrap().what;
    assert!(said.ends_with("(TRL 0.17.0's default)"), "{said}");
    let rows = config.compared(&paper, 1).0;
    let row = |name: &str| rows.iter().find(|it| it.setting.name == name).unwrap();
    assert!(row("beta").is_default && !row("top_k").is_default);
    // Null keeps all tokens, as 0 does.
    assert!(row("top_k").agrees());
}

#[test]
fn keys_of_a_grpo_config_that_are_misspelt_or_not_looked_at_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let paper = starter::paper().unwrap();
    let text = "epsilon: 0.2\nepsilon_hihg: 0.28\nmax_completion_lenght: 512\nnum_generations: 16\n\
                top_entropy_quantile: 0.2\nmin_p: 0.1\nlearning_rate: 1e-6\n\
                per_device_train_batch_size: 4\ngeneration_batch_size: 256\n";
    let config = trl(folder.path(), text);
    let unknown = config.traps(&paper).into_iter().filter(|it| it.name == "unknown-key");
    let unknown: Vec<String> =
        unknown.map(|it| format!("{}: {}", it.key, it.what.split('`').nth(1).unwrap())).collect();
    let expected = ["epsilon_hihg: epsilon_high", "max_completion_lenght: max_completion_length"];
    assert_eq!(unknown, expected);
    let unread: Vec<String> = config.unread(&paper).into_iter().map(|it| it.key).collect();
    let expected = ["epsilon_hihg", "max_completion_lenght", "top_entropy_quantile", "min_p"];
    assert_eq!(unread, expected);
    // Eight processes of four rows share 256.
    assert_eq!(config.values["steps_per_generation"], 8);
}

#[test]
fn a_file_is_read_to_its_end_whatever_its_keys_are() {
    let folder = tempfile::tempdir().unwrap();
    for text in [
        "---\nepsilon: 0.2\nrun name: x\nbeta: 0.04\n",
        "epsilon: 0.2\n\"Seed\": 1\nharness.model: m\nbeta: 0.04\n",
    ] {
        let config = trl(folder.path(), text);
        assert_eq!(config.values.get("beta"), Some(&json!(0.04)), "{text}");
    }
    let text = "data: {shuffle: true}\nRun: x\n'trainer': {total_epochs: 3}\n";
    let read = read(&written(folder.path(), "job", text));
    assert_eq!(read.get("trainer.total_epochs"), Some(&json!(3)));
}

#[test]
fn a_schedule_of_the_learning_rate_that_is_not_asked_for_is_a_trap() {
    let folder = tempfile::tempdir().unwrap();
    let mut asked = starter::paper().unwrap();
    for StatedRow { stated, traps, warm_up } in stated_rows("trl") {
        asked.optimizer.warm_up = warm_up.unwrap();
        let found = trl(folder.path(), &format!("beta: 0.0\n{stated}\n")).traps(&asked);
        let found = found.iter().filter(|it| it.name == "learning-rate-schedule");
        assert_eq!(found.map(|it| it.name).collect::<Vec<_>>(), traps, "{warm_up:?}: {stated}");
    }
}

#[test]
fn each_setting_of_trl_that_render_writes_is_held_or_excused() {
    use dapo::engines::trl::settings;
    let config = TrlConfig::default();
    let arm = starter::paper().unwrap();
    let held: Vec<String> =
        config.compared(&arm, 1).0.into_iter().map(|it| it.setting.name).collect();
    for setting in settings::demand(&arm, 1).into_parts().0 {
        let excuse = |(name, why): (&String, &String)| {
            setting.name.starts_with(name.as_str()) && !why.is_empty()
        };
        let excused = settings::KEYS.not_held.iter().any(excuse);
        assert!(excused != held.contains(&setting.name), "{}", setting.name);
    }
}
