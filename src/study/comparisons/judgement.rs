//! The word of a comparison and what decided it.

use crate::experiment::grid;
use crate::statistics::{Estimate, Verdict, estimators};
use crate::study::effect_checks::{self, findings};
use crate::study::{Cell, Declared, Why, Word, collection::Study, comparisons::Comparison};

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
    if let Some((technique, dose, least)) = dose_below(study, &comparison.declared) {
        let otherwise = Box::new(comparison.why.clone());
        comparison.word = Word::NothingToActOn;
        comparison.why = Why::DoseBelow { technique, dose, least, otherwise };
    }
}

/// The one technique that tells the two sides apart, its mean dose and the declared least one, where it is below.
fn dose_below(study: &Study, declared: &Declared) -> Option<(String, f64, f64)> {
    if study.declaration.least_doses.is_empty() {
        return None;
    }
    let sides = [&declared.arm, &declared.reference].map(|id| study.cells_of(id));
    let switched = |cells: &[&Cell], technique: &str| {
        let is_on = |cell: &&Cell| {
            findings::switches(&cell.experiment).iter().any(|(name, on)| *on && *name == technique)
        };
        let on = cells.iter().filter(|cell| is_on(cell)).count();
        (on == 0 || on == cells.len()).then_some(on > 0)
    };
    let differs = |(technique, _): &(&'static str, bool)| {
        let [arm, reference] = [0, 1].map(|side| switched(&sides[side], technique));
        arm.zip(reference).is_some_and(|(arm, reference)| arm != reference)
    };
    let all = findings::switches(&sides[0].first()?.experiment);
    let [(technique, arm_has)] = all.into_iter().filter(differs).collect::<Vec<_>>()[..] else {
        return None;
    };
    if differ_otherwise(&sides, technique) {
        return None;
    }
    let least = *study.declaration.least_doses.get(technique)?;
    let doses = sides[usize::from(!arm_has)].iter().map(|cell| {
        let effects = effect_checks::of_cell(cell);
        effects.findings.iter().find(|finding| finding.technique == technique)?.dose
    });
    let dose = estimators::mean(&doses.collect::<Option<Vec<f64>>>()?);
    (dose < least).then(|| (technique.to_string(), dose, least))
}

/// Technique → where its keys begin.
const KEYS: [(&str, &[&str]); 5] = [
    ("Clip-Higher", &["dapo.clip"]),
    ("Dynamic Sampling", &["dapo.dynamic_sampling", "rollout.prompts_per_round"]),
    ("Token-level loss", &["dapo.aggregation", "dapo.token_mean"]),
    ("Overlong Filtering", &["dapo.overlong.filter"]),
    ("Soft Overlong Punishment", &["dapo.overlong.punishment"]),
];

/// Whether two arms differ in more than the keys of a technique, which could then be the cause of a difference. The arms
/// of pools differ in other techniques on both sides alike.
fn differ_otherwise([arm, reference]: &[Vec<&Cell>; 2], technique: &str) -> bool {
    let is_one_arm = |cells: &[&Cell]| cells.iter().all(|it| it.arm_sha256 == cells[0].arm_sha256);
    let (Some(one), true, true) = (arm.first(), is_one_arm(arm), is_one_arm(reference)) else {
        return false;
    };
    // The base policy may be the seed's.
    let Some(other) = reference.iter().find(|it| it.seed == one.seed) else { return false };
    let keys = KEYS.iter().find(|(name, _)| *name == technique).map_or(&[][..], |(_, keys)| *keys);
    let differences = grid::differences(&other.experiment, &one.experiment);
    let is_other = |key: &str| !keys.iter().any(|own| key.starts_with(own));
    differences.iter().any(|it| it.in_arm && is_other(&it.key))
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
