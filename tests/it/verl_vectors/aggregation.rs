//! `agg_loss` and its use in gradient accumulation
//! (verl/trainer/ppo/core_algos.py:1025-1080, verl/workers/actor/dp_actor.py:573-578).

use crate::verl_vectors::case::Case;
use crate::verl_vectors::values::{Array, array, float, gradient, nested, number, numbers, raised};
use dapo::algorithm::aggregation::{ResponseRow, row_weights, weighted_sum};
use dapo::algorithm::{Aggregation, StepTotals, TokenMeanUnit};
use serde_json::{Value, json};
use tch::{Kind, Tensor};

pub struct Mode {
    /// One of the four names.
    pub name: String,
    /// Data-parallel ranks; 1 when absent.
    dp_size: Option<f64>,
    /// Tokens of the whole mini-batch, when this is a part of it.
    batch_num_tokens: Option<f64>,
    /// Rows of the whole mini-batch, when this is a part of it.
    global_batch_size: Option<f64>,
    /// Divisor of `seq-mean-token-sum-norm`; the padded width when absent.
    loss_scale_factor: Option<f64>,
}

const NUMBERS: [&str; 4] =
    ["dp_size", "batch_num_tokens", "global_batch_size", "loss_scale_factor"];

impl Mode {
    pub fn local(name: &str) -> Self {
        Self::of(name, &Value::Null)
    }

    /// With the numbers of an object.
    pub fn of(name: &str, info: &Value) -> Self {
        for (key, value) in info.as_object().into_iter().flatten() {
            assert!(value.is_null() || NUMBERS.contains(&key.as_str()), "{key} of {info}");
        }
        let number = |key| info.get(key).filter(|value| !value.is_null()).map(float);
        let [dp_size, batch_num_tokens, global_batch_size, loss_scale_factor] = NUMBERS.map(number);
        let name = name.to_owned();
        Self { name, dp_size, batch_num_tokens, global_batch_size, loss_scale_factor }
    }
}

/// verl's four modes, of which the project has the first three.
pub const MODES: [&str; 4] =
    ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"];

pub fn unknown_mode(name: &str) -> Option<Value> {
    let message = format!("Invalid loss_agg_mode: {name}");
    (!MODES.contains(&name)).then(|| raised("ValueError", &message))
}

/// The aggregated loss with its graph: the project's weights and weighted sum, with verl's
/// global counts, its `+ 1e-8`, and the NaN that it returns where a denominator is 0 or where
/// something not finite stands under the mask (`NaN · 0`, in all modes but `token-mean`).
pub fn aggregate(losses: &Tensor, mask: &Array, mode: &Mode) -> Tensor {
    let weights = Tensor::from_slice(&weights(mask, mode, losses.kind()));
    let loss = weighted_sum(losses, &mask.own(), &weights);
    if is_nan(losses, mask, mode) { loss + f64::NAN } else { loss }
}

fn token_counts(mask: &Array) -> Vec<u64> {
    mask.rows().map(|row| row.iter().sum::<f64>() as u64).collect()
}

fn weights(mask: &Array, mode: &Mode, kind: Kind) -> Vec<f64> {
    let tokens = token_counts(mask);
    let row = |tokens: &u64| ResponseRow { tokens: *tokens, group: 0, micro_batch: 0 };
    let rows: Vec<ResponseRow> = tokens.iter().map(row).collect();
    let present = tokens.iter().filter(|tokens| **tokens > 0).count() as f64;
    let ranks = mode.dp_size.unwrap_or(1.0);
    let ours = |aggregation, unit, step| row_weights(&rows, aggregation, unit, step);
    let plain = |aggregation| ours(aggregation, TokenMeanUnit::MiniBatch, StepTotals::default());
    let scaled = |weights: Vec<f64>, factor: f64| {
        weights.into_iter().map(|weight| weight * factor).collect::<Vec<f64>>()
    };
    let over_global = mode.global_batch_size.map_or(ranks, |rows| ranks * present / rows);
    match (mode.name.as_str(), mode.batch_num_tokens) {
        // verl's "N tokens over dp ranks" is the project's "tokens of the step over its
        // mini-batches".
        ("token-mean", Some(count)) if count >= 1.0 && count.fract() == 0.0 => {
            let step =
                StepTotals { tokens: count as u64, mini_batches: 1, ..StepTotals::default() };
            scaled(ours(Aggregation::TokenMean, TokenMeanUnit::RolloutStep, step), ranks)
        }
        ("token-mean", Some(count)) => vec![ranks / count; rows.len()],
        ("token-mean", None) => scaled(plain(Aggregation::TokenMean), ranks),
        ("seq-mean-token-sum", _) => scaled(plain(Aggregation::ResponseSum), over_global),
        ("seq-mean-token-mean", _) => {
            let weights = scaled(plain(Aggregation::ResponseMean), over_global);
            let with_epsilon = |(weight, tokens): (f64, &u64)| {
                weight * *tokens as f64 / divisor(*tokens, mask.kind, kind)
            };
            weights.into_iter().zip(&tokens).map(with_epsilon).collect()
        }
        _ => {
            let width = mask.shape[1] as f64;
            let scale = mode.loss_scale_factor.unwrap_or(width);
            scaled(plain(Aggregation::ResponseSum), present / scale)
        }
    }
}

/// verl divides a response's sum by its tokens + 1e-8, in float32 (where that vanishes) for a
/// mask of integers or truth values.
fn divisor(tokens: u64, mask: Kind, losses: Kind) -> f64 {
    const EPSILON: f64 = 1e-8;
    match (mask, losses) {
        (Kind::Double, Kind::Double) => tokens as f64 + EPSILON,
        _ => f64::from((tokens as f64 + EPSILON) as f32),
    }
}

fn is_nan(losses: &Tensor, mask: &Array, mode: &Mode) -> bool {
    let tokens = token_counts(mask);
    let total: u64 = tokens.iter().sum();
    let token_mean = mode.name == "token-mean";
    let norm = mode.name == "seq-mean-token-sum-norm";
    let denominator = match (token_mean, norm) {
        (true, _) => mode.batch_num_tokens.unwrap_or(total as f64),
        (_, true) => mode.loss_scale_factor.unwrap_or(mask.shape[1] as f64),
        _ => mode.global_batch_size.unwrap_or(total as f64),
    };
    if denominator == 0.0 && total == 0 {
        return true;
    }
    let inside = mask.tensor(Kind::Bool);
    let poisoned = losses.isfinite().logical_or(&inside).logical_not(); // [batch, length]
    let rows = poisoned.any_dim(-1, false);
    (0..tokens.len())
        .any(|row| !token_mean && (norm || tokens[row] > 0) && rows.int64_value(&[row as i64]) == 1)
}

/// `agg_loss` with the gradient of the loss with respect to the loss matrix.
pub fn agg_loss(case: &Case) -> Value {
    let losses = case.array("loss_mat", 2);
    let mask = case.mask("loss_mask", &losses.shape);
    let info = NUMBERS.map(|key| (key.to_owned(), json!(case.optional(key))));
    let mode = Mode::of(case.text_or("loss_agg_mode", MODES[0]), &info.into_iter().collect());
    if let Some(error) = unknown_mode(&mode.name) {
        return error;
    }
    let losses = losses.leaf(case.kind());
    let loss = aggregate(&losses, &mask, &mode);
    json!({"loss": nested(&loss), "grad_loss_mat": gradient(&loss, &losses)})
}

/// Losses and mask of a micro-batch.
type Micro = (Tensor, Array);

/// The same mini-batch through verl's two paths: the mean of micro-batch means that the
/// legacy path takes (the project's `micro-batch` unit), and the mean over all tokens that
/// the engine path takes (the project's `mini-batch` unit).
pub fn accumulation(case: &Case) -> Value {
    assert_eq!(case.text_or("loss_agg_mode", MODES[0]), MODES[0], "{}", case.name);
    let ranks = pairs(case.list("loss_mats"), case.list("loss_masks"))
        .map(|(losses, masks)| {
            let micros = pairs(losses.as_array().unwrap(), masks.as_array().unwrap());
            micros.map(|(losses, mask)| micro(case.kind(), losses, mask)).collect()
        })
        .collect::<Vec<Vec<Micro>>>();
    // It repeats what the masks say.
    if let Some(lengths) = case.optional("ranks_micro_lengths") {
        let of_rank = |rank: &Vec<Micro>| rank.iter().map(|micro| token_counts(&micro.1)).collect();
        let counted: Vec<Vec<Vec<u64>>> = ranks.iter().map(of_rank).collect();
        assert_eq!(*lengths, json!(counted), "{}", case.name);
    }
    let per_rank = ranks.iter().map(|rank| token_mean(rank, TokenMeanUnit::MicroBatch));
    let per_rank: Vec<f64> = per_rank.collect();
    let all: Vec<Micro> = ranks.into_iter().flatten().collect();
    let total: u64 = all.iter().flat_map(|(_, mask)| token_counts(mask)).sum();
    json!({
        "legacy_fsdp_dynamic_bsz_loss":
            number(per_rank.iter().sum::<f64>() / per_rank.len() as f64),
        "per_rank_legacy": numbers(per_rank),
        "global_token_mean_loss": number(token_mean(&all, TokenMeanUnit::MiniBatch)),
        "total_tokens": total as f64,
    })
}

/// Of two lists of one length, which are not empty.
fn pairs<'a>(a: &'a [Value], b: &'a [Value]) -> impl Iterator<Item = (&'a Value, &'a Value)> {
    assert!(a.len() == b.len() && !a.is_empty(), "{a:?} and {b:?}");
    a.iter().zip(b)
}

fn micro(kind: Kind, losses: &Value, mask: &Value) -> Micro {
    let (losses, mask) = (array(losses, 2), array(mask, 2).mask());
    assert_eq!(losses.shape, mask.shape);
    (losses.tensor(kind), mask)
}

/// The token mean of some micro-batches; NaN where verl divides 0 by 0.
fn token_mean(micros: &[Micro], unit: TokenMeanUnit) -> f64 {
    let mut rows = Vec::new();
    for (micro_batch, (_, mask)) in micros.iter().enumerate() {
        let row = |tokens| ResponseRow { tokens, group: 0, micro_batch };
        rows.extend(token_counts(mask).into_iter().map(row));
    }
    let weights = row_weights(&rows, Aggregation::TokenMean, unit, StepTotals::default());
    let (mut loss, mut empty, mut weights) = (0.0, 0, weights.as_slice());
    for (losses, mask) in micros {
        let (these, rest) = weights.split_at(mask.shape[0]);
        weights = rest;
        let sum = weighted_sum(losses, &mask.own(), &Tensor::from_slice(these));
        loss += sum.double_value(&[]);
        empty += usize::from(mask.values.iter().all(|inside| *inside == 0.0));
    }
    let divides_by_zero = match unit {
        TokenMeanUnit::MicroBatch => empty > 0,
        _ => empty == micros.len(),
    };
    if divides_by_zero { f64::NAN } else { loss }
}
