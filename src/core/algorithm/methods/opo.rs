//! OPO, on-policy RL with optimal reward baseline (Hao et al. 2025, arXiv 2505.23585):
//! `Â_i = R_i − Σ_j |o_j| R_j / Σ_j |o_j|`. The baseline is the mean of the group's rewards weighted by length, which
//! makes the gradient's variance least when the gradient's norm grows with the length. The paper trains on-policy
//! without a clip; here `dapo.clip` and the mini-batches say so.
//!
//! Source: `compute_opo_outcome_advantage` of verl 0.9.1 (verl/trainer/ppo/core_algos.py). Deviation: a group of one
//! response, or without tokens, has advantage 0; verl gives the one its own reward and divides by 0 in the other. A
//! response that Overlong Filtering masks keeps its reward and its length in the baseline.

use crate::algorithm::methods::About;
use crate::algorithm::{Dapo, Rewarded, Rules};
use serde::{Deserialize, Serialize};

pub const KEYS: &str = "";
pub const MEASURES: &[&str] = &[];

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Opo {}

impl Rules for Opo {
    fn about(&self) -> About {
        About {
            name: "OPO",
            source: "arXiv 2505.23585; verl 0.9.1, compute_opo_outcome_advantage",
            differs: "Â_i = R_i − Σ |o_j| R_j / Σ |o_j| over the group, not divided by a standard \
                      deviation",
        }
    }

    fn unread(&self) -> &'static [&'static str] {
        &["dapo.advantage"]
    }

    fn group_advantages(&self, group: &[Rewarded], _dapo: &Dapo) -> Vec<f64> {
        let tokens: f64 = group.iter().map(|response| response.tokens as f64).sum();
        let equal = group.iter().all(|response| response.reward == group[0].reward);
        if tokens == 0.0 || equal {
            return vec![0.0; group.len()];
        }
        let weighted = group.iter().map(|response| response.tokens as f64 * response.reward);
        let baseline = weighted.sum::<f64>() / tokens;
        group.iter().map(|response| response.reward - baseline).collect()
    }
}
