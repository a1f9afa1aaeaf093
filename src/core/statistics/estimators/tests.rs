//! Golden numbers: numpy 2.4.6 and scipy 1.17.1 (`stats.t.ppf`, `special.betainc`,
//! `stats.sem`, and the binomial form of pass@k in exact integers).

use super::*;
use crate::statistics::distributions::{regularised_incomplete_beta, t_quantile};
use proptest::prelude::*;

fn outcomes(rows: &[&[u8]]) -> Vec<Vec<Sample>> {
    let sample = |bit: &u8| Sample {
        is_correct: *bit == 1,
        prediction: Some(if *bit == 1 { "right" } else { "wrong" }.into()),
    };
    rows.iter().map(|row| row.iter().map(sample).collect()).collect()
}

fn counts(problems: &[Vec<Sample>]) -> Vec<Counts> {
    problems.iter().map(|samples| Counts::of(samples)).collect()
}

fn five_by_four() -> Vec<Vec<Sample>> {
    outcomes(&[&[1, 0, 1, 1], &[0, 0, 0, 0], &[1, 1, 1, 1], &[0, 1, 0, 0], &[1, 0, 0, 1]])
}

fn votes(predictions: &[(&str, bool)]) -> Vec<Sample> {
    predictions
        .iter()
        .map(|(text, is_correct)| Sample {
            is_correct: *is_correct,
            prediction: (!text.is_empty()).then(|| (*text).to_owned()),
        })
        .collect()
}

fn assert_close(got: f64, expected: f64) {
    assert!((got - expected).abs() <= 1e-12 * expected.abs().max(1.0), "{got} != {expected}");
}

#[test]
fn t_quantiles_agree_with_scipy() {
    for (p, df, expected) in [
        (0.975, 1.0, 12.706204736174694),
        (0.975, 2.0, 4.302652729749462),
        (0.975, 4.0, 2.7764451051977934),
        (0.975, 9.0, 2.262157162798205),
        (0.975, 29.0, 2.045229642132703),
        (0.975, 63.0, 1.998340542520741),
        (0.975, 255.0, 1.9693105698498752),
        (0.9, 1.0, 3.0776835371752544),
        (0.9, 7.0, 1.4149239276505086),
        (0.3, 2.0, -0.6172133998483678),
        (0.3, 29.0, -0.530214395709161),
    ] {
        let got = t_quantile(p, df);
        assert!((got - expected).abs() < 1e-11 * expected.abs(), "t({p}, {df}): {got}");
    }
}

#[test]
fn the_incomplete_beta_function_agrees_with_scipy_on_both_sides_of_its_mean() {
    for (a, b, x, expected) in [
        (0.5, 0.5, 0.3, 0.36901011956554536),
        (14.5, 0.5, 0.87, 0.04630714005635839),
        (2.0, 3.0, 0.4, 0.5248),
        (127.5, 0.5, 0.98, 0.023358895766975477),
    ] {
        assert_close(regularised_incomplete_beta(a, b, x), expected);
        assert_close(regularised_incomplete_beta(b, a, 1.0 - x), 1.0 - expected);
    }
}

#[test]
fn the_summary_agrees_with_numpy_on_five_problems() {
    let summary = summary(&five_by_four()).unwrap();
    assert_eq!((summary.problems, summary.samples), (5, 4));
    assert_close(summary.avg_at_k, 0.5);
    assert_close(summary.standard_error_fixed_problems, 0.09128709291752768);
    assert_close(summary.standard_error_new_problems, 0.1767766952966369);
    let pass: Vec<(u64, f64)> = summary.pass_at_k.into_iter().collect();
    assert_eq!(pass.iter().map(|(k, _)| *k).collect::<Vec<_>>(), [1, 2, 4]);
    for ((_, got), expected) in pass.into_iter().zip([0.5, 0.6666666666666667, 0.8]) {
        assert_close(got, expected);
    }
    // Two votes each in the last problem: "right" came first.
    assert_close(summary.cons_at_k, 0.6);
}

#[test]
fn pass_at_k_agrees_with_exact_binomials_at_32_samples() {
    for (correct, k, expected) in
        [(1, 8, 0.25), (3, 16, 0.8870967741935484), (10, 4, 0.796579532814238), (20, 16, 1.0)]
    {
        let bits: Vec<u8> = (0..32).map(|index| u8::from(index < correct)).collect();
        assert_close(pass_at_k(&counts(&outcomes(&[&bits])), k), expected);
    }
}

#[test]
fn a_majority_of_wrong_answers_beats_a_correct_minority() {
    let problem = votes(&[("7", true), ("8", false), ("8", false)]);
    assert_eq!(cons_at_k(&[problem], 3), 0.0);
}

#[test]
fn responses_without_an_answer_do_not_vote() {
    let problem = votes(&[("", false), ("", false), ("7", true)]);
    assert_eq!(cons_at_k(&[problem], 3), 1.0);
    assert_eq!(cons_at_k(&[votes(&[("", false), ("", false)])], 2), 0.0);
}

#[test]
fn the_earliest_of_tied_predictions_wins() {
    assert_eq!(cons_at_k(&[votes(&[("9", false), ("7", true)])], 2), 0.0);
    assert_eq!(cons_at_k(&[votes(&[("7", true), ("9", false)])], 2), 1.0);
    // By order of appearance, not by order of the text.
    assert_eq!(
        cons_at_k(&[votes(&[("9", true), ("7", false), ("7", false), ("9", true)])], 4),
        1.0
    );
}

#[test]
fn unequal_sample_counts_use_the_smallest_k_and_weigh_problems_equally() {
    let problems = outcomes(&[&[1, 1, 1], &[0, 1], &[0, 0, 0, 0]]);
    let summary = summary(&problems).unwrap();
    assert_eq!(summary.samples, 2);
    assert_close(summary.avg_at_k, 0.5);
    assert_eq!(summary.pass_at_k.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert_close(summary.standard_error_fixed_problems, 0.5 / 3.0);
}

#[test]
fn one_sample_a_problem_still_has_a_finite_and_cautious_error() {
    let problems = outcomes(&[&[1], &[0], &[1], &[1]]);
    // √(μ̂(1−μ̂)/n)
    assert_close(
        outcomes::standard_error_fixed_problems(&counts(&problems)),
        (0.75 * 0.25 / 4.0f64).sqrt(),
    );
}

#[test]
fn one_problem_says_nothing_about_others() {
    let problems = outcomes(&[&[1, 1, 1, 1]]);
    assert_eq!(outcomes::standard_error_fixed_problems(&counts(&problems)), 0.0);
    assert_eq!(standard_error_new_problems(&counts(&problems)), 0.5);
}

#[test]
fn empty_evaluations_are_refused_with_their_place() {
    assert_eq!(summary(&[]), Err(StatisticsError::NoProblems));
    assert_eq!(summary(&outcomes(&[&[1], &[]])), Err(StatisticsError::NoSamples { index: 1 }));
}

fn evaluation() -> impl Strategy<Value = Vec<Vec<Sample>>> {
    let sample = (any::<bool>(), proptest::option::of(0u8..5)).prop_map(|(is_correct, answer)| {
        Sample { is_correct, prediction: answer.map(|answer| answer.to_string()) }
    });
    proptest::collection::vec(proptest::collection::vec(sample, 1..9), 1..12)
}

proptest! {
    #[test]
    fn pass_at_1_is_avg_at_k(problems in evaluation()) {
        prop_assert!((pass_at_k(&counts(&problems), 1) - avg_at_k(&counts(&problems))).abs() < 1e-12);
    }

    #[test]
    fn pass_at_k_does_not_fall_as_k_grows(problems in evaluation()) {
        let most = problems.iter().map(Vec::len).min().unwrap();
        let passes: Vec<f64> = (1..=most).map(|k| pass_at_k(&counts(&problems), k as u64)).collect();
        prop_assert!(passes.windows(2).all(|pair| pair[0] <= pair[1] + 1e-12));
        prop_assert!(passes.iter().all(|pass| (-1e-12..=1.0 + 1e-12).contains(pass)));
    }

    #[test]
    fn standard_errors_are_finite_and_not_negative(problems in evaluation()) {
        for error in
            [outcomes::standard_error_fixed_problems(&counts(&problems)), standard_error_new_problems(&counts(&problems))]
        {
            prop_assert!(error.is_finite() && error >= 0.0);
        }
    }

    #[test]
    fn all_correct_leaves_no_error(counts in proptest::collection::vec(1usize..9, 2..12)) {
        let problems: Vec<_> = counts.iter().map(|count| votes(&vec![("1", true); *count])).collect();
        let summary = summary(&problems).unwrap();
        prop_assert_eq!(summary.avg_at_k, 1.0);
        prop_assert_eq!(summary.standard_error_fixed_problems, 0.0);
        prop_assert_eq!(summary.standard_error_new_problems, 0.0);
        prop_assert_eq!(summary.cons_at_k, 1.0);
    }

    #[test]
    fn the_order_of_problems_does_not_matter(problems in evaluation()) {
        let reversed: Vec<_> = problems.iter().rev().cloned().collect();
        prop_assert!((avg_at_k(&counts(&problems)) - avg_at_k(&counts(&reversed))).abs() < 1e-12);
        prop_assert_eq!(cons_at_k(&problems, 3), cons_at_k(&reversed, 3));
    }

    #[test]
    fn t_quantiles_fall_towards_the_normal_one(df in 1u32..400) {
        let (here, next) = (t_quantile(0.975, f64::from(df)), t_quantile(0.975, f64::from(df + 1)));
        prop_assert!(here > next && next > 1.959963984540054);
    }
}

#[test]
fn what_rounding_alone_tells_apart_is_no_difference() {
    assert_eq!((difference(0.3, 0.1 + 0.2), difference(0.1 + 0.2, 0.3)), (0.0, 0.0));
    assert_eq!((difference(0.0, 1e-300), difference(0.5, 0.5 + 1e-11) > 0.0), (1e-300, true));
    assert!(difference(1.0, f64::INFINITY).is_infinite() && difference(f64::NAN, 1.0).is_nan());
    // The means are of another size than their values.
    assert_eq!(difference_of_means(&[0.1, 0.2, -0.3], &[0.0; 3]), 0.0);
    assert!(mean(&[0.1, 0.2, -0.3]) != 0.0);
    assert_eq!(standard_error_of_mean(&[0.3, 0.1 + 0.2, 0.3]), 0.0);
    assert!(reaches(10.0 * (1.0 - 0.8), 2.0) && reaches(0.1 + 0.2, 0.3) && !reaches(1.99, 2.0));
    assert!(!reaches(f64::NAN, 0.0));
}
