//! The word of a comparison and what decided it.

use crate::statistics::{Estimate, Verdict};
use crate::study::comparisons::{Comparison, doses};
use crate::study::{DosesBelow, Why, Word, collection::Study};

/// Call it after Holm.
pub fn judge(study: &Study, comparison: &mut Comparison, size: usize) {
    let Some(estimate) = &comparison.result else { return };
    let alpha = study.declaration.alpha;
    let metric = &comparison.declared.metric;
    let (verdict, adjusted_p) = (estimate.verdict(alpha), estimate.adjusted_p);
    (comparison.word, comparison.why) = match verdict {
        Verdict::Improves | Verdict::Hurts => {
            let rates_policies = metric.is_score() || metric.is_time();
            let word = match (rates_policies, verdict == Verdict::Improves) {
                (true, true) => Word::Improves,
                (true, false) => Word::Hurts,
                (false, true) => Word::Higher,
                (false, false) => Word::Lower,
            };
            (word, Why::Shown { adjusted_p, alpha, by_interval: !metric.is_time() })
        }
        Verdict::Equivalent { within } => {
            let divisor = comparison.contrast_divisor;
            (Word::Equivalent, Why::Equivalent { margin: within * divisor as f64, divisor })
        }
        Verdict::Inconclusive { .. } => (Word::Inconclusive, open(estimate, alpha, size)),
    };
    let mut below = doses::below(study, comparison).into_iter();
    if let Some(below_least) = below.next() {
        let otherwise = Box::new(comparison.why.clone());
        comparison.word = Word::NothingToActOn;
        let (below, others) = (below_least, below.collect());
        comparison.why = Why::DoseBelow(DosesBelow { below, others, otherwise });
    }
}

pub fn close(comparison: &mut Comparison, before: &str) {
    if matches!(comparison.word, Word::NotCompared | Word::NothingToActOn) {
        return;
    }
    comparison.is_closed = true;
    comparison.word = Word::Inconclusive;
    let otherwise = Box::new(comparison.why.clone());
    comparison.why = Why::Closed { after: before.to_string(), otherwise };
}

fn open(estimate: &Estimate, alpha: f64, size: usize) -> Why {
    let Estimate { adjusted_p, smallest_p, .. } = *estimate;
    if smallest_p > alpha {
        return Why::RunsCannotShow { smallest_p, alpha };
    }
    if adjusted_p <= alpha {
        return Why::IntervalIncludesZero { adjusted_p };
    }
    let least = smallest_p * size as f64;
    Why::NotShown { adjusted_p, least: (least > alpha).then(|| (size, least.min(1.0))) }
}
