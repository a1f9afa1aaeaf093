//! Dr. GRPO (Liu et al. 2025, arXiv 2503.20783, §3.2): GRPO without its two biases. The centred reward is not divided
//! by the group's standard deviation, and every token has the same weight whatever the length of its response:
//! `Â_i = R_i − mean(R)` and `J = 1/(B · L_max) Σ_i Σ_t min( r Â_i, clip(r) Â_i )` with B responses in the mini-batch.
//!
//! Source: `compute_grpo_outcome_advantage` with `norm_adv_by_std_in_grpo=False`, and `agg_loss` with
//! `seq-mean-token-sum-norm`, of verl 0.9.1 (verl/trainer/ppo/core_algos.py).

use crate::algorithm::aggregation::ResponseRow;
use crate::algorithm::methods::{About, Recorded};
use crate::algorithm::{Aggregation, Dapo, Rewarded, Rules, StepTotals, advantage};
use serde::{Deserialize, Serialize};

pub const KEYS: &str = "";
pub const MEASURES: &[&str] = &[];

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrGrpo {}

impl Rules for DrGrpo {
    fn about(&self) -> About {
        About {
            name: "Dr. GRPO",
            source: "arXiv 2503.20783; verl 0.9.1, seq-mean-token-sum-norm",
            differs: "advantages are not divided by the standard deviation, and each token weighs \
                      1 / (B · L_max)",
        }
    }

    fn does_itself(&self) -> &'static [&'static str] {
        &["Token-level loss"]
    }

    fn unread(&self) -> &'static [&'static str] {
        &["dapo.advantage"]
    }

    fn needed_aggregation(&self) -> Option<Aggregation> {
        Some(Aggregation::ResponseMean)
    }

    fn group_advantages(&self, group: &[Rewarded], _dapo: &Dapo) -> Vec<f64> {
        advantage::centred(&advantage::rewards(group))
    }

    /// 1 / (B · L_max), whatever the length; a response that is masked out does not count in B.
    fn row_weights(&self, rows: &[ResponseRow], _dapo: &Dapo, step: StepTotals) -> Vec<f64> {
        let responses = rows.iter().filter(|row| row.tokens > 0).count() as f64;
        let weight = 1.0 / (responses * step.max_response_tokens as f64);
        rows.iter().map(|row| if row.tokens > 0 { weight } else { 0.0 }).collect()
    }

    fn effect(&self, recorded: Recorded) -> Option<(bool, String)> {
        let moved = recorded("effect/token_level_loss_moved_share_mean")?;
        let longest = recorded("effect/token_level_loss_longest_quarter_weight")?;
        let evidence = format!(
            "{:.2} % of the loss weight (mean over steps) lies on other tokens than under GRPO's \
             response mean, the longest quarter of the responses weighs {longest:.2} times as much; \
             no advantage was divided by its group's standard deviation",
            100.0 * moved
        );
        Some((true, evidence))
    }
}
