//! Top-entropy mask (Wang et al. 2025, arXiv 2506.01939): only the tokens at which the policy is most uncertain train,
//! because they decide where a solution goes: `ℓ_t = GRPO's loss` where `H_t ≥ quantile(H, 1 − share)`, else 0. H_t is
//! the entropy of π_θ at the token; the quantile is interpolated linearly. Denominators of the loss count all tokens.
//!
//! Source: `top_entropy_quantile` of TRL 1.16.0 (trl/trainer/grpo_trainer.py, `get_high_entropy_mask`). Deviation: the
//! quantile is over the tokens of the mini-batch; TRL's is over one pass on all devices. It costs one more forward
//! pass.

use crate::algorithm::methods::clip_cov::{left, masked};
use crate::algorithm::methods::{About, Measures, Recorded, Uniform};
use crate::algorithm::{Dapo, Rules, SeenResponse, Surrogate, Tokens};
use serde::{Deserialize, Serialize};

pub const KEYS: &str = r#"
[[key]]
path = "dapo.method.trained_share"
meaning = "Top-entropy mask: share of the mini-batch's tokens, those of largest entropy, that train"
range = { above = 0, at_most = 1 }
paper = { remark = "0.2", place = "arXiv 2506.01939" }
"#;
pub const MEASURES: &[&str] = &["top_entropy_left_share"];

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopEntropy {
    pub trained_share: f64,
}

impl Rules for TopEntropy {
    fn about(&self) -> About {
        About {
            name: "Top-entropy mask",
            source: "arXiv 2506.01939; TRL 1.16.0, top_entropy_quantile",
            differs: "only the share of the tokens with the largest entropy is in the loss",
        }
    }

    fn looks_ahead(&self) -> bool {
        true
    }

    fn marks(&self, mini_batch: &[SeenResponse], _dapo: &Dapo, _uniform: Uniform) -> Vec<Vec<f64>> {
        let inside = mini_batch.iter().filter(|response| response.in_loss);
        let mut sorted: Vec<f64> = inside.flat_map(|response| response.entropy).copied().collect();
        sorted.sort_by(f64::total_cmp);
        let threshold = quantile(&sorted, 1.0 - self.trained_share);
        let mark = |entropy: &f64| f64::from(*entropy >= threshold);
        mini_batch.iter().map(|response| response.entropy.iter().map(mark).collect()).collect()
    }

    fn surrogate(&self, tokens: &Tokens, dapo: &Dapo) -> Surrogate {
        masked(tokens, dapo)
    }

    fn measures(&self, tokens: &Tokens, _surrogate: &Surrogate, _dapo: &Dapo) -> Measures {
        vec![(MEASURES[0], left(tokens))]
    }

    fn effect(&self, recorded: Recorded) -> Option<(bool, String)> {
        let left = recorded("effect/top_entropy_left_share")?;
        let evidence =
            format!("{:.2} % of the loss tokens did not train (mean over steps)", 100.0 * left);
        Some((left > 0.0, evidence))
    }
}

/// The quantile of sorted numbers, interpolated as `torch.quantile` does; 0 of none.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = share * sorted.len().saturating_sub(1) as f64;
    let at = |rank: f64| sorted.get(rank as usize).copied().unwrap_or(0.0);
    let (below, above) = (at(rank.floor()), at(rank.ceil()));
    below + (above - below) * (rank - rank.floor())
}
