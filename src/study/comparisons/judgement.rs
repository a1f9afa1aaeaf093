//! The word of a comparison and what decided it.

use crate::statistics::{Estimate, Verdict};
use crate::study::comparisons::{Comparison, doses};
use crate::study::{DosesBelow, NotShown, RunsCannotShow, Why, Word, collection::Study};

/// Call it after Holm.
pub fn judge(study: &Study, comparison: &mut Comparison) {
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
        Verdict::Inconclusive { .. } => (Word::Inconclusive, open(comparison, estimate, alpha)),
    };
    let mut others = doses::below(study, comparison).into_iter();
    if let Some(below) = others.next() {
        let (others, otherwise) = (others.collect(), Box::new(comparison.why.clone()));
        comparison.word = Word::NothingToActOn;
        comparison.why = Why::DoseBelow(DosesBelow { below, others, otherwise });
    }
}

pub fn close(comparison: &mut Comparison, before: &str) {
    if matches!(comparison.word, Word::NotCompared | Word::NothingToActOn) {
        return;
    }
    comparison.word = Word::Inconclusive;
    let otherwise = Box::new(comparison.why.clone());
    comparison.why = Why::Closed { after: before.to_string(), otherwise };
}

fn open(comparison: &Comparison, estimate: &Estimate, alpha: f64) -> Why {
    let Estimate { adjusted_p, smallest_p, .. } = *estimate;
    let (ties, size) = (comparison.ties(), comparison.family_size);
    if smallest_p > alpha {
        return Why::RunsCannotShow(RunsCannotShow { smallest_p, alpha, ties });
    }
    if adjusted_p <= alpha {
        return match estimate.interval {
            Some(_) => Why::IntervalIncludesZero { adjusted_p },
            None => Why::NoInterval { adjusted_p },
        };
    }
    let least = (smallest_p * size as f64).min(1.0);
    // Holm multiplies by less than the size where other comparisons have a smaller p.
    let is_bound = least > alpha && adjusted_p >= least;
    Why::NotShown(NotShown { adjusted_p, least: is_bound.then_some((size, least)), ties })
}
