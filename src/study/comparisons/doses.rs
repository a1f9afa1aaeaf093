//! Whether the techniques that a comparison is about acted on enough: their doses beside the declared least ones.

use crate::experiment::grid;
use crate::statistics::estimators;
use crate::study::effect_checks::{self, findings};
use crate::study::{Cell, DoseBelow, collection::Study, comparisons::Comparison};

/// The techniques that tell the two sides apart, if each of them acted on less than was declared. Of an interaction those of its
/// techniques that did: one is enough, since what does nothing cannot act otherwise beside another.
pub fn below(study: &Study, comparison: &Comparison) -> Vec<DoseBelow> {
    let leasts = &study.declaration.least_doses;
    if leasts.is_empty() {
        return Vec::new();
    }
    let declared = &comparison.declared;
    let sides = [&declared.arm, &declared.reference].map(|id| study.cells_of(id));
    let below = |technique: &&'static str| {
        let least = *leasts.get(*technique)?;
        let dose = mean_dose(&sides, technique)?;
        let technique = technique.to_string();
        (dose < least).then_some(DoseBelow { technique, dose, least })
    };
    if comparison.contrast_divisor > 1 {
        let interacting = findings::names().into_iter().filter(|it| interacts(&sides, it));
        return interacting.filter_map(|it| below(&it)).collect();
    }
    let differs = |technique: &&str| {
        let [arm, reference] = [0, 1].map(|side| switched(&sides[side], technique));
        arm.zip(reference).is_some_and(|(arm, reference)| arm != reference)
    };
    let techniques: Vec<&str> = findings::names().into_iter().filter(differs).collect();
    if differ_otherwise(&sides, &techniques) {
        return Vec::new();
    }
    techniques.iter().map(below).collect::<Option<_>>().unwrap_or_default()
}

fn is_on(cell: &Cell, technique: &str) -> bool {
    findings::switches(&cell.experiment).iter().any(|(name, on)| *on && *name == technique)
}

/// What all runs of a side have.
fn switched(cells: &[&Cell], technique: &str) -> Option<bool> {
    let on = cells.iter().filter(|cell| is_on(cell, technique)).count();
    (on == 0 || on == cells.len()).then_some(on > 0)
}

/// Whether arms that differ in this technique alone are always on two sides, as in the contrast of an interaction.
fn interacts([arm, reference]: &[Vec<&Cell>; 2], technique: &str) -> bool {
    let differ_in_it_alone = |one: &Cell, other: &Cell| {
        let [one, other] = [one, other].map(|cell| findings::switches(&cell.experiment));
        let mut pairs = one.into_iter().zip(other);
        pairs.all(|((name, on), (_, other))| (on != other) == (name == technique))
    };
    let any = |ones: &[&Cell], others: &[&Cell]| {
        ones.iter().any(|one| others.iter().any(|other| differ_in_it_alone(one, other)))
    };
    any(arm, reference) && !any(arm, arm) && !any(reference, reference)
}

/// Over the runs that have the technique; `None` where one does not tell it.
fn mean_dose(sides: &[Vec<&Cell>; 2], technique: &str) -> Option<f64> {
    let doses = sides.iter().flatten().filter(|cell| is_on(cell, technique)).map(|cell| {
        let effects = effect_checks::of_cell(cell);
        effects.findings.iter().find(|finding| finding.technique == technique)?.dose
    });
    Some(estimators::mean(&doses.collect::<Option<Vec<f64>>>()?))
}

/// Technique → where its keys begin.
const KEYS: [(&str, &[&str]); 5] = [
    ("Clip-Higher", &["dapo.clip"]),
    ("Dynamic Sampling", &["dapo.dynamic_sampling", "rollout.prompts_per_round"]),
    ("Token-level loss", &["dapo.aggregation", "dapo.token_mean"]),
    ("Overlong Filtering", &["dapo.overlong.filter"]),
    ("Soft Overlong Punishment", &["dapo.overlong.punishment"]),
];

/// Whether two arms differ in more than the keys of these techniques, which could then be the cause of a difference. The
/// arms of pools differ in other techniques on both sides alike.
fn differ_otherwise([arm, reference]: &[Vec<&Cell>; 2], techniques: &[&str]) -> bool {
    let is_one_arm = |cells: &[&Cell]| cells.iter().all(|it| it.arm_sha256 == cells[0].arm_sha256);
    let (Some(one), true, true) = (arm.first(), is_one_arm(arm), is_one_arm(reference)) else {
        return false;
    };
    // The base policy may be the seed's.
    let Some(other) = reference.iter().find(|it| it.seed == one.seed) else { return false };
    let own: Vec<&str> = KEYS
        .iter()
        .filter(|(name, _)| techniques.contains(name))
        .flat_map(|(_, keys)| keys.iter().copied())
        .collect();
    let differences = grid::differences(&other.experiment, &one.experiment);
    let is_other = |key: &str| !own.iter().any(|own| key.starts_with(own));
    differences.iter().any(|it| it.in_arm && is_other(&it.key))
}
