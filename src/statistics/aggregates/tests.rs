use super::*;

#[test]
fn an_interquartile_mean_drops_a_quarter_on_each_side() {
    assert_eq!(iqm(&[9.0, 1.0, 2.0, 3.0, -50.0]).unwrap(), 2.0);
    assert_eq!(iqm(&[1.0, 2.0, 6.0]).unwrap(), 3.0);
    assert!(iqm(&[]).is_err());
    assert!(iqm(&[f64::NAN]).is_err());
}

#[test]
fn ties_are_half_an_improvement() {
    let column = |values: &[f64]| values.iter().map(|value| vec![*value]).collect::<Vec<_>>();
    let improvement =
        |a: &[f64], b: &[f64]| probability_of_improvement(&column(a), &column(b)).unwrap();
    assert_eq!(improvement(&[0.1, 0.2], &[0.1, 0.2]), 0.5);
    assert_eq!(improvement(&[0.1, 0.2], &[0.3, 0.4]), 1.0);
    assert_eq!(improvement(&[0.1, 0.2], &[0.0, 0.2]), 0.375);
    // −0 and 0 are equal.
    assert_eq!(improvement(&[0.0], &[-0.0]), 0.5);
}

#[test]
fn a_profile_counts_scores_above_each_threshold() {
    let scores = vec![vec![0.1, 0.5], vec![0.5, 0.9]];
    assert_eq!(
        performance_profile(&scores, &[0.0, 0.1, 0.5, 0.9]).unwrap(),
        [1.0, 0.75, 0.25, 0.0]
    );
}

#[test]
fn runs_on_other_tasks_are_refused() {
    let error = performance_profile(&[vec![1.0, 2.0], vec![1.0]], &[0.0]).unwrap_err();
    assert!(error.to_string().ends_with("run 1 (from 0) has 1, not 2"), "{error}");
    assert!(probability_of_improvement(&[vec![1.0]], &[vec![1.0, 2.0]]).is_err());
    assert!(probability_of_improvement(&[vec![]], &[vec![]]).is_err());
}

fn mean_of(groups: &[Vec<Vec<f64>>]) -> f64 {
    let values: Vec<f64> = groups[0].iter().flatten().copied().collect();
    estimators::mean(&values)
}

#[test]
fn a_bootstrap_over_nine_or_twenty_nine_runs_is_refused_and_says_why() {
    assert!(stratified_bootstrap(&[&vec![vec![1.0]; 9]], mean_of, 1000, 0.95, "x").is_err());
    let few = vec![vec![1.0]; 29];
    let error = stratified_bootstrap(&[&few], mean_of, 1000, 0.95, "x").unwrap_err().to_string();
    assert!(error.contains("too short") && error.contains("needs at least"), "{error}");
    assert!(error.ends_with("runs, got 29"), "{error}");
}

#[test]
fn two_bootstraps_are_identical_and_their_width_is_that_of_the_resampled_mean() {
    let runs = FEWEST_BOOTSTRAP_RUNS;
    let scores: Vec<Vec<f64>> = (0..runs).map(|i| vec![(i * 7 % runs) as f64, 1.0]).collect();
    let first = stratified_bootstrap(&[&scores], mean_of, 2000, 0.95, "x").unwrap();
    assert_eq!(first, stratified_bootstrap(&[&scores], mean_of, 2000, 0.95, "x").unwrap());
    assert_ne!(first, stratified_bootstrap(&[&scores], mean_of, 2000, 0.95, "y").unwrap());
    // The first task alone varies: half the standard error of its mean, with divisor n.
    let n = runs as f64;
    let error = ((n * n - 1.0) / 12.0 / n).sqrt() / 2.0;
    let width = first.high - first.low;
    assert!((width / (2.0 * 1.96 * error) - 1.0).abs() < 0.1, "{width}");
}
