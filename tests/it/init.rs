//! From nothing to a verdict on one's own question: `dapo init`, `ablate` and `compare`, in an empty
//! folder.

use crate::bad_input::input::Step;
use crate::transcript::play;
use dapo::base::files;
use dapo::policy::{Config, Family};
use tch::Tensor;

/// An empty folder but for problems and a model.
fn with_problems() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    Step::Given("own problems".to_string()).take(folder.path());
    folder
}

#[test]
fn two_arms_with_two_seeds_on_ones_own_problems_end_with_a_verdict() {
    play(with_problems().path(), include_str!("init/own_problems.txt"));
}

#[test]
fn the_embedded_benchmark_needs_no_checkout() {
    play(tempfile::tempdir().unwrap().path(), include_str!("init/no_checkout.txt"));
}

#[test]
fn a_ground_truth_that_is_a_list_in_a_text_is_read_as_its_item_and_the_study_says_so() {
    play(with_problems().path(), include_str!("init/list_in_a_text.txt"));
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
    play(folder.path(), include_str!("init/refused_by_exact.txt"));
}
