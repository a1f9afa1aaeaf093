//! Lite PPO (Liu et al. 2025, arXiv 2508.08221), with the token mean:
//! `Â_i = (R_i − mean(R of its group)) / (std(R of all groups) + ε)`, over all groups of the step. The standard
//! deviation is the sample's, ε is `dapo.advantage.epsilon`. Source: `scale_rewards = "batch"` of TRL 1.16.0
//! (trl/trainer/grpo_trainer.py), whose ε is 1e-4.

use crate::algorithm::methods::About;
use crate::algorithm::{Aggregation, Dapo, Rewarded, Rules, advantage};
use serde::{Deserialize, Serialize};

pub const KEYS: &str = "";
pub const MEASURES: &[&str] = &[];

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LitePpo {}

impl Rules for LitePpo {
    fn about(&self) -> About {
        About {
            name: "Lite PPO",
            source: "arXiv 2508.08221; TRL 1.16.0, scale_rewards=\"batch\"",
            differs: "Â = (R − the group's mean) / (the step's standard deviation + ε), with the \
                      token mean",
        }
    }

    fn unread(&self) -> &'static [&'static str] {
        &["dapo.advantage.std"]
    }

    fn needed_aggregation(&self) -> Option<Aggregation> {
        Some(Aggregation::TokenMean)
    }

    fn advantages(&self, groups: &[Vec<Rewarded>], dapo: &Dapo) -> Vec<Vec<f64>> {
        let rewards: Vec<Vec<f64>> = groups.iter().map(|group| advantage::rewards(group)).collect();
        let all = rewards.concat();
        let mean = advantage::mean(&all);
        let squares: f64 = all.iter().map(|reward| (reward - mean) * (reward - mean)).sum();
        let deviation = (squares / all.len().saturating_sub(1).max(1) as f64).sqrt();
        let scale = deviation + dapo.advantage.epsilon;
        let scaled = |group: &Vec<f64>| {
            // A group without spread has exactly 0 also where scale is 0.
            let centred = advantage::centred(group).into_iter();
            centred.map(|c| if c == 0.0 { 0.0 } else { c / scale }).collect()
        };
        rewards.iter().map(scaled).collect()
    }
}
