//! Clip-Cov (Cui et al. 2025, arXiv 2505.22617): a few tokens whose log-prob and advantage covary strongly lose their
//! gradient, because they drive the entropy down. `cov_t = (Â_t − mean(Â)) (log π_θ(o_t) − mean(log π_θ))`, with means
//! over the tokens of the mini-batch. Of the tokens with above < cov < below that the clip left alone, ⌊share ·
//! tokens⌋, at least one, are drawn at random and leave the loss.
//!
//! Source: `compute_policy_loss_clip_cov` of verl 0.9.1 (verl/trainer/ppo/core_algos.py). Deviation: means and choice
//! are those of the mini-batch; verl's are the micro-batch's. It costs one more forward pass an update. The authors'
//! script (recipe/entropy/7b_clip_cov.sh) has `clip_ratio_low = clip_ratio_high = 1`, so that PPO's clip leaves nearly all to it.

use crate::algorithm::methods::{About, Grpo, Measures, Recorded, Uniform};
use crate::algorithm::{Dapo, Rules, SeenResponse, Surrogate, Tokens};
use serde::{Deserialize, Serialize};
use tch::Tensor;

pub const KEYS: &str = r#"
[[key]]
path = "dapo.method.clipped_share"
meaning = "Clip-Cov: share of the mini-batch's tokens that leave the loss, rounded down, at least one token"
range = { above = 0, at_most = 1 }
paper = { remark = "2e-4", place = "arXiv 2505.22617" }
released_code = { remark = "2e-4", place = "verl, compute_policy_loss_clip_cov" }

[[key]]
path = "dapo.method.above"
meaning = "Clip-Cov: a token can be chosen when its covariance is larger than this"
paper = { remark = "1.0", place = "arXiv 2505.22617" }
released_code = { remark = "1.0", place = "verl, compute_policy_loss_clip_cov" }

[[key]]
path = "dapo.method.below"
meaning = "Clip-Cov: a token can be chosen when its covariance is smaller than this"
paper = { remark = "5.0", place = "arXiv 2505.22617" }
released_code = { remark = "5.0", place = "verl, compute_policy_loss_clip_cov" }
"#;
pub const MEASURES: &[&str] = &["clip_cov_left_share"];

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClipCov {
    pub clipped_share: f64,
    pub above: f64,
    pub below: f64,
}

/// Covariance of each token of the responses in the loss, with the token's place: (response, t).
pub fn covariances(mini_batch: &[SeenResponse]) -> Vec<((usize, usize), f64)> {
    let inside = || mini_batch.iter().enumerate().filter(|(_, response)| response.in_loss);
    let (mut tokens, mut advantages, mut log_probs) = (0.0, 0.0, 0.0);
    for (_, response) in inside() {
        for log_prob in response.log_probs {
            tokens += 1.0;
            advantages += response.advantage;
            log_probs += log_prob;
        }
    }
    let (advantage, log_prob) = (advantages / tokens, log_probs / tokens);
    let of_response = |(index, response): (usize, &SeenResponse)| {
        let centred = response.advantage - advantage;
        let of_token = move |(t, own): (usize, &f64)| ((index, t), centred * (own - log_prob));
        response.log_probs.iter().enumerate().map(of_token).collect::<Vec<_>>()
    };
    inside().flat_map(of_response).collect()
}

/// How many of so many tokens a share is, and at least one.
pub fn count(share: f64, tokens: usize) -> usize {
    ((share * tokens as f64) as usize).max(1)
}

/// `value` at the places of chosen tokens, `other` elsewhere.
pub fn marked(
    mini_batch: &[SeenResponse],
    chosen: impl IntoIterator<Item = (usize, usize)>,
    [value, other]: [f64; 2],
) -> Vec<Vec<f64>> {
    let mut marks: Vec<Vec<f64>> =
        mini_batch.iter().map(|response| vec![other; response.log_probs.len()]).collect();
    for (response, t) in chosen {
        marks[response][t] = value;
    }
    marks
}

/// GRPO's surrogate, with the loss of the tokens whose mark is 0 taken out.
pub fn masked(tokens: &Tokens, dapo: &Dapo) -> Surrogate {
    let plain = Grpo.surrogate(tokens, dapo);
    match tokens.marks {
        Some(marks) => Surrogate { losses: plain.losses * marks, ..plain },
        None => plain,
    }
}

/// 1 for tokens that [`masked`] takes out.
pub fn left(tokens: &Tokens) -> Tensor {
    let none = || tokens.log_probs.detach().zeros_like();
    tokens.marks.map_or_else(none, |marks| 1.0 - marks)
}

/// Keeps `count` of the candidates, each set of them with the same chance.
fn choose<T>(candidates: &mut Vec<T>, count: usize, uniform: &mut dyn FnMut() -> f64) {
    for chosen in 0..count {
        let rest = candidates.len() - chosen;
        let drawn = chosen + ((uniform() * rest as f64) as usize).min(rest - 1);
        candidates.swap(chosen, drawn);
    }
    candidates.truncate(count);
}

impl Rules for ClipCov {
    fn about(&self) -> About {
        About {
            name: "Clip-Cov",
            source: "arXiv 2505.22617; verl 0.9.1, compute_policy_loss_clip_cov",
            differs: "a random share of the tokens with (Â − mean)(log π_θ − mean) inside its bounds \
                      leaves the loss",
        }
    }

    fn problem(&self) -> Option<String> {
        let Self { above, below, .. } = self;
        (above >= below).then(|| {
            format!("dapo.method.above must be below dapo.method.below ({below}), got {above}")
        })
    }

    fn looks_ahead(&self) -> bool {
        true
    }

    fn marks(&self, mini_batch: &[SeenResponse], dapo: &Dapo, uniform: Uniform) -> Vec<Vec<f64>> {
        let clipped = |response: &SeenResponse, t: usize| {
            let ratio = libm::exp(response.log_probs[t] - response.old_log_probs[t]);
            (response.advantage > 0.0 && ratio > 1.0 + dapo.clip.high)
                || (response.advantage < 0.0 && ratio < 1.0 - dapo.clip.low)
        };
        let covariances = covariances(mini_batch);
        let count = count(self.clipped_share, covariances.len());
        let mut candidates: Vec<(usize, usize)> = covariances
            .into_iter()
            .filter(|&((index, t), covariance)| {
                let between = covariance > self.above && covariance < self.below;
                between && !clipped(&mini_batch[index], t)
            })
            .map(|(place, _)| place)
            .collect();
        if candidates.len() > count {
            choose(&mut candidates, count, uniform);
        }
        marked(mini_batch, candidates, [0.0, 1.0])
    }

    fn surrogate(&self, tokens: &Tokens, dapo: &Dapo) -> Surrogate {
        masked(tokens, dapo)
    }

    fn measures(&self, tokens: &Tokens, _surrogate: &Surrogate, _dapo: &Dapo) -> Measures {
        vec![(MEASURES[0], left(tokens))]
    }

    fn effect(&self, recorded: Recorded) -> Option<(bool, String)> {
        let left = recorded("effect/clip_cov_left_share")?;
        let evidence = format!(
            "{:.4} % of the loss tokens left the loss for their covariance (mean over steps)",
            100.0 * left
        );
        Some((left > 0.0, evidence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Purpose;
    use crate::base::rng::stream;

    #[test]
    fn each_candidate_is_chosen_as_often_as_any_other() {
        let mut draws = stream(1, Purpose::TokenChoice, &[]);
        let mut hits = [0.0; 7];
        for _ in 0..7_000 {
            let mut candidates: Vec<usize> = (0..7).collect();
            choose(&mut candidates, 3, &mut || draws.uniform());
            assert_eq!(candidates.len(), 3);
            candidates.into_iter().for_each(|at| hits[at] += 1.0);
        }
        // Three standard deviations of 7,000 draws with chance 3/7 are 124.
        assert!(hits.iter().all(|hits: &f64| (hits - 3_000.0).abs() < 150.0), "{hits:?}");
    }
}
