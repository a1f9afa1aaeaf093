//! One token from logits and a uniform, in f64: temperature, top-k, top-p, inverse CDF.

use crate::experiment::{LogProbsOver, Sampling};
use crate::numerics::Distribution;
use crate::policy::Token;

/// Draws the token whose interval of the cumulative distribution holds `uniform`. Temperature 0 is greedy, the log-prob
/// then being that of temperature 1. Top-k keeps the k most probable tokens, top-p the smallest set of most probable
/// tokens of at least that mass; ties are broken by the lower token id. The kept tokens' mass is renormalised and
/// walked in order of token id. The log-prob is that under softmax(logits / temperature): over the whole vocabulary, as
/// the training forward computes it, unless [`Sampling::log_probs`] asks for the kept tokens; the entropy is over the
/// whole vocabulary. `None` when the logits are no distribution: NaN or +∞ is among them, or all are −∞.
pub fn sample(logits: &[f64], sampling: &Sampling, entropy: bool, uniform: f64) -> Option<Token> {
    let greedy = sampling.temperature == 0.0;
    let temperature = if greedy { 1.0 } else { sampling.temperature };
    let distribution = Distribution::new(logits, temperature)?;
    let (weights, total) = (&distribution.weights, distribution.total);
    let mut kept_share = None;
    let token = if greedy {
        (0..logits.len()).rev().max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap_or(0)
    } else if !sampling.keeps_a_part() {
        distribution.token_at(uniform * total)
    } else {
        let mut kept = most_probable(weights, total, sampling);
        kept.sort_unstable();
        let mass: f64 = kept.iter().map(|&token| weights[token]).sum();
        if sampling.log_probs == Some(LogProbsOver::KeptTokens) {
            kept_share = Some(mass / total);
        }
        invert(weights, &kept, uniform * mass)
    };
    let over_all = distribution.log_prob(logits[token]);
    Some(Token {
        id: token as u32,
        log_prob: kept_share.map_or(over_all, |share| (over_all - libm::log(share)).min(0.0)),
        entropy: entropy.then(|| distribution.entropy(logits)),
    })
}

/// The kept tokens, the most probable first. As few are put in order as it takes.
fn most_probable(weights: &[f64], total: f64, sampling: &Sampling) -> Vec<usize> {
    const FIRST: usize = 64;
    let mut order: Vec<usize> = (0..weights.len()).collect();
    let by = |&a: &usize, &b: &usize| weights[b].total_cmp(&weights[a]).then(a.cmp(&b));
    let sort = |from: usize, to: usize, order: &mut [usize]| {
        if to < order.len() {
            order[from..].select_nth_unstable_by(to - from, by);
        }
        order[from..to].sort_unstable_by(by);
    };
    // Top-p looks at the distribution that top-k left, as transformers and vLLM do.
    let (mut sorted, mut left) = (0, total);
    if sampling.top_k > 0 {
        sorted = order.len().min(sampling.top_k as usize);
        sort(0, sorted, &mut order);
        order.truncate(sorted);
        left = order.iter().map(|&token| weights[token]).sum();
    }
    let mut mass = 0.0;
    for kept in 0..order.len() {
        if kept == sorted {
            sorted = (8 * sorted).max(FIRST).min(order.len());
            sort(kept, sorted, &mut order);
        }
        mass += weights[order[kept]];
        if mass >= sampling.top_p * left {
            order.truncate(kept + 1);
            break;
        }
    }
    order
}

/// As [`Distribution::token_at`] of some tokens, in the order of their ids.
fn invert(weights: &[f64], tokens: &[usize], target: f64) -> usize {
    let possible = || tokens.iter().copied().filter(|&token| weights[token] != 0.0);
    let mut mass = 0.0;
    let drawn = possible().find(|&token| {
        mass += weights[token];
        target < mass
    });
    drawn.or_else(|| possible().next_back()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: Sampling = Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, log_probs: None };

    fn draw(logits: &[f64], sampling: &Sampling, uniform: f64) -> Token {
        sample(logits, sampling, true, uniform).unwrap()
    }

    fn logits_of(probabilities: &[f64]) -> Vec<f64> {
        probabilities.iter().map(|p| p.ln()).collect()
    }

    #[test]
    fn a_uniform_selects_the_interval_that_holds_it() {
        let logits = logits_of(&[0.2, 0.5, 0.3]);
        for (uniform, token) in [(0.0, 0), (0.19, 0), (0.21, 1), (0.69, 1), (0.71, 2), (0.9999, 2)]
        {
            let drawn = draw(&logits, &PLAIN, uniform);
            assert_eq!(drawn.id, token, "uniform {uniform}");
        }
        assert!((draw(&logits, &PLAIN, 0.5).log_prob - 0.5f64.ln()).abs() < 1e-7);
    }

    #[test]
    fn top_p_keeps_the_smallest_sufficient_set_and_ties_go_to_the_lower_id() {
        let logits = logits_of(&[0.25, 0.25, 0.4, 0.1]);
        let sampling = Sampling { top_p: 0.6, ..PLAIN };
        let drawn: Vec<u32> =
            (0..100).map(|i| draw(&logits, &sampling, f64::from(i) / 100.0).id).collect();
        assert!(drawn.contains(&0) && drawn.contains(&2));
        assert!(!drawn.contains(&1) && !drawn.contains(&3));
        // The log-prob is that of the full distribution all the same.
        assert!((draw(&logits, &sampling, 0.0).log_prob - 0.25f64.ln()).abs() < 1e-6);
    }

    /// Sampling keeps N and draws from q = π_old / π_old(N). The expectation over q of the ratio
    /// π_θ / π_old times anything is off by 1 / π_old(N); of π_θ / q it is the sum over N.
    #[test]
    fn log_probs_of_the_kept_tokens_make_the_ratio_unbiased() {
        let (old, new) = ([0.4f64, 0.3, 0.2, 0.1], [0.3f64, 0.2, 0.4, 0.1]);
        let value = [1.0, -2.0, 0.5, 3.0];
        let expected = |log_probs| {
            let sampling = Sampling { top_p: 0.85, log_probs, ..PLAIN };
            let draws = 20_000;
            let term = |at| {
                let uniform = (f64::from(at) + 0.5) / f64::from(draws);
                let drawn = draw(&logits_of(&old), &sampling, uniform);
                let token = drawn.id as usize;
                (new[token].ln() - drawn.log_prob).exp() * value[token]
            };
            (0..draws).map(term).sum::<f64>() / f64::from(draws)
        };
        let over_kept: f64 = (0..3).map(|token| new[token] * value[token]).sum();
        assert!((expected(Some(LogProbsOver::KeptTokens)) - over_kept).abs() < 1e-4);
        assert!((expected(None) - over_kept / 0.9).abs() < 1e-4);
    }

    #[test]
    fn the_log_prob_of_the_one_kept_token_is_not_above_0_however_its_parts_round() {
        for at in 0..1000 {
            let logits = [0.0, -f64::from(at) / 100.0, -2.5];
            for (top_p, top_k) in [(1.0, 1), (0.2, 0), (0.2, 1)] {
                let log_probs = Some(LogProbsOver::KeptTokens);
                let drawn = draw(&logits, &Sampling { top_p, top_k, log_probs, ..PLAIN }, 0.5);
                assert!(drawn.log_prob <= 0.0 && drawn.log_prob > -1e-15, "{}", drawn.log_prob);
            }
        }
    }

    #[test]
    fn top_k_one_and_temperature_zero_take_the_first_of_the_best() {
        let logits = [0.5f64, 2.0, 2.0, -1.0];
        for sampling in [Sampling { top_k: 1, ..PLAIN }, Sampling { temperature: 0.0, ..PLAIN }] {
            for uniform in [0.0, 0.5, 0.999] {
                assert_eq!(draw(&logits, &sampling, uniform).id, 1);
            }
        }
    }

    /// Of many tokens, few of which are put in order.
    #[test]
    fn the_most_probable_of_many_are_those_of_a_whole_order() {
        let weights: Vec<f64> = (0..3000u32).map(|at| f64::from(at * 7919 % 1013 % 97)).collect();
        let total: f64 = weights.iter().sum();
        let mut all: Vec<usize> = (0..weights.len()).collect();
        all.sort_by(|&a, &b| weights[b].total_cmp(&weights[a]).then(a.cmp(&b)));
        for (top_k, top_p) in
            [(0, 0.01), (0, 0.3), (0, 0.97), (0, 1.0), (7, 1.0), (900, 0.5), (9000, 0.5)]
        {
            let kept = most_probable(&weights, total, &Sampling { top_p, top_k, ..PLAIN });
            assert_eq!(kept, all[..kept.len()], "{top_k} {top_p}");
            let most = if top_k == 0 { all.len() } else { all.len().min(top_k as usize) };
            let mass = |count: usize| all[..count].iter().map(|&at| weights[at]).sum::<f64>();
            assert!(kept.len() <= most && mass(kept.len()) >= top_p * mass(most) - 1e-6);
            assert!(kept.len() <= 1 || mass(kept.len() - 1) < top_p * mass(most) + 1e-6);
        }
    }

    #[test]
    fn temperature_sharpens_the_log_prob() {
        let logits = [1.0f64, 0.0];
        let cold = draw(&logits, &Sampling { temperature: 0.5, ..PLAIN }, 0.0);
        assert!((cold.log_prob - (-(1.0 + (-2.0f64).exp()).ln())).abs() < 1e-12);
    }

    #[test]
    fn the_entropy_is_that_of_all_tokens_at_the_temperature_whatever_is_kept() {
        let logits = logits_of(&[0.2, 0.5, 0.3]);
        let scaled: Vec<f64> = [0.2f64, 0.5, 0.3].iter().map(|p| p.powf(2.0)).collect();
        let total: f64 = scaled.iter().sum();
        let expected: f64 = scaled.iter().map(|p| -p / total * (p / total).ln()).sum();
        for (top_p, top_k) in [(1.0, 0), (0.4, 0), (1.0, 1)] {
            let drawn =
                draw(&logits, &Sampling { temperature: 0.5, top_p, top_k, log_probs: None }, 0.3);
            assert!((drawn.entropy.unwrap() - expected).abs() < 1e-12);
        }
        // A token that cannot come adds nothing.
        let certain = draw(&[0.0, f64::NEG_INFINITY], &PLAIN, 0.5);
        assert_eq!(certain.entropy, Some(0.0));
        assert_eq!(sample(&logits, &PLAIN, false, 0.5).unwrap().entropy, None);
    }

    #[test]
    fn logits_that_are_no_distribution_draw_nothing() {
        let infinity = f64::INFINITY;
        for bad in [&[0.0, f64::NAN, 1.0][..], &[0.0, infinity], &[-infinity, -infinity], &[]] {
            for sampling in [PLAIN, Sampling { temperature: 0.0, ..PLAIN }] {
                assert_eq!(sample(bad, &sampling, true, 0.5), None, "{bad:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_token_of_probability_zero_is_never_drawn(
            uniform in 0.0..1.0f64, top_p in 0.05..1.0f64, top_k in 0u64..4
        ) {
            let logits = [f64::NEG_INFINITY, 0.3, f64::NEG_INFINITY, -0.2, f64::NEG_INFINITY];
            let drawn = draw(&logits, &Sampling { temperature: 0.7, top_p, top_k, log_probs: None }, uniform);
            prop_assert!(drawn.id == 1 || drawn.id == 3);
            prop_assert!(drawn.log_prob.is_finite());
        }
    }
}
