//! Parity of the models (Qwen2, Qwen3, Llama; one file or several) with transformers, on
//! golden/qwen2 (see generate.py there).

use crate::golden_data;
use dapo::algorithm::Finish;
use dapo::base::{Purpose, rng::Id, rng::stream};
use dapo::experiment::Sampling;
use dapo::numerics::fast;
use dapo::policy::sampling::generate;
use dapo::policy::{Config, Limits, Qwen2, Request, Response, Token, checkpoint};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Mutex;
use tch::{Kind, Tensor};

#[derive(Deserialize)]
pub struct Expected {
    pub logits: Vec<Logits>,
    greedy: Greedy,
}

#[derive(Deserialize)]
pub struct Logits {
    pub input_ids: Vec<i64>,
    pub logits: Vec<Vec<f64>>,
}

#[derive(Deserialize)]
pub struct Greedy {
    max_new_tokens: usize,
    eos_token_ids: Vec<u32>,
    runs: Vec<GreedyRun>,
}

#[derive(Deserialize)]
pub struct GreedyRun {
    prompt_ids: Vec<u32>,
    response_ids: Vec<u32>,
    finish: Finish,
}

/// The models of the golden folder, and what transformers made of them.
fn models() -> impl Iterator<Item = (String, Qwen2, Expected)> {
    golden_data::cases("qwen2").into_iter().map(|case| {
        let expected = golden_data::read(&case.join("expected.json"));
        (case.display().to_string(), checkpoint::load_model(&case).unwrap(), expected)
    })
}

/// The native engine's logits after each prompt; `None` where it does not have the model.
pub fn native_logits<'a>(
    model: &Qwen2,
    prompts: impl Iterator<Item = &'a [u32]>,
) -> Option<Vec<f64>> {
    let prompts: Vec<&[u32]> = prompts.collect();
    let rows: Vec<usize> = (0..prompts.len()).collect();
    let logits = Mutex::new(BTreeMap::new());
    model.native()?.generation().join(&prompts, &rows, &|row, of_row| {
        logits.lock().unwrap().insert(row, of_row.to_vec());
        Token { id: 0, log_prob: 0.0, entropy: None }
    });
    Some(logits.into_inner().unwrap().into_values().flatten().collect())
}

pub fn greedy(max_response_tokens: usize, stop_tokens: &[u32], batch_rows: usize) -> Limits<'_> {
    let sampling = Sampling { temperature: 0.0, top_p: 1.0, top_k: 0, log_probs: None };
    Limits { sampling, max_response_tokens, entropy: false, stop_tokens, text: None, batch_rows }
}

/// A response to each prompt, drawn with a stream of its own.
pub fn generated<'a>(
    model: &Qwen2,
    prompts: impl Iterator<Item = &'a [u32]>,
    limits: &Limits,
) -> Vec<Response> {
    let request = |(row, prompt): (u64, &'a [u32])| Request {
        prompt,
        stream: stream(7, Purpose::Generate, &[Id::from(row)]),
    };
    let requests: Vec<Request> = (0..).zip(prompts).map(request).collect();
    generate::generate(model, &requests, limits, |_| ()).unwrap()
}

#[test]
fn logits_agree_with_transformers_within_1e_5() {
    for (name, model, expected) in models() {
        for expected in expected.logits {
            let tokens = Tensor::from_slice(&expected.input_ids).unsqueeze(0);
            let logits = fast::without_graph(|| model.logits(&model.forward(&tokens)));
            let ours = Vec::<f64>::try_from(logits.to_kind(Kind::Double).flatten(0, -1)).unwrap();
            let theirs = expected.logits.concat();
            // Each token's logits are those that follow the prompt that it ends.
            let ids: Vec<u32> = expected.input_ids.iter().map(|&id| id as u32).collect();
            let native = native_logits(&model, (1..=ids.len()).map(|end| &ids[..end]));
            for ours in [Some(ours), native].into_iter().flatten() {
                assert_eq!(ours.len(), theirs.len());
                for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
                    let distance = (ours - theirs).abs();
                    assert!(distance <= 1e-5, "{name} {at}: {ours} {theirs}");
                }
            }
        }
    }
}

#[test]
fn right_padding_changes_nothing_to_its_left() {
    for (name, model, expected) in models() {
        let ids = &expected.logits[1].input_ids;
        let padded = [&ids[..], &[0; 5]].concat();
        let hidden = |ids: &[i64]| {
            fast::without_graph(|| model.forward(&Tensor::from_slice(ids).unsqueeze(0)))
        };
        let (alone, beside) = (hidden(ids), hidden(&padded).narrow(1, 0, ids.len() as i64));
        let distance = (alone - beside).abs().max().double_value(&[]);
        assert!(distance < 1e-5, "{name}: {distance}");
    }
}

#[test]
fn greedy_generations_are_equal_token_for_token_alone_and_in_a_batch() {
    for (name, model, Expected { greedy, .. }) in models() {
        let prompts = greedy.runs.iter().map(|run| run.prompt_ids.as_slice());
        for batch_rows in [1, 2, 64] {
            let limits = self::greedy(greedy.max_new_tokens, &greedy.eos_token_ids, batch_rows);
            let responses = generated(&model, prompts.clone(), &limits);
            for (run, response) in greedy.runs.iter().zip(responses) {
                let theirs = (&run.response_ids, run.finish);
                assert_eq!((&response.tokens, response.finish), theirs, "{name}");
            }
        }
    }
}

#[test]
fn configs_of_transformers_4_and_5_say_the_same() {
    let mut versions = [0, 0];
    for case in golden_data::cases("qwen2") {
        let read = |name: &str| {
            Config::from_json(&golden_data::read::<serde_json::Value>(&case.join(name))).unwrap()
        };
        for (count, version) in versions.iter_mut().zip([4, 5]) {
            let other = format!("config-transformers{version}.json");
            if case.join(&other).exists() {
                *count += 1;
                assert_eq!(read("config.json"), read(&other), "{}", case.display());
            }
        }
    }
    assert!(versions[0] > 0 && versions[1] > 0, "both versions must be read: {versions:?}");
}
