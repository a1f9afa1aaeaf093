//! GMPO, Geometric-Mean Policy Optimization (Zhao et al. 2025, arXiv 2507.20673): the geometric mean of a response's
//! ratios, each bounded in the log domain where that makes the objective smaller. `J = mean_i ρ_i Â_i` with
//! `ρ_i = exp( 1/|o_i| Σ_t clip(log r_t) )`, where clip(x) is min(x, high) for Â > 0 and max(x, −low) for Â < 0.
//!
//! Each token carries ρ_i with the gradient of its own log-prob, so that the mean over the tokens of a response
//! (`aggregation = "response-mean"`) has the value and the gradient of the formula.
//!
//! Source: `compute_policy_loss_geo_mean` of verl 0.9.1 (verl/trainer/ppo/core_algos.py). Deviation: verl divides a
//! response's sum by |o_i| + 1e-8, and the loss by all responses of the batch, also those that are masked out.

use crate::algorithm::methods::{About, Measures, Recorded};
use crate::algorithm::{Aggregation, Clip, Dapo, Rules, Surrogate, Tokens, clip};
use crate::numerics::operations::exp;
use serde::{Deserialize, Serialize};

pub const KEYS: &str = r#"
[[key]]
path = "dapo.method.log_clip.low"
meaning = "GMPO: log r of a token is at least −low where the advantage is negative"
range = { above = 0 }
paper = { remark = "0.4", place = "arXiv 2507.20673" }

[[key]]
path = "dapo.method.log_clip.high"
meaning = "GMPO: log r of a token is at most high where the advantage is positive"
range = { above = 0 }
paper = { remark = "0.4", place = "arXiv 2507.20673" }
"#;
pub const MEASURES: &[&str] = &["gmpo_log_ratio_distance"];

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gmpo {
    /// The range of log r, as distances from 0.
    pub log_clip: Clip,
}

impl Rules for Gmpo {
    fn about(&self) -> About {
        About {
            name: "GMPO",
            source: "arXiv 2507.20673; verl 0.9.1, compute_policy_loss_geo_mean",
            differs: "ρ = exp(mean_t clip(log r)), one-sided by the sign of Â, in place of r",
        }
    }

    fn unread(&self) -> &'static [&'static str] {
        &["dapo.clip", "dapo.dual_clip"]
    }

    fn needed_aggregation(&self) -> Option<Aggregation> {
        Some(Aggregation::ResponseMean)
    }

    fn has_response_ratio(&self) -> bool {
        true
    }

    fn clip(&self, _dapo: &Dapo) -> Clip {
        self.log_clip
    }

    fn clipped(&self) -> Option<[&'static str; 2]> {
        Some(["advantage < 0, log ratio < −low", "advantage > 0, log ratio > high"])
    }

    fn surrogate(&self, tokens: &Tokens, dapo: &Dapo) -> Surrogate {
        let own = clip::log_ratio(tokens, &dapo.log_ratio_clamp).detach();
        let advantages = tokens.advantages.expand_as(&own);
        let (gains, loses) = (advantages.gt(0.0), advantages.lt(0.0));
        let bounded = own.clamp_max(self.log_clip.high).where_self(&gains, &own.zeros_like());
        let bounded = own.clamp_min(-self.log_clip.low).where_self(&loses, &bounded);
        let mean = tokens.response_means(&bounded);
        let rho = exp(&mean, tokens.numerics);
        let values = -rho * &advantages;
        let clipped = bounded.ne_tensor(&own);
        let derivatives = values.zeros_like().where_self(&clipped, &values);
        let clipped = [clipped.logical_and(&loses), clipped.logical_and(&gains)];
        Surrogate::stated(tokens, mean, &values, &derivatives, clipped)
    }

    fn measures(&self, tokens: &Tokens, surrogate: &Surrogate, dapo: &Dapo) -> Measures {
        let own = clip::log_ratio(tokens, &dapo.log_ratio_clamp).detach();
        vec![(MEASURES[0], (&surrogate.log_ratio - own).abs())]
    }

    fn effect(&self, recorded: Recorded) -> Option<(bool, String)> {
        let distance = recorded("effect/gmpo_log_ratio_distance")?;
        let low = recorded("loss/clip_fraction_low")?;
        let high = recorded("loss/clip_fraction_high")?;
        let evidence = format!(
            "log ρ of a response and log r of its tokens were {distance:.2e} apart (mean over tokens \
             and steps); {:.3} % of the loss tokens were clipped below, {:.3} % above",
            100.0 * low,
            100.0 * high
        );
        Some((distance > 0.0, evidence))
    }
}
