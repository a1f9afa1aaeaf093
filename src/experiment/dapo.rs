//! The `[dapo]` table: the paper's techniques and every choice that it leaves open.
//!
//! Empty variants are written `None {}`: serde lets a unit variant swallow stray keys.

use serde::{Deserialize, Serialize};

/// The objective of one arm: the four techniques and the open choices around them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dapo {
    /// Clip-Higher, §3.1, Eq. 10.
    pub clip: Clip,
    /// Token-level loss, §3.3, Eq. 12.
    pub aggregation: Aggregation,
    /// What the token mean is taken over.
    pub token_mean_unit: TokenMeanUnit,
    /// Group-relative advantage, Eq. 9.
    pub advantage: Advantage,
    /// Dynamic Sampling, §3.2, Eq. 11.
    pub dynamic_sampling: DynamicSampling,
    /// Overlong reward shaping, §3.4.
    pub overlong: Overlong,
    /// A bound on the loss of negative advantages; absent from the paper.
    pub dual_clip: DualClip,
    /// A clamp on the log-ratio; absent from the paper.
    pub log_ratio_clamp: LogRatioClamp,
    /// KL penalty to the frozen base policy (GRPO, Eq. 5); DAPO has none (§2.3).
    pub kl: Kl,
}

/// Offsets of the clip range: the ratio is clipped to `[1 − low, 1 + high]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clip {
    /// ε_low.
    pub low: f64,
    /// ε_high. Clip-Higher raises it above `low`.
    pub high: f64,
}

/// How per-token losses become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// GRPO, Eq. 5: mean over a response's tokens, then over responses.
    ResponseMean,
    /// DAPO, Eq. 12: mean over all tokens of `token_mean_unit`.
    TokenMean,
    /// Sum over a response's tokens, then mean over responses (the released code's
    /// `seq-mean-token-sum`, used by early scripts).
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

/// Eq. 9's normaliser.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advantage {
    /// Which standard deviation divides the centred reward.
    pub std: Std,
    /// Added to the standard deviation. Not used with `std = "none"`.
    pub epsilon: f64,
}

/// A standard deviation over the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Std {
    /// Divisor n − 1 (released code).
    Sample,
    /// Divisor n.
    Population,
    /// No division: the centred reward.
    None,
}

/// Dynamic Sampling, §3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum DynamicSampling {
    /// Every group trains.
    None {},
    /// Groups that are all correct or all wrong are dropped, and further prompts are
    /// sampled until the batch is full.
    Resample {
        /// Cap on generation rounds for one rollout step; 0 is no cap.
        max_rounds: u32,
        /// What happens at the cap.
        at_cap: AtCap,
        /// What happens to useful groups beyond the batch.
        surplus: Surplus,
    },
}

/// What Dynamic Sampling does when its cap is reached with the batch not full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtCap {
    /// Stop the run with an error that names the kept share (released code).
    Stop,
    /// Train on the groups there are; with none at all the run ends as saturated.
    Train,
}

/// What happens to useful groups that the batch has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Surplus {
    /// Thrown away, the batch keeps the first in data order (released code).
    Discard,
    /// Kept for the next rollout step, where they are off-policy by one step.
    Carry,
}

/// Overlong reward shaping, §3.4: two independent techniques.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overlong {
    /// Overlong Filtering: truncated responses leave the loss. Their reward stays in the
    /// group's statistics.
    pub filter: bool,
    /// Soft Overlong Punishment, Eq. 13.
    pub punishment: Punishment,
}

/// Eq. 13.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Punishment {
    /// No length penalty.
    None {},
    /// A penalty that grows linearly over the last `cache_tokens` before L_max.
    Soft {
        /// L_cache.
        cache_tokens: u64,
        /// Multiplies the penalty; 1 in the paper.
        factor: f64,
        /// The penalty beyond L_max.
        beyond: Beyond,
    },
}

/// The soft punishment of a response longer than L_max.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beyond {
    /// −1 (Eq. 13).
    Clamped,
    /// The line goes on (released code).
    Unclamped,
}

/// Dual clip of the released code.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum DualClip {
    /// Eq. 8: no bound.
    None {},
    /// For A < 0 the loss is at most −A·c.
    Constant {
        /// c > 1; 10 in the released scripts.
        c: f64,
    },
}

/// Clamp of log π_θ − log π_old in the released code.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LogRatioClamp {
    /// Eq. 9: no clamp.
    None {},
    /// Clamped to ±`bound`; the gradient is 0 outside.
    Symmetric {
        /// 20 in the released code.
        bound: f64,
    },
}

/// KL penalty added to the per-token loss.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Kl {
    /// No reference policy is kept.
    None {},
    /// β · estimator(log π_θ, log π_ref).
    Penalty {
        /// Which estimator of the divergence.
        estimator: KlEstimator,
        /// β ≥ 0.
        coefficient: f64,
    },
}

/// Estimators of KL(π_θ ‖ π_ref) from one sample (Schulman's k1, k2, k3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KlEstimator {
    /// log π_θ − log π_ref.
    K1,
    /// ½ (log π_θ − log π_ref)².
    K2,
    /// e^κ − κ − 1 with κ = log π_ref − log π_θ (GRPO).
    K3,
}
