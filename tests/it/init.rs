//! From nothing to a verdict on one's own question: `dapo init`, `ablate` and `compare`, in an empty
//! folder.

use crate::bad_input::input::Step;
use crate::binary::{failed, line_in as dapo, says, succeeded};
use dapo::base::files;
use dapo::policy::{Config, Family};
use tch::Tensor;

/// An empty folder but for problems and a model.
fn with_problems() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    Step::Given("own problems".to_string()).take(folder.path());
    folder
}

const OWN: &str = "--model model --train train.jsonl --dev dev.jsonl --test test.jsonl";

#[test]
fn two_arms_with_two_seeds_on_ones_own_problems_end_with_a_verdict() {
    let folder = with_problems();
    let line =
        format!("init my-study {OWN} --arms grpo,dapo --seeds 1..2 --max-response-tokens 64");
    says(dapo(folder.path(), &line), 0, &["48 training problems, 16 to evaluate"]);
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
    says(dapo(folder.path(), "ablate my-study --dry-run"), 0, &["4 cells, 4 to run"]);
    let shown = ["avg@k on test", "my-study/report.html"];
    says(dapo(folder.path(), "ablate my-study"), 0, &shown);
    let compare = "compare my-study --arm dapo --against grpo --fail-if";
    // Two seeds cannot fail the gate, so they do not pass it.
    let undecided = "my-study/dapo against my-study/grpo, avg@k on test";
    let gate = dapo(folder.path(), &format!("{compare} worse"));
    says(gate, 6, &["nothing can be decided", undecided]);
    let unknown = dapo(folder.path(), "compare my-study --arm dpo --against grpo");
    failed(unknown, 3, "no arm \"dpo\"; there are my-study/grpo, my-study/dapo");
}

#[test]
fn the_embedded_benchmark_needs_no_checkout() {
    let folder = tempfile::tempdir().unwrap();
    succeeded(dapo(folder.path(), "init demo --arms grpo,dapo,dr-grpo,gspo"));
    says(dapo(folder.path(), "ablate demo --dry-run"), 0, &["20 cells, 20 to run"]);
    // The folder that one stands in.
    let here = tempfile::tempdir().unwrap();
    succeeded(dapo(here.path(), "init ."));
    says(dapo(here.path(), "ablate . --dry-run"), 0, &["10 cells"]);
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
    let refusal = "exact arithmetic refuses this model: exact arithmetic: it has no norms";
    for text in [base, readme, shown] {
        assert!(text.contains(refusal), "{text}");
    }
}
