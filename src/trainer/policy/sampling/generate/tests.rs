use super::*;
use crate::algorithm::Finish;
use crate::base::{Purpose, files, rng::Id, rng::stream};
use crate::experiment::Sampling;
use crate::numerics::Numerics;
use crate::policy::{Config, PolicyError, Sequences, model::config::tests::tiny};
use crate::task::{ResponseText, Tokenizer, data::embedded::characters};
use std::collections::BTreeMap;
use tch::{Kind, Tensor};

const STOP: [u32; 1] = [1];

fn config() -> Config {
    let sizes = Config { vocab_size: 11, hidden_size: 24, intermediate_size: 40, ..tiny() };
    Config { head_dim: 12, tie_word_embeddings: false, ..sizes }
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
    changed(&Qwen2::initialise(config(), 1), |name, tensor| {
        if name.ends_with("norm.weight") { tensor.shallow_clone() } else { tensor * 10.0 }
    })
}

fn prompts() -> Vec<Vec<u32>> {
    (0..30u32).map(|row| (0..1 + row % 7).map(|at| (row * 5 + at * 3) % 11).collect()).collect()
}

fn requests(prompts: &[Vec<u32>]) -> Vec<Request<'_>> {
    let stream = |row| stream(7, Purpose::Generate, &[Id::from(row)]);
    prompts
        .iter()
        .zip(0u64..)
        .map(|(prompt, row)| Request { prompt, stream: stream(row) })
        .collect()
}

fn responses(model: &Qwen2, prompts: &[Vec<u32>], batch_rows: usize) -> Vec<Response> {
    generate(model, &requests(prompts), &limits(batch_rows), |_| ()).unwrap()
}

fn limits(batch_rows: usize) -> Limits<'static> {
    Limits {
        sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, log_probs: None },
        max_response_tokens: 40,
        entropy: true,
        stop_tokens: &STOP,
        text: None,
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
        for (ours, theirs) in ours.entropy.iter().zip(&theirs.entropy) {
            assert!((ours - theirs).abs() < 1e-5, "{ours} {theirs}");
        }
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
fn a_policy_in_the_native_engine_and_one_in_libtorchs_agree() {
    let (model, prompts) = (policy(), prompts());
    let wide = changed(&model, |_, tensor| tensor.to_kind(Kind::Double));
    assert!(model.is_native() && !wide.is_native());
    for batch_rows in [4, 30] {
        let (native, tensors) =
            (responses(&model, &prompts, batch_rows), responses(&wide, &prompts, batch_rows));
        assert_agree(&native, &tensors);
    }
}

#[test]
fn a_stop_string_ends_a_response_in_both_engines_and_its_tokens_stay() {
    let folder = tempfile::tempdir().unwrap();
    characters::write_tokenizer(folder.path(), "abcdefghi").unwrap();
    files::write_json(&folder.path().join("config.json"), &serde_json::json!({"eos_token_id": 1}))
        .unwrap();
    let tokenizer = Tokenizer::load(folder.path()).unwrap();
    let (model, prompts) = (policy(), prompts());
    let wide = changed(&model, |_, tensor| tensor.to_kind(Kind::Double));
    let unstopped = responses(&model, &prompts, 9);
    let middle =
        |response: &Response| tokenizer.decode(&response.tokens[2..4.min(response.tokens.len())]);
    let stop: Vec<String> =
        unstopped.iter().map(middle).filter(|text| text.len() == 2).take(3).collect();
    let text = ResponseText::new(&tokenizer, None, &stop);
    let requests = requests(&prompts);
    let mut ended = 0;
    for (model, batch_rows) in [(&model, 9), (&model, 30), (&wide, 4)] {
        let limits = Limits { text: text.stopping(), ..limits(batch_rows) };
        let stopped = generate(model, &requests, &limits, |_| ()).unwrap();
        for (stopped, whole) in stopped.iter().zip(&unstopped) {
            let count = stopped.tokens.len();
            assert_eq!(stopped.tokens, whole.tokens[..count]);
            let completes = |count: &usize| text.is_complete(&whole.tokens[..*count]);
            let end = (1..=whole.tokens.len()).find(completes);
            assert_eq!(count, end.unwrap_or(whole.tokens.len()));
            let is_end = end.is_some() && whole.tokens[count - 1] != STOP[0];
            assert_eq!(stopped.finish == Finish::StopString, is_end);
            ended += usize::from(is_end);
        }
    }
    assert!(ended > 6, "{ended}");
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Log-probs and entropies of a response's tokens, by the training forward.
fn trained(model: &Qwen2, prompt: &[u32], response: &Response) -> [Vec<u64>; 2] {
    let tokens = [prompt, &response.tokens].concat();
    let mut sequences = Sequences::default();
    sequences.push(&tokens[..tokens.len() - 1], prompt.len() - 1, &response.tokens);
    model.statistics(&sequences, 1.0).map(|values| bits(&Vec::<f64>::try_from(values).unwrap()))
}

#[test]
fn log_probs_and_entropies_of_the_sampler_are_the_training_forwards_to_the_bit() {
    let prompts = prompts();
    for numerics in [Numerics::Exact, Numerics::Fast] {
        let model = policy().with_numerics(numerics).unwrap();
        for batch_rows in [1, 2, 9, 30] {
            for (response, prompt) in responses(&model, &prompts, batch_rows).iter().zip(&prompts) {
                assert!(!response.entropy.is_empty());
                let sampled = [bits(&response.log_probs), bits(&response.entropy)];
                assert_eq!(sampled, trained(&model, prompt, response), "{numerics:?}");
            }
        }
    }
}

#[test]
fn entropy_is_told_where_it_is_asked_for_and_changes_no_draw() {
    let (model, prompts) = (policy(), prompts());
    let requests = requests(&prompts);
    let responses = |entropy| {
        let limits = Limits { entropy, ..limits(8) };
        generate(&model, &requests, &limits, |_| ()).unwrap()
    };
    for (with, without) in responses(true).into_iter().zip(responses(false)) {
        assert!(with.entropy.iter().all(|&entropy| entropy > 0.0));
        assert_eq!(without, Response { entropy: Vec::new(), ..with });
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
    let huge = changed(&policy(), |name, tensor| {
        if name.contains("gate_proj") { tensor * 1e38 } else { tensor.shallow_clone() }
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
