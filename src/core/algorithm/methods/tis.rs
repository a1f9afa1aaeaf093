//! TIS, truncated importance sampling (Yao et al. 2025, <https://fengyao.notion.site/off-policy-rl>): the loss of a
//! token is weighted by how much likelier the trainer's policy than the sampler makes it, up to a cap:
//! `ℓ = min( π_old / π_sampler, cap ) · GRPO's loss` of each token, or with the product of a response's tokens at each
//! of them. `dapo.log_ratio_clamp` bounds the log of the quotient too: verl bounds it to ±20, TRL does not. Under exact
//! arithmetic sampler and trainer are the same policy and every weight is 1, unless `rollout.sampler_weights`,
//! `rollout.sampling.log_probs` or `dapo.dynamic_sampling.surplus = "carry"` says otherwise.
//!
//! Source: `compute_rollout_correction_weights` of verl 0.9.1 (verl/trainer/ppo/rollout_corr_helper.py),
//! `vllm_importance_sampling_mode = "token_truncate"` and `"sequence_truncate"` of TRL 1.16.0.

use crate::algorithm::methods::{About, Grpo, Measures, Recorded};
use crate::algorithm::{Dapo, LogRatioClamp, Rules, Surrogate, Tokens, clip};
use crate::numerics::operations::exp;
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

pub const KEYS: &str = r#"
[[key]]
path = "dapo.method.level"
meaning = "TIS and MIS: whether the weight π_old / π_sampler belongs to a token or to its response"
released_code = { remark = "verl: \"sequence\" in RolloutCorrectionConfig, null (no weight) in its yaml, \"token\" in the function; TRL: \"sequence_mask\", which is MIS with \"sequence\"", place = "verl, trainer/config/algorithm.py, rollout_correction.yaml, rollout_corr_helper.py; TRL, grpo_config.py" }

[[key]]
path = "dapo.method.cap"
meaning = "TIS: the weight π_old / π_sampler is at most this"
range = { above = 0 }
released_code = { remark = "2.0 in verl, 3.0 in TRL", place = "verl, trainer/config/algorithm.py; TRL, grpo_config.py" }
"#;
pub const MEASURES: &[&str] = &["tis_weight_distance", "tis_capped_share"];

/// What a weight belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightLevel {
    /// The token: π_old / π_sampler.
    Token,
    /// The response: the product over its tokens.
    Sequence,
    /// The response: the geometric mean over its tokens.
    SequenceMean,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tis {
    pub level: WeightLevel,
    pub cap: f64,
}

/// π_old / π_sampler of each token, or of its response at each of its tokens: `[batch, length]`; 1
/// outside the mask, and everywhere when the sampler's log-probs are not known. `clamp` bounds its log.
pub fn quotient(tokens: &Tokens, level: WeightLevel, clamp: &LogRatioClamp) -> Tensor {
    let Some(sampler) = tokens.sampler_log_probs else {
        return tokens.old_log_probs.ones_like();
    };
    let sampled = Tokens { log_probs: tokens.old_log_probs, old_log_probs: sampler, ..*tokens };
    let log = clip::log_ratio(&sampled, &LogRatioClamp::None {});
    let log = match level {
        WeightLevel::Token => log,
        WeightLevel::Sequence => tokens.response_sums(&log),
        WeightLevel::SequenceMean => tokens.response_means(&log),
    };
    let mask = tokens.response_mask.to_kind(Kind::Bool);
    let log = log.where_self(&mask, &log.zeros_like());
    exp(&clamp.applied(log), tokens.numerics)
}

/// GRPO's surrogate with its losses weighted.
pub fn weighted(tokens: &Tokens, dapo: &Dapo, weights: &Tensor) -> Surrogate {
    let plain = Grpo.surrogate(tokens, dapo);
    Surrogate { losses: plain.losses * weights, ..plain }
}

impl Rules for Tis {
    fn about(&self) -> About {
        About {
            name: "TIS",
            source: "https://fengyao.notion.site/off-policy-rl; verl 0.9.1, \
                     compute_rollout_correction_weights; TRL 1.16.0, token_truncate",
            differs: "GRPO's loss times min(π_old / π_sampler, cap)",
        }
    }

    fn surrogate(&self, tokens: &Tokens, dapo: &Dapo) -> Surrogate {
        let weights = quotient(tokens, self.level, &dapo.log_ratio_clamp).clamp_max(self.cap);
        weighted(tokens, dapo, &weights)
    }

    fn measures(&self, tokens: &Tokens, _surrogate: &Surrogate, dapo: &Dapo) -> Measures {
        let weights = quotient(tokens, self.level, &dapo.log_ratio_clamp);
        let capped = weights.gt(self.cap).to_kind(weights.kind());
        vec![(MEASURES[0], (weights.clamp_max(self.cap) - 1.0).abs()), (MEASURES[1], capped)]
    }

    fn effect(&self, recorded: Recorded) -> Option<(bool, String)> {
        let distance = recorded("effect/tis_weight_distance")?;
        let capped = recorded("effect/tis_capped_share")?;
        let evidence = format!(
            "the weight π_old / π_sampler of a loss token lay {distance:.2e} from 1 (mean over tokens \
             and steps); {:.3} % were capped",
            100.0 * capped
        );
        Some((distance > 0.0, evidence))
    }
}
