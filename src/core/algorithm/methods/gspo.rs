//! GSPO, Group Sequence Policy Optimization (Zheng et al. 2025, arXiv 2507.18071, Eq. 5 and 7): the ratio and its clip
//! belong to the response, not to the token: `J = mean_i min( s_i Â_i, clip(s_i) Â_i )` with
//! `s_i = exp( 1/|o_i| Σ_t (log π_θ − log π_old) )`. Each token carries s_i with the gradient of its own log-prob, so
//! that the mean over the tokens of a response (`aggregation = "response-mean"`) has the formula's value and gradient.
//!
//! Source: `compute_policy_loss_gspo` of verl 0.9.1 (verl/trainer/ppo/core_algos.py). Deviation: verl clamps log s_i at
//! 10 from above; here `dapo.log_ratio_clamp` says whether it is.

use crate::algorithm::methods::{About, Measures, Recorded};
use crate::algorithm::tokens::with_gradient_of;
use crate::algorithm::{Clip, Dapo, LogRatioClamp, Rules, Surrogate, Tokens, clip};
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

pub const KEYS: &str = r#"
[[key]]
path = "dapo.method.clip.low"
meaning = "GSPO: s_i is clipped from below at 1 − low"
range = { above = 0, below = 1 }
paper = { remark = "3e-4 in the paper of GSPO, §5.1", place = "arXiv 2507.18071" }

[[key]]
path = "dapo.method.clip.high"
meaning = "GSPO: s_i is clipped from above at 1 + high"
range = { above = 0 }
paper = { remark = "4e-4 in the paper of GSPO, §5.1", place = "arXiv 2507.18071" }
"#;
pub const MEASURES: &[&str] = &["gspo_log_ratio_distance"];

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gspo {
    /// The range of s_i, in place of `dapo.clip`.
    pub clip: Clip,
}

impl Rules for Gspo {
    fn about(&self) -> About {
        About {
            name: "GSPO",
            source: "arXiv 2507.18071, Eq. 5 and 7; verl 0.9.1, compute_policy_loss_gspo",
            differs: "the ratio is the geometric mean over the response, and has a clip range of \
                      its own",
        }
    }

    fn unread(&self) -> &'static [&'static str] {
        &["dapo.clip"]
    }

    fn log_ratio(&self, tokens: &Tokens, dapo: &Dapo) -> Tensor {
        let own = clip::log_ratio(tokens, &LogRatioClamp::None {});
        let mask = tokens.response_mask.to_kind(Kind::Bool);
        let mean = tokens.response_means(&own).where_self(&mask, &own.zeros_like());
        dapo.log_ratio_clamp.applied(with_gradient_of(&mean, &own))
    }

    fn has_response_ratio(&self) -> bool {
        true
    }

    fn clip(&self, _dapo: &Dapo) -> Clip {
        self.clip
    }

    fn clipped(&self) -> Option<[&'static str; 2]> {
        Some([
            "advantage < 0, response’s ratio < 1 − low",
            "advantage > 0, response’s ratio > 1 + high",
        ])
    }

    fn measures(&self, tokens: &Tokens, surrogate: &Surrogate, _dapo: &Dapo) -> Measures {
        let own = clip::log_ratio(tokens, &LogRatioClamp::None {}).detach();
        vec![(MEASURES[0], (&surrogate.log_ratio - own).abs())]
    }

    fn effect(&self, recorded: Recorded) -> Option<(bool, String)> {
        let distance = recorded("effect/gspo_log_ratio_distance")?;
        let low = recorded("loss/clip_fraction_low")?;
        let high = recorded("loss/clip_fraction_high")?;
        let evidence = format!(
            "log s of a response and log r of its tokens were {distance:.2e} apart (mean over tokens \
             and steps); {:.2} % of the loss tokens stood in responses that were clipped below, \
             {:.2} % above",
            100.0 * low,
            100.0 * high
        );
        Some((distance > 0.0, evidence))
    }
}
