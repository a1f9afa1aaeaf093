//! Aggregates of scores as in rliable (Agarwal et al. 2021, arXiv 2108.13264; `rliable/metrics.py` at 3ccd9f4).

use crate::statistics::{StatisticsError, error::check, estimators};

/// Interquartile mean: the mean after the ⌊m/4⌋ lowest and as many highest of the m values are
/// dropped (scipy's `trim_mean` with 0.25). On scores that are nearly 0 or 1 it says little.
pub fn iqm(values: &[f64]) -> Result<f64, StatisticsError> {
    check("an interquartile mean", values, 1)?;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let dropped = sorted.len() / 4;
    Ok(estimators::mean(&sorted[dropped..sorted.len() - dropped]))
}

/// The run-score distribution, rliable's performance profile: for each threshold the share of the scores above it.
pub fn share_above(values: &[f64], thresholds: &[f64]) -> Result<Vec<f64>, StatisticsError> {
    check("a performance profile", values, 1)?;
    let above = |threshold: &f64| values.iter().filter(|value| *value > threshold).count();
    Ok(thresholds.iter().map(|it| above(it) as f64 / values.len() as f64).collect())
}

/// P(b > a) for a run of each: the Mann–Whitney U over n_a · n_b, ties counting ½.
pub fn probability_of_improvement(a: &[f64], b: &[f64]) -> Result<f64, StatisticsError> {
    check("a probability of improvement", a, 1)?;
    check("a probability of improvement", b, 1)?;
    let pairs = b.iter().flat_map(|new| a.iter().map(move |old| (new, old)));
    let wins = pairs.map(|(new, old)| match estimators::difference(*old, *new) {
        0.0 => 0.5,
        difference => f64::from(u8::from(difference > 0.0)),
    });
    Ok(wins.sum::<f64>() / (a.len() * b.len()) as f64)
}

/// Minimum and maximum; (∞, −∞) of nothing.
pub fn range(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    values.into_iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    })
}

#[cfg(test)]
mod tests {
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
        let improvement = |a: &[f64], b: &[f64]| probability_of_improvement(a, b).unwrap();
        assert_eq!(improvement(&[0.1, 0.2], &[0.1, 0.2]), 0.5);
        assert_eq!(improvement(&[0.1, 0.2], &[0.3, 0.4]), 1.0);
        assert_eq!(improvement(&[0.1, 0.2], &[0.0, 0.2]), 0.375);
        // −0 and 0 are equal.
        assert_eq!(improvement(&[0.0], &[-0.0]), 0.5);
        assert_eq!(improvement(&[0.3], &[0.1 + 0.2]), 0.5);
        assert!(probability_of_improvement(&[], &[1.0]).is_err());
    }
}
