//! MIS, masked importance sampling (IcePop, Ling Team 2025, arXiv 2510.18855; "When Speed Kills Stability",
//! richardli.xyz/rl-collapse): as TIS, but a weight outside its bounds takes the token, or the response, out of the
//! loss. `ℓ = w · GRPO's loss` where `at_least ≤ w ≤ at_most`, else 0, with `w = π_old / π_sampler` of each token, with
//! the product of a response's tokens, or with their geometric mean. The loss's denominators count what was taken out.
//!
//! Source: `compute_rollout_correction_weights` with two bounds and `compute_rollout_rejection_mask` with `seq_mean_k1`
//! of verl 0.9.1 (verl/trainer/ppo/rollout_corr_helper.py), `"token_mask"` and `"sequence_mask"` of TRL 1.16.0.

use crate::algorithm::methods::tis::{WeightLevel, quotient, weighted};
use crate::algorithm::methods::{About, Measures, Recorded};
use crate::algorithm::{Dapo, LogRatioClamp, Rules, Surrogate, Tokens};
use serde::{Deserialize, Serialize};
use tch::Tensor;

pub const KEYS: &str = r#"
[[key]]
path = "dapo.method.at_least"
meaning = "MIS: the smallest weight π_old / π_sampler that stays in the loss"
range = { above = 0 }
released_code = { remark = "0.5 in verl's preset, none in TRL", place = "verl, trainer/config/algorithm.py, decoupled_token_icepop; TRL, grpo_config.py" }

[[key]]
path = "dapo.method.at_most"
meaning = "MIS: the largest weight π_old / π_sampler that stays in the loss"
range = { above = 0 }
released_code = { remark = "5.0 in verl's preset, 3.0 in TRL", place = "verl, trainer/config/algorithm.py, decoupled_token_icepop; TRL, grpo_config.py" }
"#;
pub const MEASURES: &[&str] = &["mis_weight_distance", "mis_left_share"];

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mis {
    pub level: WeightLevel,
    pub at_least: f64,
    pub at_most: f64,
}

impl Mis {
    /// The weight of each token, and where it stays in the loss.
    fn weights(&self, tokens: &Tokens, clamp: &LogRatioClamp) -> (Tensor, Tensor) {
        let weights = quotient(tokens, self.level, clamp);
        let stays = weights.ge(self.at_least).logical_and(&weights.le(self.at_most));
        (weights, stays)
    }
}

impl Rules for Mis {
    fn about(&self) -> About {
        About {
            name: "MIS",
            source: "arXiv 2510.18855; verl 0.9.1, rollout_corr_helper.py; TRL 1.16.0, token_mask",
            differs: "GRPO's loss times π_old / π_sampler where that is inside its bounds, else 0",
        }
    }

    fn problem(&self) -> Option<String> {
        let Self { at_least, at_most, .. } = self;
        (at_least > at_most).then(|| {
            format!("dapo.method.at_least must be at most dapo.method.at_most ({at_most}), got {at_least}")
        })
    }

    fn surrogate(&self, tokens: &Tokens, dapo: &Dapo) -> Surrogate {
        let (weights, stays) = self.weights(tokens, &dapo.log_ratio_clamp);
        weighted(tokens, dapo, &weights.where_self(&stays, &weights.zeros_like()))
    }

    fn measures(&self, tokens: &Tokens, _surrogate: &Surrogate, dapo: &Dapo) -> Measures {
        let (weights, stays) = self.weights(tokens, &dapo.log_ratio_clamp);
        let distance = (&weights - 1.0).abs().where_self(&stays, &weights.zeros_like());
        vec![(MEASURES[0], distance), (MEASURES[1], stays.logical_not().to_kind(weights.kind()))]
    }

    fn effect(&self, recorded: Recorded) -> Option<(bool, String)> {
        let distance = recorded("effect/mis_weight_distance")?;
        let left = recorded("effect/mis_left_share")?;
        let stayed = if left < 1.0 {
            let distance = distance / (1.0 - left);
            format!(
                "the weight π_old / π_sampler of a token that stayed lay {distance:.2e} from 1; "
            )
        } else {
            String::new()
        };
        let evidence = format!(
            "{stayed}{:.3} % of the loss tokens left the loss (means over tokens and steps)",
            100.0 * left
        );
        Some((distance > 0.0 || left > 0.0, evidence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_is_of_the_tokens_that_stayed() {
        let mis = Mis { level: WeightLevel::Token, at_least: 0.5, at_most: 2.0 };
        let said = |distance: f64, left: f64| {
            let recorded =
                |name: &str| Some(if name.ends_with("left_share") { left } else { distance });
            mis.effect(&recorded).unwrap()
        };
        let (acted, evidence) = said(1e-3, 0.75);
        assert!(acted && evidence.contains("stayed lay 4.00e-3 from 1; 75.000 % of"), "{evidence}");
        assert!(said(0.0, 1.0).1.starts_with("100.000 % of"));
        assert!(!said(0.0, 0.0).0);
    }
}
