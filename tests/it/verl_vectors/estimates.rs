//! verl's log-probs, entropy and KL estimates (verl/utils/torch_functional.py:148-263,
//! verl/trainer/ppo/core_algos.py:1782-1796 and 1841-1902).

use crate::verl_vectors::aggregation::{MODES, Mode, aggregate};
use crate::verl_vectors::case::Case;
use crate::verl_vectors::values::{gradient, nested, raised};
use dapo::algorithm::KlEstimator;
use dapo::algorithm::kl::penalty;
use dapo::numerics::{Numerics, fast};
use serde_json::{Value, json};
use tch::Kind;

/// Entropy and log-probs of logits `[..., vocab]`, their gradients, and
/// `compute_entropy_loss` in all modes. verl's three ways to compute log-probs are one here.
pub fn entropy_and_log_probs(case: &Case) -> Value {
    let logits = case.nested_array("logits");
    let (vocab, rows) = logits.shape.split_last().unwrap();
    let labels = case.array_of_shape("labels", rows);
    let is_token = |label: &f64| label.fract() == 0.0 && *label >= 0.0 && *label < *vocab as f64;
    assert!(labels.values.iter().all(is_token), "{}: labels", case.name);
    let (leaf, labels) = (logits.leaf(case.kind()), labels.tensor(Kind::Int64));
    let (log_probs, entropy) = fast::log_probs_and_entropy(&leaf, &labels, 1.0);
    // The chunked variant casts its logits to float32 and flattens the rows.
    let narrow = leaf.detach().to_kind(Kind::Float);
    let chunked = fast::log_probs_and_entropy(&narrow, &labels, 1.0).1.view(-1);
    let mut outputs = json!({
        "entropy_from_logits": nested(&entropy),
        "grad_entropy_sum_wrt_logits": gradient(&entropy, &leaf),
        "entropy_from_logits_with_chunking_f32_flat": nested(&chunked),
        "logprobs_naive": nested(&log_probs),
        "grad_logprob_sum_wrt_logits": gradient(&log_probs, &leaf),
        "logprobs_v2": nested(&log_probs),
    });
    if let Some(temperature) = case.optional("temperature_for_scaled").and_then(Value::as_f64) {
        let scaled = fast::log_probs(&leaf, &labels, temperature);
        outputs["logprobs_temperature_scaled"] = nested(&scaled);
    }
    if case.optional("response_mask").is_some() && rows.len() == 2 {
        let mask = case.mask("response_mask", rows);
        for mode in MODES {
            let loss = aggregate(&entropy, &mask, &Mode::local(mode));
            outputs["compute_entropy_loss"][mode] = nested(&loss);
        }
    }
    outputs
}

/// `kl_penalty` with the gradient of its sum with respect to `logprob`. verl's clamps of k3,
/// its other names and its `abs` exist only here.
pub fn kl_penalty(case: &Case) -> Value {
    /// Bounds of κ and of k3 (core_algos.py:1893-1899).
    const CLAMPS: [f64; 2] = [20.0, 10.0];
    let kind = case.kind();
    let log_probs = case.nested_array("logprob");
    let reference = case.array_of_shape("ref_logprob", &log_probs.shape).tensor(kind);
    let leaf = log_probs.leaf(kind);
    let kl = match case.text("kl_penalty") {
        "kl" | "k1" => penalty(&leaf, &reference, KlEstimator::K1, Numerics::Fast),
        "abs" => penalty(&leaf, &reference, KlEstimator::K1, Numerics::Fast).abs(),
        "mse" | "k2" => penalty(&leaf, &reference, KlEstimator::K2, Numerics::Fast),
        "low_var_kl" | "k3" => {
            let kappa = (&reference - &leaf).clamp(-CLAMPS[0], CLAMPS[0]);
            let k3 = penalty(&-kappa, &reference.zeros_like(), KlEstimator::K3, Numerics::Fast);
            k3.clamp(-CLAMPS[1], CLAMPS[1])
        }
        // Also for a name ending in `+`, which verl does not strip.
        _ => return raised("NotImplementedError", ""),
    };
    json!({"kl": nested(&kl), "grad_logprob_of_sum": gradient(&kl, &leaf)})
}
