//! CISPO (MiniMax 2025, arXiv 2506.13585): REINFORCE with a bounded importance weight, a constant of the gradient, so
//! that no token loses its gradient to the clip: `ℓ = −sg( clip(r, 1 − low, 1 + high) ) Â log π_θ`.
//!
//! Source: `compute_policy_loss_cispo` of verl 0.9.1, which bounds r on both sides, and `loss_type = "cispo"` of TRL
//! 1.16.0, which bounds it from above alone, at 5: low = 1 and high = 4 here. The paper bounds from above alone too,
//! which is the arm's setting.

use crate::algorithm::methods::{About, Measures, Recorded};
use crate::algorithm::{Clip, Dapo, Rules, Surrogate, Tokens, clip};
use crate::numerics::operations::exp;
use serde::{Deserialize, Serialize};

pub const KEYS: &str = r#"
[[key]]
path = "dapo.method.weight.low"
meaning = "CISPO: the weight is at least 1 − low; 1 is no bound"
range = { at_least = 0, at_most = 1 }
paper = { remark = "1.0; no lower bound", place = "arXiv 2506.13585" }
released_code = { remark = "verl bounds it on both sides, TRL not from below", place = "verl, compute_policy_loss_cispo" }

[[key]]
path = "dapo.method.weight.high"
meaning = "CISPO: the weight is at most 1 + high"
range = { above = 0 }
released_code = { remark = "TRL: 1 + high is epsilon_high, 5.0 recommended (high = 4.0), and epsilon, 0.2, by default; verl: 0.2 (clip_ratio_high)", place = "TRL, grpo_config.py; verl, workers/config/actor.py" }
"#;
pub const MEASURES: &[&str] = &["cispo_bounded_share"];

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cispo {
    /// The range of the weight, as offsets from 1.
    pub weight: Clip,
}

impl Rules for Cispo {
    fn about(&self) -> About {
        About {
            name: "CISPO",
            source: "arXiv 2506.13585; verl 0.9.1, compute_policy_loss_cispo; TRL 1.16.0, \
                     loss_type=\"cispo\"",
            differs: "ℓ = −sg(clip(r, 1 − low, 1 + high)) Â log π_θ",
        }
    }

    fn unread(&self) -> &'static [&'static str] {
        &["dapo.clip", "dapo.dual_clip"]
    }

    fn clip(&self, _dapo: &Dapo) -> Clip {
        self.weight
    }

    fn clipped(&self) -> Option<[&'static str; 2]> {
        Some(["ratio < 1 − low, any advantage", "ratio > 1 + high, any advantage"])
    }

    fn surrogate(&self, tokens: &Tokens, dapo: &Dapo) -> Surrogate {
        let log_ratio = clip::log_ratio(tokens, &dapo.log_ratio_clamp).detach();
        let ratio = exp(&log_ratio, tokens.numerics);
        let (least, most) = (1.0 - self.weight.low, 1.0 + self.weight.high);
        let derivatives = -ratio.clamp(least, most) * tokens.advantages;
        let values = &derivatives * tokens.log_probs.detach();
        let bounded = [ratio.lt(least), ratio.gt(most)];
        Surrogate::stated(tokens, log_ratio, &values, &derivatives, bounded)
    }

    fn measures(&self, _tokens: &Tokens, surrogate: &Surrogate, _dapo: &Dapo) -> Measures {
        let bounded = surrogate.clipped_low.logical_or(&surrogate.clipped_high);
        vec![(MEASURES[0], bounded.to_kind(surrogate.log_ratio.kind()))]
    }

    fn effect(&self, recorded: Recorded) -> Option<(bool, String)> {
        let bounded = recorded("effect/cispo_bounded_share")?;
        let evidence = format!(
            "every token kept its gradient; the weight of {:.3} % of the loss tokens was bounded, \
             whatever their advantage (mean over steps)",
            100.0 * bounded
        );
        Some((true, evidence))
    }
}
