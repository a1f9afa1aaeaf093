use super::*;

fn at(time: f64) -> TimeToEvent {
    TimeToEvent { time, reached: true }
}

fn censored(time: f64) -> TimeToEvent {
    TimeToEvent { time, reached: false }
}

#[test]
fn a_median_needs_half_of_the_runs() {
    assert_eq!(median_time(&[at(1.0), at(2.0), censored(9.0), censored(9.0)]).unwrap(), Some(2.0));
    assert_eq!(median_time(&[at(1.0), censored(9.0), censored(9.0)]).unwrap(), None);
    assert_eq!(median_time(&[at(3.0)]).unwrap(), Some(3.0));
}

#[test]
fn a_censored_run_leaves_the_set_at_risk() {
    // By hand: 1 − 1/4, then two are left at 3: 3/4 · 1/2.
    let steps = kaplan_meier(&[at(1.0), censored(2.0), at(3.0), censored(5.0)]).unwrap();
    assert_eq!(
        steps,
        [
            SurvivalStep { time: 1.0, not_reached_share: 0.75 },
            SurvivalStep { time: 3.0, not_reached_share: 0.375 },
        ]
    );
}

#[test]
fn when_nothing_is_reached_nothing_differs() {
    let test = log_rank(&[censored(5.0); 3], &[censored(5.0); 3]).unwrap();
    assert_eq!((test.permutation.p, test.chi_square, test.chi_square_p), (1.0, 0.0, 1.0));
}

#[test]
fn sides_that_are_the_same_differ_by_exactly_zero() {
    for times in [&[1.0, 2.0, 3.0][..], &[1.0, 1.0, 4.0, 7.0, 9.0, 9.0], &[0.3, 0.3, 0.7]] {
        let runs: Vec<_> = times.iter().map(|time| at(*time)).chain([censored(9.5)]).collect();
        let test = log_rank(&runs, &runs).unwrap();
        assert_eq!((test.observed_minus_expected, test.chi_square), (0.0, 0.0), "{times:?}");
        assert_eq!(test.permutation.p, 1.0);
    }
}

#[test]
fn a_method_that_never_arrives_has_fewer_events_than_expected() {
    let fast: Vec<_> = (1..=5).map(|time| at(f64::from(time))).collect();
    let test = log_rank(&fast, &[censored(40.0); 5]).unwrap();
    assert!(test.observed_minus_expected < 0.0);
    assert_eq!(test.permutation.p, 2.0 / 252.0);
    let back = log_rank(&[censored(40.0); 5], &fast).unwrap();
    assert!((back.observed_minus_expected + test.observed_minus_expected).abs() < 1e-12);
    assert_eq!(back.permutation.p, test.permutation.p);
}

#[test]
fn times_that_are_none_are_refused() {
    assert!(log_rank(&[at(-1.0)], &[at(1.0)]).unwrap_err().to_string().ends_with("got -1"));
    assert!(log_rank(&[at(f64::NAN)], &[at(1.0)]).is_err());
    assert!(kaplan_meier(&[]).is_err());
}
