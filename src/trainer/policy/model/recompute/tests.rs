use super::*;
use crate::experiment::Place;
use crate::policy::{Config, Family, UpdateScale, model::config::tests::tiny};
use tch::Kind;

fn policy(family: Family, tied: bool) -> Qwen2 {
    let sizes = Config { vocab_size: 13, num_hidden_layers: 3, ..tiny() };
    let config = Config { family, max_position_embeddings: 32, tie_word_embeddings: tied, ..sizes };
    // Ten times the fresh size, and norms and biases that are not 1 and 0: all of it acts.
    let change = |(name, tensor): (&String, &Tensor)| {
        let changed = if name.ends_with("norm.weight") || name.ends_with("bias") {
            tensor + 0.25
        } else {
            tensor * 10.0
        };
        (name.clone(), changed.to_kind(Kind::Double).set_requires_grad(true))
    };
    let fresh = Qwen2::initialise(config.clone(), 4);
    Qwen2::new(config, fresh.parameters().iter().map(change).collect()).unwrap()
}

/// Three sequences of several lengths, 11 targets.
fn sequences() -> Sequences {
    let mut sequences = Sequences::default();
    sequences.push(&[1, 2, 3, 4, 5, 6], 1, &[3, 4, 5, 6]);
    sequences.push(&[7, 8, 9], 0, &[8, 9]);
    sequences.push(&[10, 11, 12, 1, 2, 3, 4, 5], 2, &[1, 2, 3, 4, 5]);
    sequences
}

/// The policy with passes that hold less, trainable.
fn placed(model: Qwen2, memory: Option<Memory>) -> Qwen2 {
    let model = model.placed(Place { memory, ..Place::default() }).unwrap();
    for tensor in model.parameters().values() {
        let _ = tensor.set_requires_grad(true);
    }
    model
}

/// Gradients by name and what the loss said, with `memory`.
fn gradients(model: Qwen2, memory: Option<Memory>) -> (BTreeMap<String, Tensor>, f64) {
    let model = placed(model, memory);
    let scale = UpdateScale { largest_weight: 1.0, tokens: 17 };
    let weights = Tensor::arange(11, (Kind::Double, tch::Device::Cpu)) * 0.3 - 1.0;
    let loss = |log_probs: &Tensor| {
        let loss = (log_probs.exp() * &weights).sum(Kind::Double);
        let value = loss.double_value(&[]);
        (loss, value)
    };
    let mut gradients = Gradients::default();
    let value = model.add_gradients(&mut gradients, &sequences(), 0.8, scale, loss).unwrap();
    let Gradients::Fast(tensors) = gradients else { panic!("fast arithmetic") };
    (model.parameters().keys().cloned().zip(tensors).collect(), value)
}

#[test]
fn gradients_are_those_of_the_plain_pass() {
    for (family, tied) in [(Family::Qwen2, true), (Family::Qwen3, false), (Family::Llama, true)] {
        let (plain, loss) = gradients(policy(family, tied), None);
        for recompute_layers in [false, true] {
            for logits_chunk_tokens in [0, 1, 4, 100] {
                let memory = Memory { recompute_layers, logits_chunk_tokens };
                let (in_memory, value) = gradients(policy(family, tied), Some(memory));
                assert!((value - loss).abs() < 1e-12, "{memory:?}");
                for (name, plain) in &plain {
                    let distance = (plain - &in_memory[name]).abs().max().double_value(&[]);
                    let size = plain.abs().max().double_value(&[]);
                    assert!(
                        size > 0.0 && distance <= 1e-12 * size,
                        "{name}: {distance}, {memory:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn passes_add_to_one_set_of_sums() {
    let scale = UpdateScale { largest_weight: 1.0, tokens: 17 };
    let loss = |log_probs: &Tensor| (log_probs.exp().sum(Kind::Double), ());
    let sequences = sequences();
    let memory = |recompute_layers| Memory { recompute_layers, logits_chunk_tokens: 4 };
    for memory in [None, Some(memory(false)), Some(memory(true))] {
        let model = placed(policy(Family::Qwen2, true), memory);
        let sums = |passes| {
            let mut sums = Gradients::default();
            for _ in 0..passes {
                model.add_gradients(&mut sums, &sequences, 0.8, scale, loss).unwrap();
            }
            sums.into_tensors()
        };
        for (once, thrice) in sums(1).iter().zip(sums(3)) {
            let distance = (once * 3.0 - thrice).abs().max().double_value(&[]);
            let size = once.abs().max().double_value(&[]);
            assert!(size > 0.0 && distance <= 1e-12 * size, "{distance}, {memory:?}");
        }
    }
}

#[test]
fn statistics_are_those_of_the_plain_pass() {
    let plain = policy(Family::Qwen2, true).statistics(&sequences(), 0.8);
    for logits_chunk_tokens in [0, 3] {
        let memory = Memory { recompute_layers: true, logits_chunk_tokens };
        let model = placed(policy(Family::Qwen2, true), Some(memory));
        let in_memory = model.statistics(&sequences(), 0.8);
        for (plain, other) in plain.iter().zip(in_memory) {
            assert!((plain - other).abs().max().double_value(&[]) < 1e-12);
        }
    }
}

#[test]
fn a_pass_without_targets_has_no_gradient() {
    let mut sequences = Sequences::default();
    sequences.push(&[1, 2, 3], 3, &[]);
    let memory = Memory { recompute_layers: true, logits_chunk_tokens: 2 };
    let model = placed(policy(Family::Qwen2, true), Some(memory));
    let pass = RecomputePass::new(&model, memory, &sequences, 1.0);
    assert_eq!(pass.statistics()[0].size(), [0]);
}
