//! `agg_loss` and its use in gradient accumulation
//! (verl/trainer/ppo/core_algos.py:1025-1080, verl/workers/actor/dp_actor.py:573-578).

use crate::verl_vectors::case::Case;
use crate::verl_vectors::values::{Array, Got, Outputs, array, number, outputs, raised};
use dapo::algorithm::aggregation::{ResponseRow, row_weights, weighted_sum};
use dapo::algorithm::{Aggregation, StepTotals, TokenMeanUnit};
use serde_json::Value;
use tch::{Kind, Tensor};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Mode {
    /// One of the four names.
    pub name: String,
    /// Data-parallel ranks; 1 when absent.
    pub dp_size: Option<f64>,
    /// Tokens of the whole mini-batch, when this is a part of it.
    pub batch_num_tokens: Option<f64>,
    /// Rows of the whole mini-batch, when this is a part of it.
    pub global_batch_size: Option<f64>,
    /// Divisor of `seq-mean-token-sum-norm`; the padded width when absent.
    pub loss_scale_factor: Option<f64>,
}

impl Mode {
    pub fn local(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}

/// verl's four modes, of which the project has the first three.
const MODES: [&str; 4] =
    ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"];

pub fn unknown_mode(name: &str) -> Option<Outputs> {
    let message = format!("Invalid loss_agg_mode: {name}");
    (!MODES.contains(&name)).then(|| raised("ValueError", &message))
}

/// The aggregated loss with its graph: the project's weights and weighted sum, with verl's
/// global counts, its `+ 1e-8`, and the NaN that it returns where a denominator is 0 or where
/// something not finite stands under the mask (`NaN · 0`, in all modes but `token-mean`).
pub fn aggregate(losses: &Tensor, mask: &Array, mode: &Mode) -> Tensor {
    let weights = Tensor::from_slice(&weights(mask, mode, losses.kind()));
    let loss = weighted_sum(losses, &mask.tensor(None), &weights);
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
    let inside = mask.tensor(Some(Kind::Bool));
    let poisoned = losses.isfinite().logical_or(&inside).logical_not(); // [batch, length]
    let rows = poisoned.any_dim(-1, false);
    (0..tokens.len())
        .any(|row| !token_mean && (norm || tokens[row] > 0) && rows.int64_value(&[row as i64]) == 1)
}

/// `agg_loss` with the gradient of the loss with respect to the loss matrix.
pub fn agg_loss(case: &Case) -> Outputs {
    let losses = case.array("loss_mat", 2);
    let mask = case.mask_like("loss_mask", &losses);
    let mode = Mode {
        name: case.text_or("loss_agg_mode", MODES[0]).to_owned(),
        dp_size: case.optional_number("dp_size"),
        batch_num_tokens: case.optional_number("batch_num_tokens"),
        global_batch_size: case.optional_number("global_batch_size"),
        loss_scale_factor: case.optional_number("loss_scale_factor"),
    };
    if let Some(error) = unknown_mode(&mode.name) {
        return error;
    }
    let losses = losses.tensor(Some(case.kind())).set_requires_grad(true);
    let loss = aggregate(&losses, &mask, &mode);
    let gradient = Tensor::run_backward(&[&loss], &[&losses], false, false);
    outputs([("loss", Got::tensor(&loss)), ("grad_loss_mat", Got::tensor(&gradient[0]))])
}

struct Micro {
    losses: Tensor,
    mask: Array,
}

/// The same mini-batch through verl's two paths: the mean of micro-batch means that the
/// legacy path takes (the project's `micro-batch` unit), and the mean over all tokens that
/// the engine path takes (the project's `mini-batch` unit).
pub fn accumulation(case: &Case) -> Outputs {
    let mode = case.text_or("loss_agg_mode", MODES[0]);
    assert_eq!(mode, MODES[0], "{}", case.name);
    let ranks = micro_batches(case);
    check_lengths(case, &ranks);
    let per_rank: Vec<f64> = ranks
        .iter()
        .map(|rank| token_mean(&rank.iter().collect::<Vec<_>>(), TokenMeanUnit::MicroBatch))
        .collect();
    let all: Vec<&Micro> = ranks.iter().flatten().collect();
    let total: u64 = all.iter().flat_map(|micro| token_counts(&micro.mask)).sum();
    let legacy = per_rank.iter().sum::<f64>() / per_rank.len() as f64;
    outputs([
        ("legacy_fsdp_dynamic_bsz_loss", Got::Number(legacy)),
        ("per_rank_legacy", Got::numbers(per_rank)),
        ("global_token_mean_loss", Got::Number(token_mean(&all, TokenMeanUnit::MiniBatch))),
        ("total_tokens", Got::Number(total as f64)),
    ])
}

/// The token mean of some micro-batches; NaN where verl divides 0 by 0.
fn token_mean(micros: &[&Micro], unit: TokenMeanUnit) -> f64 {
    let mut rows = Vec::new();
    for (micro_batch, micro) in micros.iter().enumerate() {
        let row = |tokens| ResponseRow { tokens, group: 0, micro_batch };
        rows.extend(token_counts(&micro.mask).into_iter().map(row));
    }
    let weights = row_weights(&rows, Aggregation::TokenMean, unit, StepTotals::default());
    let mut loss = 0.0;
    let mut empty = 0;
    let mut weights = weights.as_slice();
    for micro in micros {
        let (these, rest) = weights.split_at(micro.mask.shape[0]);
        weights = rest;
        let sum = weighted_sum(&micro.losses, &micro.mask.tensor(None), &Tensor::from_slice(these));
        loss += sum.double_value(&[]);
        empty += usize::from(micro.mask.values.iter().all(|inside| *inside == 0.0));
    }
    let divides_by_zero = match unit {
        TokenMeanUnit::MicroBatch => empty > 0,
        _ => empty == micros.len(),
    };
    if divides_by_zero { f64::NAN } else { loss }
}

fn micro_batches(case: &Case) -> Vec<Vec<Micro>> {
    let kind = case.kind();
    let (losses, masks) = (case.list("loss_mats"), case.list("loss_masks"));
    assert!(losses.len() == masks.len() && !losses.is_empty(), "{}", case.name);
    let rank = |(losses, masks): (&Value, &Value)| {
        let (losses, masks) = (losses.as_array().unwrap(), masks.as_array().unwrap());
        assert!(losses.len() == masks.len() && !losses.is_empty(), "{}", case.name);
        let micro = |(losses, mask): (&Value, &Value)| {
            let (losses, mask) = (array(losses, 2), array(mask, 2).mask());
            assert_eq!(losses.shape, mask.shape, "{}", case.name);
            Micro { losses: losses.tensor(Some(kind)), mask }
        };
        losses.iter().zip(masks).map(micro).collect()
    };
    losses.iter().zip(masks).map(rank).collect()
}

/// `ranks_micro_lengths` repeats what the masks say.
fn check_lengths(case: &Case, ranks: &[Vec<Micro>]) {
    let Some(value) = case.optional("ranks_micro_lengths") else { return };
    let mut lengths = Vec::new();
    leaves(value, &mut lengths);
    let counted: Vec<f64> = ranks
        .iter()
        .flatten()
        .flat_map(|micro| token_counts(&micro.mask))
        .map(|tokens| tokens as f64)
        .collect();
    assert_eq!(lengths, counted, "{}", case.name);
}

fn leaves(value: &Value, into: &mut Vec<f64>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| leaves(item, into)),
        leaf => into.push(number(leaf)),
    }
}
