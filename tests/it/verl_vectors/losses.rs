//! verl's policy losses (verl/trainer/ppo/core_algos.py:1083-1250).

use crate::verl_vectors::aggregation::{Mode, aggregate, unknown_mode};
use crate::verl_vectors::case::Case;
use crate::verl_vectors::values::{Array, Got, Outputs, number, outputs, raised};
use dapo::algorithm::clip::{log_ratio, surrogate};
use dapo::algorithm::{Clip, DualClip, LogRatioClamp, Tokens};
use dapo::numerics::Numerics;
use serde_json::Value;
use tch::{Kind, Tensor};

/// verl's fixed clamp of log r (core_algos.py:1210-1212).
const CLAMP: LogRatioClamp = LogRatioClamp::Symmetric { bound: 20.0 };

/// verl's default c of the dual clip.
const DEFAULT_C: f64 = 3.0;

/// `compute_policy_loss`, with the gradient with respect to `log_prob`.
pub fn policy_loss(case: &Case) -> Outputs {
    let range = case.optional_number("cliprange");
    let clip = clip(case, range, ["cliprange_low", "cliprange_high"]);
    let mode = Mode::local(case.text_or("loss_agg_mode", "token-mean"));
    let metrics = ["pg_clipfrac", "pg_clipfrac_lower", "ppo_kl"];
    let (mut outputs, of_losses) = loss(case, &clip, &mode, metrics).unwrap_or_else(raising);
    outputs.extend(of_losses);
    outputs
}

/// `compute_policy_loss_vanilla`, with the gradient with respect to `log_prob`.
pub fn policy_loss_vanilla(case: &Case) -> Outputs {
    let range = case.optional_number("clip_ratio");
    let clip = clip(case, range, ["clip_ratio_low", "clip_ratio_high"]);
    let mut mode = Mode::local(case.text_or("loss_agg_mode", "token-mean"));
    if let Some(info) = case.optional("global_batch_info") {
        let info = info.as_object().unwrap();
        for (key, value) in info.iter().filter(|(_, value)| !value.is_null()) {
            let number = Some(number(value));
            match key.as_str() {
                "dp_size" => mode.dp_size = number,
                "batch_num_tokens" => mode.batch_num_tokens = number,
                "global_batch_size" => mode.global_batch_size = number,
                "loss_scale_factor" => mode.loss_scale_factor = number,
                _ => panic!("{}: global_batch_info.{key}", case.name),
            }
        }
    }
    let metrics = ["actor/pg_clipfrac", "actor/pg_clipfrac_lower", "actor/ppo_kl"];
    let (mut outputs, of_losses) = loss(case, &clip, &mode, metrics).unwrap_or_else(raising);
    outputs.insert("metrics".to_owned(), Got::Map(of_losses));
    outputs
}

/// What a function that raises hands back.
fn raising(error: Outputs) -> (Outputs, Outputs) {
    (error, Outputs::new())
}

/// The two offsets; each falls back to the common one.
fn clip(case: &Case, common: Option<f64>, [low, high]: [&str; 2]) -> Clip {
    let offset = |key: &str| case.optional_number(key).or(common).unwrap();
    Clip { low: offset(low), high: offset(high) }
}

/// The project's surrogate with verl's clamp and dual clip, aggregated as verl does: the loss with its
/// gradient, and under these names the clipped share, that of the dual clip and the KL.
///
/// verl computes losses under the mask as well and masks them in `agg_loss`, so the surrogate
/// is called with every token inside; what that does to NaN under the mask is verl's.
fn loss(
    case: &Case,
    clip: &Clip,
    mode: &Mode,
    [clipped_share, dual_clipped_share, kl]: [&str; 3],
) -> Result<(Outputs, Outputs), Outputs> {
    let kind = case.kind();
    let log_probs = case.array("log_prob", 2);
    let old_log_probs = case.array_like("old_log_prob", &log_probs);
    let advantages = advantages(case, &log_probs);
    let mask = case.mask_like("response_mask", &log_probs);
    let c = case.optional_number("clip_ratio_c").unwrap_or(DEFAULT_C);
    if c <= 1.0 || c.is_nan() {
        return Err(raised("AssertionError", ""));
    }
    if let Some(error) = unknown_mode(&mode.name) {
        return Err(error);
    }
    let leaf = log_probs.tensor(Some(kind)).set_requires_grad(true);
    let old = old_log_probs.tensor(Some(kind));
    let [batch, length] = [leaf.size()[0], leaf.size()[1]];
    let tokens = Tokens {
        log_probs: &leaf,
        old_log_probs: &old,
        ref_log_probs: None,
        sampler_log_probs: None,
        marks: None,
        advantages: &advantages.tensor(Some(kind)),
        response_mask: &leaf.ones_like(),
        row_weights: &leaf.ones_like(),
        response_lengths: &vec![length as usize; batch as usize],
        numerics: Numerics::Fast,
    };
    let dual_clip = DualClip::Constant { c };
    let result = surrogate(&log_ratio(&tokens, &CLAMP), &tokens, clip, &dual_clip);
    let losses = match case.optional("rollout_is_weights") {
        Some(Value::Array(_)) => {
            result.losses * case.array_like("rollout_is_weights", &log_probs).tensor(Some(kind))
        }
        Some(value) => result.losses * number(value),
        None => result.losses,
    };
    let loss = aggregate(&losses, &mask, mode);
    let gradient = Tensor::run_backward(&[&loss], &[&leaf], false, false);

    // verl merges both sides into one fraction, and calls the dual clip "lower".
    let clipped = result.clipped_low.logical_or(&result.clipped_high);
    let share = |flags: Tensor| masked_mean(&flags.to_kind(Kind::Float), &mask, kind);
    let of_losses = outputs([
        (clipped_share, share(clipped)),
        (dual_clipped_share, share(result.dual_clipped)),
        (kl, masked_mean(&-result.log_ratio, &mask, kind)),
    ]);
    let loss = Got::tensor(&loss);
    Ok((outputs([("pg_loss", loss), ("grad_log_prob", Got::tensor(&gradient[0]))]), of_losses))
}

/// `[batch, 1]` or the shape of the log-probs.
fn advantages(case: &Case, log_probs: &Array) -> Array {
    let advantages = case.array("advantages", 2);
    let per_row = advantages.shape == [log_probs.shape[0], 1];
    if per_row { advantages } else { case.array_like("advantages", log_probs) }
}

/// verl's `masked_mean`: the sum inside the mask over the tokens + 1e-8, in the kind that
/// torch promotes to; a mask of the case's float kind keeps that kind, one of integers or
/// truth values counts in float32 (verl/utils/torch_functional.py:266-300).
fn masked_mean(values: &Tensor, mask: &Array, kind: Kind) -> Got {
    const EPSILON: f64 = 1e-8;
    let mask = match mask.kind {
        Kind::Double => mask.tensor(Some(kind)),
        _ => mask.tensor(None),
    };
    let inside = values.where_self(&mask.to_kind(Kind::Bool), &values.zeros_like());
    let mean = (inside * &mask).sum(None) / (mask.sum(None) + EPSILON);
    Got::tensor(&mean)
}
