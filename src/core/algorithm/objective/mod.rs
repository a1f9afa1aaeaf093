//! The objective, Eq. 8: clipped surrogate, optional KL term, aggregation, and the metrics that stem from the loss.

use crate::algorithm::{Dapo, Kl, Surrogate, Tokens, aggregation, kl};
use crate::numerics::operations;
use std::collections::BTreeMap;
use tch::{Kind, Tensor};

#[derive(Debug)]
pub struct Objective {
    /// −J of Eq. 8, this micro-batch's part of the mini-batch's sum: an f64 scalar with its graph.
    pub loss: Tensor,
    pub sums: Sums,
}

/// DAPO Eq. 8 as a loss: the surrogate of Eq. 10 or of the arm's method (plus β · KL when switched on), aggregated by
/// the row weights. Deviation: none from the paper with `dual_clip`, `log_ratio_clamp` and `kl` off. Panics when shapes
/// do not agree, or a KL penalty is configured and `ref_log_probs` is missing.
pub fn objective(tokens: &Tokens, dapo: &Dapo) -> Objective {
    let mask = tokens.response_mask.to_kind(Kind::Bool);
    let rules = dapo.rules();
    let surrogate = rules.surrogate(tokens, dapo);
    let measures = rules.measures(tokens, &surrogate, dapo);
    let let_through = count(&let_through(&surrogate, tokens.advantages, rules.clip(dapo).low));
    let (losses, kl_penalty) = match dapo.kl {
        Kl::None {} => (surrogate.losses, 0.0),
        Kl::Penalty { estimator, coefficient } => {
            let reference = tokens.ref_log_probs.expect("a KL penalty needs ref_log_probs");
            let size = tokens.log_probs.size();
            assert_eq!(reference.size(), size, "ref_log_probs has another shape");
            let zero = tokens.log_probs.zeros_like();
            let penalty = kl::penalty(
                &tokens.log_probs.where_self(&mask, &zero),
                &reference.where_self(&mask, &zero),
                estimator,
                tokens.numerics,
            );
            let total = sum(&penalty, &mask);
            (surrogate.losses + penalty * coefficient, total)
        }
    };
    let loss = aggregation::weighted_sum(&losses, &mask, tokens.row_weights);

    let old = tokens.old_log_probs.detach().to_kind(Kind::Double);
    let old_probability = operations::exp(&old, tokens.numerics);
    let log_ratio = surrogate.log_ratio.to_kind(Kind::Double);
    let ratio = operations::exp(&log_ratio, tokens.numerics);
    let sums = Sums {
        tokens: count(&mask),
        clipped_low: count(&surrogate.clipped_low),
        clipped_high: count(&surrogate.clipped_high),
        let_through,
        dual_clipped: count(&surrogate.dual_clipped),
        up_clipped_probability: sum(&old_probability, &surrogate.clipped_high),
        k3: sum(&(&ratio - 1.0 - &log_ratio), &mask),
        ratio_max: if count(&mask) == 0 {
            0.0
        } else {
            ratio.masked_select(&mask).max().double_value(&[])
        },
        kl_penalty,
        loss: aggregation::weighted_sum_exactly(&losses, &mask, tokens.row_weights),
        measures: measures.iter().map(|(name, values)| (*name, sum(values, &mask))).collect(),
    };
    Objective { loss, sums }
}

/// Sums over tokens in f64, to be added over micro-batches and updates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sums {
    pub tokens: u64,
    /// Tokens whose lower clip was taken (Â < 0, r < 1 − ε_low, or as the method's `clipped` says).
    pub clipped_low: u64,
    /// Tokens whose upper clip was taken (Â > 0, r > 1 + ε_high, or as the method's `clipped` says).
    pub clipped_high: u64,
    /// Tokens of Â > 0 above 1 + the method's `low` that were not clipped: what Clip-Higher let through, if it reads `dapo.clip`.
    pub let_through: u64,
    /// Tokens whose dual clip was taken.
    pub dual_clipped: u64,
    /// Σ π_old over up-clipped tokens (Fig. 3a; the paper does not say which policy's: this one sampled the token).
    pub up_clipped_probability: f64,
    /// Σ (r − 1 − log r) with the r of the loss: the k3 estimate of KL(π_old ‖ π_θ) where r is a token's.
    pub k3: f64,
    /// Largest r of the loss, a method's own where it has one; 0 without tokens.
    pub ratio_max: f64,
    /// Σ of the KL penalty's estimator, before its coefficient.
    pub kl_penalty: f64,
    /// Σ of the losses: over one mini-batch's micro-batches, that mini-batch's loss.
    pub loss: f64,
    /// Σ of what the arm's method measures of each token, by name.
    pub measures: BTreeMap<&'static str, f64>,
}

impl Sums {
    pub fn add(&mut self, other: &Self) {
        self.tokens += other.tokens;
        self.clipped_low += other.clipped_low;
        self.clipped_high += other.clipped_high;
        self.let_through += other.let_through;
        self.dual_clipped += other.dual_clipped;
        self.up_clipped_probability += other.up_clipped_probability;
        self.k3 += other.k3;
        // A plain `max` would drop a NaN.
        if other.ratio_max > self.ratio_max || other.ratio_max.is_nan() {
            self.ratio_max = other.ratio_max;
        }
        self.kl_penalty += other.kl_penalty;
        self.loss += other.loss;
        for (name, sum) in &other.measures {
            *self.measures.entry(name).or_default() += sum;
        }
    }

    /// Means over the tokens in the loss, by the names of `loss/…`; none without such tokens.
    pub fn means(&self) -> Vec<(&'static str, f64)> {
        if self.tokens == 0 {
            return Vec::new();
        }
        let tokens = self.tokens as f64;
        let mut means = vec![
            ("clip_fraction_low", self.clipped_low as f64 / tokens),
            ("clip_fraction_high", self.clipped_high as f64 / tokens),
            ("clip_fraction_dual", self.dual_clipped as f64 / tokens),
            ("approx_kl", self.k3 / tokens),
            ("ratio_max", self.ratio_max),
            ("kl_penalty", self.kl_penalty / tokens),
        ];
        if self.clipped_high > 0 {
            let probability = self.up_clipped_probability / self.clipped_high as f64;
            means.push(("up_clipped_probability_mean", probability));
        }
        means
    }
}

/// Â > 0, a clip at 1 + ε_low would be taken, and none was: between the two upper bounds where the method reads
/// `dapo.clip`. It compares strictly, as the surrogate does: a symmetric clip gives none whatever the rounding.
fn let_through(surrogate: &Surrogate, advantages: &Tensor, low: f64) -> Tensor {
    let unclipped = -advantages * &surrogate.ratio;
    let symmetric = -advantages * surrogate.ratio.clamp_max(1.0 + low);
    let stopped = symmetric.gt_tensor(&unclipped).logical_and(&advantages.gt(0.0));
    stopped.logical_and(&surrogate.clipped_high.logical_not())
}

fn count(flags: &Tensor) -> u64 {
    flags.sum(Kind::Int64).int64_value(&[]) as u64
}

fn sum(values: &Tensor, flags: &Tensor) -> f64 {
    let values = values.detach().to_kind(Kind::Double);
    operations::sum(&values.where_self(flags, &values.zeros_like()))
}

#[cfg(test)]
mod tests;
