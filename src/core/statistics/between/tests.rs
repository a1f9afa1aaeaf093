use super::*;
use proptest::prelude::*;

fn assert_close(got: f64, expected: f64, tolerance: f64) {
    assert!((got - expected).abs() <= tolerance * expected.abs().max(1.0), "{got} != {expected}");
}

#[test]
fn five_against_five_reaches_0_008_and_three_against_three_only_0_1() {
    let test = permutation_test(&[1.0, 2.0, 3.0, 4.0, 5.0], &[6.0, 7.0, 8.0, 9.0, 10.0]).unwrap();
    assert_eq!((test.p, test.splits, test.exact), (2.0 / 252.0, 252, true));
    assert_eq!(test.smallest_p, test.p);
    let test = permutation_test(&[1.0, 2.0, 3.0], &[6.0, 7.0, 8.0]).unwrap();
    assert_eq!((test.p, test.smallest_p), (0.1, 0.1));
    assert_eq!(smallest_p(2, 3), 0.1);
}

#[test]
fn a_permutation_test_without_any_difference_has_p_1() {
    assert_eq!(permutation_test(&[0.1; 4], &[0.1; 4]).unwrap().p, 1.0);
    assert_eq!(permutation_test(&[0.1], &[0.7]).unwrap().p, 1.0);
}

#[test]
fn splits_are_counted_and_ties_of_rounded_sums_are_ties() {
    assert_eq!(splits(10, 10), 184_756);
    assert_eq!(splits(11, 11), 705_432);
    assert_eq!(splits(1, 1000), 1001);
    assert_eq!(splits(500, 500), u64::MAX);
    // {0.1, 0.2} and {0.3, 0.0} have the same sum but for rounding.
    let test = permutation_test(&[0.1, 0.2], &[0.3, 0.0]).unwrap();
    assert_eq!(test.p, 1.0);
}

#[test]
fn random_splits_repeat_and_agree_with_all_of_them() {
    let a: Vec<f64> = (0..11).map(|i| f64::from(i * i % 7)).collect();
    let b: Vec<f64> = (0..11).map(|i| f64::from(i * i % 11) - 0.5).collect();
    let test = permutation_test(&a, &b).unwrap();
    assert_eq!((test.splits, test.exact, test.smallest_p), (200_000, false, 1.0 / 200_000.0));
    assert_eq!(test, permutation_test(&a, &b).unwrap());
    let values: Vec<f64> = a.iter().chain(&b).copied().collect();
    let centre = estimators::mean(&values);
    let values: Vec<f64> = values.iter().map(|value| value - centre).collect();
    let threshold = values[11..].iter().sum::<f64>().abs() - 1e-9;
    let exact = count_splits(&values, 11, threshold) as f64 / 705_432.0;
    // Six standard errors of a share of 200,000.
    assert_close(test.p, exact, 6.0 * (exact * (1.0 - exact) / 200_000.0f64).sqrt());
}

#[test]
fn five_paired_signs_can_never_reach_0_05_and_six_can() {
    let test = sign_flips_up_to(&[0.1, 0.2, 0.3, 0.4, 0.5], MOST_SPLITS).unwrap();
    assert_eq!((test.p, test.smallest_p, test.splits), (0.0625, 0.0625, 32));
    assert_eq!(sign_flips_up_to(&[0.1; 6], MOST_SPLITS).unwrap().p, 0.03125);
    let none = sign_flips_up_to(&[0.0, 0.0], MOST_SPLITS).unwrap();
    assert_eq!((none.p, none.smallest_p), (1.0, 1.0));
}

#[test]
fn random_sign_flips_repeat_and_agree_with_all_of_them() {
    let differences: Vec<f64> = (0..18).map(|i| f64::from(i % 5) - 1.3).collect();
    let test = sign_flips_up_to(&differences, MOST_SPLITS).unwrap();
    assert!(!test.exact);
    assert_eq!(test, sign_flips_up_to(&differences, MOST_SPLITS).unwrap());
    let threshold = differences.iter().sum::<f64>().abs() - 1e-9;
    let all = 1u64 << 18;
    let count = (0..all).filter(|signs| flipped(&differences, *signs).abs() >= threshold).count();
    let exact = count as f64 / all as f64;
    assert_close(test.p, exact, 6.0 * (exact * (1.0 - exact) / 200_000.0f64).sqrt());
    // Differences of 0 change nothing but the chance of a flip that does nothing.
    assert_eq!(
        sign_flips_up_to(&[0.1, 0.0, 0.2], MOST_SPLITS).unwrap(),
        sign_flips_up_to(&[0.1, 0.2], MOST_SPLITS).unwrap()
    );
}

#[test]
fn values_without_spread_give_an_interval_of_width_0() {
    let interval = t_interval(&[0.5; 5], 0.95).unwrap();
    assert_eq!((interval.low, interval.high), (0.5, 0.5));
    let difference = welch(&[1.0; 5], &[2.0; 5], 0.95).unwrap();
    assert_eq!((difference.difference, difference.degrees_of_freedom), (1.0, 0.0));
    assert_eq!(difference.interval, Some(Interval { low: 1.0, high: 1.0, level: 0.95 }));
}

#[test]
fn below_five_runs_a_side_there_is_a_difference_and_no_interval() {
    assert!(t_interval(&[0.1, 0.2, 0.3, 0.4], 0.95).is_err());
    let few = welch(&[0.1, 0.2, 0.3, 0.4], &[0.2, 0.3, 0.4, 0.5, 0.6], 0.95).unwrap();
    assert_eq!(few.interval, None);
    assert!((few.difference - 0.15).abs() < 1e-12 && few.standard_error > 0.0);
}

#[test]
fn what_nothing_follows_from_is_refused_with_the_method_and_the_value() {
    assert_eq!(
        t_interval(&[1.0], 0.95).unwrap_err().to_string(),
        "a t interval over runs needs at least 5 runs, got 1"
    );
    assert_eq!(
        welch(&[1.0, f64::NAN], &[1.0, 2.0], 0.95).unwrap_err().to_string(),
        "a Welch interval needs finite values, got NaN"
    );
    assert_eq!(t_interval(&[1.0; 5], 1.0), Err(StatisticsError::Level(1.0)));
    assert_eq!(welch(&[1.0, 1.0], &[2.0, 2.0], 0.0), Err(StatisticsError::Level(0.0)));
    assert!(permutation_test(&[], &[1.0]).is_err());
    assert!(permutation_test(&[f64::INFINITY], &[1.0]).is_err());
    assert!(sign_flips_up_to(&[], MOST_SPLITS).is_err());
}

#[test]
fn holm_multiplies_and_keeps_the_order() {
    assert_eq!(holm(&[0.04, 0.01, 0.03]), [0.06, 0.03, 0.06]);
    assert_eq!(holm(&[0.5, 0.9]), [1.0, 1.0]);
    assert_eq!(holm(&[f64::NAN, 0.01]), [1.0, 0.02]);
    assert!(holm(&[]).is_empty());
}

#[test]
fn a_detectable_effect_agrees_with_the_power_of_the_t_test() {
    // Ten against ten: 9,236 of 184,756 splits are the level; statsmodels' TTestIndPower gives 1.3249 at 0.05.
    let ten = minimum_detectable_effect(1.0, 10, 10, 0.05, 0.8);
    assert_close(ten, 1.3249, 2e-4);
    assert_close(minimum_detectable_effect(0.02, 10, 10, 0.05, 0.8), 0.02 * ten, 1e-9);
    // Five against five: the level is 12/252.
    let five = minimum_detectable_effect(1.0, 5, 5, 0.05, 0.8);
    assert!((2.02..2.10).contains(&five), "{five}");
}

#[test]
fn a_detectable_effect_of_blocks_agrees_with_the_power_of_the_paired_t_test() {
    // Eight signs: 12 of 256 flips are the level; scipy 1.17.1's noncentral t.
    let eight = minimum_detectable_effect_of_blocks(1.0, 8, 0.05, 0.8);
    assert_close(eight, 1.172795816750178, 1e-6);
    assert_eq!(minimum_detectable_effect_of_blocks(1.0, 5, 0.05, 0.8), f64::INFINITY);
    assert_eq!(minimum_detectable_effect_of_blocks(1.0, 1, 0.05, 0.8), f64::INFINITY);
}

#[test]
fn a_detectable_effect_of_problems_agrees_with_the_noncentral_t() {
    // scipy 1.17.1's noncentral t, of 15 problems.
    let fifteen = 3.0132684557533667;
    assert_close(minimum_detectable_effect_of_t(1.0, 14.0, 0.05, 0.8), fifteen, 1e-6);
    assert_close(minimum_detectable_effect_of_t(0.02, 14.0, 0.05, 0.8), 0.02 * fifteen, 1e-9);
}

#[test]
fn three_against_three_can_detect_nothing_at_0_05() {
    assert_eq!(minimum_detectable_effect(0.01, 3, 3, 0.05, 0.8), f64::INFINITY);
    assert!(minimum_detectable_effect(0.01, 3, 3, 0.1, 0.8).is_finite());
    assert!(minimum_detectable_effect(0.01, 4, 4, 0.05, 0.8).is_finite());
    // In a family of five even four against four can show nothing.
    assert_eq!(minimum_detectable_effect(0.01, 4, 4, 0.01, 0.8), f64::INFINITY);
    for (a, b, alpha, power, sigma) in [
        (0, 5, 0.05, 0.8, 1.0),
        (1, 1, 0.05, 0.8, 1.0),
        (5, 5, 0.0, 0.8, 1.0),
        (5, 5, f64::NAN, 0.8, 1.0),
        (5, 5, 0.05, 1.0, 1.0),
        (5, 5, 0.05, 0.8, f64::NAN),
    ] {
        assert_eq!(minimum_detectable_effect(sigma, a, b, alpha, power), f64::INFINITY);
    }
}

proptest! {
    #[test]
    fn sides_and_order_do_not_matter(
        a in proptest::collection::vec(-1.0f64..1.0, 1..6),
        b in proptest::collection::vec(-1.0f64..1.0, 1..6),
    ) {
        let there = permutation_test(&a, &b).unwrap();
        let back = permutation_test(&b, &a).unwrap();
        prop_assert_eq!(there, back);
        let mut turned = a.clone();
        turned.reverse();
        prop_assert_eq!(permutation_test(&turned, &b).unwrap().p, there.p);
        prop_assert!(there.p >= there.smallest_p && there.p <= 1.0);
    }

    #[test]
    fn holm_never_lowers_a_p_and_keeps_their_order(p in proptest::collection::vec(0.0f64..1.0, 1..12)) {
        let adjusted = holm(&p);
        for (index, value) in adjusted.iter().enumerate() {
            prop_assert!(*value >= p[index] && *value <= 1.0);
            for other in 0..p.len() {
                prop_assert!(p[index] > p[other] || *value <= adjusted[other]);
            }
        }
    }
}

#[test]
fn the_jackknifes_interval_of_a_mean_is_the_t_interval() {
    let values = [0.31, 0.42, 0.27, 0.55, 0.36, 0.49];
    let without = |left_out: usize| {
        let mut others = values.to_vec();
        others.remove(left_out);
        estimators::mean(&others)
    };
    let without: Vec<f64> = (0..values.len()).map(without).collect();
    let found = jackknife_interval(estimators::mean(&values), &without, 0.9).unwrap();
    let expected = t_interval(&values, 0.9).unwrap();
    assert!((found.low - expected.low).abs() < 1e-12 && (found.high - expected.high).abs() < 1e-12);
    assert!(jackknife_interval(0.4, &without[..4], 0.9).is_err());
    assert!(jackknife_interval(f64::NAN, &without, 0.9).is_err());
}
