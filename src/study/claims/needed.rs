//! Estimates of what an inconclusive part would need. They decide nothing.

use crate::statistics::{between, distributions, estimators};
use crate::study::comparisons::{self, Comparison};
use crate::study::{Declared, Needed, RunValue, arms, collection::Study};

const MOST_RUNS: usize = 1000;

pub fn for_difference(study: &Study, comparison: &Comparison) -> Needed {
    let Declared { arm, reference, .. } = &comparison.declared;
    let Some(result) = &comparison.result else {
        let of = vec![arm.clone(), reference.clone()];
        return Needed::AtLeast { count: between::FEWEST_RUNS, blocks: false, of };
    };
    let declaration = &study.declaration;
    // Holm's first step is the strictest.
    let family = study.declaration.families.iter().find(|it| it.id == comparison.family);
    let size = family.map_or(1, |family| family.comparisons.len()).max(1);
    let alpha = declaration.alpha / size as f64;
    let (paired, blocks) = (declaration.paired, declaration.paired);
    let smallest = |n: usize| {
        if paired { 2.0 / (1u64 << n.min(63)) as f64 } else { between::smallest_p(n, n) }
    };
    let mut runs = between::FEWEST_RUNS..MOST_RUNS;
    let least = runs.find(|n| smallest(*n) <= alpha).unwrap_or(MOST_RUNS);
    let both = comparisons::blocks_of(comparison);
    let differences: Vec<f64> = both.iter().map(|(arm, reference)| arm - reference).collect();
    let seen = if paired {
        differences.len()
    } else {
        comparison.arm.len().min(comparison.reference.len())
    };
    if result.interval.is_none() || result.difference == 0.0 {
        return if least > seen {
            Needed::AtLeast { count: least, blocks, of: Vec::new() }
        } else {
            Needed::MoreThan { count: seen, blocks }
        };
    }
    let variance = |values: &[f64]| {
        let error = estimators::standard_error_of_mean(values);
        error * error * values.len() as f64
    };
    let values = |runs: &[RunValue]| runs.iter().map(|run| run.value).collect::<Vec<f64>>();
    // The variance of a block's difference, or of the difference of two runs.
    let spread = if paired {
        variance(&differences)
    } else {
        variance(&values(&comparison.arm)) + variance(&values(&comparison.reference))
    };
    // n = (z of 1 − α/2 + z_power)² spread/d², and a part of z² more because the spread is
    // estimated. A permutation test needs about as many.
    let z = normal_quantile(1.0 - alpha / 2.0);
    let sizes = (z + normal_quantile(declaration.power.max(0.5))) / result.difference;
    let runs = (sizes * sizes * spread + z * z / if paired { 2.0 } else { 4.0 }).ceil();
    if runs > MOST_RUNS as f64 {
        return Needed::MoreThanForSeen { count: MOST_RUNS, blocks };
    }
    let (count, power) = (least.max(runs as usize), declaration.power);
    Needed::AboutForSeen { count, blocks, power }
}

/// If mean and spread stayed the same.
pub fn for_level(values: &[f64], bound: f64, alpha: f64) -> Needed {
    let deviation = arms::mean(values, 0.95).and_then(|it| it.standard_deviation).unwrap_or(0.0);
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let enough = |n: &usize| {
        let t = distributions::t_quantile(1.0 - alpha / 2.0, (*n - 1) as f64);
        t * deviation / (*n as f64).sqrt() < (mean - bound).abs()
    };
    match (values.len() + 1..MOST_RUNS).find(enough) {
        Some(count) => Needed::AboutForSeenSpread { count },
        None => Needed::MoreThanForSeenSpread { count: MOST_RUNS },
    }
}

/// If the true correlation were 0.
pub fn for_correlation(bound: f64, alpha: f64, arms: usize) -> Needed {
    let z = normal_quantile(1.0 - alpha / 2.0) / libm::atanh(bound);
    Needed::AtLeastInAll { count: (z * z).ceil() as usize + arms + 2 }
}

/// z with P(Z < z) = p for a standard normal Z, 0.5 ≤ `p` < 1, by bisection.
pub fn normal_quantile(p: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    loop {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            return middle;
        }
        if distributions::normal_below(middle) < p { low = middle } else { high = middle }
    }
}
