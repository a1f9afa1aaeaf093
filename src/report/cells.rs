//! What a grid's arms are, how far its cells are, and what they reached: for a terminal.

use crate::experiment::grid::file::BaseSource;
use crate::experiment::{Arm, Grid, grid::differences, sets};
use crate::records::CellKey;
use crate::report::page::{Block, Section, Table, TableCell, row};
use crate::report::text::{self, points};
use crate::statistics::{Measured, between, needed};
use crate::study::collection::Study;
use crate::study::{Cell, CellEnding, Declaration, Excluded, Job, membership};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Each arm with the keys that differ from the arm that it is applied to.
pub fn arms(source: &BaseSource) -> Section {
    let grid = &source.grid;
    let title = format!("{}: {}", text::visible(&grid.name), text::visible(&grid.question));
    let blocks = grid.arms.iter().flat_map(|arm| arm_blocks(source, arm));
    Section::new(&grid.name, &title, blocks.collect())
}

fn arm_blocks(source: &BaseSource, arm: &Arm) -> [Block; 2] {
    let after = text::visible(arm.after.as_deref().unwrap_or("base"));
    let differences = differences(source.before(arm), &arm.experiment);
    let differences = differences.iter().map(|it| {
        let [before, own] = [&it.a, &it.b].map(|value| text::literal(value.as_ref()));
        format!("{after} → {}: {before} → {own}", it.key)
    });
    let mut lines: Vec<String> = differences.collect();
    if lines.is_empty() {
        lines.push(format!("as {after}"));
    }
    let [name, label] = [&arm.name, &arm.label].map(|text| text::visible(text));
    let heading = format!("{name}  {}  {label}", text::short_digest(&arm.arm_sha256));
    [Block::Heading(heading), Block::List(lines)]
}

/// More seeds are counted.
const MOST_COLUMNS: usize = 16;

/// Arm × seed, by the name of each job's state. With many seeds: numbers of jobs by state.
pub fn states(grid: &Grid, jobs: &[Job], names: &[String]) -> Table {
    let key = |job: &Job| (job.manifest.arm_sha256.clone(), job.manifest.seed);
    let by_key: BTreeMap<(String, u64), &str> =
        jobs.iter().map(key).zip(names.iter().map(String::as_str)).collect();
    let state = |arm: &Arm, seed: u64| by_key.get(&(arm.arm_sha256.clone(), seed)).copied();
    let seeds = &grid.seeds;
    if seeds.len() > MOST_COLUMNS {
        let rows = grid.arms.iter().map(|arm| {
            let names = seeds.iter().filter_map(|seed| state(arm, *seed));
            let states = names.map(|name| name.split(", ").next().unwrap_or_default());
            row![
                text::visible(&arm.name),
                seeds.len().to_string(),
                text::tally(states, |name| name)
            ]
        });
        return Table::new("", "arm | seeds # | cells", rows);
    }
    let rows = grid.arms.iter().map(|arm| {
        let states = seeds.iter().map(|seed| state(arm, *seed).unwrap_or_default().into());
        row![text::visible(&arm.name)].into_iter().chain(states).collect()
    });
    Table::new("", "arm", rows).with(seeds.iter().map(|seed| format!("seed {seed}")))
}

/// Path, the arms that it counts for, and the record.
pub type KeptRecord<'a> = (PathBuf, Vec<String>, &'a Cell);

pub fn counting<'a>(cells: &Path, study: &'a Study) -> Vec<KeptRecord<'a>> {
    let mut records: BTreeMap<PathBuf, KeptRecord> = BTreeMap::new();
    for (id, _) in study.arms() {
        for cell in study.cells_of(&id) {
            let path = cells.join(cell.file_name());
            let record = records.entry(path.clone()).or_insert((path, Vec::new(), cell));
            record.1.push(id.clone());
        }
    }
    records.into_values().collect()
}

pub fn further<'a>(jobs: &[Job], records: &'a [KeptRecord<'a>]) -> Vec<&'a KeptRecord<'a>> {
    let own: BTreeSet<&PathBuf> = jobs.iter().map(|job| &job.record).collect();
    records.iter().filter(|(path, ..)| !own.contains(path)).collect()
}

/// Each cell with its state, and its accuracies once it is on record; [`further`] records come after those of `jobs`.
pub fn document(jobs: &[Job], states: &[String], records: &[KeptRecord]) -> Value {
    let scores = |cell: &Cell| {
        let last = |set: &String| Some((set.clone(), cell.last_evaluation(set)?.avg_at_k()));
        cell.problems.keys().filter_map(last).collect::<BTreeMap<String, f64>>()
    };
    let by_path: BTreeMap<&PathBuf, &Cell> =
        records.iter().map(|(path, _, cell)| (path, *cell)).collect();
    let of_job = |(job, state): (&Job, &String)| {
        let cell = job.state.cell().or_else(|| by_path.get(&job.record).copied());
        json!({
            "arms": job.arms, "arm_sha256": job.manifest.arm_sha256, "seed": job.manifest.seed,
            "run_key": job.manifest.run_key, "state": state, "record": job.record, "avg_at_k": cell.map(scores)
        })
    };
    let further = further(jobs, records).into_iter().map(|(record, arms, cell)| {
        json!({
            "arms": arms, "arm_sha256": cell.arm_sha256, "seed": cell.seed, "run_key": cell.run_key,
            "state": cell.ending.name(), "record": record, "avg_at_k": scores(cell)
        })
    });
    json!({"cells": jobs.iter().zip(states).map(of_job).chain(further).collect::<Vec<_>>()})
}

/// What the cells that are left take: each as long as the measured cells of its arm, else as all of them.
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
        text::duration(seconds),
        text::duration(seconds / at_once)
    )
}

/// Arm × set: mean over the runs that count of the last avg@k in percent, with both budgets and the endings of all.
/// Intervals and tests are the report's.
pub fn summary(study: &Study, grid: &Grid) -> Table {
    let cells = membership::arms_of(grid).flat_map(|(id, _)| study.cells_of(&id));
    let mut sets: Vec<&String> = cells.flat_map(|cell| cell.problems.keys()).collect();
    sets.sort_by_key(|set| (*set != sets::DEV, *set));
    sets.dedup();
    let rows = membership::arms_of(grid).map(|(id, arm)| summary_row(study, &id, arm, &sets));
    let scores = sets.iter().map(|set| format!("{} % #", text::visible(set)));
    let budgets = ["updates # ?", "rollouts # ?", "cells"].map(String::from);
    Table::new("", &grid.name, rows).with(scores.chain(budgets))
}

fn summary_row(study: &Study, id: &str, arm: &Arm, sets: &[&String]) -> Vec<TableCell> {
    let (cells, missing) = (study.cells_of(id), study.missing_seeds(id));
    let seeds = cells.len() + missing.len();
    let score = |set: &&String| {
        let last = |cell: &&Cell| Some(cell.last_evaluation(set)?.avg_at_k());
        match mean(cells.iter().filter_map(last)) {
            Some((mean, count)) if count == seeds => points(mean),
            Some((mean, count)) => format!("{} ({count} of {seeds})", points(mean)),
            None => "–".to_string(),
        }
    };
    let budget = |of: &dyn Fn(&Cell) -> Option<u64>| {
        let mean = mean(cells.iter().filter_map(|cell| of(cell)).map(|count| count as f64));
        mean.map_or("–".to_string(), |(mean, _)| format!("{mean:.0}"))
    };
    let updates = budget(&|cell| Some(cell.counters.last()?.updates));
    let rollouts = budget(&|cell| cell.evaluations.iter().map(|it| it.generated_rollouts).max());
    let without = missing.iter().map(|seed| {
        let is_own = |it: &&Excluded| it.arm.as_deref() == Some(id) && it.seed == Some(*seed);
        match study.excluded.iter().find(is_own) {
            Some(excluded) if excluded.failed => CellEnding::Failed.name(),
            Some(_) => "does not count",
            None => "missing",
        }
    });
    let endings = cells.iter().map(|cell| cell.ending.name()).chain(without);
    let endings = text::tally(endings, |name| name);
    std::iter::once(text::visible(&arm.label))
        .chain(sets.iter().map(score))
        .chain([updates, rollouts, endings])
        .map(TableCell::from)
        .collect()
}

fn mean(values: impl Iterator<Item = f64>) -> Option<(f64, usize)> {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| (sum / count as f64, count))
}

/// `set avg@k` of last evaluations, in percent.
pub fn scores(cell: &Cell) -> String {
    let score =
        |set: &String| Some(format!("{set} {}", points(cell.last_evaluation(set)?.avg_at_k())));
    text::joined(cell.problems.keys().filter_map(score), ", ")
}

/// What an arm of so many seeds can show of one comparison.
pub fn evidence(seeds: usize, declaration: &Declaration) -> String {
    let (alpha, level) = (alpha_of_both(declaration), level_words(declaration));
    let effect = detectable(seeds, declaration);
    // Sign flips of the differences within seeds, or splits of independent runs.
    let (p, of, spread, none) = if declaration.paired {
        let p = (2.0 / (1u64 << seeds.min(62)) as f64).min(1.0);
        (p, ", paired,", "of the differences within seeds", Measured::Blocks(Vec::new()))
    } else {
        let none = Measured::Runs(Vec::new(), Vec::new());
        (between::smallest_p(seeds, seeds), " an arm", "between training runs", none)
    };
    let unit = if seeds == 1 { "seed" } else { "seeds" };
    let start =
        format!("with {seeds} {unit}{of} the smallest possible p of a comparison is {p:.4}");
    let has_interval = seeds >= between::FEWEST_RUNS;
    if p <= alpha && has_interval && effect.is_finite() {
        let power = 100.0 * declaration.power;
        return format!(
            "{start}; a difference of {effect:.1} standard deviations {spread} is found in {power:.0} % of cases ({level})"
        );
    }
    let needs = if has_interval { format!(" ({level})") } else { String::new() };
    let fewest = needed::fewest(&none, alpha);
    format!(
        "{start}: these are too few to show a difference or to decide a gate{needs}; {fewest} seeds are enough"
    )
}

/// In standard deviations between runs, or of the differences within seeds.
fn detectable(seeds: usize, declaration: &Declaration) -> f64 {
    let (alpha, power) = (alpha_of_both(declaration), declaration.power);
    if declaration.paired {
        between::minimum_detectable_effect_of_blocks(1.0, seeds, alpha, power)
    } else {
        between::minimum_detectable_effect(1.0, seeds, seeds, alpha, power)
    }
}

/// Of the largest family: Holm asks the first of them for α divided by their number.
fn comparisons(declaration: &Declaration) -> usize {
    let sizes = declaration.families.iter().map(|family| family.comparisons.len());
    sizes.max().unwrap_or(1).max(1)
}

fn first_alpha(declaration: &Declaration) -> f64 {
    declaration.alpha / comparisons(declaration) as f64
}

fn alpha_of_both(declaration: &Declaration) -> f64 {
    let (alpha, of_interval) = (first_alpha(declaration), 1.0 - declaration.level);
    if of_interval < alpha - 1e-12 { of_interval } else { alpha }
}

fn level_words(declaration: &Declaration) -> String {
    let (first, alpha) = (first_alpha(declaration), declaration.alpha);
    let interval = if alpha_of_both(declaration) < first {
        format!(" and a {} interval beside 0", text::level(declaration.level))
    } else {
        String::new()
    };
    match comparisons(declaration) {
        1 => format!("with p at most {alpha}{interval}, if it is the only comparison"),
        several => format!(
            "with p at most {}{interval}: {alpha} over the {several} comparisons of the largest family, as Holm's first step asks",
            text::p_value(first)
        ),
    }
}

/// The cells of a study, one a line, with every `<grid>/<arm>` that each is a cell of.
pub fn listed(cells: &[Cell], keys: &[CellKey]) -> Table {
    let rows = cells.iter().zip(keys).map(|(cell, key)| {
        row![
            text::visible(&key.cell),
            text::visible(&key.arms),
            key.seed.to_string(),
            cell.ending.name(),
            cell.counters.len().to_string(),
            cell.counters.last().map_or(0, |counters| counters.updates).to_string(),
            text::visible(&scores(cell)),
            text::duration(cell.wall_seconds),
        ]
    });
    let columns =
        "cell | arms | seed # ? | ending | steps # ? | updates # ? | accuracy % | time # ?";
    Table::new("", columns, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_takes_the_interval_into_account() {
        let own = Declaration::undeclared(&[], "", "");
        let paired = Declaration { paired: true, level: 0.99, ..own.clone() };
        let six = evidence(6, &paired);
        assert!(six.ends_with("; 8 seeds are enough"), "{six}");
        let eight = evidence(8, &paired);
        let rule =
            "(with p at most 0.05 and a 99 % interval beside 0, if it is the only comparison)";
        assert!(eight.contains(" is found in 80 % of cases ") && eight.ends_with(rule), "{eight}");
        assert!(detectable(8, &paired) > detectable(8, &Declaration { paired: true, ..own }));
    }
}
