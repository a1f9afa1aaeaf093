//! Estimates of what an inconclusive comparison would need. They decide nothing.

use crate::statistics::{Estimate, Measured, between, needed, needed::MOST_RUNS};
use crate::study::{Declared, Needed, collection::Study, comparisons, comparisons::Comparison};

pub fn for_difference(study: &Study, comparison: &Comparison) -> Option<Needed> {
    let Some(estimate) = &comparison.result else {
        let Declared { arm, reference, .. } = comparison.declared.clone();
        return Some(fewest_runs(vec![arm, reference]));
    };
    let declaration = &study.declaration;
    // Holm's first step is the strictest.
    let size = declaration.family(&comparison.family).map_or(1, |family| family.comparisons.len());
    let alpha = declaration.alpha / size.max(1) as f64;
    of_estimate(&comparisons::measured(study, comparison), estimate, alpha, declaration.power)
}

/// `None` where both sides are the same: no number of runs shows what was not seen.
pub fn of_estimate(
    measured: &Measured,
    estimate: &Estimate,
    alpha: f64,
    power: f64,
) -> Option<Needed> {
    if measured.is_same() {
        return None;
    }
    let (blocks, seen) = match measured {
        Measured::Blocks(differences) => (true, differences.len()),
        Measured::Runs(a, b) => (false, a.len().min(b.len())),
        Measured::Times(a, b) => (false, a.len().min(b.len())),
    };
    let Some(interval) = estimate.interval.filter(|_| estimate.difference != 0.0) else {
        let least = needed::fewest(measured, alpha);
        return Some(if least > seen {
            Needed::AtLeast { count: least, blocks, of: Vec::new() }
        } else {
            Needed::MoreThan { count: seen, blocks }
        });
    };
    let alpha = alpha.min(1.0 - interval.level);
    Some(match needed::for_difference(measured, estimate.difference, alpha, power) {
        Some(count) if count > seen => Needed::AboutForSeen { count, blocks, power },
        Some(_) => Needed::MoreThanForSeen { count: seen, blocks },
        None => Needed::MoreThanForSeen { count: MOST_RUNS, blocks },
    })
}

pub fn fewest_runs(of: Vec<String>) -> Needed {
    Needed::AtLeast { count: between::FEWEST_RUNS, blocks: false, of }
}

pub fn for_level(values: &[f64], bound: f64, alpha: f64) -> Needed {
    match needed::for_mean(values, bound, alpha) {
        Some(count) => Needed::AboutForSeenSpread { count },
        None => Needed::MoreThanForSeenSpread { count: MOST_RUNS },
    }
}
