use super::*;
use crate::base::{Purpose, rng::Id, rng::stream};
use crate::numerics::Numerics;
use crate::policy::{Config, Family, KvCache, PolicyError, Sequences};
use std::collections::BTreeMap;
use tch::{Kind, Tensor};

const STOP: [u32; 1] = [1];

fn config() -> Config {
    Config {
        family: Family::Qwen2,
        vocab_size: 11,
        hidden_size: 24,
        intermediate_size: 40,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 12,
        max_position_embeddings: 64,
        rope_theta: 10_000.0,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: false,
    }
}

/// A policy whose weights are `change`d: name and tensor → tensor.
fn changed(model: &Qwen2, change: impl Fn(&str, &Tensor) -> Tensor) -> Qwen2 {
    let parameters = model.parameters().iter();
    let parameters: BTreeMap<String, Tensor> =
        parameters.map(|(name, tensor)| (name.clone(), change(name, tensor))).collect();
    Qwen2::new(model.config().clone(), parameters).unwrap()
}

/// Weights ten times as large as fresh ones: the context then decides about the next token.
fn policy() -> Qwen2 {
    changed(&Qwen2::initialise(config(), 1), |name, tensor| match name.ends_with("norm.weight") {
        true => tensor.shallow_clone(),
        false => tensor * 10.0,
    })
}

fn prompts() -> Vec<Vec<u32>> {
    (0..30u32).map(|row| (0..1 + row % 7).map(|at| (row * 5 + at * 3) % 11).collect()).collect()
}

fn responses(model: &Qwen2, prompts: &[Vec<u32>], batch_rows: usize) -> Vec<Response> {
    let requests: Vec<Request> = prompts
        .iter()
        .zip(0u64..)
        .map(|(prompt, row)| Request {
            prompt,
            stream: stream(7, Purpose::Generate, &[Id::from(row)]),
        })
        .collect();
    generate(model, &requests, &limits(batch_rows), |_| ()).unwrap()
}

fn limits(batch_rows: usize) -> Limits<'static> {
    Limits {
        sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, log_probs: None },
        max_response_tokens: 40,
        entropy: true,
        stop_tokens: &STOP,
        batch_rows,
    }
}

fn assert_agree(ours: &[Response], theirs: &[Response]) {
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!((&ours.tokens, ours.finish), (&theirs.tokens, theirs.finish));
        for (ours, theirs) in ours.log_probs.iter().zip(&theirs.log_probs) {
            assert!((ours - theirs).abs() < 1e-5, "{ours} {theirs}");
        }
        let (ours, theirs) = (ours.entropy.unwrap(), theirs.entropy.unwrap());
        assert!((ours - theirs).abs() < 1e-4, "{ours} {theirs}");
    }
}

#[test]
fn rows_that_join_in_the_middle_get_the_tokens_that_they_get_alone() {
    let (model, prompts) = (policy(), prompts());
    let alone = responses(&model, &prompts, 1);
    let lengths: Vec<usize> = alone.iter().map(|response| response.tokens.len()).collect();
    assert!(lengths.iter().min() < lengths.iter().max(), "rows leave at different times");
    assert!(lengths.iter().max() > Some(&20), "a row fills more than one block of slots");
    for batch_rows in [2, 5, 9, 30] {
        assert_agree(&responses(&model, &prompts, batch_rows), &alone);
    }
}

#[test]
fn policies_with_their_cache_in_slices_and_in_tensors_agree() {
    let (model, prompts) = (policy(), prompts());
    let wide = changed(&model, |_, tensor| tensor.to_kind(Kind::Double));
    assert!(matches!(KvCache::new(&model, 1, 1), KvCache::Rows(_)));
    assert!(matches!(KvCache::new(&wide, 1, 1), KvCache::Shared(_)));
    for batch_rows in [4, 30] {
        let (slices, tensors) =
            (responses(&model, &prompts, batch_rows), responses(&wide, &prompts, batch_rows));
        assert_agree(&slices, &tensors);
    }
}

/// Σ of each token's entropy in order, by the training forward over the same tokens.
fn trained_entropy(model: &Qwen2, prompt: &[u32], response: &Response) -> f64 {
    let tokens = [prompt, &response.tokens].concat();
    let mut sequences = Sequences::default();
    sequences.push(&tokens[..tokens.len() - 1], prompt.len() - 1, &response.tokens);
    let entropy = model.statistics(&sequences, 1.0).1.to_kind(Kind::Double);
    Vec::<f64>::try_from(entropy).unwrap().into_iter().fold(0.0, |sum, entropy| sum + entropy)
}

#[test]
fn the_entropy_of_a_response_is_the_training_forwards_and_under_exact_arithmetic_to_the_bit() {
    let (fast, prompts) = (policy(), prompts());
    for response in responses(&fast, &prompts, 7).iter().zip(&prompts) {
        let (response, prompt) = response;
        let trained = trained_entropy(&fast, prompt, response);
        assert!((response.entropy.unwrap() - trained).abs() < 1e-4, "{response:?} {trained}");
    }
    let exact = policy().with_numerics(Numerics::Exact).unwrap();
    let bits = |batch_rows: usize| -> Vec<u64> {
        let responses = responses(&exact, &prompts, batch_rows);
        responses.iter().map(|response| response.entropy.unwrap().to_bits()).collect()
    };
    let alone = bits(1);
    assert!([2, 9, 30].iter().all(|&rows| bits(rows) == alone));
    let trained = responses(&exact, &prompts, 30).into_iter().zip(&prompts);
    let trained = trained.map(|(it, prompt)| trained_entropy(&exact, prompt, &it).to_bits());
    assert_eq!(trained.collect::<Vec<u64>>(), alone);
}

#[test]
fn entropy_is_told_where_it_is_asked_for_and_changes_no_draw() {
    let (model, prompts) = (policy(), prompts());
    let request = |prompt| Request { prompt, stream: stream(7, Purpose::Generate, &[]) };
    let requests: Vec<Request> = prompts.iter().map(|prompt| request(&prompt[..])).collect();
    let made = |entropy| {
        let limits = Limits { entropy, ..limits(8) };
        generate(&model, &requests, &limits, |_| ()).unwrap()
    };
    for (with, without) in made(true).into_iter().zip(made(false)) {
        assert!(with.entropy.unwrap() > 0.0);
        assert_eq!(without, Response { entropy: None, ..with });
    }
}

#[test]
fn weights_whose_products_are_infinite_are_an_error_that_names_the_prompt_and_the_token() {
    let prompts = [vec![3u32, 3], vec![3]];
    let requests: Vec<Request> = prompts
        .iter()
        .map(|prompt| Request { prompt, stream: stream(7, Purpose::Generate, &[]) })
        .collect();
    let error = |model: &Qwen2| generate(model, &requests, &limits(2), |_| ()).unwrap_err();
    let huge = changed(&policy(), |name, tensor| match name.contains("gate_proj") {
        true => tensor * 1e38,
        false => tensor.shallow_clone(),
    });
    assert!(matches!(error(&huge), PolicyError::Logits { index: 0, token: 0 }));
    // The prompts are read without harm (padding is token 0), the first token fed does it.
    let huge = changed(&policy(), |name, tensor| {
        let copy = tensor.copy();
        if name == "model.embed_tokens.weight" {
            let _ = copy.narrow(0, 1, 2).fill_(f64::INFINITY);
            let _ = copy.narrow(0, 4, 7).fill_(f64::INFINITY);
        }
        copy
    });
    match error(&huge) {
        PolicyError::Logits { token, .. } => assert!(token > 0),
        other => panic!("{other}"),
    }
}
