//! MaxRL, maximum likelihood reinforcement learning (Tajwar et al. 2026, arXiv 2602.02710): the centred reward is
//! divided by the group's mean, which weighs hard problems by 1 / their success rate: `Â_i = (r_i − μ) / μ`, 0 where μ
//! ≤ 0. The paper's r is 1 for a correct response and 0 otherwise; here `r = (R + 1) / 2`, where R is +1 or −1 plus a
//! length penalty, so that r is the paper's without one. Source: the paper; no released framework that we ran has it.

use crate::algorithm::methods::About;
use crate::algorithm::{Dapo, Rewarded, Rules, advantage};
use serde::{Deserialize, Serialize};

pub const KEYS: &str = "";
pub const MEASURES: &[&str] = &[];

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaxRl {}

impl Rules for MaxRl {
    fn about(&self) -> About {
        About {
            name: "MaxRL",
            source: "arXiv 2602.02710",
            differs: "Â = (r − μ) / μ with r = (R + 1) / 2 and μ its group's mean; 0 where μ ≤ 0",
        }
    }

    fn unread(&self) -> &'static [&'static str] {
        &["dapo.advantage"]
    }

    fn group_advantages(&self, group: &[Rewarded], _dapo: &Dapo) -> Vec<f64> {
        let shares: Vec<f64> = group.iter().map(|response| (response.reward + 1.0) / 2.0).collect();
        let mean = advantage::mean(&shares);
        let centred = advantage::centred(&shares).into_iter();
        centred.map(|c| if mean <= 0.0 { 0.0 } else { c / mean }).collect()
    }
}
