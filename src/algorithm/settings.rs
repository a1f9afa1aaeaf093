//! The `[dapo]` table: the paper's techniques and every choice that it leaves open. Each type stands
//! in the file of its technique.
//!
//! Empty variants are written `None {}`: serde lets a unit variant swallow stray keys.

use crate::algorithm::{
    Advantage, Aggregation, Clip, DualClip, DynamicSampling, Kl, LogRatioClamp, Overlong,
    TokenMeanUnit,
};
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
