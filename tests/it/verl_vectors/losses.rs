//! verl's policy losses (verl/trainer/ppo/core_algos.py:1083-1250).

use crate::verl_vectors::aggregation::{Mode, aggregate, unknown_mode};
use crate::verl_vectors::case::Case;
use crate::verl_vectors::values::{Array, float, gradient, nested, raised};
use dapo::algorithm::clip::{log_ratio, surrogate};
use dapo::algorithm::{Clip, DualClip, LogRatioClamp, Tokens};
use dapo::numerics::Numerics;
use serde_json::{Value, json};
use tch::{Kind, Tensor};

/// verl's fixed clamp of log r (core_algos.py:1210-1212).
const CLAMP: LogRatioClamp = LogRatioClamp::Symmetric { bound: 20.0 };

/// verl's default c of the dual clip.
const DEFAULT_C: f64 = 3.0;

/// `compute_policy_loss`, with the gradient with respect to `log_prob`.
pub fn policy_loss(case: &Case) -> Value {
    let mode = Mode::local(case.text_or("loss_agg_mode", "token-mean"));
    match loss(case, "cliprange", &mode) {
        Ok([loss, gradient, clipped, dual_clipped, kl]) => json!({
            "pg_loss": loss, "grad_log_prob": gradient,
            "pg_clipfrac": clipped, "pg_clipfrac_lower": dual_clipped, "ppo_kl": kl,
        }),
        Err(error) => error,
    }
}

/// `compute_policy_loss_vanilla`, with the gradient with respect to `log_prob`.
pub fn policy_loss_vanilla(case: &Case) -> Value {
    let name = case.text_or("loss_agg_mode", "token-mean");
    let mode = Mode::of(name, case.optional("global_batch_info").unwrap_or(&Value::Null));
    match loss(case, "clip_ratio", &mode) {
        Ok([loss, gradient, clipped, dual_clipped, kl]) => json!({
            "pg_loss": loss, "grad_log_prob": gradient,
            "metrics": {
                "actor/pg_clipfrac": clipped,
                "actor/pg_clipfrac_lower": dual_clipped,
                "actor/ppo_kl": kl,
            },
        }),
        Err(error) => error,
    }
}

/// The project's surrogate with verl's clamp and dual clip, aggregated as verl does: the loss, its
/// gradient, the clipped share, that of the dual clip and the KL. Of the clip's offsets each falls
/// back to the common one.
///
/// verl computes losses under the mask as well and masks them in `agg_loss`, so the surrogate
/// is called with every token inside; what that does to NaN under the mask is verl's.
fn loss(case: &Case, range: &str, mode: &Mode) -> Result<[Value; 5], Value> {
    let kind = case.kind();
    let common = case.optional(range);
    let offset = |side: &str| float(case.optional(&format!("{range}_{side}")).or(common).unwrap());
    let clip = Clip { low: offset("low"), high: offset("high") };
    let log_probs = case.array("log_prob", 2);
    let shape = &log_probs.shape;
    let old = case.array_of_shape("old_log_prob", shape).tensor(kind);
    // `[batch, 1]` or the shape of the log-probs.
    let mut advantages = case.array("advantages", 2);
    if advantages.shape != [shape[0], 1] {
        advantages = case.array_of_shape("advantages", shape);
    }
    let mask = case.mask("response_mask", shape);
    let c = case.number_or("clip_ratio_c", DEFAULT_C);
    if c <= 1.0 || c.is_nan() {
        return Err(raised("AssertionError", ""));
    }
    if let Some(error) = unknown_mode(&mode.name) {
        return Err(error);
    }
    let leaf = log_probs.leaf(kind);
    let tokens = Tokens {
        log_probs: &leaf,
        old_log_probs: &old,
        ref_log_probs: None,
        sampler_log_probs: None,
        marks: None,
        advantages: &advantages.tensor(kind),
        response_mask: &leaf.ones_like(),
        row_weights: &leaf.ones_like(),
        response_lengths: &vec![shape[1]; shape[0]],
        numerics: Numerics::Fast,
    };
    let dual_clip = DualClip::Constant { c };
    let result = surrogate(&log_ratio(&tokens, &CLAMP), &tokens, &clip, &dual_clip);
    let losses = match case.optional("rollout_is_weights") {
        Some(Value::Array(_)) => {
            result.losses * case.array_of_shape("rollout_is_weights", shape).tensor(kind)
        }
        Some(value) => result.losses * float(value),
        None => result.losses,
    };
    let loss = aggregate(&losses, &mask, mode);
    // verl merges both sides into one fraction, and calls the dual clip "lower".
    let clipped = result.clipped_low.logical_or(&result.clipped_high);
    let share = |flags: Tensor| masked_mean(&flags.to_kind(Kind::Float), &mask, kind);
    Ok([
        nested(&loss),
        gradient(&loss, &leaf),
        share(clipped),
        share(result.dual_clipped),
        masked_mean(&-result.log_ratio, &mask, kind),
    ])
}

/// verl's `masked_mean`: the sum inside the mask over the tokens + 1e-8, in the kind that
/// torch promotes to; a mask of the case's float kind keeps that kind, one of integers or
/// truth values counts in float32 (verl/utils/torch_functional.py:266-300).
fn masked_mean(values: &Tensor, mask: &Array, kind: Kind) -> Value {
    const EPSILON: f64 = 1e-8;
    let mask = mask.tensor(if mask.kind == Kind::Double { kind } else { mask.kind });
    let inside = values.where_self(&mask.to_kind(Kind::Bool), &values.zeros_like());
    nested(&((inside * &mask).sum(None) / (mask.sum(None) + EPSILON)))
}
