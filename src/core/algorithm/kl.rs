//! KL penalty to a frozen reference policy (GRPO, Eq. 5). DAPO has none (§2.3).

use crate::numerics::{Numerics, operations::exp};
use serde::{Deserialize, Serialize};
use tch::Tensor;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Kl {
    None {},
    /// β · estimator(log π_θ, log π_ref).
    Penalty {
        estimator: KlEstimator,
        /// β ≥ 0.
        coefficient: f64,
    },
}

/// Estimators of KL(π_θ ‖ π_ref) from one sample (Schulman's k1, k2, k3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KlEstimator {
    K1,
    K2,
    /// e^κ − κ − 1 with κ = log π_ref − log π_θ (GRPO).
    K3,
}

/// An estimate of KL(π_θ ‖ π_ref) from each sampled token, with the graph to `log_probs`: `k1 = log π_θ − log π_ref`,
/// `k2 = ½ k1²`, `k3 = e^κ − κ − 1` with `κ = −k1` (Schulman, "Approximating KL divergence", as in
/// verl/trainer/ppo/core_algos.py:1841-1902). Arguments and result are `[batch, length]`. Deviation: none from Eq. 5.
/// The released code's clamps (κ to ±20, k3 to ±10) are not here.
pub fn penalty(
    log_probs: &Tensor,
    ref_log_probs: &Tensor,
    estimator: KlEstimator,
    numerics: Numerics,
) -> Tensor {
    match estimator {
        KlEstimator::K1 => log_probs - ref_log_probs,
        KlEstimator::K2 => {
            let k1 = log_probs - ref_log_probs;
            &k1 * &k1 * 0.5
        }
        KlEstimator::K3 => {
            let kappa = ref_log_probs - log_probs;
            exp(&kappa, numerics) - kappa - 1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::prop_assert;
    use proptest::proptest;
    use tch::Kind;

    fn all(log_prob: f64, reference: f64) -> [f64; 3] {
        [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3].map(|estimator| {
            penalty(&Tensor::from(log_prob), &Tensor::from(reference), estimator, Numerics::Exact)
                .double_value(&[])
        })
    }

    #[test]
    fn the_estimators_have_their_textbook_values() {
        let [k1, k2, k3] = all(-1.0, -1.5);
        assert_eq!((k1, k2), (0.5, 0.125));
        assert!((k3 - ((-0.5f64).exp() + 0.5 - 1.0)).abs() < 1e-15);
        assert_eq!(all(-2.0, -2.0), [0.0; 3]);
    }

    #[test]
    fn on_average_over_the_policy_k1_and_k3_are_the_divergence() {
        let (policy, reference) = ([0.5, 0.3, 0.2], [0.2, 0.2, 0.6]);
        let mut expected = 0.0;
        let mut means = [0.0; 3];
        for (p, q) in policy.iter().zip(reference) {
            expected += p * f64::ln(p / q);
            for (mean, value) in means.iter_mut().zip(all(f64::ln(*p), f64::ln(q))) {
                *mean += p * value;
            }
        }
        assert!((means[0] - expected).abs() < 1e-12 && (means[2] - expected).abs() < 1e-12);
        assert!((means[1] - expected).abs() > 1e-3);
    }

    proptest! {
        #[test]
        fn k2_and_k3_are_never_negative(log_prob in -10.0..0.0f64, reference in -10.0..0.0f64) {
            let [_, k2, k3] = all(log_prob, reference);
            prop_assert!(k2 >= 0.0 && k3 >= -1e-12);
        }

        #[test]
        fn the_gradient_of_k2_is_the_log_ratio(log_prob in -5.0..0.0f64, reference in -5.0..0.0f64) {
            let leaf = Tensor::from(log_prob).set_requires_grad(true);
            let value = penalty(&leaf, &Tensor::from(reference), KlEstimator::K2, Numerics::Exact);
            let gradient = Tensor::run_backward(&[value.sum(Kind::Double)], &[&leaf], false, false);
            prop_assert!((gradient[0].double_value(&[]) - (log_prob - reference)).abs() < 1e-12);
        }
    }
}
