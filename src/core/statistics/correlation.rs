//! Straight lines through pairs (x, y), and correlations.

use crate::statistics::{Interval, distributions::normal_quantile, estimators};

/// Sums of squares and products around the means: xx, yy, xy.
pub(crate) fn centred_sums(pairs: &[(f64, f64)]) -> (f64, f64, f64) {
    centred(pairs)
        .fold((0.0, 0.0, 0.0), |(xx, yy, xy), (x, y)| (xx + x * x, yy + y * y, xy + x * y))
}

fn centred(pairs: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    let count = pairs.len() as f64;
    let (x, y) = (pairs.iter().map(|pair| pair.0), pairs.iter().map(|pair| pair.1));
    let (mean_x, mean_y) = (x.sum::<f64>() / count, y.sum::<f64>() / count);
    pairs
        .iter()
        .map(move |(x, y)| (estimators::difference(mean_x, *x), estimators::difference(mean_y, *y)))
}

/// Of least squares; `None` without spread of x.
pub fn slope(pairs: &[(f64, f64)]) -> Option<f64> {
    let (xx, _, xy) = centred_sums(pairs);
    (xx > 0.0).then(|| xy / xx)
}

/// Pearson's correlation; `None` for fewer than 3 pairs or a side without spread.
pub fn pearson(pairs: &[(f64, f64)]) -> Option<f64> {
    let (xx, yy, xy) = centred_sums(pairs);
    let value = xy / (xx.sqrt() * yy.sqrt());
    (pairs.len() >= 3 && value.is_finite()).then(|| value.clamp(-1.0, 1.0))
}

/// Correlation within groups (of the deviations from each group's mean) with Fisher's interval, as of a partial
/// correlation: tanh(artanh r ± z/√(N − groups − 2)).
pub fn within_groups(groups: &[Vec<(f64, f64)>], level: f64) -> (Option<f64>, Option<Interval>) {
    let centred: Vec<(f64, f64)> = groups.iter().flat_map(|group| centred(group)).collect();
    let free = centred.len() as f64 - groups.len() as f64 - 2.0;
    let r = pearson(&centred);
    (r, r.filter(|_| free > 0.0).map(|r| fisher(r, free, level)))
}

fn fisher(r: f64, free: f64, level: f64) -> Interval {
    let half_width = normal_quantile(0.5 + level / 2.0) / free.sqrt();
    let z = libm::atanh(r.clamp(-0.999_999, 0.999_999));
    Interval { low: libm::tanh(z - half_width), high: libm::tanh(z + half_width), level }
}
