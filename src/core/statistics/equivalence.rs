//! Two one-sided tests of equivalence on two independent samples with unequal variances (Schuirmann 1987, Welch 1947),
//! as the interval d ± t₁₋α,ν · SE against ±δ. A test of difference passes an unchanged program more easily the noisier
//! it is. Here noise costs the verdict: it becomes inconclusive.

use crate::statistics::{StatisticsError, distributions, error::check, estimators};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EquivalenceVerdict {
    /// The interval of the difference lies within ±δ.
    Reproduced,
    /// It excludes 0 and does not lie within ±δ.
    NotReproduced,
    /// Neither: too few values for their spread.
    Inconclusive,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Equivalence {
    /// d = mean of the new values − mean of the reference.
    pub difference: f64,
    /// SE = √(s₁²/n₁ + s₂²/n₂), with sample variances.
    pub standard_error: f64,
    /// ν of Welch and Satterthwaite; 0 where neither side has any spread.
    pub degrees_of_freedom: f64,
    /// t₁₋α,ν · SE: half the width of the interval of confidence 1 − 2α.
    pub half_width: f64,
    /// δ, in the unit of the values.
    pub margin: f64,
    /// reproduced iff |d| + t₁₋α,ν · SE < δ.
    pub verdict: EquivalenceVerdict,
}

impl Equivalence {
    /// The larger p of the two one-sided tests: at most α where the interval of confidence 1 − 2α lies within ±δ.
    pub fn p(&self) -> f64 {
        let Self { difference, standard_error, degrees_of_freedom, margin, .. } = *self;
        if degrees_of_freedom == 0.0 {
            return if difference.abs() < margin { 0.0 } else { 1.0 };
        }
        distributions::t_below((difference.abs() - margin) / standard_error, degrees_of_freedom)
    }
}

/// Compares two samples. Those whose true means differ by δ or more are called reproduced with a chance of at most α.
pub fn equivalence(
    reference: &[f64],
    new: &[f64],
    alpha: f64,
    margin: f64,
) -> Result<Equivalence, StatisticsError> {
    for side in [reference, new] {
        check("a test of equivalence", side, 2)?;
    }
    check_limits(alpha, margin)?;
    let difference = estimators::difference_of_means(reference, new);
    Ok(within(difference, welch_error(reference, new), alpha, margin))
}

/// [`equivalence`] of the mean of differences, one a block, with 0: d ± t₁₋α,ₙ₋₁ · s/√n against ±δ.
pub fn of_blocks(
    differences: &[f64],
    alpha: f64,
    margin: f64,
) -> Result<Equivalence, StatisticsError> {
    check("a test of equivalence", differences, 2)?;
    check_limits(alpha, margin)?;
    let error = estimators::standard_error_of_mean(differences);
    let freedom = if error > 0.0 { (differences.len() - 1) as f64 } else { 0.0 };
    Ok(within(estimators::mean(differences), (error, freedom), alpha, margin))
}

fn check_limits(alpha: f64, margin: f64) -> Result<(), StatisticsError> {
    if !(margin.is_finite() && margin > 0.0) {
        return Err(StatisticsError::Margin(margin));
    }
    if !(alpha > 0.0 && alpha < 0.5) {
        return Err(StatisticsError::Alpha(alpha));
    }
    Ok(())
}

fn within(
    difference: f64,
    (standard_error, degrees_of_freedom): (f64, f64),
    alpha: f64,
    margin: f64,
) -> Equivalence {
    let half_width = if degrees_of_freedom > 0.0 {
        distributions::t_quantile(1.0 - alpha, degrees_of_freedom) * standard_error
    } else {
        0.0
    };
    let size = difference.abs();
    let verdict = if size + half_width < margin {
        EquivalenceVerdict::Reproduced
    } else if size > half_width {
        EquivalenceVerdict::NotReproduced
    } else {
        EquivalenceVerdict::Inconclusive
    };
    Equivalence { difference, standard_error, degrees_of_freedom, half_width, margin, verdict }
}

/// Standard error of the difference of two means and its degrees of freedom ν (Welch and
/// Satterthwaite), which are 0 where neither side has any spread. Both sides have two values.
pub(crate) fn welch_error(a: &[f64], b: &[f64]) -> (f64, f64) {
    let [one, other] = [a, b].map(|values| {
        let error = estimators::standard_error_of_mean(values);
        (error * error, (values.len() - 1) as f64)
    });
    let variance = one.0 + other.0;
    // A variance so small that its square is 0 has no degrees of freedom of its own either.
    let below = one.0 * one.0 / one.1 + other.0 * other.0 / other.1;
    let degrees_of_freedom = if below > 0.0 { variance * variance / below } else { 0.0 };
    (variance.sqrt(), degrees_of_freedom)
}

/// The probability that two samples of normal values with standard deviation `deviation` and the same true mean are
/// called reproduced: the best power that a margin can have. It is exact for the test with a pooled variance, which
/// Welch's approaches from below with unequal numbers; 0 where the margin is below any interval of so few values.
pub fn attainable_power(deviation: f64, n_a: usize, n_b: usize, alpha: f64, margin: f64) -> f64 {
    let fits = alpha > 0.0 && alpha < 0.5 && margin > 0.0 && deviation >= 0.0;
    if n_a < 2 || n_b < 2 || !fits || !deviation.is_finite() {
        return 0.0;
    }
    let standard_error = deviation * (1.0 / n_a as f64 + 1.0 / n_b as f64).sqrt();
    if standard_error == 0.0 {
        return 1.0;
    }
    let df = (n_a + n_b - 2) as f64;
    let t = distributions::t_quantile(1.0 - alpha, df);
    let power = distributions::over_estimated_deviation(df, |s| {
        let room = margin / standard_error - t * s;
        if room > 0.0 { 1.0 - 2.0 * distributions::normal_below(-room) } else { 0.0 }
    });
    power.clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OLD: [f64; 6] = [0.21, 0.18, 0.25, 0.22, 0.19, 0.24];
    const NEW: [f64; 5] = [0.23, 0.26, 0.20, 0.28, 0.31];

    fn close(got: f64, expected: f64) {
        assert!((got - expected).abs() <= 1e-12 * expected.abs().max(1.0), "{got} != {expected}");
    }

    #[test]
    fn welch_agrees_with_scipy() {
        // stats.ttest_ind(NEW, OLD, equal_var=False).df and stats.t.ppf(0.95, df), scipy 1.17.1.
        let got = equivalence(&OLD, &NEW, 0.05, 0.1).unwrap();
        close(got.difference, 0.04100000000000001);
        close(got.standard_error, 0.022158519806160334);
        close(got.degrees_of_freedom, 6.58439394767029);
        close(got.half_width, 0.0423831698621664);
    }

    #[test]
    fn the_verdict_follows_the_interval() {
        let verdict = |margin| equivalence(&OLD, &NEW, 0.05, margin).unwrap().verdict;
        // d = 0.041, half width 0.0424: the interval holds 0 and reaches to 0.0834.
        assert_eq!(verdict(0.09), EquivalenceVerdict::Reproduced);
        assert_eq!(verdict(0.08), EquivalenceVerdict::Inconclusive);
        let shifted = NEW.map(|value| value + 0.1);
        let far = |margin| equivalence(&OLD, &shifted, 0.05, margin).unwrap().verdict;
        assert_eq!(far(0.1), EquivalenceVerdict::NotReproduced);
        assert_eq!(far(0.2), EquivalenceVerdict::Reproduced);
    }

    #[test]
    fn the_larger_p_of_the_two_tests_agrees_with_scipy() {
        // max of ttest_ind(NEW, OLD -+ 0.09, equal_var=False, alternative="less" and "greater").pvalue, scipy 1.17.1.
        let tests = equivalence(&OLD, &NEW, 0.05, 0.09).unwrap();
        close(tests.p(), 0.032534228725588504);
        assert_eq!(tests.verdict, EquivalenceVerdict::Reproduced);
        assert!(equivalence(&OLD, &NEW, 0.05, 0.08).unwrap().p() > 0.05);
    }

    #[test]
    fn values_without_spread_are_compared_by_their_means() {
        let same = equivalence(&[1.0, 1.0], &[1.0, 1.0, 1.0], 0.05, 1e-9).unwrap();
        assert_eq!((same.verdict, same.half_width), (EquivalenceVerdict::Reproduced, 0.0));
        assert_eq!(same.p(), 0.0);
        let other = equivalence(&[1.0, 1.0], &[1.5, 1.5], 0.05, 0.5).unwrap();
        assert_eq!(other.verdict, EquivalenceVerdict::NotReproduced);
    }

    #[test]
    fn what_nothing_follows_from_is_refused() {
        let refused = |old: &[f64], new: &[f64], alpha, margin| {
            equivalence(old, new, alpha, margin).unwrap_err().to_string()
        };
        assert!(refused(&[1.0], &NEW, 0.05, 1.0).ends_with("at least 2 runs, got 1"));
        assert!(refused(&OLD, &[1.0, f64::NAN], 0.05, 1.0).ends_with("got NaN"));
        assert!(refused(&OLD, &NEW, 0.05, 0.0).starts_with("a margin"));
        assert!(refused(&OLD, &NEW, 0.5, 1.0).starts_with("alpha"));
    }

    #[test]
    fn samples_that_differ_by_the_margin_are_seldom_called_reproduced() {
        // 12 against 12 values, sd 1, margin 1.5, alpha 0.05; draws of our own stream.
        use crate::base::rng;
        let mut draw = rng::stream(5, rng::Purpose::Generate, &[rng::Id::from("equivalence")]);
        let mut normal = || {
            let (u, v) = (1.0 - draw.uniform(), draw.uniform());
            (-2.0 * libm::log(u)).sqrt() * libm::cos(2.0 * std::f64::consts::PI * v)
        };
        let mut alarms = |shift: f64| {
            let noticed = (0..2000).filter(|_| {
                let old: Vec<f64> = (0..12).map(|_| normal()).collect();
                let new: Vec<f64> = (0..12).map(|_| normal() + shift).collect();
                equivalence(&old, &new, 0.05, 1.5).unwrap().verdict
                    != EquivalenceVerdict::Reproduced
            });
            noticed.count() as f64 / 2000.0
        };
        assert!(alarms(0.0) < 0.1);
        // At a true difference of δ at most α are called reproduced.
        assert!(1.0 - alarms(1.5) < 0.05 + 0.02);
    }

    proptest! {
        #[test]
        fn order_and_side_do_not_matter(
            old in proptest::collection::vec(-1.0f64..1.0, 2..8),
            new in proptest::collection::vec(-1.0f64..1.0, 2..8),
        ) {
            let there = equivalence(&old, &new, 0.05, 0.3).unwrap();
            let back = equivalence(&new, &old, 0.05, 0.3).unwrap();
            prop_assert_eq!(there.verdict, back.verdict);
            prop_assert_eq!(there.difference, -back.difference);
        }
    }
}
