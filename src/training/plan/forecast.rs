//! Dynamic Sampling from the base policy's point of view: how many groups are useful, and how
//! many generation rounds fill a batch (§3.2, Eq. 11; Algorithm 1, lines 6–8).

use crate::algorithm::dynamic_sampling;
use serde::{Deserialize, Serialize};

/// z of a two-sided 95 % interval.
const Z: f64 = 1.959_963_984_540_054;
/// Rounds that a distribution without a cap lists; an expectation sums far beyond.
const LISTED_ROUNDS: u32 = 32;
/// Terms after which an expectation without a cap is its asymptote.
const MOST_TERMS: u64 = 4_096;

/// A share with a 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Observed.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Share {
    /// `hits` of `trials` with Wilson's score interval; `[0, 1]` of no trials.
    pub fn wilson(hits: u64, trials: u64) -> Self {
        if trials == 0 {
            return Self { value: 0.0, low: 0.0, high: 1.0 };
        }
        let (n, p) = (trials as f64, hits as f64 / trials as f64);
        let centre = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        // Rounding must not push the ends across the observed share.
        let low = ((centre - half) / scale).clamp(0.0, p);
        Self { value: p, low, high: ((centre + half) / scale).clamp(p, 1.0) }
    }
}

/// A beta-binomial that was fitted to the groups' correct counts: each problem has a
/// probability of success of its own, drawn from Beta(α, β).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BetaBinomial {
    /// α.
    pub alpha: f64,
    /// β.
    pub beta: f64,
}

impl BetaBinomial {
    /// Fits mean and intra-group correlation by moments. `None` when all groups are solved,
    /// all are failed, or groups have fewer than two rollouts.
    pub fn fit(counts: &[u64]) -> Option<Self> {
        /// The correlation is held away from 0 and 1, where the distribution degenerates.
        const MARGIN: f64 = 1e-3;
        let size = counts.len().checked_sub(1)? as f64;
        let groups: f64 = counts.iter().map(|&count| count as f64).sum();
        if size < 2.0 || groups < 2.0 {
            return None;
        }
        let weighted = |of: &dyn Fn(f64) -> f64| -> f64 {
            counts.iter().enumerate().map(|(c, &count)| count as f64 * of(c as f64)).sum()
        };
        let p = weighted(&|c| c) / (groups * size);
        if p <= 0.0 || p >= 1.0 {
            return None;
        }
        let variance = weighted(&|c| (c - size * p) * (c - size * p)) / (groups - 1.0);
        // Var c = G p (1 − p) (1 + (G − 1) ρ), with ρ = 1 / (α + β + 1).
        let correlation = (variance / (size * p * (1.0 - p)) - 1.0) / (size - 1.0);
        let total = 1.0 / correlation.clamp(MARGIN, 1.0 - MARGIN) - 1.0;
        Some(Self { alpha: p * total, beta: (1.0 - p) * total })
    }

    /// P(0 < correct < G) for a group of `size` rollouts.
    pub fn useful(&self, size: u64) -> f64 {
        let size = size as f64;
        let all = |a: f64, b: f64| {
            let log = libm::lgamma(a + size) - libm::lgamma(a) + libm::lgamma(a + b)
                - libm::lgamma(a + b + size);
            libm::exp(log)
        };
        (1.0 - all(self.alpha, self.beta) - all(self.beta, self.alpha)).clamp(0.0, 1.0)
    }
}

/// Generation rounds of one rollout step at a given useful share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rounds {
    /// Mean; `None` when no group is useful and nothing caps the rounds.
    pub expected: Option<f64>,
    /// P(rounds = 1), P(rounds = 2), …: as far as the cap, or 32 without one.
    pub probabilities: Vec<f64>,
    /// Probability that the cap is reached with the batch not full; 0 without a cap.
    pub cap_probability: f64,
}

/// How refilling is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refill {
    /// Prompts of one round.
    pub prompts_per_round: u64,
    /// Groups that the batch needs.
    pub target: u64,
    /// Cap on rounds; 0 is no cap.
    pub max_rounds: u32,
    /// Useful groups beyond the batch serve the next step.
    pub carry: bool,
}

/// The rounds of one rollout step when each group is useful with probability `useful`,
/// independently. After j rounds the buffer holds Binomial(j · prompts_per_round, useful)
/// groups. With carried surplus the figures are those of a long run.
pub fn rounds(useful: f64, refill: Refill) -> Rounds {
    let Refill { prompts_per_round, target, max_rounds, carry } = refill;
    let unfilled = |rounds: u64| match rounds {
        0 => 1.0,
        _ => below(prompts_per_round.saturating_mul(rounds), useful, target),
    };
    let listed = if max_rounds == 0 { LISTED_ROUNDS } else { max_rounds.min(LISTED_ROUNDS) };
    let mut probabilities: Vec<f64> =
        (1..=u64::from(listed)).map(|round| unfilled(round - 1) - unfilled(round)).collect();
    let capped = max_rounds > 0;
    let cap_probability = if capped { unfilled(u64::from(max_rounds)) } else { 0.0 };
    if listed == max_rounds {
        // The last round ends the step, full or not.
        if let Some(last) = probabilities.last_mut() {
            *last += cap_probability;
        }
    }
    let asymptote = target as f64 / (prompts_per_round as f64 * useful);
    let most = if capped { f64::from(max_rounds) } else { f64::INFINITY };
    let mean = if carry {
        asymptote.max(1.0).min(most)
    } else {
        expectation(&unfilled, u64::from(max_rounds)).unwrap_or(asymptote.min(most))
    };
    Rounds { expected: mean.is_finite().then_some(mean), probabilities, cap_probability }
}

/// Σ P(rounds > j), or `None` when the sum is too long to take.
fn expectation(unfilled: &dyn Fn(u64) -> f64, max_rounds: u64) -> Option<f64> {
    /// A tail below this moves no printed digit.
    const NEGLIGIBLE: f64 = 1e-9;
    let terms = if max_rounds == 0 { MOST_TERMS } else { max_rounds.min(MOST_TERMS) };
    let mut sum = 0.0;
    for round in 0..terms {
        let term = unfilled(round);
        sum += term;
        if term < NEGLIGIBLE {
            return Some(sum);
        }
    }
    (max_rounds > 0 && max_rounds <= MOST_TERMS).then_some(sum)
}

/// P(Binomial(trials, p) < target).
fn below(trials: u64, p: f64, target: u64) -> f64 {
    /// Beyond this the normal distribution with continuity correction is exact enough.
    const EXACT_TRIALS: u64 = 20_000;
    if target == 0 {
        return 0.0;
    }
    if trials < target || p <= 0.0 {
        return 1.0;
    }
    if p >= 1.0 {
        return 0.0;
    }
    let n = trials as f64;
    if trials > EXACT_TRIALS {
        let z = (target as f64 - 0.5 - n * p) / (n * p * (1.0 - p)).sqrt();
        return 0.5 * libm::erfc(-z / std::f64::consts::SQRT_2);
    }
    let (log_p, log_q) = (libm::log(p), libm::log1p(-p));
    let choose = |k: f64| libm::lgamma(n + 1.0) - libm::lgamma(k + 1.0) - libm::lgamma(n - k + 1.0);
    let mass = |k: u64| libm::exp(choose(k as f64) + k as f64 * log_p + (n - k as f64) * log_q);
    (0..target).map(mass).sum::<f64>().min(1.0)
}

/// What the base policy's groups say. The kept share moves during training: a better policy
/// fails fewer groups and solves more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forecast {
    /// Groups with c correct rollouts, for c from 0 to G.
    pub correct_counts: Vec<u64>,
    /// Share of groups that are neither all correct nor all wrong.
    pub useful_share: Share,
    /// Share of groups without a correct rollout.
    pub all_wrong_share: f64,
    /// Share of groups without a wrong rollout.
    pub all_correct_share: f64,
    /// The fit, and the useful share that it implies; a check on the observed share.
    pub fit: Option<(BetaBinomial, f64)>,
    /// With Dynamic Sampling: rounds at the observed share, and at the interval's upper and
    /// lower end.
    pub rounds: Option<[Rounds; 3]>,
}

impl Forecast {
    /// A forecast from each group's number of correct rollouts; `refill` is `None` without
    /// Dynamic Sampling.
    pub fn new(correct: &[usize], group_size: u64, refill: Option<Refill>) -> Self {
        let size = group_size as usize;
        let mut correct_counts = vec![0u64; size + 1];
        for &count in correct {
            correct_counts[count.min(size)] += 1;
        }
        let groups = correct.len() as u64;
        let useful = correct.iter().filter(|&&c| dynamic_sampling::is_useful(c, size)).count();
        let useful_share = Share::wilson(useful as u64, groups);
        let share = |count: u64| count as f64 / groups.max(1) as f64;
        Self {
            all_wrong_share: share(correct_counts[0]),
            all_correct_share: share(correct_counts[size]),
            fit: BetaBinomial::fit(&correct_counts).map(|fit| (fit, fit.useful(group_size))),
            rounds: refill.map(|refill| {
                [useful_share.value, useful_share.high, useful_share.low]
                    .map(|share| rounds(share, refill))
            }),
            correct_counts,
            useful_share,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::prop_assert;
    use proptest::proptest;

    const REFILL: Refill = Refill { prompts_per_round: 2, target: 2, max_rounds: 2, carry: false };

    #[test]
    fn rounds_of_two_coins_are_those_counted_by_hand() {
        // Two groups a round, each useful with 1/2: full after one round with 1/4; after two
        // rounds Binomial(4, 1/2) is below 2 with 5/16.
        let found = rounds(0.5, REFILL);
        assert!((found.probabilities[0] - 0.25).abs() < 1e-12, "{found:?}");
        assert!((found.probabilities[1] - 0.75).abs() < 1e-12);
        assert!((found.cap_probability - 5.0 / 16.0).abs() < 1e-12);
        assert!((found.expected.unwrap() - 1.75).abs() < 1e-12);
    }

    #[test]
    fn without_useful_groups_the_cap_is_certain_and_without_cap_there_is_no_expectation() {
        let found = rounds(0.0, REFILL);
        assert_eq!((found.cap_probability, found.expected), (1.0, Some(2.0)));
        let endless = rounds(0.0, Refill { max_rounds: 0, ..REFILL });
        assert_eq!((endless.cap_probability, endless.expected), (0.0, None));
        assert_eq!(rounds(1.0, REFILL).expected, Some(1.0));
    }

    #[test]
    fn carried_surplus_needs_as_many_groups_as_it_trains() {
        let carry = Refill { prompts_per_round: 32, target: 32, max_rounds: 0, carry: true };
        assert_eq!(rounds(0.5, carry).expected, Some(2.0));
        assert_eq!(rounds(0.5, Refill { target: 8, ..carry }).expected, Some(1.0));
        assert!(rounds(0.5, Refill { carry: false, ..carry }).expected.unwrap() > 2.0);
    }

    #[test]
    fn huge_batches_neither_overflow_nor_hang() {
        let huge = Refill {
            prompts_per_round: u64::MAX,
            target: u64::MAX,
            max_rounds: u32::MAX,
            carry: false,
        };
        for share in [0.0, 1e-300, 0.3, 1.0] {
            let found = rounds(share, huge);
            assert!(found.probabilities.iter().all(|p| p.is_finite()), "{share}: {found:?}");
        }
        let long = Refill { prompts_per_round: 1, target: 1_000_000, max_rounds: 0, carry: false };
        assert!((rounds(0.5, long).expected.unwrap() - 2e6).abs() < 1.0);
    }

    #[test]
    fn wilsons_interval_is_the_published_one() {
        // 10 of 20: 0.299 to 0.701 (Newcombe 1998, method 3).
        let share = Share::wilson(10, 20);
        assert!((share.low - 0.2993).abs() < 1e-4 && (share.high - 0.7007).abs() < 1e-4);
        assert_eq!(Share::wilson(0, 8).low, 0.0);
        assert_eq!(Share::wilson(8, 8).high, 1.0);
    }

    #[test]
    fn a_fit_to_a_plain_binomial_predicts_its_useful_share() {
        // 16 groups of 4 fair coins in their exact proportions.
        let fit = BetaBinomial::fit(&[1, 4, 6, 4, 1]).unwrap();
        assert!((fit.useful(4) - 14.0 / 16.0).abs() < 0.02, "{fit:?}");
        // Half of the problems always solved, half never: nothing is useful.
        let fit = BetaBinomial::fit(&[8, 0, 0, 0, 8]).unwrap();
        assert!(fit.useful(4) < 0.01, "{fit:?}");
        assert_eq!(BetaBinomial::fit(&[9, 0, 0]), None);
        assert_eq!(BetaBinomial::fit(&[9, 9]), None);
    }

    proptest! {
        #[test]
        fn probabilities_sum_to_one_and_more_useful_groups_need_fewer_rounds(
            round in 1u64..40,
            target in 1u64..60,
            max_rounds in 1u32..12,
            one in 0.0f64..=1.0,
            two in 0.0f64..=1.0,
        ) {
            let refill = Refill { prompts_per_round: round, target, max_rounds, carry: false };
            let (few, many) = (rounds(one.min(two), refill), rounds(one.max(two), refill));
            prop_assert!((few.probabilities.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            prop_assert!(many.expected.unwrap() <= few.expected.unwrap() + 1e-9);
            prop_assert!(many.cap_probability <= few.cap_probability + 1e-9);
        }
    }
}
