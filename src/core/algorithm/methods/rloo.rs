//! RLOO, REINFORCE leave-one-out (Ahmadian et al. 2024, arXiv 2402.14740): the baseline of a response is the mean
//! reward of the group's other responses: `Â_i = R_i − 1/(G − 1) Σ_{j≠i} R_j = G/(G − 1) · (R_i − mean(R))`. Source:
//! `compute_rloo_outcome_advantage` of verl 0.9.1 (verl/trainer/ppo/core_algos.py). Deviation: a group of one response
//! has advantage 0; verl gives it its own reward.

use crate::algorithm::methods::About;
use crate::algorithm::{Dapo, Rewarded, Rules, advantage};
use serde::{Deserialize, Serialize};

pub const KEYS: &str = "";
pub const MEASURES: &[&str] = &[];

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rloo {}

impl Rules for Rloo {
    fn about(&self) -> About {
        About {
            name: "RLOO",
            source: "arXiv 2402.14740; verl 0.9.1, compute_rloo_outcome_advantage",
            differs: "Â_i = R_i − the mean of the group's other rewards, not divided by a standard \
                      deviation",
        }
    }

    fn unread(&self) -> &'static [&'static str] {
        &["dapo.advantage"]
    }

    fn group_advantages(&self, group: &[Rewarded], _dapo: &Dapo) -> Vec<f64> {
        let others = group.len().saturating_sub(1).max(1) as f64;
        let scale = group.len() as f64 / others;
        let centred = advantage::centred(&advantage::rewards(group));
        centred.into_iter().map(|centred| scale * centred).collect()
    }
}
