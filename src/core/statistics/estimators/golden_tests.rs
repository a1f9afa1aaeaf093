//! Values of scipy, statsmodels and rliable on shared examples: `golden/stats/expected.json`.

use crate::base::files;
use crate::statistics::{TimeToEvent, aggregates, between, equivalence, time_to_level};
use serde::Deserialize;
use std::path::Path;

#[derive(Deserialize)]
struct Expected {
    two_samples: Vec<TwoSamples>,
    sign_flips: Vec<SignFlip>,
    families: Vec<Family>,
    detectable: Vec<Detectable>,
    equivalence_power: Vec<Power>,
    censored: Vec<Censored>,
    aggregates: Vec<Aggregates>,
}

#[derive(Deserialize)]
struct TwoSamples {
    a: Vec<f64>,
    b: Vec<f64>,
    permutation_p: f64,
    difference: f64,
    standard_error: f64,
    degrees_of_freedom: f64,
    welch: [f64; 2],
    t_interval_of_b: [f64; 2],
}

#[derive(Deserialize)]
struct SignFlip {
    differences: Vec<f64>,
    p: f64,
}

#[derive(Deserialize)]
struct Family {
    p: Vec<f64>,
    holm: Vec<f64>,
}

#[derive(Deserialize)]
struct Detectable {
    n_a: usize,
    n_b: usize,
    alpha: f64,
    power: f64,
    effect: f64,
}

#[derive(Deserialize)]
struct Power {
    n_a: usize,
    n_b: usize,
    alpha: f64,
    margin: f64,
    power: f64,
}

#[derive(Deserialize)]
struct Censored {
    a: Vec<TimeToEvent>,
    b: Vec<TimeToEvent>,
    chi_square: f64,
    chi_square_p: f64,
    observed_minus_expected: f64,
    permutation_p: f64,
    median_of_b: Option<f64>,
    survival_of_b: Vec<[f64; 2]>,
}

#[derive(Deserialize)]
struct Aggregates {
    a: Vec<Vec<f64>>,
    b: Vec<Vec<f64>>,
    iqm_of_b: f64,
    share_above_of_b: Vec<[f64; 2]>,
    trim_mean_of_b: f64,
    probability_of_improvement: f64,
}

fn expected() -> Expected {
    files::read_json(Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../golden/stats/expected.json"
    )))
    .unwrap()
}

fn assert_close(got: f64, expected: f64, tolerance: f64) {
    let scale = expected.abs().max(1e-3);
    assert!((got - expected).abs() <= tolerance * scale, "{got} != {expected}");
}

#[test]
fn permutation_tests_and_welch_intervals_agree_with_scipy() {
    for case in expected().two_samples {
        let test = between::permutation_test(&case.a, &case.b).unwrap();
        assert_close(test.p, case.permutation_p, 1e-12);
        let welch = between::welch(&case.a, &case.b, 0.95).unwrap();
        assert_close(welch.difference, case.difference, 1e-12);
        assert_close(welch.standard_error, case.standard_error, 1e-12);
        assert_close(welch.degrees_of_freedom, case.degrees_of_freedom, 1e-12);
        let interval = between::any_welch_interval(&case.a, &case.b, 0.95).unwrap();
        assert_close(interval.low, case.welch[0], 1e-10);
        assert_close(interval.high, case.welch[1], 1e-10);
        assert_eq!(welch.interval, (case.a.len() >= 5).then_some(interval));
        let interval = between::any_t_interval(&case.b, 0.95).unwrap();
        assert_close(interval.low, case.t_interval_of_b[0], 1e-10);
        assert_close(interval.high, case.t_interval_of_b[1], 1e-10);
    }
}

#[test]
fn sign_flips_agree_with_scipy_and_holm_with_statsmodels() {
    for case in expected().sign_flips {
        assert_close(
            between::sign_flips_up_to(&case.differences, 1 << 18).unwrap().p,
            case.p,
            1e-12,
        );
    }
    for case in expected().families {
        for (got, expected) in between::holm(&case.p).into_iter().zip(case.holm) {
            assert_close(got, expected, 1e-12);
        }
    }
}

#[test]
fn detectable_effects_agree_with_statsmodels_and_equivalence_power_with_adaptive_quadrature() {
    for case in expected().detectable {
        let Detectable { n_a, n_b, alpha, power, effect } = case;
        let got = between::minimum_detectable_effect(1.0, n_a, n_b, alpha, power);
        // statsmodels stops its search there: its effect has a power of 0.8000004.
        assert_close(got, effect, 2e-6);
    }
    for case in expected().equivalence_power {
        let Power { n_a, n_b, alpha, margin, power } = case;
        // The integrand has a corner, at which Simpson's rule is good to four digits or so.
        assert_close(equivalence::attainable_power(1.0, n_a, n_b, alpha, margin), power, 1e-4);
    }
}

#[test]
fn log_rank_tests_and_survival_agree_with_scipy() {
    for case in expected().censored {
        let test = time_to_level::log_rank(&case.a, &case.b).unwrap();
        assert_close(test.chi_square, case.chi_square, 1e-10);
        assert_close(test.chi_square_p, case.chi_square_p, 1e-10);
        assert_close(test.observed_minus_expected, case.observed_minus_expected, 1e-10);
        assert_close(test.permutation.p, case.permutation_p, 1e-12);
        assert_eq!(time_to_level::median_time(&case.b).unwrap(), case.median_of_b);
        let steps = time_to_level::kaplan_meier(&case.b).unwrap();
        assert_eq!(steps.len(), case.survival_of_b.len());
        for (step, [time, share]) in steps.into_iter().zip(case.survival_of_b) {
            assert_eq!(step.time, time);
            assert_close(step.not_reached_share, share, 1e-12);
        }
    }
}

#[test]
fn aggregates_agree_with_rliable_and_scipy() {
    for case in expected().aggregates {
        let flat: Vec<f64> = case.b.iter().flatten().copied().collect();
        let iqm = aggregates::iqm(&flat).unwrap();
        assert_close(iqm, case.iqm_of_b, 1e-12);
        assert_close(iqm, case.trim_mean_of_b, 1e-12);
        let (thresholds, shares): (Vec<f64>, Vec<f64>) =
            case.share_above_of_b.iter().map(|[at, share]| (*at, *share)).unzip();
        for (own, share) in aggregates::share_above(&flat, &thresholds).unwrap().iter().zip(shares)
        {
            assert_close(*own, share, 1e-12);
        }
        let columns = |scores: &[Vec<f64>]| -> Vec<Vec<f64>> {
            let tasks = 0..scores[0].len();
            tasks.map(|task| scores.iter().map(|run| run[task]).collect()).collect()
        };
        let by_task: Vec<f64> = std::iter::zip(columns(&case.a), columns(&case.b))
            .map(|(a, b)| aggregates::probability_of_improvement(&a, &b).unwrap())
            .collect();
        let probability = by_task.iter().sum::<f64>() / by_task.len() as f64;
        assert_close(probability, case.probability_of_improvement, 1e-12);
    }
}
