//! KL-Cov (Cui et al. 2025, arXiv 2505.22617): the share of the tokens whose log-prob and advantage covary most
//! ([`clip_cov`](super::clip_cov)) is penalised for moving: `ℓ = −r Â + c · |log r|` on these, `−r Â` elsewhere. There
//! is no clip.
//!
//! Source: `compute_policy_loss_kl_cov` of verl 0.9.1 (verl/trainer/ppo/core_algos.py). Deviation: the chosen tokens
//! are those of the mini-batch; verl's are the micro-batch's. It costs one more forward pass an update.

use crate::algorithm::methods::clip_cov::{count, covariances, marked};
use crate::algorithm::methods::{About, Measures, Recorded, Uniform};
use crate::algorithm::{Clip, Dapo, DualClip, Rules, SeenResponse, Surrogate, Tokens, clip};
use serde::{Deserialize, Serialize};
use tch::Tensor;

pub const KEYS: &str = r#"
[[key]]
path = "dapo.method.penalised_share"
meaning = "KL-Cov: share of the mini-batch's tokens that are penalised, rounded down, at least one token"
range = { above = 0, at_most = 1 }
paper = { remark = "2e-3; 2e-4 for 32B", place = "arXiv 2505.22617" }
released_code = { remark = "2e-4", place = "verl, compute_policy_loss_kl_cov" }

[[key]]
path = "dapo.method.coefficient"
meaning = "KL-Cov: coefficient of |log r| on the penalised tokens"
range = { above = 0 }
paper = { remark = "1.0", place = "arXiv 2505.22617" }
released_code = { remark = "0.1 (ppo_kl_coef); 1.0 in the function, for a configuration without it", place = "verl, workers/config/actor.py; compute_policy_loss_kl_cov" }
"#;
pub const MEASURES: &[&str] = &["kl_cov_penalised_share", "kl_cov_penalty"];

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KlCov {
    pub penalised_share: f64,
    pub coefficient: f64,
}

impl KlCov {
    /// The penalty of each token, from log r with or without its graph.
    fn penalty(&self, tokens: &Tokens, log_ratio: &Tensor) -> Option<Tensor> {
        tokens.marks.map(|marks| log_ratio.abs() * marks * self.coefficient)
    }
}

impl Rules for KlCov {
    fn about(&self) -> About {
        About {
            name: "KL-Cov",
            source: "arXiv 2505.22617; verl 0.9.1, compute_policy_loss_kl_cov",
            differs: "no clip; c · |log r| on the share of the tokens with the largest \
                      (Â − mean)(log π_θ − mean)",
        }
    }

    fn unread(&self) -> &'static [&'static str] {
        &["dapo.clip", "dapo.dual_clip"]
    }

    fn equal_rewards_train(&self) -> bool {
        true
    }

    fn looks_ahead(&self) -> bool {
        true
    }

    /// Up to the paper's coefficient of 1 there is room without it, and earlier runs keep their bits.
    fn penalty_weight(&self) -> f64 {
        if self.coefficient > 1.0 { self.coefficient } else { 0.0 }
    }

    fn marks(&self, mini_batch: &[SeenResponse], _dapo: &Dapo, _uniform: Uniform) -> Vec<Vec<f64>> {
        let mut covariances = covariances(mini_batch);
        let count = count(self.penalised_share, covariances.len());
        covariances.sort_by(|a, b| b.1.total_cmp(&a.1));
        marked(mini_batch, covariances.into_iter().take(count).map(|(token, _)| token), [1.0, 0.0])
    }

    fn surrogate(&self, tokens: &Tokens, dapo: &Dapo) -> Surrogate {
        let log_ratio = clip::log_ratio(tokens, &dapo.log_ratio_clamp);
        let unbounded = Clip { low: f64::INFINITY, high: f64::INFINITY };
        let plain = clip::surrogate(&log_ratio, tokens, &unbounded, &DualClip::None {});
        match self.penalty(tokens, &log_ratio) {
            Some(penalty) => Surrogate { losses: plain.losses + penalty, ..plain },
            None => plain,
        }
    }

    fn measures(&self, tokens: &Tokens, surrogate: &Surrogate, _dapo: &Dapo) -> Measures {
        let none = || surrogate.log_ratio.zeros_like();
        let marks = tokens.marks.map_or_else(none, Tensor::shallow_clone);
        let penalty = self.penalty(tokens, &surrogate.log_ratio).unwrap_or_else(none);
        vec![(MEASURES[0], marks), (MEASURES[1], penalty)]
    }

    fn effect(&self, recorded: Recorded) -> Option<(bool, String)> {
        let share = recorded("effect/kl_cov_penalised_share")?;
        let penalty = recorded("effect/kl_cov_penalty")?;
        let evidence = format!(
            "{:.4} % of the loss tokens were penalised, by {penalty:.2e} over all tokens (mean over \
             steps)",
            100.0 * share
        );
        Some((penalty > 0.0, evidence))
    }
}
