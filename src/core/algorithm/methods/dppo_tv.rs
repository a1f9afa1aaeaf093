//! DPPO with the binary total variation (Qi et al. 2026, arXiv 2602.04879): a token leaves the loss when its
//! probability, not its ratio, has moved too far in the direction of its advantage.
//! `ℓ = −sg( min(r, cap) ) Â log π_θ · stays`, where a token stays with `π_θ − π_old ≤ high` for Â > 0, and with
//! `π_θ − π_old ≥ −low` else. Source: `compute_policy_loss_dppo_tv` of verl 0.9.1 (verl/trainer/ppo/core_algos.py).

use crate::algorithm::methods::{About, Measures, Recorded};
use crate::algorithm::{Clip, Dapo, Rules, Surrogate, Tokens, clip};
use crate::numerics::operations::exp;
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

pub const KEYS: &str = r#"
[[key]]
path = "dapo.method.divergence.low"
meaning = "DPPO: a token of negative advantage stays while π_θ − π_old is at least −low"
range = { above = 0 }

[[key]]
path = "dapo.method.divergence.high"
meaning = "DPPO: a token of positive advantage stays while π_θ − π_old is at most high"
range = { above = 0 }

[[key]]
path = "dapo.method.ratio_cap"
meaning = "DPPO: the weight r is at most this"
range = { above = 0 }
released_code = { remark = "3.0 (clip_ratio_c); 20.0 in the function, for a configuration without it", place = "verl, workers/config/actor.py; compute_policy_loss_dppo_tv" }
"#;
pub const MEASURES: &[&str] = &["dppo_left_share"];

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DppoTv {
    /// The range of π_θ − π_old, as distances from 0.
    pub divergence: Clip,
    pub ratio_cap: f64,
}

impl Rules for DppoTv {
    fn about(&self) -> About {
        About {
            name: "DPPO-TV",
            source: "arXiv 2602.04879; verl 0.9.1, compute_policy_loss_dppo_tv",
            differs: "ℓ = −sg(min(r, cap)) Â log π_θ while π_θ − π_old is inside its bounds",
        }
    }

    fn unread(&self) -> &'static [&'static str] {
        &["dapo.clip", "dapo.dual_clip"]
    }

    fn clipped(&self) -> Option<[&'static str; 2]> {
        Some(["advantage ≤ 0, π_θ − π_old < −low", "advantage > 0, π_θ − π_old > high"])
    }

    fn surrogate(&self, tokens: &Tokens, dapo: &Dapo) -> Surrogate {
        let log_ratio = clip::log_ratio(tokens, &dapo.log_ratio_clamp).detach();
        let mask = tokens.response_mask.to_kind(Kind::Bool);
        let probability = |log_probs: &Tensor| {
            let inside = log_probs.detach().where_self(&mask, &log_ratio.zeros_like());
            exp(&inside, tokens.numerics)
        };
        let moved = probability(tokens.log_probs) - probability(tokens.old_log_probs);
        let gains = tokens.advantages.gt(0.0).expand_as(&moved);
        let too_high = moved.gt(self.divergence.high).logical_and(&gains);
        let too_low = moved.lt(-self.divergence.low).logical_and(&gains.logical_not());
        let stays = too_high.logical_or(&too_low).logical_not();
        let weight = exp(&log_ratio, tokens.numerics).clamp_max(self.ratio_cap);
        let derivatives = (-weight * tokens.advantages).where_self(&stays, &moved.zeros_like());
        let values = &derivatives * tokens.log_probs.detach();
        Surrogate::stated(tokens, log_ratio, &values, &derivatives, [too_low, too_high])
    }

    fn measures(&self, _tokens: &Tokens, surrogate: &Surrogate, _dapo: &Dapo) -> Measures {
        let left = surrogate.clipped_low.logical_or(&surrogate.clipped_high);
        vec![(MEASURES[0], left.to_kind(surrogate.log_ratio.kind()))]
    }

    fn effect(&self, recorded: Recorded) -> Option<(bool, String)> {
        let left = recorded("effect/dppo_left_share")?;
        let evidence = format!(
            "no token was clipped by its ratio; {:.3} % of the loss tokens left the loss because their \
             probability had moved too far, those of advantage 0 included (mean over steps)",
            100.0 * left
        );
        Some((true, evidence))
    }
}
