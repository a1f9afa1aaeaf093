//! Clip-Higher, §3.1: the clipped surrogate of Eq. 10, per token.

use crate::algorithm::{Tokens, tokens::with_derivatives};
use crate::numerics::operations::exp;
use serde::{Deserialize, Serialize};
use tch::{Kind, Tensor};

/// Offsets of the clip range: the ratio is clipped to `[1 − low, 1 + high]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clip {
    /// ε_low.
    pub low: f64,
    /// ε_high. Clip-Higher raises it above `low`.
    pub high: f64,
}

/// Dual clip of the released code.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum DualClip {
    None {},
    /// For A < 0 the loss is at most −A·c.
    Constant {
        /// c > 1; 10 in the released scripts.
        c: f64,
    },
}

/// Clamp of log π_θ − log π_old in the released code.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum LogRatioClamp {
    None {},
    /// Clamped to ±`bound`; the gradient is 0 outside.
    Symmetric {
        /// 20 in the released code.
        bound: f64,
    },
}

impl LogRatioClamp {
    pub fn applied(&self, log_ratio: Tensor) -> Tensor {
        match *self {
            Self::None {} => log_ratio,
            Self::Symmetric { bound } => log_ratio.clamp(-bound, bound),
        }
    }
}

/// The surrogate's per-token values, all `[batch, length]`.
#[derive(Debug)]
pub struct Surrogate {
    /// −min(r Â, clip(r) Â), with the graph to `log_probs`; 0 outside the mask.
    pub losses: Tensor,
    /// log r, after the clamp where there is one; no graph; 0 outside the mask.
    pub log_ratio: Tensor,
    /// r of Eq. 9; no graph; 1 outside the mask.
    pub ratio: Tensor,
    /// Bool: Â < 0 and r < 1 − ε_low, the clipped branch was taken; or as the method's `clipped` says.
    pub clipped_low: Tensor,
    /// Bool: Â > 0 and r > 1 + ε_high, the clipped branch was taken; or as the method's `clipped` says.
    pub clipped_high: Tensor,
    /// Bool: Â < 0 and the bound of the dual clip was taken.
    pub dual_clipped: Tensor,
}

impl Surrogate {
    /// From each token's loss and its derivative by log π_θ, without graphs; what is outside the mask is left out.
    /// `clipped`: tokens whose ratio was bounded below and above; `log_ratio` as [`log_ratio`] gives it.
    pub fn stated(
        tokens: &Tokens,
        log_ratio: Tensor,
        values: &Tensor,
        derivatives: &Tensor,
        clipped: [Tensor; 2],
    ) -> Self {
        let mask = tokens.response_mask.to_kind(Kind::Bool);
        let zero = tokens.log_probs.zeros_like();
        let inside = |values: &Tensor| values.where_self(&mask, &zero);
        let losses =
            with_derivatives(&inside(values), &inside(derivatives), &inside(tokens.log_probs));
        let log_ratio = log_ratio.detach();
        let [clipped_low, clipped_high] = clipped.map(|side| side.logical_and(&mask));
        Self {
            losses,
            ratio: exp(&log_ratio, tokens.numerics),
            log_ratio,
            clipped_low,
            clipped_high,
            dual_clipped: mask.zeros_like(),
        }
    }
}

/// log π_θ − log π_old of each token, `[batch, length]`, with the graph to `log_probs`; 0 outside the mask, where NaN
/// and infinity reach neither a value nor a gradient. Deviation: a clamp bounds log r, with gradient 0 outside (the
/// released code's). Panics when the shapes do not agree.
pub fn log_ratio(tokens: &Tokens, clamp: &LogRatioClamp) -> Tensor {
    let size = tokens.log_probs.size();
    assert_eq!(tokens.old_log_probs.size(), size, "old_log_probs must be [batch, length]");
    assert_eq!(tokens.response_mask.size(), size, "response_mask must be [batch, length]");
    let mask = tokens.response_mask.to_kind(Kind::Bool);
    // Masked before any arithmetic: autograd turns 0 · NaN into NaN afterwards.
    let zero = tokens.log_probs.zeros_like();
    let inside = |values: &Tensor| values.where_self(&mask, &zero);
    clamp.applied(inside(tokens.log_probs) - inside(tokens.old_log_probs))
}

/// The clipped surrogate, DAPO Eq. 10, as a loss: `ℓ = −min( r Â, clip(r, 1 − ε_low, 1 + ε_high) Â )` with
/// `r = exp(log π_θ − log π_old)`. `log_ratio` is log r, `[batch, length]`, as [`log_ratio`] or a method gives it: with
/// its graph, 0 outside the mask. What stands outside the mask reaches neither a value nor a gradient. Panics when the
/// shapes do not agree.
///
/// The gradient is exactly 0 where a clipped branch is taken and where Â = 0, also when r overflows. A branch counts as
/// taken when its loss is strictly larger, as in the released code (verl/trainer/ppo/core_algos.py:1213-1235).
/// Deviation: with `dual_clip` the loss of Â < 0 is at most −Â c (the released code's, off by default).
pub fn surrogate(
    log_ratio: &Tensor,
    tokens: &Tokens,
    clip: &Clip,
    dual_clip: &DualClip,
) -> Surrogate {
    let (batch, length) = log_ratio.size2().expect("log_ratio must be [batch, length]");
    let (advantages, numerics) = (tokens.advantages, tokens.numerics);
    let per_row = advantages.size() == [batch, 1];
    assert!(
        per_row || advantages.size() == [batch, length],
        "advantages must be [{batch}, 1] or [{batch}, {length}], got {:?}",
        advantages.size()
    );
    let mask = tokens.response_mask.to_kind(Kind::Bool);
    let zero = log_ratio.zeros_like();
    let advantages = advantages.expand([batch, length], false).where_self(&mask, &zero);

    let ratio = exp(&log_ratio.detach(), numerics);
    let unclipped = -&advantages * &ratio;
    let clipped = -&advantages * ratio.clamp(1.0 - clip.low, 1.0 + clip.high);
    let bound = match *dual_clip {
        DualClip::None {} => advantages.full_like(f64::INFINITY),
        DualClip::Constant { c } => -&advantages * c,
    };
    let negative = advantages.lt(0.0);
    let clip_taken = clipped.gt_tensor(&unclipped);
    let larger = clipped.where_self(&clip_taken, &unclipped);
    let dual_clipped = larger.gt_tensor(&bound).logical_and(&negative);

    // Only the unclipped branch keeps a graph, and only where Â ≠ 0: elsewhere log r is replaced before exp, so that an
    // overflow there cannot make 0 · ∞ in the gradient. A log r that is not a number stays: it must not be hidden.
    let acts = advantages.ne(0.0).logical_or(&log_ratio.isnan());
    let live = acts.logical_and(&clip_taken.logical_or(&dual_clipped).logical_not());
    let live_losses = -&advantages * exp(&log_ratio.where_self(&live, &zero), numerics);
    // On the bound of the dual clip both branches are equal: half the gradient, as torch.min.
    let tied = larger.eq_tensor(&bound).logical_and(&negative);
    let halved = (&live_losses + live_losses.detach()) * 0.5;
    let live_losses = halved.where_self(&tied, &live_losses);
    let constant = bound.where_self(&dual_clipped, &larger).where_self(&acts, &zero);

    Surrogate {
        losses: live_losses.where_self(&live, &constant),
        log_ratio: log_ratio.detach(),
        clipped_low: clip_taken.logical_and(&negative),
        clipped_high: clip_taken.logical_and(&advantages.gt(0.0)),
        dual_clipped,
        ratio,
    }
}

#[cfg(test)]
mod tests;
