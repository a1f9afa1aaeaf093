//! verl's log-probs, entropy and KL estimates (verl/utils/torch_functional.py:148-263,
//! verl/trainer/ppo/core_algos.py:1782-1796 and 1841-1902).

use crate::verl_vectors::aggregation::{Mode, aggregate};
use crate::verl_vectors::case::Case;
use crate::verl_vectors::values::{Array, Got, Outputs, outputs, raised};
use dapo::algorithm::KlEstimator;
use dapo::algorithm::kl::penalty;
use dapo::numerics::{Numerics, fast};
use tch::{Kind, Tensor};

/// Entropy and log-probs of logits `[..., vocab]`, their gradients, and
/// `compute_entropy_loss` in all modes. verl's three ways to compute log-probs are one here.
pub fn entropy_and_log_probs(case: &Case) -> Outputs {
    let logits = case.nested_array("logits");
    let (vocab, rows) = logits.shape.split_last().unwrap();
    let of_rows = |key: &str| {
        let array = case.array(key, rows.len());
        assert_eq!(array.shape, rows, "{}: {key}", case.name);
        array
    };
    let labels = of_rows("labels");
    let is_token = |label: &f64| label.fract() == 0.0 && *label >= 0.0 && *label < *vocab as f64;
    assert!(labels.values.iter().all(is_token), "{}: labels", case.name);
    let leaf = logits.tensor(Some(case.kind())).set_requires_grad(true);
    let labels = labels.tensor(Some(Kind::Int64));
    let gradient_of = |value: &Tensor| {
        let gradient = Tensor::run_backward(&[value.sum(None)], &[&leaf], true, false);
        Got::tensor(&gradient[0])
    };
    let (log_probs, entropy) = fast::log_probs_and_entropy(&leaf, &labels, 1.0);
    // The chunked variant casts its logits to float32 and flattens the rows.
    let narrow = leaf.detach().to_kind(Kind::Float);
    let chunked = fast::log_probs_and_entropy(&narrow, &labels, 1.0).1.view(-1);
    let mut result = outputs([
        ("entropy_from_logits", Got::tensor(&entropy)),
        ("grad_entropy_sum_wrt_logits", gradient_of(&entropy)),
        (
            "entropy_from_logits_with_chunking_f32_flat",
            Got::Float32(Box::new(Got::tensor(&chunked))),
        ),
        ("logprobs_naive", Got::tensor(&log_probs)),
        ("grad_logprob_sum_wrt_logits", gradient_of(&log_probs)),
        ("logprobs_v2", Got::tensor(&log_probs)),
    ]);
    if let Some(temperature) = case.optional_number("temperature_for_scaled") {
        let scaled = fast::log_probs(&leaf, &labels, temperature);
        result.insert("logprobs_temperature_scaled".to_owned(), Got::tensor(&scaled));
    }
    if case.optional("response_mask").is_some() && rows.len() == 2 {
        let mask = of_rows("response_mask").mask();
        result.insert("compute_entropy_loss".to_owned(), entropy_losses(&entropy, &mask));
    }
    result
}

fn entropy_losses(entropy: &Tensor, mask: &Array) -> Got {
    let loss = |mode| (mode, Got::tensor(&aggregate(entropy, mask, &Mode::local(mode))));
    Got::Map(outputs(
        ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
            .map(loss),
    ))
}

/// `kl_penalty` with the gradient of its sum with respect to `logprob`. verl's clamps of k3,
/// its other names and its `abs` exist only here.
pub fn kl_penalty(case: &Case) -> Outputs {
    /// Bounds of κ and of k3 (core_algos.py:1893-1899).
    const CLAMPS: [f64; 2] = [20.0, 10.0];
    let kind = case.kind();
    let log_probs = case.nested_array("logprob");
    let reference = case.array_like("ref_logprob", &log_probs).tensor(Some(kind));
    let leaf = log_probs.tensor(Some(kind)).set_requires_grad(true);
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
    let gradient = Tensor::run_backward(&[kl.sum(None)], &[&leaf], false, false);
    outputs([("kl", Got::tensor(&kl)), ("grad_logprob_of_sum", Got::tensor(&gradient[0]))])
}
