//! From nothing to a verdict on one's own question: `dapo init`, `ablate` and `compare`, in an empty
//! folder.

use crate::binary::{Output, dapo_in, failed, succeeded};
use crate::repository;
use dapo::base::files;
use dapo::policy::{Config, Family};
use std::path::Path;
use tch::Tensor;

fn dapo(folder: &Path, line: &str) -> Output {
    dapo_in(folder, &line.split_whitespace().collect::<Vec<_>>())
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
    let (shown, _) = succeeded(dapo(folder.path(), &line));
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
    let (shown, _) = succeeded(dapo(folder.path(), "ablate my-study --dry-run"));
    assert!(shown.contains("4 cells, 4 to run"), "{shown}");
    let (shown, _) = succeeded(dapo(folder.path(), "ablate my-study"));
    assert!(shown.contains("avg@k on test") && shown.contains("my-study/report.html"), "{shown}");
    let compare = "compare my-study --arm dapo --against grpo --fail-if";
    // Two seeds cannot fail the gate, so they do not pass it.
    let (code, shown, talk) = dapo(folder.path(), &format!("{compare} worse"));
    assert_eq!(code, 6, "{shown}");
    assert!(talk.contains("nothing can be decided"), "{talk}");
    assert!(shown.contains("my-study/dapo against my-study/grpo, avg@k on test"), "{shown}");
    failed(
        dapo(folder.path(), "compare my-study --arm dpo --against grpo"),
        3,
        "no arm \"dpo\"; there are my-study/grpo, my-study/dapo",
    );
}

#[test]
fn the_embedded_benchmark_needs_no_checkout() {
    let folder = tempfile::tempdir().unwrap();
    succeeded(dapo(folder.path(), "init demo --arms grpo,dapo,dr-grpo,gspo"));
    let (shown, _) = succeeded(dapo(folder.path(), "ablate demo --dry-run"));
    assert!(shown.contains("20 cells, 20 to run"), "{shown}");
    // The folder that one stands in.
    let here = tempfile::tempdir().unwrap();
    succeeded(dapo(here.path(), "init ."));
    let (code, shown, talk) = dapo(here.path(), "ablate . --dry-run");
    assert!(code == 0 && shown.contains("10 cells"), "{shown}{talk}");
}

#[test]
fn a_ground_truth_that_is_a_list_in_a_text_is_read_as_its_item_and_the_study_says_so() {
    let folder = with_problems();
    let train = files::read_text(&folder.path().join("train.jsonl")).unwrap();
    let text = format!("{train}{{\"question\": \"1+1+1+1\", \"answer\": \"[\\\"4\\\"]\"}}\n");
    files::write_atomic(&folder.path().join("train.jsonl"), text.as_bytes()).unwrap();
    let (_, talk) = succeeded(dapo(folder.path(), &format!("init s {OWN}")));
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
    let (shown, _) = succeeded(dapo(folder.path(), &format!("init s {OWN}")));
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
