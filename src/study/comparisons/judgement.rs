//! The word of a comparison and its reason, from `statistics::verdict`.

use crate::statistics::verdict;
use crate::study::{TestResult, Word, collection::Study, comparisons::Comparison};

/// To be called after the p is adjusted.
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
                    comparison.reason =
                        format!("the difference is smaller than δ = {}", study.declaration.margin);
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
        comparison.reason = format!(
            "adjusted p {:.4} is at most {alpha} and the interval lies on one side of 0",
            result.adjusted_p
        );
        if metric.is_time() {
            comparison.reason = format!("adjusted p {:.4} is at most {alpha}", result.adjusted_p);
        }
        return;
    }
    comparison.word = Word::Inconclusive;
    comparison.reason = open(result, alpha, size);
}

/// A comparison of a family that does not count, because the family before it did not show everything.
pub fn close(comparison: &mut Comparison, before: &str) {
    if comparison.word == Word::NotCompared {
        return;
    }
    comparison.is_closed = true;
    comparison.word = Word::Inconclusive;
    comparison.reason = format!(
        "it counts only after everything of the family `{before}` is shown, which is not so ({})",
        comparison.reason
    );
}

fn open(result: &TestResult, alpha: f64, size: usize) -> String {
    if result.smallest_p > alpha {
        return format!(
            "so few runs cannot show anything: their smallest p is {:.4}, above {alpha}",
            result.smallest_p
        );
    }
    let mut reason = format!("no effect shown: adjusted p {:.4}", result.adjusted_p);
    if result.adjusted_p <= alpha {
        reason = format!("adjusted p {:.4}, but the interval includes 0", result.adjusted_p);
    } else if result.smallest_p * size as f64 > alpha {
        reason += &format!(
            " (alone among {size} comparisons so few runs cannot get below {:.4})",
            (result.smallest_p * size as f64).min(1.0)
        );
    }
    reason
}
