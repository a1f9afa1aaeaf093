//! Rows of CSV and lines of JSON, told apart by their runs.

use crate::base::visible;
use crate::records::tables::{TableError, csv_rows};
use crate::records::tracked::csv::WANDB_EXPORT;
use crate::records::tracked::steps::STEPS;
use crate::records::tracked::{CLOCKS, SECONDS, TIMES, TrackedRun};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Columns that tell the runs of a file apart, best first; dapo's own tables have `arms` and `cell`.
pub const RUNS: [&str; 8] = ["run", "run_name", "name", "arm", "arms", SEED, "run_id", "cell"];
const SEED: &str = "seed";

/// Columns of a long table with the name of a metric, whose value stands in [`VALUE`]: of tbparse, of mlflow, dapo's
/// own and of pandas' melt.
const TAGS: [&str; 4] = ["tag", "key", "metric", "variable"];
const VALUE: &str = "value";

pub struct TrackedRow<'a> {
    pub line: usize,
    pub step: f64,
    pub tag: &'a str,
    pub cells: Vec<(&'a str, Cell<'a>)>,
}

#[derive(Clone, Copy)]
pub enum Cell<'a> {
    Number(f64),
    Text(&'a str),
    Null,
}

impl<'a> TrackedRow<'a> {
    fn cell(&self, name: &str) -> Option<Cell<'a>> {
        self.cells.iter().find(|(column, _)| *column == name).map(|(_, cell)| *cell)
    }

    fn number(&self, name: &str) -> Option<f64> {
        if let Cell::Number(number) = self.cell(name)? { Some(number) } else { None }
    }

    fn numbers(&self) -> impl Iterator<Item = (&'a str, f64)> {
        self.cells.iter().filter_map(|(name, cell)| match cell {
            Cell::Number(number) => Some((*name, *number)),
            Cell::Text(_) | Cell::Null => None,
        })
    }

    fn label(&self, column: &str) -> String {
        match self.cell(column) {
            Some(Cell::Number(number)) => number.to_string(),
            Some(Cell::Text(text)) => text.to_string(),
            Some(Cell::Null) | None => String::new(),
        }
    }
}

pub fn runs(
    path: &Path,
    format: &'static str,
    rows: Vec<TrackedRow>,
    x: Option<&str>,
) -> Result<Vec<TrackedRun>, TableError> {
    if let Some(row) = rows.first().filter(|_| rows.iter().all(has_value_of_name)) {
        let reason =
            "`name` beside `value` may name runs or metrics: call the column `run` or `metric`";
        return Err(csv_rows::at(path, row.line, reason.to_string()));
    }
    let columns = columns_of_runs(&rows);
    let mut rows_by_run: BTreeMap<String, Vec<TrackedRow>> = BTreeMap::new();
    for row in rows {
        rows_by_run.entry(name_of_run(path, &columns, &row)).or_default().push(row);
    }
    let mut runs = Vec::new();
    for (name, mut rows) in rows_by_run {
        let mut seeds: BTreeSet<String> = rows.iter().map(|row| row.label(SEED)).collect();
        seeds.remove("");
        let only = seeds.pop_first().filter(|_| seeds.is_empty());
        let seed = only.and_then(|seed| whole(&seed).parse().ok());
        read_tags(&mut rows, x);
        check_is_one_curve(path, &rows)?;
        runs.push(TrackedRun { seed, ..run(path, format, &name, rows, x) });
    }
    Ok(runs)
}

fn has_value_of_name(row: &TrackedRow) -> bool {
    let names = row.numbers().map(|(name, _)| name).filter(|name| !is_place(name));
    let names: Vec<&str> = names.collect();
    let is_told = ["run", "run_name"].iter().chain(&TAGS).any(|name| row.cell(name).is_some());
    row.cell("name").is_some() && names == [VALUE] && !is_told
}

fn columns_of_runs(rows: &[TrackedRow]) -> Vec<&'static str> {
    let mut columns: Vec<&str> = Vec::new();
    for column in RUNS {
        let labelled = rows.iter().filter(|row| !row.label(column).is_empty());
        let labelled: Vec<&TrackedRow> = labelled.collect();
        let count = |columns: &[&str]| {
            let labels = |row: &TrackedRow| columns.iter().map(|name| row.label(name)).collect();
            let places = labelled.iter().map(|row| (row.step.to_bits(), labels(row)));
            places.collect::<BTreeSet<(u64, Vec<String>)>>().len()
        };
        let more = [&columns[..], &[column]].concat();
        let is_first = columns.is_empty() && column != SEED && !labelled.is_empty();
        if is_first || count(&more) > count(&columns) {
            columns = more;
        }
    }
    columns
}

fn name_of_run(path: &Path, columns: &[&str], row: &TrackedRow) -> String {
    let is_unnamed = columns == [SEED];
    let mut parts: Vec<String> = Vec::from_iter(is_unnamed.then(|| path.display().to_string()));
    for column in columns {
        match row.label(column) {
            label if label.is_empty() => {}
            label if *column == SEED => parts.push(format!("seed={}", whole(&label))),
            label => parts.push(label),
        }
    }
    parts.join(" ")
}

fn whole(number: &str) -> &str {
    number.strip_suffix(".0").unwrap_or(number)
}

/// Of a long table, whose rows have a value of the metric that they name: each value gets this name. Other numbers are
/// no metrics, but for `x`.
fn read_tags(rows: &mut [TrackedRow], x: Option<&str>) {
    let is_tag = |name: &&str| rows.iter().all(|row| matches!(row.cell(name), Some(Cell::Text(_))));
    let has_value = rows.iter().any(|row| row.number(VALUE).is_some());
    let Some(column) = TAGS.into_iter().find(is_tag).filter(|_| has_value) else { return };
    for row in rows {
        let Some(Cell::Text(tag)) = row.cell(column) else { continue };
        let value = row.cell(VALUE);
        row.tag = tag;
        row.cells.retain(|(name, cell)| {
            let is_metric = !CLOCKS.contains(name) && Some(*name) != x;
            !([column, VALUE].contains(name) || is_metric && matches!(cell, Cell::Number(_)))
        });
        row.cells.extend(value.map(|value| (tag, value)));
    }
}

/// Errors: a column, such as of a test set's name or of k, under which a step has several values of a metric.
fn check_is_one_curve(path: &Path, rows: &[TrackedRow]) -> Result<(), TableError> {
    let steps: BTreeSet<u64> = rows.iter().map(|row| row.step.to_bits()).collect();
    if steps.len() == rows.len() {
        return Ok(());
    }
    let mut columns: BTreeMap<&str, [bool; 2]> = BTreeMap::new();
    for (name, cell) in rows.iter().flat_map(|row| &row.cells) {
        let may_be = columns.entry(*name).or_insert([!RUNS.contains(name), !is_place(name)]);
        match cell {
            Cell::Number(_) => may_be[0] = false,
            Cell::Text(text) => *may_be = [may_be[0] && !is_time(text), false],
            Cell::Null => {}
        }
    }
    columns.retain(|column, [is_text, is_number]| {
        (*is_text || *is_number && recurs(rows, column)) && !is_resumed(rows, column)
    });
    for column in columns.into_keys() {
        let mut seen: BTreeMap<(u64, &str), (String, f64)> = BTreeMap::new();
        for row in rows {
            let label = row.label(column);
            for (metric, value) in row.numbers().filter(|_| !label.is_empty()) {
                let place = (row.step.to_bits(), metric);
                let (first, before) = seen.entry(place).or_insert((label.clone(), value));
                let is_other = *first != label && before.to_bits() != value.to_bits();
                if is_other && metric != column && !is_place(metric) {
                    let [first, label] = [&*first, &label].map(|it| visible::shortened(it, 40));
                    let reason = format!(
                        "step {} has `{metric}` of {column} {first:?} and of {column} {label:?}, which make no one \
                         curve: keep the rows of one {column}, or leave the column out where it means nothing",
                        row.step
                    );
                    return Err(csv_rows::at(path, row.line, reason));
                }
            }
        }
    }
    Ok(())
}

pub fn is_time(text: &str) -> bool {
    let is_day = |day| humantime::parse_rfc3339_weak(&format!("{day} 00:00:00")).is_ok();
    text.get(..10).is_some_and(is_day)
}

fn recurs(rows: &[TrackedRow], column: &str) -> bool {
    let mut steps: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.number(column).is_some()) {
        steps.entry(row.step.to_bits()).or_default().push(row.label(column));
    }
    let mut several = steps.into_values().filter(|labels| labels.len() > 1).map(|mut labels| {
        let mut seen = BTreeSet::new();
        labels.retain(|label| seen.insert(label.clone()));
        labels
    });
    let first = several.next().filter(|labels| labels.len() > 1);
    first
        .zip(several.next())
        .is_some_and(|(first, next)| first == next && several.all(|labels| labels == first))
}

fn is_resumed(rows: &[TrackedRow], column: &str) -> bool {
    let labelled = rows.iter().map(|row| (row.label(column), row.step));
    let labelled: Vec<(String, f64)> = labelled.filter(|(label, _)| !label.is_empty()).collect();
    let parts = labelled.chunk_by(|one, next| one.0 == next.0);
    let ends: Vec<(f64, f64)> =
        parts.map(|part| (part[0].1, part.last().unwrap_or(&part[0]).1)).collect();
    ends.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1)
}

fn is_place(name: &str) -> bool {
    let is_known = |names: &[&str]| names.contains(&name);
    name.is_empty() || is_known(&RUNS) || is_known(&STEPS) || is_known(&CLOCKS)
}

pub fn run(
    path: &Path,
    format: &'static str,
    name: &str,
    mut rows: Vec<TrackedRow>,
    x: Option<&str>,
) -> TrackedRun {
    let mut run = TrackedRun::new(path, format, name);
    run.notes.is_sorted = sort_unless_resumed(&mut rows);
    let has_reading = |clock: &&str| rows.iter().any(|row| row.number(clock).is_some());
    let clock = CLOCKS.into_iter().find(has_reading);
    run.notes.has_times = clock.is_some_and(|clock| TIMES.contains(&clock));
    let (mut seconds, mut last) = (None, f64::NEG_INFINITY);
    for (place, row) in rows.iter().enumerate() {
        if row.tag.is_empty() && row.step < last && is_repeated(row, &rows[..place]) {
            run.cut(row.step, |metric| row.number(metric).is_none());
            last = row.step;
        }
        last = last.max(row.step);
        seconds = clock.and_then(|clock| row.number(clock)).or(seconds);
        if let Some(Cell::Text(text)) = clock.and_then(|clock| row.cell(clock)) {
            run.skip(SECONDS, row.line, Some(text));
        }
        for (metric, cell) in &row.cells {
            let ends = ["__MIN", "__MAX"];
            let summarised = ends.iter().find_map(|end| metric.strip_suffix(end));
            let summarised = summarised.filter(|_| format == WANDB_EXPORT);
            let name = summarised.unwrap_or(metric);
            match cell {
                _ if is_place(name) && Some(name) != x => {}
                Cell::Number(_) if summarised.is_some() => {
                    let [least, most] = ends.map(|end| row.label(&format!("{name}{end}")));
                    run.notes.is_averaged |= least != most;
                }
                Cell::Number(value) => run.put(metric, row.step, *value, seconds),
                Cell::Text(text) => run.skip(metric, row.line, Some(text)),
                Cell::Null => run.skip(metric, row.line, None),
            }
        }
    }
    run
}

/// Whether an earlier row has its step and the same metrics, as where a run goes on from a checkpoint.
fn is_repeated(row: &TrackedRow, before: &[TrackedRow]) -> bool {
    let names = |row: &TrackedRow| -> BTreeSet<String> {
        row.numbers().map(|(name, _)| name.to_string()).collect()
    };
    let own = names(row);
    before.iter().any(|it| it.step == row.step && names(it) == own)
}

/// A resumed run goes back once or twice. Rows that go back more often, or to steps that no metric had, are in another
/// order than that of time, which is told; those of a long table may go through the steps of one metric after the other's.
fn sort_unless_resumed(rows: &mut [TrackedRow]) -> bool {
    let mut last: BTreeMap<&str, f64> = BTreeMap::new();
    let back = rows
        .iter()
        .filter(|row| last.insert(row.tag, row.step).is_some_and(|before| row.step < before));
    let back = back.count();
    let is_sorted = back * 4 > rows.len() || back > 0 && !has_step_twice(rows);
    if is_sorted || back == 0 {
        rows.sort_by(|one, other| one.step.total_cmp(&other.step));
    }
    is_sorted
}

fn has_step_twice(rows: &[TrackedRow]) -> bool {
    let mut seen = BTreeSet::new();
    let values = rows.iter().flat_map(|row| row.numbers().map(|(name, _)| (name, row.step)));
    let mut values = values.filter(|(name, _)| !is_place(name));
    values.any(|(name, step)| !seen.insert((name, step.to_bits())))
}
