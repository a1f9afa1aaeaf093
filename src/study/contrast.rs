//! What a comparison of two pools contrasts: the k factors whose product decides an arm's pool, as in a factorial design.

use crate::experiment::{Experiment, grid};
use crate::study::{Declared, collection::Study};
use std::collections::BTreeSet;

/// More keys are not looked through.
const MOST_FACTORS: usize = 12;

/// 2^(k−1) for pools that contrast an interaction of k factors: their difference is the difference of differences
/// divided by it. 1 for a main effect, single arms, and pools that no product of factors tells apart.
pub fn divisor(study: &Study, declared: &Declared) -> u64 {
    let pools = [&declared.arm, &declared.reference].map(|id| study.declaration.pool(id));
    let [Some(pool), Some(reference)] = pools else { return 1 };
    let arms: Vec<_> = pool.arms.iter().chain(&reference.arms).map(|id| study.arm(id)).collect();
    let Some(arms) = arms.into_iter().collect::<Option<Vec<_>>>() else { return 1 };
    let experiments: Vec<&Experiment> = arms.iter().map(|arm| &arm.experiment).collect();
    let factors = factors(&experiments);
    let is_contrast = |chosen: &u32| {
        let product = |arm: usize| {
            let of_arm = factors.iter().enumerate().filter(|(place, _)| chosen >> place & 1 == 1);
            of_arm.fold(false, |product, (_, levels)| product != levels[arm])
        };
        (0..experiments.len()).all(|arm| product(arm) == (arm >= pool.arms.len()))
    };
    let chosen = (1..1u32 << factors.len()).filter(is_contrast);
    let fewest = chosen.map(u32::count_ones).min().unwrap_or(1);
    1 << (fewest - 1)
}

/// Of each set of keys that tell half of the arms from the other half: whether an arm has another value than the first.
fn factors(experiments: &[&Experiment]) -> Vec<Vec<bool>> {
    let differing: Vec<BTreeSet<String>> = experiments
        .iter()
        .map(|arm| grid::differences(experiments[0], arm).into_iter().map(|it| it.key).collect())
        .collect();
    let keys: BTreeSet<&String> = differing.iter().flatten().collect();
    let levels: BTreeSet<Vec<bool>> =
        keys.iter().map(|key| differing.iter().map(|own| own.contains(*key)).collect()).collect();
    let is_half = |levels: &Vec<bool>| {
        levels.iter().filter(|differs| **differs).count() * 2 == experiments.len()
    };
    levels.into_iter().filter(is_half).take(MOST_FACTORS).collect()
}
