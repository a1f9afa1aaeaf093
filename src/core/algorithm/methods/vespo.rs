//! VESPO, Variational Sequence-level Soft Policy Optimization (Shen et al. 2026, arXiv 2602.10693): a gamma-shaped
//! weight of the ratio of the whole response in place of the clip, 1 at w = 1:
//! `ℓ = −sg( w^k exp(λ (1 − w)) ) Â log π_θ` with `w_i = Π_t r_t`, k and λ by the sign of Â. log r of a token is
//! bounded to ±20, log w to [log 1e-8, 20]. Source: `loss_type = "vespo"` and `get_gamma_weights` of TRL 1.16.0
//! (trl/trainer/grpo_trainer.py).

use crate::algorithm::methods::{About, Measures, Recorded};
use crate::algorithm::{Dapo, LogRatioClamp, Rules, Surrogate, Tokens, clip};
use crate::numerics::operations::exp;
use serde::{Deserialize, Serialize};
use tch::Tensor;

pub const KEYS: &str = r#"
[[key]]
path = "dapo.method.k_positive"
meaning = "VESPO: exponent of w where the advantage is at least 0"
range = { above = 0 }
released_code = { remark = "2.0", place = "TRL, grpo_config.py, vespo_k_pos" }

[[key]]
path = "dapo.method.lambda_positive"
meaning = "VESPO: decay in w where the advantage is at least 0"
range = { above = 0 }
released_code = { remark = "3.0", place = "TRL, grpo_config.py, vespo_lambda_pos" }

[[key]]
path = "dapo.method.k_negative"
meaning = "VESPO: exponent of w where the advantage is negative"
range = { above = 0 }
released_code = { remark = "3.0", place = "TRL, grpo_config.py, vespo_k_neg" }

[[key]]
path = "dapo.method.lambda_negative"
meaning = "VESPO: decay in w where the advantage is negative"
range = { above = 0 }
released_code = { remark = "2.0", place = "TRL, grpo_config.py, vespo_lambda_neg" }
"#;
pub const MEASURES: &[&str] = &["vespo_weight_distance"];

/// log w is at least log 1e-8, as in the released code.
const LEAST_LOG_WEIGHT: f64 = -18.420_680_743_952_367;
const MOST_LOG_WEIGHT: f64 = 20.0;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vespo {
    pub k_positive: f64,
    pub lambda_positive: f64,
    pub k_negative: f64,
    pub lambda_negative: f64,
}

impl Vespo {
    fn weight(&self, tokens: &Tokens) -> Tensor {
        let bound = LogRatioClamp::Symmetric { bound: MOST_LOG_WEIGHT };
        let log_ratio = clip::log_ratio(tokens, &bound).detach();
        let log_w = tokens.response_sums(&log_ratio).clamp(LEAST_LOG_WEIGHT, MOST_LOG_WEIGHT);
        let loses = tokens.advantages.lt(0.0).expand_as(&log_w);
        let by_sign = |negative: f64, positive: f64| {
            log_w.full_like(negative).where_self(&loses, &log_w.full_like(positive))
        };
        let k = by_sign(self.k_negative, self.k_positive);
        let lambda = by_sign(self.lambda_negative, self.lambda_positive);
        let w = exp(&log_w, tokens.numerics);
        exp(&(&lambda + k * log_w - lambda * w), tokens.numerics)
    }
}

impl Rules for Vespo {
    fn about(&self) -> About {
        About {
            name: "VESPO",
            source: "arXiv 2602.10693; TRL 1.16.0, loss_type=\"vespo\"",
            differs: "ℓ = −sg(w^k exp(λ (1 − w))) Â log π_θ, with w the product of a response's \
                      ratios",
        }
    }

    fn unread(&self) -> &'static [&'static str] {
        &["dapo.clip", "dapo.dual_clip", "dapo.log_ratio_clamp"]
    }

    fn surrogate(&self, tokens: &Tokens, dapo: &Dapo) -> Surrogate {
        let log_ratio = clip::log_ratio(tokens, &dapo.log_ratio_clamp).detach();
        let derivatives = -self.weight(tokens) * tokens.advantages;
        let values = &derivatives * tokens.log_probs.detach();
        let none = log_ratio.ne_tensor(&log_ratio).zeros_like();
        let clipped = [none.shallow_clone(), none];
        Surrogate::stated(tokens, log_ratio, &values, &derivatives, clipped)
    }

    fn measures(&self, tokens: &Tokens, _surrogate: &Surrogate, _dapo: &Dapo) -> Measures {
        vec![(MEASURES[0], (self.weight(tokens) - 1.0).abs())]
    }

    fn effect(&self, recorded: Recorded) -> Option<(bool, String)> {
        let distance = recorded("effect/vespo_weight_distance")?;
        let evidence =
            format!("the weight of a token lay {distance:.2e} from 1 (mean over tokens and steps)");
        Some((distance > 0.0, evidence))
    }
}
