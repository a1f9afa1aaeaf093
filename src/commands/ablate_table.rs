//! Tables of `dapo ablate` and `dapo runs cells`.

use crate::base::visible;
use crate::experiment::Grid;
use crate::experiment::grid::differences;
use crate::experiment::grid::file::BaseSource;
use crate::study::ablate::jobs::JobState;
use crate::study::ablate::summary::AblateSummary;
use crate::study::{Cell, Job};
use crate::training::plan;
use crate::training::run::inputs;
use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use std::collections::BTreeMap;
use std::path::Path;

/// A table in the style of the other verbs.
fn table(header: &[String]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header);
    table
}

fn right(table: &mut Table, columns: impl IntoIterator<Item = usize>) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// Each arm with every key in which it differs from the arm that it is applied to.
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
        let shown = |value: &Option<serde_json::Value>| {
            value.as_ref().map_or("absent".to_string(), ToString::to_string)
        };
        for it in found {
            let (a, b) = (shown(&it.a), shown(&it.b));
            text +=
                &format!("  {after} → {}: {}\n", it.key, visible::visible(&format!("{a} → {b}")));
        }
    }
    text
}

/// Arm × seed: what is there.
pub fn states(grid: &Grid, jobs: &[Job]) -> Table {
    let mut header = vec!["arm".to_string()];
    header.extend(grid.seeds.iter().map(|seed| format!("seed {seed}")));
    let mut table = table(&header);
    for arm in &grid.arms {
        let mut row = vec![arm.name.clone()];
        for seed in &grid.seeds {
            let is = |job: &&Job| {
                job.manifest.arm_sha256 == arm.arm_sha256 && job.manifest.seed == *seed
            };
            row.push(jobs.iter().find(is).map_or(String::new(), |job| job.state.name()));
        }
        table.add_row(row);
    }
    table
}

/// What the cells that are left will take: as the measured ones of the same arm, as the mean of all
/// measured ones, or as a probe of each arm says.
///
/// # Errors
/// A probe that fails.
pub fn cost(jobs: &[Job], measured: &[Cell], no_probe: bool, at_once: usize) -> Result<String> {
    let left: Vec<&Job> = jobs.iter().filter(|job| job.state.cell().is_none()).collect();
    let head = format!("{} cells, {} to run", jobs.len(), left.len());
    if left.is_empty() {
        return Ok(head);
    }
    let mean = |cells: Vec<&Cell>| -> Option<f64> {
        let sum: f64 = cells.iter().map(|cell| cell.wall_seconds).sum();
        (!cells.is_empty()).then(|| sum / cells.len() as f64)
    };
    let any = mean(measured.iter().collect());
    if any.is_none() && no_probe {
        return Ok(format!("{head}; what they cost was not measured"));
    }
    let mut of_arm: BTreeMap<&str, f64> = BTreeMap::new();
    let mut seconds = 0.0;
    for job in &left {
        let hash = job.manifest.arm_sha256.as_str();
        let whole = match of_arm.get(hash) {
            Some(whole) => *whole,
            None => {
                let same = measured.iter().filter(|cell| cell.arm_sha256 == hash).collect();
                let whole = match mean(same).or(any) {
                    Some(seconds) => seconds,
                    None => probed(job)?,
                };
                of_arm.insert(hash, whole);
                whole
            }
        };
        let done = match job.state {
            JobState::Unfinished { steps } => steps as f64 / job.steps().max(1) as f64,
            JobState::Ended => 1.0,
            _ => 0.0,
        };
        seconds += whole * (1.0 - done).max(0.0);
    }
    let by = if any.is_some() { "from the cells on record" } else { "from a probe of each arm" };
    let at_once = at_once.min(left.len()) as f64;
    Ok(format!(
        "{head}: {} of one core, {} with {at_once} at a time ({by})",
        duration(seconds),
        duration(seconds / at_once)
    ))
}

/// Seconds of a run with one thread, from a probe of a few seconds.
fn probed(job: &Job) -> Result<f64> {
    eprintln!("{}", visible::message(&format!("measuring {}", job.title())));
    let inputs = inputs::prepare(job.experiment.clone())?;
    let plan = plan::make(&inputs, Path::new("runs"), true)?;
    let estimate = plan.estimates.map(|estimates| estimates.expected);
    Ok(estimate.and_then(|it| it.seconds.get("total").copied()).unwrap_or(f64::NAN))
}

/// `42 s`, `7 min`, `1.5 h`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        _ if seconds < 99.5 => format!("{seconds:.0} s"),
        _ if seconds < 5970.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// Arm × set: mean over seeds of the last evaluation's avg@k in percent, with both budgets and how
/// the cells ended.
pub fn summary(grid: &Grid, summary: &AblateSummary) -> String {
    let mut header = vec![grid.name.clone()];
    header.extend(summary.sets.iter().map(|set| format!("{} %", visible::visible(set))));
    header.extend(["updates", "rollouts", "cells"].map(String::from));
    let mut table = table(&header);
    let seeds = grid.seeds.len() as u64;
    for row in &summary.rows {
        let mut cells = vec![visible::visible(&row.label)];
        cells.extend(row.scores.iter().map(|score| match score {
            Some((mean, count)) if *count == seeds => format!("{:.1}", 100.0 * mean),
            Some((mean, count)) => format!("{:.1} ({count} of {seeds})", 100.0 * mean),
            None => "—".to_string(),
        }));
        let count = |value: Option<f64>| value.map_or("—".to_string(), |it| format!("{it:.0}"));
        cells.extend([count(row.updates), count(row.generated_rollouts)]);
        let mut endings: Vec<String> =
            row.endings.iter().map(|(ending, count)| format!("{count} {ending}")).collect();
        if row.missing > 0 {
            endings.push(format!("{} missing", row.missing));
        }
        cells.push(endings.join(", "));
        table.add_row(cells);
    }
    right(&mut table, 1..header.len() - 1);
    table.to_string()
}

/// The cells of a study, one a line.
pub fn cells(cells: &[Cell], names: &BTreeMap<String, Vec<String>>) -> Table {
    let header = ["cell", "arms", "seed", "ending", "steps", "updates", "accuracy %", "time"];
    let mut table = table(&header.map(String::from));
    for cell in cells {
        let arms = names.get(&cell.arm_sha256).map(|names| names.join(" "));
        let accuracy: Vec<String> = cell
            .problems
            .keys()
            .filter_map(|set| {
                let score = cell.last_evaluation(set)?.avg_at_k();
                Some(format!("{} {:.1}", visible::visible(set), 100.0 * score))
            })
            .collect();
        table.add_row([
            cell.file_name().trim_end_matches(".json").to_string(),
            visible::visible(&arms.unwrap_or_else(|| cell.name.clone())),
            cell.seed.to_string(),
            crate::study::ablate::summary::ending(cell.ending).to_string(),
            cell.counters.len().to_string(),
            cell.counters.last().map_or(0, |counters| counters.updates).to_string(),
            accuracy.join(", "),
            duration(cell.wall_seconds),
        ]);
    }
    right(&mut table, [2, 4, 5, 7]);
    table
}
