//! Decides which cells count for which arm. A cell that does not count is listed with its reason.

use crate::base::files;
use crate::experiment::{Arm, Grid};
use crate::study::{Cell, CellEnding, Declaration, StudyError, crosscheck};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Excluded {
    pub cell: String,
    /// `<grid>/<arm>`; `None`: it counts for no arm.
    pub arm: Option<String>,
    pub seed: Option<u64>,
    /// True if the run itself failed, which is an outcome.
    pub failed: bool,
    #[serde(skip)]
    pub reason: String,
    #[serde(skip)]
    pub is_of_other_seed: bool,
}

impl Excluded {
    pub fn unreadable(error: &StudyError) -> Self {
        let (cell, reason) = ("unreadable".to_string(), error.to_string());
        Self { cell, reason, ..Self::default() }
    }

    fn new(cell: &Cell, arm: Option<&str>, reason: String) -> Self {
        Self {
            cell: cell.file_name(),
            arm: arm.map(str::to_string),
            seed: Some(cell.seed),
            failed: cell.ending == CellEnding::Failed,
            reason,
            is_of_other_seed: false,
        }
    }
}

pub fn expected_seeds<'a>(declaration: &'a Declaration, grid: &'a Grid) -> &'a [u64] {
    if declaration.seeds.is_empty() { &grid.seeds } else { &declaration.seeds }
}

pub fn arms_of(grid: &Grid) -> impl Iterator<Item = (String, &Arm)> {
    grid.arms.iter().map(|arm| (format!("{}/{}", grid.name, arm.name), arm))
}

/// What an arm reads, and the seed where each seed has its own base policy.
type ArmReads = (String, Option<u64>);

/// `<grid>/<arm>` → indices of its cells by seed.
type Members = BTreeMap<String, Vec<usize>>;

const SECOND: &str = "another record of this arm and seed comes before it";

pub fn sort(declaration: &Declaration, grids: &[Grid], cells: &[Cell]) -> (Members, Vec<Excluded>) {
    let mut members = Members::new();
    let mut excluded = Vec::new();
    let suspects = crosscheck::suspects(cells, &candidates(declaration, grids, cells));
    for grid in grids {
        let mut candidates: Vec<(&Arm, usize)> = Vec::new();
        for (id, arm) in arms_of(grid) {
            members.insert(id.clone(), Vec::new());
            let mut seeds = BTreeSet::new();
            let of_arm = |cell: &Cell| cell.arm_sha256 == arm.arm_sha256;
            for (index, cell) in cells.iter().enumerate().filter(|(_, cell)| of_arm(cell)) {
                let foreign =
                    declaration.refuses(&id, &arm.arm_sha256).or_else(|| misnamed(grids, cell));
                let other_seed = other_seed(declaration, grid, cell.seed);
                let is_of_other_seed = foreign.is_none() && other_seed.is_some();
                let reason = foreign
                    .or(other_seed)
                    .or_else(|| failed(cell))
                    .or_else(|| suspects.get(&index).cloned())
                    .or_else(|| (!seeds.insert(cell.seed)).then(|| SECOND.to_string()));
                match reason {
                    Some(reason) => {
                        let one = Excluded::new(cell, Some(&id), reason);
                        excluded.push(Excluded { is_of_other_seed, ..one });
                    }
                    None => candidates.push((arm, index)),
                }
            }
        }
        for (arm, index, reason) in strangers(&candidates, cells) {
            let id = format!("{}/{}", grid.name, arm.name);
            match reason {
                Some(reason) => excluded.push(Excluded::new(&cells[index], Some(&id), reason)),
                None => members.entry(id).or_default().push(index),
            }
        }
    }
    let arms: Vec<&Arm> = grids.iter().flat_map(|grid| &grid.arms).collect();
    let is_known = |cell: &Cell| arms.iter().any(|arm| arm.arm_sha256 == cell.arm_sha256);
    for cell in cells.iter().filter(|cell| !is_known(cell)) {
        let reason = format!("its arm `{}` is in no grid of the study", cell.name);
        excluded.push(Excluded::new(cell, None, reason));
    }
    for indices in members.values_mut() {
        indices.sort_by_key(|index| cells[*index].seed);
    }
    excluded.sort();
    (members, excluded)
}

/// Cells that would count if no other cell existed.
fn candidates(declaration: &Declaration, grids: &[Grid], cells: &[Cell]) -> BTreeSet<usize> {
    let counts = |cell: &Cell| {
        let mut of_arm = grids
            .iter()
            .filter(|grid| grid.arms.iter().any(|arm| arm.arm_sha256 == cell.arm_sha256));
        let counts = |grid| other_seed(declaration, grid, cell.seed).is_none();
        failed(cell).is_none() && of_arm.any(counts)
    };
    (0..cells.len()).filter(|index| counts(&cells[*index])).collect()
}

fn other_seed(declaration: &Declaration, grid: &Grid, seed: u64) -> Option<String> {
    if declaration.tuning_seeds.contains(&seed) {
        return Some(format!("seed {seed} is a tuning seed"));
    }
    let expected = expected_seeds(declaration, grid);
    (!expected.contains(&seed))
        .then(|| format!("seed {seed} is not one of the study's: {expected:?}"))
}

fn failed(cell: &Cell) -> Option<String> {
    (cell.ending == CellEnding::Failed).then(|| format!("the run failed: {}", cell.reason))
}

fn misnamed(grids: &[Grid], cell: &Cell) -> Option<String> {
    let (grid, arm) = cell.name.split_once('.')?;
    let arm = grids.iter().find(|it| it.name == grid)?.arm(arm)?;
    (arm.arm_sha256 != cell.arm_sha256)
        .then(|| format!("its run was of `{}`, which is another arm here", cell.name))
}

/// Arms that declare the same inputs must have read the same files with the same harness; where
/// each seed has its own base policy, this holds within a seed.
fn strangers<'a>(
    candidates: &[(&'a Arm, usize)],
    cells: &[Cell],
) -> Vec<(&'a Arm, usize, Option<String>)> {
    let mut groups: BTreeMap<ArmReads, Vec<(&'a Arm, usize)>> = BTreeMap::new();
    for (arm, index) in candidates {
        let inputs = files::canonical_json_line(&arm.experiment.inputs);
        let of_seed = arm.experiment.has_base_of_seed().then_some(cells[*index].seed);
        groups.entry((inputs, of_seed)).or_default().push((arm, *index));
    }
    let mut judged = Vec::new();
    for group in groups.values() {
        let facts: Vec<BTreeMap<String, String>> =
            group.iter().map(|(_, index)| facts(&cells[*index])).collect();
        let common = most_common(&facts);
        for ((arm, index), own) in group.iter().zip(&facts) {
            judged.push((*arm, *index, difference(&common, own)));
        }
    }
    judged
}

/// Facts that must agree in cells that are compared.
fn facts(cell: &Cell) -> BTreeMap<String, String> {
    let inputs = cell.inputs.iter().map(|(name, digest)| (name.clone(), digest.clone()));
    let problems = cell.problems.iter().map(|(set, ids)| {
        let tags = files::sha256(files::canonical_json_line(&ids.tags).as_bytes());
        (format!("problems of {set}"), format!("{} of {}, tags {tags}", ids.sha256, ids.count))
    });
    let harness = ("harness".to_string(), cell.harness.clone());
    inputs.chain(problems).chain([harness]).collect()
}

/// Each fact's most frequent value; ties take the smallest, the last one here.
fn most_common(facts: &[BTreeMap<String, String>]) -> BTreeMap<String, String> {
    let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for own in facts {
        for (name, value) in own {
            *counts.entry(name).or_default().entry(value).or_default() += 1;
        }
    }
    let most = |values: BTreeMap<&str, usize>| {
        let most = values.into_iter().rev().max_by_key(|(_, count)| *count);
        most.map_or(String::new(), |(value, _)| value.to_string())
    };
    counts.into_iter().map(|(name, values)| (name.to_string(), most(values))).collect()
}

/// A set that the cell did not evaluate is no difference.
fn difference(common: &BTreeMap<String, String>, own: &BTreeMap<String, String>) -> Option<String> {
    let differing = own.iter().find(|(name, value)| common.get(*name) != Some(*value));
    differing.map(|(name, value)| {
        let short = |text: &str| text.chars().take(12).collect::<String>();
        let other = common.get(name).map_or("absent".to_string(), |text| short(text));
        format!("its `{name}` is {}, that of most cells of the grid {other}", short(value))
    })
}
