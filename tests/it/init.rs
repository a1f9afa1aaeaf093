//! From nothing to a verdict on one's own question: `dapo init`, `ablate` and `compare`, in an empty
//! folder.

use crate::repository;
use assert_cmd::cargo::cargo_bin;
use dapo::base::files;
use dapo::policy::{Config, Family};
use std::path::Path;
use std::process::Command;
use tch::Tensor;

/// Exit code, standard output, standard error.
fn dapo(folder: &Path, line: &str) -> (i32, String, String) {
    let mut command = Command::new(cargo_bin("dapo"));
    command.args(line.split_whitespace()).current_dir(folder).env("OMP_NUM_THREADS", "1");
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// An empty folder but for problems and a model.
fn with_problems() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = repository::root();
    for name in ["train.jsonl", "dev.jsonl", "test.jsonl"] {
        let bytes = files::read(&root.join("experiments/own-task").join(name)).unwrap();
        files::write_atomic(&folder.path().join(name), &bytes).unwrap();
    }
    for name in ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"] {
        let bytes = files::read(&root.join("golden/mini-aime/base").join(name)).unwrap();
        files::write_atomic(&folder.path().join("model").join(name), &bytes).unwrap();
    }
    folder
}

const OWN: &str = "--model model --train train.jsonl --dev dev.jsonl --test test.jsonl";

#[test]
fn two_arms_with_two_seeds_on_ones_own_problems_end_with_a_verdict() {
    let folder = with_problems();
    let line =
        format!("init my-study {OWN} --arms grpo,dapo --seeds 1..2 --max-response-tokens 64");
    let (code, shown, talk) = dapo(folder.path(), &line);
    assert_eq!(code, 0, "{talk}");
    assert!(shown.contains("48 training problems, 16 to evaluate"), "{shown}");
    // Shorter than anybody would choose.
    let base = folder.path().join("my-study/base.toml");
    let mut text = files::read_text(&base).unwrap();
    for (key, value) in [
        ("threads = ", "1"),
        ("rollout_steps = ", "1"),
        ("prompts_per_step = ", "4"),
        ("prompts_per_round = ", "4"),
        ("mini_batch_rollouts = ", "16"),
        ("warm_up = ", "{ rollout_steps = 1, start = \"first-step\" }"),
    ] {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap().to_string();
        text = text.replace(&line, &format!("{key}{value}"));
    }
    files::write_atomic(&base, text.as_bytes()).unwrap();
    let (code, shown, talk) = dapo(folder.path(), "ablate my-study --dry-run");
    assert_eq!(code, 0, "{talk}");
    assert!(shown.contains("4 cells, 4 to run"), "{shown}");
    let (code, shown, talk) = dapo(folder.path(), "ablate my-study");
    assert_eq!(code, 0, "{talk}");
    assert!(shown.contains("avg@k on test") && shown.contains("my-study/report.html"), "{shown}");
    let compare = "compare my-study --arm dapo --against grpo --fail-if";
    // Two seeds cannot fail the gate, so they do not pass it.
    let (code, shown, talk) = dapo(folder.path(), &format!("{compare} worse"));
    assert_eq!(code, 6, "{shown}");
    assert!(talk.contains("nothing can be decided"), "{talk}");
    assert!(shown.contains("my-study/dapo against my-study/grpo, avg@k on test"), "{shown}");
    let (code, _, talk) = dapo(folder.path(), "compare my-study --arm dpo --against grpo");
    assert_eq!(code, 3);
    assert!(talk.contains("no arm \"dpo\"; there are my-study/grpo, my-study/dapo"), "{talk}");
}

#[test]
fn the_embedded_benchmark_needs_no_checkout() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, talk) = dapo(folder.path(), "init demo --arms grpo,dapo,dr-grpo,gspo");
    assert_eq!(code, 0, "{talk}");
    let (code, shown, talk) = dapo(folder.path(), "ablate demo --dry-run");
    assert_eq!(code, 0, "{talk}");
    assert!(shown.contains("20 cells, 20 to run"), "{shown}");
    // The folder that one stands in.
    let here = tempfile::tempdir().unwrap();
    let (code, _, talk) = dapo(here.path(), "init .");
    assert_eq!(code, 0, "{talk}");
    let (code, shown, talk) = dapo(here.path(), "ablate . --dry-run");
    assert!(code == 0 && shown.contains("10 cells"), "{shown}{talk}");
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_written() {
    let folder = with_problems();
    let cases = [
        ("init model".to_string(), "the folder is not empty"),
        (format!("init s {OWN} --arms grpo,dpo"), "no arm \"dpo\""),
        (format!("init s {OWN} --max-response-tokens 4000"), "0 of 64 problems fit"),
        (format!("init s {OWN} --test dev.jsonl"), "also named `dev`"),
        (OWN.replace("dev.jsonl", "absent.jsonl"), "absent.jsonl"),
        (OWN.replace("--dev dev.jsonl", "--dev train.jsonl"), "also stand in the training file"),
    ];
    for (line, expected) in cases {
        let line = if line.starts_with("init") { line } else { format!("init s {line}") };
        let (code, _, talk) = dapo(folder.path(), &line);
        assert_eq!(code, 3, "{line}: {talk}");
        assert!(talk.contains(expected), "{line}: {talk}");
        assert!(!folder.path().join("s").exists(), "{line}");
    }
}

#[test]
fn ground_truths_that_no_response_can_match_are_refused_with_line_and_value() {
    let folder = with_problems();
    let train = files::read_text(&folder.path().join("train.jsonl")).unwrap();
    for (answer, place, words) in [
        ("\"1\\n2\"", "train.jsonl:49", "ground truth \"1\\n2\""),
        ("\"[INVALID]\"", "train.jsonl:49", "ground truth \"[INVALID]\""),
        ("[\"1\", \"2\"]", "train.jsonl:49", "a list of 2 answers"),
        ("null", "train.jsonl:49", "it is null"),
    ] {
        let text = format!("{train}{{\"question\": \"one more\", \"answer\": {answer}}}\n");
        files::write_atomic(&folder.path().join("train.jsonl"), text.as_bytes()).unwrap();
        let (code, _, talk) = dapo(folder.path(), &format!("init s {OWN}"));
        assert_eq!(code, 3, "{talk}");
        assert!(talk.contains(place) && talk.contains(words), "{talk}");
        assert!(!folder.path().join("s").exists());
    }
    let text = format!("{train}{{\"question\": \"1+1+1+1\", \"answer\": \"[\\\"4\\\"]\"}}\n");
    files::write_atomic(&folder.path().join("train.jsonl"), text.as_bytes()).unwrap();
    let (code, _, talk) = dapo(folder.path(), &format!("init s {OWN}"));
    assert_eq!(code, 0, "{talk}");
    let base = files::read_text(&folder.path().join("s/base.toml")).unwrap();
    assert!(base.contains("is read as `4`") && talk.contains("is read as `4`"), "{talk}");
}

#[test]
fn a_model_that_exact_arithmetic_refuses_gets_fast_arithmetic_and_the_study_says_so() {
    let folder = with_problems();
    // Norms of queries and keys, which exact arithmetic does not have.
    let model = folder.path().join("model");
    let json: serde_json::Value = files::read_json(&model.join("config.json")).unwrap();
    let config = Config { family: Family::Qwen3, ..Config::from_json(&json).unwrap() };
    files::write_json(&model.join("config.json"), &config.to_json(1, 0)).unwrap();
    let zeros = |(name, shape): (String, Vec<i64>)| {
        (name, Tensor::zeros(shape, (tch::Kind::Float, tch::Device::Cpu)))
    };
    let tensors: Vec<(String, Tensor)> = config.tensor_shapes().into_iter().map(zeros).collect();
    Tensor::write_safetensors(&tensors, model.join("model.safetensors")).unwrap();
    let (code, shown, talk) = dapo(folder.path(), &format!("init s {OWN}"));
    assert_eq!(code, 0, "{talk}");
    let base = files::read_text(&folder.path().join("s/base.toml")).unwrap();
    assert!(base.contains("\nnumerics = \"fast\""), "{base}");
    let readme = files::read_text(&folder.path().join("s/README.md")).unwrap();
    for text in [base, readme, shown] {
        assert!(
            text.contains("exact arithmetic refuses this model: exact arithmetic: it has no norms"),
            "{text}"
        );
    }
}
