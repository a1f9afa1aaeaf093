//! Estimates of what an inconclusive part would need, from the values that were seen. For reading,
//! never a decision.

use crate::statistics::{between, distributions, estimators};
use crate::study::comparisons::{self, Comparison};
use crate::study::{Declared, RunValue, arms, collection::Study};

const MOST_RUNS: usize = 1000;

pub fn for_difference(study: &Study, comparison: &Comparison) -> String {
    let Declared { arm, reference, .. } = &comparison.declared;
    let Some(result) = &comparison.result else {
        let least = between::FEWEST_RUNS;
        return format!(
            "at least {least} runs of `{arm}` and of `{reference}` that have this value"
        );
    };
    let declaration = &study.declaration;
    // Holm's first step is the strictest level that this comparison can meet.
    let family = study.declaration.families.iter().find(|it| it.id == comparison.family);
    let size = family.map_or(1, |family| family.comparisons.len()).max(1);
    let alpha = declaration.alpha / size as f64;
    let paired = declaration.paired;
    let unit = if paired { "blocks" } else { "runs of each arm" };
    let smallest = |n: usize| match paired {
        true => 2.0 / (1u64 << n.min(63)) as f64,
        false => between::smallest_p(n, n),
    };
    let mut runs = between::FEWEST_RUNS..MOST_RUNS;
    let least = runs.find(|n| smallest(*n) <= alpha).unwrap_or(MOST_RUNS);
    let blocks = comparisons::blocks_of(comparison);
    let differences: Vec<f64> = blocks.iter().map(|(arm, reference)| arm - reference).collect();
    let seen = match paired {
        true => differences.len(),
        false => comparison.arm.len().min(comparison.reference.len()),
    };
    if result.interval.is_none() || result.difference == 0.0 {
        return match least > seen {
            true => format!("at least {least} {unit}"),
            false => format!("more than the {seen} {unit} that there are"),
        };
    }
    let variance = |values: &[f64]| {
        let error = estimators::standard_error_of_mean(values);
        error * error * values.len() as f64
    };
    let values = |runs: &[RunValue]| runs.iter().map(|run| run.value).collect::<Vec<f64>>();
    // Of a block's difference, or of the difference of two runs.
    let spread = match paired {
        true => variance(&differences),
        false => variance(&values(&comparison.arm)) + variance(&values(&comparison.reference)),
    };
    // Normal differences with that spread need n = (z of 1 − α/2 + z_power)² spread/d², and a part of z² more
    // because the spread is estimated. A permutation test needs about as many.
    let z = normal_quantile(1.0 - alpha / 2.0);
    let sizes = (z + normal_quantile(declaration.power.max(0.5))) / result.difference;
    let runs = (sizes * sizes * spread + z * z / if paired { 2.0 } else { 4.0 }).ceil();
    if runs > MOST_RUNS as f64 {
        return format!("more than {MOST_RUNS} {unit} for a difference like the one seen");
    }
    format!(
        "about {} {unit}, were the difference as large as the one seen (power {:.0} %)",
        least.max(runs as usize),
        100.0 * declaration.power
    )
}

/// Runs with which an interval would leave the bound, if mean and spread stayed the same.
pub fn for_level(values: &[f64], bound: f64, alpha: f64) -> String {
    let deviation = arms::mean(values, 0.95).and_then(|it| it.standard_deviation).unwrap_or(0.0);
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let enough = |n: &usize| {
        let t = distributions::t_quantile(1.0 - alpha / 2.0, (*n - 1) as f64);
        t * deviation / (*n as f64).sqrt() < (mean - bound).abs()
    };
    match (values.len() + 1..MOST_RUNS).find(enough) {
        Some(n) => format!("about {n} runs, were mean and spread those seen"),
        None => format!("more than {MOST_RUNS} runs with a mean and a spread like those seen"),
    }
}

/// Runs with which a correlation of 0 would be shown to be small.
pub fn for_correlation(bound: f64, alpha: f64, arms: usize) -> String {
    let z = normal_quantile(1.0 - alpha / 2.0) / libm::atanh(bound);
    let runs = (z * z).ceil() as usize + arms + 2;
    format!("at least {runs} runs in all, were the true correlation 0")
}

/// z with P(Z < z) = p for a standard normal Z and 0.5 <= `p` < 1, by bisection.
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
