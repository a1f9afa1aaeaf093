//! Group-relative advantage, Eq. 9.

use serde::{Deserialize, Serialize};

/// Eq. 9's normaliser.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advantage {
    pub std: Std,
    /// Added to the standard deviation. Not used with `std = "none"`.
    pub epsilon: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Std {
    /// Divisor n − 1 (released code).
    Sample,
    /// Divisor n.
    Population,
    /// No division: the centred reward.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rewarded {
    pub reward: f64,
    pub tokens: u64,
    /// False when Overlong Filtering masks its loss.
    pub in_loss: bool,
}

pub fn rewards(group: &[Rewarded]) -> Vec<f64> {
    group.iter().map(|outcome| outcome.reward).collect()
}

/// The mean of a group's rewards; 0 of none.
pub fn mean(rewards: &[f64]) -> f64 {
    rewards.iter().sum::<f64>() / (rewards.len() as f64).max(1.0)
}

/// R_i − mean(R), exactly 0 in a group whose rewards are all equal.
pub fn centred(rewards: &[f64]) -> Vec<f64> {
    advantages(rewards, &Advantage { std: Std::None, epsilon: 0.0 })
}

/// Group-relative advantage, DAPO Eq. 9: `Â_i = (R_i − mean(R)) / (std(R) + ε)`, the same for every token of response
/// i. `rewards` are the shaped R_i of one group, `[group]`, as is the result. Statistics are f64 sums in group order.
///
/// Deviation: a group whose rewards are all equal, a group of one included, has advantage exactly 0. The released code
/// divides the mean's rounding error by ε (16 float32 rewards of −1.3 give 0.106) and gives a group of one its reward.
pub fn advantages(rewards: &[f64], config: &Advantage) -> Vec<f64> {
    if rewards.iter().all(|reward| *reward == rewards[0]) {
        return vec![0.0; rewards.len()];
    }
    let count = rewards.len() as f64;
    let mean = mean(rewards);
    let squares: f64 = rewards.iter().map(|reward| (reward - mean) * (reward - mean)).sum();
    let scale = match config.std {
        Std::Sample => (squares / (count - 1.0)).sqrt() + config.epsilon,
        Std::Population => (squares / count).sqrt() + config.epsilon,
        Std::None => 1.0,
    };
    rewards.iter().map(|reward| (reward - mean) / scale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{Strategy, prop_assert};
    use proptest::proptest;

    const RELEASED: Advantage = Advantage { std: Std::Sample, epsilon: 1e-6 };

    fn close(left: f64, right: f64, tolerance: f64) -> bool {
        (left - right).abs() <= tolerance * right.abs().max(1.0)
    }

    #[test]
    fn one_correct_of_sixteen_is_worth_fifteen_fourths() {
        let mut rewards = [-1.0; 16];
        rewards[3] = 1.0;
        let released = advantages(&rewards, &RELEASED);
        assert!(close(released[3], 3.749_992_5, 1e-7) && close(released[0], -0.249_999_5, 1e-7));
        let population = advantages(&rewards, &Advantage { std: Std::Population, epsilon: 0.0 });
        assert!(close(population[3], 15f64.sqrt(), 1e-12), "{}", population[3]);
        let centred = advantages(&rewards, &Advantage { std: Std::None, epsilon: 1e-6 });
        assert_eq!((centred[3], centred[0]), (1.875, -0.125));
    }

    #[test]
    fn a_constant_group_has_no_advantage_even_where_rounding_would_give_one() {
        for reward in [-1.3, 0.7, 1.0 / 3.0, 1e300] {
            for std in [Std::Sample, Std::Population, Std::None] {
                let config = Advantage { std, epsilon: 1e-6 };
                assert_eq!(advantages(&[reward; 16], &config), [0.0; 16]);
                assert_eq!(advantages(&[reward], &config), [0.0]);
            }
        }
        assert!(advantages(&[], &RELEASED).is_empty());
    }

    #[test]
    fn a_reward_that_is_not_a_number_is_not_hidden() {
        assert!(advantages(&[f64::NAN, 1.0], &RELEASED).iter().all(|a| a.is_nan()));
        assert!(advantages(&[f64::NAN], &RELEASED)[0].is_nan());
    }

    fn rewards() -> impl Strategy<Value = Vec<f64>> {
        proptest::collection::vec(-2.0..1.0f64, 2..17).prop_filter(
            "a spread well above ε",
            |rewards| {
                let top = rewards.iter().copied().fold(f64::MIN, f64::max);
                let bottom = rewards.iter().copied().fold(f64::MAX, f64::min);
                top - bottom > 0.1
            },
        )
    }

    proptest! {
        #[test]
        fn advantages_sum_to_zero(rewards in rewards()) {
            for std in [Std::Sample, Std::Population, Std::None] {
                let sum: f64 = advantages(&rewards, &Advantage { std, epsilon: 1e-6 }).iter().sum();
                prop_assert!(sum.abs() < 1e-11, "{sum}");
            }
        }

        #[test]
        fn advantages_ignore_positive_affine_changes_of_reward(
            rewards in rewards(), scale in 0.5..20.0f64, shift in -10.0..10.0f64,
        ) {
            let exact = Advantage { std: Std::Sample, epsilon: 0.0 };
            let moved: Vec<f64> = rewards.iter().map(|reward| scale * reward + shift).collect();
            for (before, after) in advantages(&rewards, &exact).iter().zip(advantages(&moved, &exact)) {
                prop_assert!(close(after, *before, 1e-9), "{before} {after}");
            }
        }

        #[test]
        fn order_is_kept_and_the_best_response_gains(rewards in rewards()) {
            let result = advantages(&rewards, &RELEASED);
            for i in 0..rewards.len() {
                for j in 0..rewards.len() {
                    prop_assert!(rewards[i] >= rewards[j] || result[i] <= result[j]);
                }
            }
        }
    }
}
