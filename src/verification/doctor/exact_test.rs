//! Self-test of exact arithmetic: pinned bits of a forward and a backward pass of a small policy.

use crate::numerics::{Numerics, NumericsError};
use crate::policy::{Config, Family, Gradients, Qwen2, Sequences, UpdateScale};
use crate::records::ledger;
use crate::verification::SelfCheck;
use std::collections::BTreeMap;
use tch::{Kind, Tensor};

/// SHA-256 as in the ledger.
const LOG_PROBS: &str = "d20b3ef191bf6511463cdf5ab52fbee8922a435efbc3061ca065faed8f1bc86c";
const GRADIENTS: &str = "e281b49354b4e8423b5760c125ee1a277d860a3cdaa9a7534eccedc47e917320";

pub fn exact_arithmetic() -> SelfCheck {
    let wrong = match compute() {
        Err(error) => vec![error.to_string()],
        Ok(digests) => {
            let pins = [("log-probs", LOG_PROBS), ("gradients", GRADIENTS)];
            let wrong = pins.into_iter().zip(digests).filter(|((_, pin), digest)| pin != digest);
            let wrong = wrong
                .map(|((what, pin), digest)| format!("SHA-256 of {what} {digest}, expected {pin}"));
            wrong.collect()
        }
    };
    SelfCheck::of("exact arithmetic has its pinned bits", wrong)
}

fn compute() -> Result<[String; 2], NumericsError> {
    let config = Config {
        family: Family::Qwen2,
        vocab_size: 19,
        hidden_size: 48,
        intermediate_size: 72,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 12,
        max_position_embeddings: 64,
        rope_theta: 10_000.0,
        rope_scaling: None,
        rms_norm_eps: 1e-6,
        tie_word_embeddings: false,
    };
    // Ten times fresh weights: the context then decides about the next token.
    let fresh = Qwen2::initialise(config.clone(), 3);
    let larger = |(name, tensor): (&String, &Tensor)| {
        let grown = if name.ends_with("norm.weight") { tensor * 1.25 } else { tensor * 10.0 };
        (name.clone(), grown)
    };
    let parameters: BTreeMap<String, Tensor> = fresh.parameters().iter().map(larger).collect();
    let model = Qwen2::new(config, parameters).expect("the tensors of a policy");
    let model = model.with_numerics(Numerics::Exact)?;
    let mut sequences = Sequences::default();
    for length in [40usize, 7, 23] {
        let tokens: Vec<u32> = (0..=length).map(|at| ((at * at + length) % 19) as u32).collect();
        sequences.push(&tokens[..length], 2, &tokens[3..]);
    }
    let [log_probs, _] = model.statistics(&sequences, 0.9);
    let log_probs = Vec::<f64>::try_from(&log_probs).expect("a dense f64 tensor");
    let scale = UpdateScale { largest_weight: 1.0, tokens: 70 };
    let loss = |log_probs: &Tensor| (-log_probs.sum(Kind::Double), ());
    let mut gradients = Gradients::default();
    model.add_gradients(&mut gradients, &sequences, 0.9, scale, loss)?;
    let weights = model.plain_parameters();
    Ok([ledger::log_probs(&[log_probs]), ledger::tensors(&gradients.values(&model, &weights))])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_arithmetic_has_its_pinned_bits_here() {
        let check = exact_arithmetic();
        assert!(check.held, "{}", check.detail);
    }
}
