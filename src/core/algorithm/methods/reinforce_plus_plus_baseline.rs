//! REINFORCE++-baseline (Hu et al. 2025, arXiv 2501.03262): the reward minus its group's mean, whitened over all tokens
//! of the step: `Â_i = (c_i − m) / √(v + 1e-8)` with `c_i = R_i − mean(R)`, m and v the mean and the sample variance of
//! c over the tokens in the loss of all groups, so that a long response counts more.
//!
//! Source: `compute_reinforce_plus_plus_baseline_outcome_advantage` and `masked_whiten` of verl 0.9.1. Deviation: a
//! group of one response has c = 0; verl gives it its own reward. Below two tokens c is not whitened; verl fails.

use crate::algorithm::methods::About;
use crate::algorithm::{Dapo, Rewarded, Rules, advantage};
use serde::{Deserialize, Serialize};

pub const KEYS: &str = "";
pub const MEASURES: &[&str] = &[];

/// Added to the tokens by `masked_mean`, and to the variance by `masked_whiten`.
const EPSILON: f64 = 1e-8;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReinforcePlusPlusBaseline {}

impl Rules for ReinforcePlusPlusBaseline {
    fn about(&self) -> About {
        About {
            name: "REINFORCE++-baseline",
            source: "arXiv 2501.03262; verl 0.9.1, \
                     compute_reinforce_plus_plus_baseline_outcome_advantage",
            differs: "Â = (c − m) / √(v + 1e-8), with c the reward minus its group's mean and m, v \
                      over the tokens of the step in the loss",
        }
    }

    fn unread(&self) -> &'static [&'static str] {
        &["dapo.advantage"]
    }

    fn equal_rewards_train(&self) -> bool {
        true
    }

    fn advantages(&self, groups: &[Vec<Rewarded>], _dapo: &Dapo) -> Vec<Vec<f64>> {
        let centred: Vec<Vec<f64>> =
            groups.iter().map(|group| advantage::centred(&advantage::rewards(group))).collect();
        let weight = |it: &Rewarded| if it.in_loss { it.tokens as f64 } else { 0.0 };
        let weights = groups.iter().flatten().map(weight);
        let weighted: Vec<(f64, f64)> = weights.zip(centred.concat()).collect();
        let tokens: f64 = weighted.iter().map(|(weight, _)| weight).sum();
        if tokens < 2.0 {
            return centred;
        }
        let over_tokens = |of: &dyn Fn(f64) -> f64| {
            weighted.iter().map(|&(weight, c)| weight * of(c)).sum::<f64>()
        };
        let mean = over_tokens(&|c| c) / (tokens + EPSILON);
        let variance = over_tokens(&|c| (c - mean) * (c - mean)) / (tokens + EPSILON);
        let scale = (variance * tokens / (tokens - 1.0) + EPSILON).sqrt();
        let white = |c: f64| (c - mean) / scale;
        centred.into_iter().map(|group| group.into_iter().map(white).collect()).collect()
    }
}
