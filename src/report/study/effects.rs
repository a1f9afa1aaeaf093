//! Is each technique doing something? The checks of a run's report, over all runs of an arm.

use crate::records::StepMetrics;
use crate::report::study::page::{Block, Column, Section, Table};
use crate::report::{Context, Look, TableCell, text};
use crate::study::effect_checks::{self, Finding, Verdict};
use crate::study::{Cell, Effects};
use std::collections::BTreeMap;

/// The chapter.
pub fn section(context: &Context) -> Section {
    let mut blocks = vec![Block::Text(
        "What the records show of each technique, read from rollouts, batches and losses and never \
         from the switch. \u{201c}on, acted 3 of 3\u{201d}: the technique is on, and changed the training in \
         all three runs. A technique that is on and did nothing, or off and acted, is a warning."
            .to_owned(),
    )];
    let mut warnings = Vec::new();
    for grid in &context.analysis.grids {
        let mut techniques: Vec<&'static str> = Vec::new();
        let checked: Vec<(String, Vec<Effects>)> = grid
            .arms
            .iter()
            .map(|arm| {
                let cells = context.study.cells_of(&arm.id);
                (arm.id.clone(), cells.into_iter().map(check).collect())
            })
            .collect();
        for effects in checked.iter().flat_map(|(_, effects)| effects) {
            for finding in &effects.findings {
                if !techniques.contains(&finding.technique) {
                    techniques.push(finding.technique);
                }
            }
        }
        for (id, effects) in &checked {
            warnings.extend(arm_warnings(context, id, effects));
        }
        blocks.push(Block::Table(table(context, &grid.name, &techniques, &checked)));
    }
    match warnings.is_empty() {
        true => blocks.push(Block::Text("No run has a warning.".into())),
        false => {
            blocks.push(Block::Heading("Warnings".into()));
            warnings.sort();
            warnings.dedup();
            blocks.push(Block::List(warnings));
        }
    }
    Section { id: "effects".into(), title: "Is each technique doing something?".into(), blocks }
}

/// The checks of one record.
fn check(cell: &Cell) -> Effects {
    let step = |(index, counters): (usize, &crate::records::run_folder::Counters)| StepMetrics {
        step: counters.rollout_steps,
        counters: *counters,
        metrics: cell
            .metrics
            .iter()
            .filter_map(|(name, values)| Some((name.clone(), (*values.get(index)?)?)))
            .collect(),
    };
    let metrics: Vec<StepMetrics> = cell.counters.iter().enumerate().map(step).collect();
    effect_checks::check(&cell.experiment, &metrics)
}

/// Each warning with the number of runs that have it.
fn arm_warnings(context: &Context, id: &str, effects: &[Effects]) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for effects in effects {
        for finding in effects.findings.iter().filter(|finding| finding.warning().is_some()) {
            let what = match finding.verdict {
                Verdict::EnabledButDidNothing => "is on and did nothing",
                _ => "is off and acted",
            };
            *counts.entry(format!("{} {what}", finding.technique)).or_default() += 1;
        }
        for named in &effects.named_warnings {
            *counts.entry(named.name.to_owned()).or_default() += 1;
        }
    }
    let total = effects.len();
    counts
        .into_iter()
        .map(|(what, count)| {
            format!("{}: {} in {count} of {total} runs", context.label(id), text::visible(&what))
        })
        .collect()
}

fn table(
    context: &Context,
    grid: &str,
    techniques: &[&'static str],
    checked: &[(String, Vec<Effects>)],
) -> Table {
    let mut columns = vec![Column::text("arm")];
    columns.extend(techniques.iter().map(|technique| Column::text(*technique)));
    let rows = checked.iter().map(|(id, effects)| {
        let mut row = vec![TableCell::plain(context.label(id))];
        row.extend(techniques.iter().map(|technique| summary(effects, technique)));
        row
    });
    Table {
        rows: rows.collect(),
        caption: format!("{}: what each technique did.", text::visible(grid)),
        columns,
    }
}

fn summary(effects: &[Effects], technique: &str) -> TableCell {
    let findings: Vec<&Finding> = effects
        .iter()
        .flat_map(|effects| &effects.findings)
        .filter(|finding| finding.technique == technique)
        .collect();
    let Some(first) = findings.first() else { return TableCell::missing("no run") };
    let count = |verdict: Verdict| findings.iter().filter(|it| it.verdict == verdict).count();
    let total = findings.len();
    let unknown = count(Verdict::NotRecorded);
    let switch = if first.enabled { "on" } else { "off" };
    if unknown == total {
        return TableCell::missing(format!("{switch}, not recorded"));
    }
    let acted = count(Verdict::Acted) + count(Verdict::DisabledButActed);
    let wrong = count(Verdict::EnabledButDidNothing) + count(Verdict::DisabledButActed);
    let cell = match (first.enabled, acted) {
        (false, 0) => TableCell::missing("off"),
        _ => TableCell::value(
            format!("{switch}, acted {acted} of {total}"),
            [acted as f64, total as f64],
        ),
    };
    match (wrong > 0, first.enabled) {
        (true, _) => cell.looking(Look::Bad),
        (false, true) => cell.looking(Look::Good),
        (false, false) => cell,
    }
}
