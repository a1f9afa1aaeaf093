//! Tables of `dapo ablate` and `dapo runs cells`.

use crate::base::visible;
use crate::commands::output::{duration, literal, table};
use crate::experiment::{Arm, Grid, grid::differences, grid::file::BaseSource, sets};
use crate::report::text::points;
use crate::statistics::between;
use crate::study::{Cell, CellEnding, Job};
use std::collections::{BTreeMap, BTreeSet};

/// Each arm with the keys that differ from the arm that it is applied to.
pub fn arms(source: &BaseSource) -> String {
    let grid = &source.grid;
    let mut text = format!("{}: {}\n", grid.name, visible::visible(&grid.question));
    for arm in &grid.arms {
        let after = arm.after.as_deref().unwrap_or("base");
        text += &format!(
            "\n{}  {}  {}\n",
            arm.name,
            arm.arm_sha256.get(..12).unwrap_or_default(),
            visible::visible(&arm.label)
        );
        let found = differences(source.before(arm), &arm.experiment);
        if found.is_empty() {
            text += &format!("  as {after}\n");
        }
        for it in found {
            let change = format!("{} → {}", literal(it.a.as_ref()), literal(it.b.as_ref()));
            text += &format!("  {after} → {}: {}\n", it.key, visible::visible(&change));
        }
    }
    text
}

/// More seeds are counted.
const MOST_COLUMNS: usize = 16;

/// Arm × seed, by `names`. With many seeds: numbers of jobs by state.
pub fn states(grid: &Grid, jobs: &[Job], names: &[String]) -> String {
    let key = |job: &Job| (job.manifest.arm_sha256.clone(), job.manifest.seed);
    let of: BTreeMap<(String, u64), &String> = jobs.iter().map(key).zip(names).collect();
    let state = |arm: &Arm, seed: u64| of.get(&(arm.arm_sha256.clone(), seed)).copied();
    if grid.seeds.len() <= MOST_COLUMNS {
        let header = std::iter::once("arm".to_string())
            .chain(grid.seeds.iter().map(|seed| format!("seed {seed}")));
        let rows = grid.arms.iter().map(|arm| {
            let states =
                grid.seeds.iter().map(|seed| state(arm, *seed).cloned().unwrap_or_default());
            std::iter::once(arm.name.clone()).chain(states).collect::<Vec<_>>()
        });
        return table(header, [], rows).to_string();
    }
    let rows = grid.arms.iter().map(|arm| {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for name in grid.seeds.iter().filter_map(|seed| state(arm, *seed)) {
            // At any step.
            *counts.entry(name.split(", ").next().unwrap_or_default()).or_default() += 1;
        }
        let counts = counts.into_iter().map(|(name, count)| format!("{count} {name}"));
        [arm.name.clone(), grid.seeds.len().to_string(), counts.collect::<Vec<_>>().join(", ")]
    });
    table(["arm", "seeds", "cells"], [1], rows).to_string()
}

/// Uses measured cells of the same arm, else the mean of all.
pub fn cost(jobs: &[Job], measured: &[Cell], at_once: usize) -> String {
    let left: Vec<&Job> = jobs.iter().filter(|job| job.state.cell().is_none()).collect();
    let head = format!("{} cells, {} to run", jobs.len(), left.len());
    if left.is_empty() {
        return head;
    }
    let whole = |of: &dyn Fn(&&Cell) -> bool| {
        mean(measured.iter().filter(of).map(|cell| cell.wall_seconds)).map(|(mean, _)| mean)
    };
    let Some(any) = whole(&|_| true) else {
        return format!("{head}; the first cell that ends shows what one takes");
    };
    let seconds = left.iter().map(|job| {
        let same = whole(&|cell| cell.arm_sha256 == job.manifest.arm_sha256);
        same.unwrap_or(any) * (1.0 - job.share_done()).max(0.0)
    });
    let (seconds, at_once) = (seconds.sum::<f64>(), at_once.min(left.len()) as f64);
    format!(
        "{head}: {} of one core, {} with {at_once} at a time (from the cells on record)",
        duration(seconds),
        duration(seconds / at_once)
    )
}

/// Arm × set: mean over seeds of the last avg@k in percent, with both budgets and endings. `cells`
/// may hold others too; failed cells count only as endings. Intervals and tests are the report's.
pub fn summary(grid: &Grid, cells: &[&Cell]) -> String {
    let of_arm = |hash: &str| -> Vec<&Cell> {
        let wanted = |cell: &&&Cell| cell.arm_sha256 == hash && grid.seeds.contains(&cell.seed);
        cells.iter().filter(wanted).copied().collect()
    };
    let known = grid.arms.iter().flat_map(|arm| of_arm(&arm.arm_sha256));
    let sets: BTreeSet<&String> = known.flat_map(|cell| cell.problems.keys()).collect();
    let mut sets: Vec<&String> = sets.into_iter().collect();
    sets.sort_by_key(|set| *set != sets::DEV);
    let mut header = vec![grid.name.clone()];
    header.extend(sets.iter().map(|set| format!("{set} %")));
    header.extend(["updates", "rollouts", "cells"].map(String::from));
    let seeds = grid.seeds.len();
    let rows = grid.arms.iter().map(|arm| {
        let all = of_arm(&arm.arm_sha256);
        let valid = || all.iter().filter(|cell| cell.ending != CellEnding::Failed);
        let score = |set: &&String| {
            let last = |cell: &&Cell| Some(cell.last_evaluation(set)?.avg_at_k());
            match mean(valid().filter_map(last)) {
                Some((mean, count)) if count == seeds => points(mean),
                Some((mean, count)) => format!("{} ({count} of {seeds})", points(mean)),
                None => "—".to_string(),
            }
        };
        let rounded = |mean: Option<(f64, usize)>| {
            mean.map_or("—".to_string(), |(mean, _)| format!("{mean:.0}"))
        };
        let updates = valid().filter_map(|cell| Some(cell.counters.last()?.updates as f64));
        let generated =
            |cell: &&Cell| cell.evaluations.iter().map(|it| it.generated_rollouts).max();
        let generated = valid().filter_map(generated).map(|rollouts| rollouts as f64);
        let mut endings: BTreeMap<&str, usize> = BTreeMap::new();
        for cell in &all {
            *endings.entry(cell.ending.name()).or_default() += 1;
        }
        let missing = seeds.saturating_sub(all.len());
        let missing = (missing > 0).then_some(("missing", missing));
        let endings = endings.into_iter().chain(missing);
        let endings = endings.map(|(ending, count)| format!("{count} {ending}"));
        std::iter::once(arm.label.clone())
            .chain(sets.iter().map(score))
            .chain([rounded(mean(updates)), rounded(mean(generated))])
            .chain([endings.collect::<Vec<_>>().join(", ")])
            .collect::<Vec<_>>()
    });
    table(&header, 1..header.len() - 1, rows).to_string()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<(f64, usize)> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| (sum / count as f64, count))
}

/// `set avg@k` of last evaluations, in percent.
pub fn scores(cell: &Cell) -> String {
    let score =
        |set: &String| Some(format!("{set} {}", points(cell.last_evaluation(set)?.avg_at_k())));
    cell.problems.keys().filter_map(score).collect::<Vec<_>>().join(", ")
}

/// What an arm of so many seeds can show of one comparison.
pub fn evidence(seeds: usize) -> String {
    let (alpha, power) = (0.05, 0.8);
    let p = between::smallest_p(seeds, seeds);
    let effect = between::minimum_detectable_effect(1.0, seeds, seeds, alpha, power);
    let start = format!("with {seeds} seeds an arm the smallest p of a comparison is {p:.4}");
    if p <= alpha && seeds >= between::FEWEST_RUNS && effect.is_finite() {
        format!(
            "{start}; a difference of {effect:.1} standard deviations between training runs is found in \
             80 % of cases (p at most {alpha}, if it is the only comparison)"
        )
    } else {
        format!(
            "{start}: so few can show no difference and decide no gate; from {} seeds on they can",
            between::FEWEST_RUNS
        )
    }
}

/// The cells of a study, one a line.
pub fn cells(cells: &[Cell], names: &BTreeMap<String, Vec<String>>) -> String {
    let header = ["cell", "arms", "seed", "ending", "steps", "updates", "accuracy %", "time"];
    let rows = cells.iter().map(|cell| {
        [
            cell.file_name().trim_end_matches(".json").to_string(),
            names.get(&cell.arm_sha256).map_or(cell.name.clone(), |names| names.join(" ")),
            cell.seed.to_string(),
            cell.ending.name().to_string(),
            cell.counters.len().to_string(),
            cell.counters.last().map_or(0, |counters| counters.updates).to_string(),
            scores(cell),
            duration(cell.wall_seconds),
        ]
    });
    table(header, [2, 4, 5, 7], rows).to_string()
}
