//! Quantities that reports draw over training, beside the paper's curves.

use std::sync::LazyLock;

#[derive(Debug, Clone, PartialEq)]
pub struct Quantity {
    pub id: &'static str,
    /// `*` after the id.
    pub in_studies: bool,
    /// Figure of a run's report: `paper`, `own`, `effects`; `none`.
    pub place: &'static str,
    pub title: &'static str,
    pub unit: &'static str,
    /// Each with its name in a run's legend.
    pub metrics: Vec<(&'static str, &'static str)>,
    /// The paper's figures.
    pub paper: Vec<&'static str>,
    /// A reader needs it before comparing.
    pub remark: &'static str,
    /// The remark of a run, which draws every metric.
    pub run_remark: &'static str,
}

impl Quantity {
    /// The metric of all rollouts of a step (missing in format 1), and that of the batch; a
    /// quantity without these two has its first metric.
    pub fn scopes(&self) -> (Option<&'static str>, &'static str) {
        match self.metrics[..] {
            [(all, _), (batch, "batch")] => (Some(all), batch),
            _ => (None, self.metrics[0].0),
        }
    }
}

/// id | place | title | unit | metric: legend; … | figures of the paper | remark | remark of a run
const TABLE: &str = "\
entropy* | paper | Entropy of the policy | nats | policy/rollout_entropy: all rollouts; policy/entropy: batch | 2b 4a 5b 7c | Entropy depends on the vocabulary: only its course can be compared.
length* | paper | Mean response length | tokens | rollout/response_tokens_mean: all generated; train/response_tokens_mean: after filtering | 7a 4b | Lengths are in each model\u{2019}s own tokens.
reward* | paper | Mean reward | reward | rollout/reward_mean: all generated; train/reward_mean: after filtering | 7b | Correctness as ±1 plus the length penalty, of all generated rollouts. | Both are ±1 for correctness plus the length penalty. Ours is drawn before and after filtering, because the paper does not say which it plots.
probability* | paper | Mean probability of sampled tokens | probability | policy/rollout_token_probability_mean: all rollouts; policy/token_probability_mean: batch | 7d | The mirror image of the entropy.
all-correct* | paper | Groups with every answer correct | % | rollout/groups_all_correct_share: all generated | 3b | These groups have no gradient; Dynamic Sampling drops them.
up-clipped* | paper | Mean probability of up-clipped tokens | probability | loss/up_clipped_probability_mean: advantage > 0, ratio > 1 + ε_high; policy/token_probability_mean: every token of the batch | 3a | Steps without such a token are left out.
clip-high* | own | Tokens clipped from above | % | loss/clip_fraction_high: from above | |
clip-low* | own | Tokens clipped from below | % | loss/clip_fraction_low: from below | |
truncated* | own | Truncated responses | % | rollout/truncated_share: all generated; train/truncated_share: after filtering | |
careful* | none | Responses in the careful style | % | rollout/style_careful_share: all generated | |
checked-wrong* | none | Wrong results that are checked | % | rollout/style_checked_wrong_share: all generated | |
checked-right* | none | Right results that are checked | % | rollout/style_checked_right_share: all generated | |
decisions* | none | Decisions of a response | decisions | rollout/decisions_mean: all generated | |
length-by-outcome | own | Mean response length by outcome | tokens | rollout/response_tokens_wrong_mean: wrong; rollout/response_tokens_correct_mean: correct | |
length-quantiles | own | Response length, quantiles | tokens | rollout/response_tokens_p90: 90 %; rollout/response_tokens_p50: 50 %; rollout/response_tokens_p10: 10 % | |
reward-spread | own | Standard deviation of the reward | reward | rollout/reward_std: all generated | |
clip-high-quarters | own | Tokens clipped from above, by quarter of a step\u{2019}s updates | % | loss/clip_fraction_high_quarter_4: last; loss/clip_fraction_high_quarter_1: first | |
accuracy | own | Accuracy in training | % | rollout/accuracy: all generated; train/accuracy: after filtering | |
groups | own | Groups | % | rollout/groups_useful_share: useful; rollout/groups_all_correct_share: all correct; rollout/groups_all_wrong_share: all wrong | |
gradient | own | Gradient norm before clipping | L2 norm | optimizer/gradient_norm_max: largest; optimizer/gradient_norm_mean: mean | |
mismatch | own | Sampler against trainer | nats | policy/mismatch_max: largest; policy/mismatch_mean: mean | |
rounds | own | Generation rounds of one step | rounds | rollout/rounds: rounds | |
kl | own | Divergence from π_old | nats | loss/approx_kl: approximate KL | |
above | effects | Tokens above 1 + ε_low, advantage > 0 | % | effect/clip_higher_let_through_share: let through; loss/clip_fraction_high: clipped | |
dropped | effects | Groups dropped | % | effect/dynamic_sampling_dropped_share: dropped | |
moved | effects | Loss weight moved between responses | % | effect/token_level_loss_moved_share_mean: against the response mean | |
punished | effects | Responses punished | % | effect/soft_punishment_punished_share: punished | |";

static QUANTITIES: LazyLock<Vec<Quantity>> = LazyLock::new(|| {
    let quantity = |line: &'static str| {
        let mut fields = line.split('|').map(str::trim);
        let mut next = || fields.next().unwrap_or_default();
        let [id, place, title, unit, metrics, paper, remark, own] = std::array::from_fn(|_| next());
        let (id, in_studies) = (id.trim_end_matches('*'), id.ends_with('*'));
        let run_remark = if own.is_empty() { remark } else { own };
        let metrics = metrics.split("; ").filter_map(|metric| metric.split_once(": ")).collect();
        let paper = paper.split_whitespace().collect();
        Quantity { id, in_studies, place, title, unit, metrics, paper, remark, run_remark }
    };
    TABLE.lines().map(quantity).collect()
});

pub fn all() -> &'static [Quantity] {
    &QUANTITIES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read_whole() {
        for quantity in all() {
            assert!(!quantity.unit.is_empty() && !quantity.metrics.is_empty(), "{quantity:?}");
            assert_eq!(quantity.place == "paper", !quantity.paper.is_empty(), "{quantity:?}");
            assert!(quantity.metrics.iter().all(|(name, _)| name.contains('/')), "{quantity:?}");
        }
        assert_eq!(all()[0].scopes(), (Some("policy/rollout_entropy"), "policy/entropy"));
        assert_eq!(all()[1].scopes(), (None, "rollout/response_tokens_mean"));
    }
}
