//! The verdict of a comparison and what decided it.

use crate::statistics::verdict;
use crate::study::{TestResult, Why, Word, collection::Study, comparisons::Comparison};

/// Call it after Holm.
pub fn judge(study: &Study, comparison: &mut Comparison, size: usize) {
    let Some(result) = &comparison.result else { return };
    let alpha = study.declaration.alpha;
    let metric = &comparison.declared.metric;
    let shown = match (metric.is_time(), &result.interval) {
        (true, _) => result.adjusted_p <= alpha && result.difference != 0.0,
        (false, Some(interval)) => {
            let evidence = verdict::Evidence {
                adjusted_p: result.adjusted_p,
                alpha,
                interval: *interval,
                larger_is_better: true,
                minimum_detectable_effect: result
                    .minimum_detectable_effect
                    .unwrap_or(f64::INFINITY),
                equivalence: result.equivalence,
            };
            use verdict::Verdict::{Hurts, Improves};
            match verdict::verdict(&evidence) {
                Improves | Hurts => true,
                verdict::Verdict::Equivalent { .. } => {
                    comparison.word = Word::Equivalent;
                    comparison.why = Why::Equivalent { margin: study.declaration.margin };
                    return;
                }
                verdict::Verdict::Inconclusive { .. } => false,
            }
        }
        (false, None) => false,
    };
    let positive = result.difference > 0.0;
    if shown {
        comparison.word = match (metric.is_score() || metric.is_time(), positive) {
            (true, true) => Word::Improves,
            (true, false) => Word::Hurts,
            (false, true) => Word::Higher,
            (false, false) => Word::Lower,
        };
        let (adjusted_p, by_interval) = (result.adjusted_p, !metric.is_time());
        comparison.why = Why::Shown { adjusted_p, alpha, by_interval };
        return;
    }
    comparison.word = Word::Inconclusive;
    comparison.why = open(result, alpha, size);
}

pub fn close(comparison: &mut Comparison, before: &str) {
    if comparison.word == Word::NotCompared {
        return;
    }
    comparison.is_closed = true;
    comparison.word = Word::Inconclusive;
    let otherwise = Box::new(comparison.why.clone());
    comparison.why = Why::Closed { after: before.to_string(), otherwise };
}

fn open(result: &TestResult, alpha: f64, size: usize) -> Why {
    let TestResult { adjusted_p, smallest_p, .. } = *result;
    if smallest_p > alpha {
        return Why::RunsCannotShow { smallest_p, alpha };
    }
    if adjusted_p <= alpha {
        return Why::IntervalIncludesZero { adjusted_p };
    }
    let least = smallest_p * size as f64;
    Why::NotShown { adjusted_p, least: (least > alpha).then(|| (size, least.min(1.0))) }
}
