//! A finished grid in brief: arm × set, means over seeds. Intervals and tests are a report's.

use crate::experiment::{Grid, sets};
use crate::study::{Cell, CellEnding};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq)]
pub struct AblateSummary {
    /// `dev` comes first.
    pub sets: Vec<String>,
    pub rows: Vec<ArmRow>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ArmRow {
    pub arm: String,
    pub label: String,
    /// For each set the mean over seeds of the last evaluation's avg@k, a share, and the number of
    /// seeds; `None` where none was evaluated.
    pub scores: Vec<Option<(f64, u64)>>,
    /// Mean over seeds.
    pub updates: Option<f64>,
    /// Mean over seeds; generated for training.
    pub generated_rollouts: Option<f64>,
    /// Ending → cells.
    pub endings: BTreeMap<&'static str, u64>,
    pub missing: u64,
}

/// Summarises a grid from `cells`, which may hold other cells too. A failed cell counts only among
/// the endings.
pub fn summary(grid: &Grid, cells: &[&Cell]) -> AblateSummary {
    let of_arm = |hash: &str| -> Vec<&Cell> {
        let wanted = |cell: &&&Cell| cell.arm_sha256 == hash && grid.seeds.contains(&cell.seed);
        cells.iter().filter(wanted).copied().collect()
    };
    let sets: BTreeSet<&String> = grid
        .arms
        .iter()
        .flat_map(|arm| of_arm(&arm.arm_sha256))
        .flat_map(|cell| cell.problems.keys())
        .collect();
    let mut sets: Vec<String> = sets.into_iter().cloned().collect();
    sets.sort_by_key(|set| set != sets::DEV);
    let rows = grid.arms.iter().map(|arm| {
        let all = of_arm(&arm.arm_sha256);
        let mut endings = BTreeMap::new();
        for cell in &all {
            *endings.entry(cell.ending.name()).or_insert(0) += 1;
        }
        let valid: Vec<&Cell> =
            all.iter().copied().filter(|cell| cell.ending != CellEnding::Failed).collect();
        let score = |set: &String| {
            let last = |cell: &&Cell| Some(cell.last_evaluation(set)?.avg_at_k());
            mean(valid.iter().filter_map(last))
        };
        let generated = |cell: &&Cell| {
            let newest = cell.evaluations.iter().map(|it| it.generated_rollouts).max();
            newest.map(|rollouts| rollouts as f64)
        };
        let updates = |cell: &&Cell| cell.counters.last().map(|it| it.updates as f64);
        ArmRow {
            arm: arm.name.clone(),
            label: arm.label.clone(),
            scores: sets.iter().map(score).collect(),
            updates: mean(valid.iter().filter_map(updates)).map(|it| it.0),
            generated_rollouts: mean(valid.iter().filter_map(generated)).map(|it| it.0),
            endings,
            missing: (grid.seeds.len() as u64).saturating_sub(all.len() as u64),
        }
    });
    AblateSummary { rows: rows.collect(), sets: sets.clone() }
}

/// Mean and number of values; `None` without any.
fn mean(values: impl Iterator<Item = f64>) -> Option<(f64, u64)> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| (sum / count as f64, count))
}
