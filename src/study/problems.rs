//! Each problem by itself: which arms solve it, and which problems changed between two arms.

use crate::study::{Cell, collection::Study};

#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// Only arms that evaluated the same problems.
    pub arms: Vec<ArmProblems>,
    /// By mean accuracy over the arms, then by index.
    pub hardest_first: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ArmProblems {
    pub arm: String,
    pub runs: u64,
    /// Mean over runs of p̂ᵢ at the last evaluation, in the set's order.
    pub accuracies: Vec<f64>,
}

/// Averaged over runs. It describes these runs on these problems and tests nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct PairedChange {
    pub arm: String,
    pub reference: String,
    /// p̂ᵢ of the arm minus that of the reference, in the set's order.
    pub differences: Vec<f64>,
    pub mean: f64,
    pub better: u64,
    pub worse: u64,
    pub same: u64,
}

pub fn matrix(study: &Study, arms: &[&str], set: &str) -> Option<Matrix> {
    let digest = arms.iter().find_map(|arm| digest(&study.cells_of(arm), set))?;
    let rows: Vec<ArmProblems> =
        arms.iter().filter_map(|arm| row(study, arm, set, &digest)).collect();
    let problems = rows.first()?.accuracies.len();
    let sum = |index: usize| rows.iter().map(|row| row.accuracies[index]).sum::<f64>();
    let mut hardest_first: Vec<usize> = (0..problems).collect();
    hardest_first.sort_by(|a, b| sum(*a).total_cmp(&sum(*b)).then(a.cmp(b)));
    Some(Matrix { arms: rows, hardest_first })
}

pub fn paired_change(study: &Study, arm: &str, reference: &str, set: &str) -> Option<PairedChange> {
    let digest = digest(&study.cells_of(reference), set)?;
    let (after, before) = (row(study, arm, set, &digest)?, row(study, reference, set, &digest)?);
    let differences: Vec<f64> =
        after.accuracies.iter().zip(&before.accuracies).map(|(a, b)| a - b).collect();
    // Equal means over runs may differ in the last bit.
    let count = |of: fn(f64) -> bool| differences.iter().filter(|d| of(**d)).count() as u64;
    let (better, worse) = (count(|d| d > 1e-12), count(|d| d < -1e-12));
    Some(PairedChange {
        arm: arm.to_string(),
        reference: reference.to_string(),
        mean: differences.iter().sum::<f64>() / differences.len().max(1) as f64,
        better,
        worse,
        same: differences.len() as u64 - better - worse,
        differences,
    })
}

fn digest(cells: &[&Cell], set: &str) -> Option<String> {
    cells.iter().find_map(|cell| cell.problems.get(set).map(|ids| ids.sha256.clone()))
}

fn row(study: &Study, arm: &str, set: &str, digest: &str) -> Option<ArmProblems> {
    let cells = study.cells_of(arm);
    let runs: Vec<Vec<f64>> = cells
        .iter()
        .filter(|cell| cell.problems.get(set).is_some_and(|ids| ids.sha256 == digest))
        .filter_map(|cell| Some(cell.last_evaluation(set)?.accuracies()))
        .collect();
    let problems = runs.first()?.len();
    if problems == 0 || runs.iter().any(|run| run.len() != problems) {
        return None;
    }
    let mean = |index: usize| runs.iter().map(|run| run[index]).sum::<f64>() / runs.len() as f64;
    let accuracies = (0..problems).map(mean).collect();
    Some(ArmProblems { arm: arm.to_string(), runs: runs.len() as u64, accuracies })
}
