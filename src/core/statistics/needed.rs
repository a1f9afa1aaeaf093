//! How many runs, or blocks, a question takes. For reading, never a decision rule.

use crate::statistics::comparison::Measured;
use crate::statistics::distributions::{normal_quantile, t_quantile};
use crate::statistics::{Mean, between, estimators};

/// Larger numbers are not looked for.
pub const MOST_RUNS: usize = 1000;

/// The fewest of each side whose smallest p is at most `alpha`; of blocks, if as large a share of them are ties as seen.
pub fn fewest(measured: &Measured, alpha: f64) -> usize {
    let smallest_p = |runs: usize| match measured {
        Measured::Blocks(seen) => {
            let signs = seen.iter().filter(|difference| **difference != 0.0).count();
            let signs = if signs > 0 { runs * signs / seen.len() } else { runs };
            2.0 / (1u64 << signs.min(63)) as f64
        }
        Measured::Runs(..) | Measured::Times(..) => between::smallest_p(runs, runs),
    };
    let mut counts = between::FEWEST_RUNS..MOST_RUNS;
    counts.find(|runs| smallest_p(*runs) <= alpha).unwrap_or(MOST_RUNS)
}

/// (z of 1 − α/2 + z_power)² spread/d², and a part of z² more because the spread is estimated; a permutation test
/// needs about as many. `None` for more than [`MOST_RUNS`], and for times.
pub fn for_difference(
    measured: &Measured,
    difference: f64,
    alpha: f64,
    power: f64,
) -> Option<usize> {
    let (spread, part) = match measured {
        Measured::Runs(a, b) => (variance(b) + variance(a), 4.0),
        Measured::Blocks(differences) => (variance(differences), 2.0),
        Measured::Times(..) => return None,
    };
    let z = normal_quantile(1.0 - alpha / 2.0);
    let sizes = (z + normal_quantile(power.max(0.5))) / difference;
    let runs = (sizes * sizes * spread + z * z / part).ceil();
    (runs <= MOST_RUNS as f64).then(|| fewest(measured, alpha).max(runs as usize))
}

fn variance(values: &[f64]) -> f64 {
    let error = estimators::standard_error_of_mean(values);
    error * error * values.len() as f64
}

/// If mean and spread stay the same.
pub fn for_mean(values: &[f64], bound: f64, alpha: f64) -> Option<usize> {
    let seen = Mean::of(values, 1.0 - alpha)?;
    let deviation = seen.standard_deviation.unwrap_or(0.0);
    let is_enough = |runs: &usize| {
        let t = t_quantile(1.0 - alpha / 2.0, (*runs - 1) as f64);
        t * deviation / (*runs as f64).sqrt() < (seen.mean - bound).abs()
    };
    (values.len() + 1..MOST_RUNS).find(is_enough)
}

/// Of all groups, if the true correlation is 0.
pub fn for_correlation(bound: f64, alpha: f64, groups: usize) -> usize {
    let z = normal_quantile(1.0 - alpha / 2.0) / libm::atanh(bound);
    ((z * z).ceil() as usize).saturating_add(groups + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_are_ties_have_no_sign() {
        let fewest = |differences: &[f64]| fewest(&Measured::Blocks(differences.to_vec()), 0.05);
        assert_eq!(fewest(&[0.1; 6]), 6);
        // Five of six have a sign: eight blocks have six.
        assert_eq!(fewest(&[0.0, 0.1, 0.1, 0.1, 0.1, 0.1]), 8);
        assert_eq!((fewest(&[]), fewest(&[0.0; 6])), (6, 6));
    }
}
