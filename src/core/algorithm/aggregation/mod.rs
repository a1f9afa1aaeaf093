//! Token-level loss, §3.3: how per-token losses become one number (Eq. 12, and GRPO's Eq. 5). Every aggregation is a
//! weight for each response: the loss of a mini-batch is `Σ_i w_i Σ_t ℓ_it m_it`, with weights computed once over the
//! whole normalisation unit. So the gradient depends on no cut into micro-batches, whose losses are added.

use crate::numerics::operations;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tch::{Kind, Tensor};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// GRPO, Eq. 5: mean over a response's tokens, then over responses.
    ResponseMean,
    /// DAPO, Eq. 12: mean over all tokens of `token_mean_unit`.
    TokenMean,
    /// Sum over a response's tokens, then mean over responses (`seq-mean-token-sum` of the early released scripts).
    ResponseSum,
}

/// The normalisation unit of the token mean. Implementations disagree on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenMeanUnit {
    /// All tokens of the mini-batch (the released code's intent).
    MiniBatch,
    /// Tokens of one prompt's group, then the mean over groups (Eq. 12 as printed).
    Group,
    /// All tokens of the rollout step, divided by its number of mini-batches.
    RolloutStep,
    /// Row-weighted mean of micro-batch token means (the released code's default path).
    /// The only unit whose value depends on how the mini-batch is split.
    MicroBatch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseRow {
    /// Tokens inside the response mask; 0 for a response that is masked out.
    pub tokens: u64,
    /// Which prompt the response belongs to: any number, equal for one group.
    pub group: usize,
    /// Which micro-batch holds the response: any number. Read by `micro-batch` alone.
    pub micro_batch: usize,
}

/// Totals of the rollout step. Read by `rollout-step`, and by methods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepTotals {
    pub tokens: u64,
    pub mini_batches: u64,
    /// L_max: the longest response that the arm allows.
    pub max_response_tokens: u64,
}

/// Weights w_i, `[batch]`, for the rows of one mini-batch:
///
/// | aggregation | unit | w_i |
/// |---|---|---|
/// | token mean (Eq. 12) | mini-batch | 1 / tokens of the mini-batch |
/// | | group | 1 / (tokens of the group in the mini-batch · groups that have tokens) |
/// | | rollout step | mini-batches of the step / tokens of the step |
/// | | micro-batch | rows of the micro-batch / (rows of the mini-batch · its tokens) |
/// | response mean (GRPO) | — | 1 / (tokens of the response · responses that have tokens) |
/// | response sum | — | 1 / responses that have tokens |
///
/// A response without tokens leaves the means over responses (`agg_loss`, verl/trainer/ppo/core_algos.py:1025-1080).
/// Where a denominator is 0 the weight is 0, so a mini-batch that is masked out entirely trains on nothing. Deviation:
/// the released code divides 0 by 0 there, which is NaN.
pub fn row_weights(
    rows: &[ResponseRow],
    aggregation: Aggregation,
    unit: TokenMeanUnit,
    step: StepTotals,
) -> Vec<f64> {
    let total = rows.iter().map(|row| row.tokens).sum::<u64>() as f64;
    let responses = rows.iter().filter(|row| row.tokens > 0).count() as f64;
    let weight: Box<dyn Fn(&ResponseRow) -> f64> = match (aggregation, unit) {
        (Aggregation::ResponseMean, _) => {
            Box::new(move |row| quotient(1.0, row.tokens as f64 * responses))
        }
        (Aggregation::ResponseSum, _) => {
            Box::new(move |row| if row.tokens > 0 { quotient(1.0, responses) } else { 0.0 })
        }
        (Aggregation::TokenMean, TokenMeanUnit::MiniBatch) => {
            Box::new(move |_| quotient(1.0, total))
        }
        (Aggregation::TokenMean, TokenMeanUnit::RolloutStep) => {
            Box::new(move |_| quotient(step.mini_batches as f64, step.tokens as f64))
        }
        (Aggregation::TokenMean, TokenMeanUnit::Group) => {
            let parts = sums(rows, |row| row.group);
            let groups = parts.values().filter(|part| part.tokens > 0).count() as f64;
            Box::new(move |row| quotient(1.0, parts[&row.group].tokens as f64 * groups))
        }
        (Aggregation::TokenMean, TokenMeanUnit::MicroBatch) => {
            let parts = sums(rows, |row| row.micro_batch);
            let all = rows.len() as f64;
            Box::new(move |row| {
                let part = &parts[&row.micro_batch];
                quotient(part.rows as f64, all * part.tokens as f64)
            })
        }
    };
    rows.iter().map(weight).collect()
}

/// `Σ_i w_i Σ_t ℓ_it m_it` as an f64 scalar with the graph to `losses`, summed in f64 whatever their kind. `losses` and
/// `response_mask` are `[batch, length]`, `row_weights` is `[batch]`. What stands outside the mask, NaN included,
/// reaches neither the value nor the gradient.
pub fn weighted_sum(losses: &Tensor, response_mask: &Tensor, row_weights: &Tensor) -> Tensor {
    weighted(losses, response_mask, row_weights).sum(Kind::Double)
}

/// The value of [`weighted_sum`], whatever the order of the sum and the cut of the mini-batch ([`operations::sum`]).
pub fn weighted_sum_exactly(losses: &Tensor, response_mask: &Tensor, row_weights: &Tensor) -> f64 {
    operations::sum(&weighted(losses, response_mask, row_weights))
}

fn weighted(losses: &Tensor, response_mask: &Tensor, row_weights: &Tensor) -> Tensor {
    let mask = response_mask.to_kind(Kind::Bool);
    let inside = losses.where_self(&mask, &losses.zeros_like()).to_kind(Kind::Double);
    let weights = row_weights.to_kind(Kind::Double).unsqueeze(-1); // [batch, 1]
    inside * weights
}

#[derive(Debug, Default)]
struct NormalisedPart {
    rows: u64,
    tokens: u64,
}

fn sums(
    rows: &[ResponseRow],
    key: impl Fn(&ResponseRow) -> usize,
) -> BTreeMap<usize, NormalisedPart> {
    let mut parts: BTreeMap<usize, NormalisedPart> = BTreeMap::new();
    for row in rows {
        let part = parts.entry(key(row)).or_default();
        part.rows += 1;
        part.tokens += row.tokens;
    }
    parts
}

fn quotient(numerator: f64, denominator: f64) -> f64 {
    if denominator == 0.0 { 0.0 } else { numerator / denominator }
}

#[cfg(test)]
mod tests;
