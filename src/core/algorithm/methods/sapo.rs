//! SAPO, Soft Adaptive Policy Optimization (Gao et al. 2025, arXiv 2511.20347): a smooth gate in place of the clip,
//! steeper for negative advantages: `ℓ = −f(r) Â` with `f(r) = σ( τ (r − 1) ) · 4/τ`, τ = τ₊ where Â > 0, else τ₋. f
//! has slope 1 at r = 1 and flattens on both sides. The paper takes the mean over the tokens of a response
//! (`aggregation = "response-mean"`).
//!
//! Source: `compute_policy_loss_sapo` of verl 0.9.1, `loss_type = "sapo"` of TRL 1.16.0. Deviation: where r overflows
//! the gradient is 0; TRL's is not a number.

use crate::algorithm::methods::{About, Measures, Recorded};
use crate::algorithm::{Dapo, LogRatioClamp, Rules, Surrogate, Tokens, clip};
use crate::numerics::operations::exp;
use serde::{Deserialize, Serialize};
use tch::Tensor;

pub const KEYS: &str = r#"
[[key]]
path = "dapo.method.tau_positive"
meaning = "SAPO: τ₊, how steep the gate is where the advantage is positive"
range = { above = 0 }
paper = { remark = "1.0", place = "arXiv 2511.20347" }
released_code = { remark = "1.0", place = "TRL, grpo_config.py, sapo_temperature_pos" }

[[key]]
path = "dapo.method.tau_negative"
meaning = "SAPO: τ₋, how steep the gate is elsewhere"
range = { above = 0 }
paper = { remark = "1.05", place = "arXiv 2511.20347" }
released_code = { remark = "1.05", place = "TRL, grpo_config.py, sapo_temperature_neg" }
"#;
pub const MEASURES: &[&str] = &["sapo_damping"];

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sapo {
    pub tau_positive: f64,
    pub tau_negative: f64,
}

impl Sapo {
    /// f(r), and its derivative by log r.
    fn gate(&self, ratio: &Tensor, tokens: &Tokens) -> (Tensor, Tensor) {
        let tau = ratio.full_like(self.tau_negative);
        let tau = ratio
            .full_like(self.tau_positive)
            .where_self(&tokens.advantages.gt(0.0).expand_as(ratio), &tau);
        let falls = exp(&((1.0 - ratio) * &tau), tokens.numerics);
        let sigmoid: Tensor = 1.0 / (&falls + 1.0);
        let slope: Tensor = &sigmoid * (&falls * &sigmoid) * 4.0 * ratio;
        let slope = slope.where_self(&ratio.isinf().logical_not(), &ratio.zeros_like());
        (sigmoid * 4.0 / tau, slope)
    }
}

impl Rules for Sapo {
    fn about(&self) -> About {
        About {
            name: "SAPO",
            source: "arXiv 2511.20347; verl 0.9.1, compute_policy_loss_sapo; TRL 1.16.0, \
                     loss_type=\"sapo\"",
            differs: "ℓ = −σ(τ (r − 1)) · 4/τ · Â, τ by the sign of Â",
        }
    }

    fn unread(&self) -> &'static [&'static str] {
        &["dapo.clip", "dapo.dual_clip"]
    }

    fn surrogate(&self, tokens: &Tokens, dapo: &Dapo) -> Surrogate {
        let log_ratio = clip::log_ratio(tokens, &dapo.log_ratio_clamp).detach();
        let unbounded = clip::log_ratio(tokens, &LogRatioClamp::None {}).detach();
        let ratio = exp(&log_ratio, tokens.numerics);
        let (gate, slope) = self.gate(&ratio, tokens);
        let passes = log_ratio.eq_tensor(&unbounded);
        let slope = slope.where_self(&passes, &slope.zeros_like());
        let none = || passes.zeros_like();
        let (values, derivatives) = (-gate * tokens.advantages, -slope * tokens.advantages);
        Surrogate::stated(tokens, log_ratio, &values, &derivatives, [none(), none()])
    }

    fn measures(&self, tokens: &Tokens, surrogate: &Surrogate, _dapo: &Dapo) -> Measures {
        let (_, slope) = self.gate(&surrogate.ratio, tokens);
        vec![(MEASURES[0], (slope - 1.0).abs())]
    }

    fn effect(&self, recorded: Recorded) -> Option<(bool, String)> {
        let damping = recorded("effect/sapo_damping")?;
        let evidence = format!(
            "the gate changed the weight of a token's gradient by {damping:.2e} (mean over tokens and \
             steps)"
        );
        Some((damping > 0.0, evidence))
    }
}
