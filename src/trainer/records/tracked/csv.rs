//! CSV with a row a step: W&B's chart and history, `dapo export`'s, and any other with a column of steps.

use crate::records::tables::{TableError, csv_rows, csv_rows::CsvRow};
use crate::records::tracked::rows::{self, Cell, RUNS, TrackedRow};
use crate::records::tracked::steps::{CALLS, GlobalSteps, STEPS, global_steps};
use crate::records::tracked::{CLOCKS, SECONDS, TrackedRun, refused, seed, table};
use csv::StringRecord;
use std::collections::BTreeMap;
use std::path::Path;

const UPDATES: &str = "updates";

/// CSV of W&B's page: `Step`, then `RUN - METRIC` with its `__MIN` and `__MAX`, of several runs.
pub const WANDB_EXPORT: &str = "W&B's export";

pub fn read(
    path: &Path,
    x: Option<&str>,
    metric: Option<&str>,
) -> Result<Vec<TrackedRun>, TableError> {
    let (header, records) = csv_rows::read(path)?;
    let mut columns = header.iter().skip(1).peekable();
    let is_export = columns.peek().is_some() && columns.all(|name| name.contains(" - "));
    let has_steps = header.iter().any(|name| STEPS.contains(&name));
    if header.iter().any(|name| name == "arm") && !has_steps {
        return table::read(path);
    }
    let records = records.collect::<Result<Vec<CsvRow>, TableError>>()?;
    let usual = column_of_steps(path, (&header, &records), x)?;
    let is_usual = &header[usual] == CALLS && x != Some(CALLS);
    let place = |name: &str| header.iter().position(|column| column == name);
    let read = |row: &CsvRow, name: &str| step_of(&row.1, place(name)?);
    let other = is_usual.then(|| global_steps(&records, read, metric)).flatten();
    let steps = other.and_then(|other| place(other.order()[0])).unwrap_or(usual);
    let mut rows = Vec::new();
    for (line, record) in &records {
        let Some(step) = step_of(record, steps) else { continue };
        let cells = header.iter().zip(record);
        let cells = cells.filter_map(|(name, field)| Some((name, cell_of_csv(name, field)?)));
        rows.push(TrackedRow { line: *line, step, tag: "", cells: cells.collect() });
    }
    let mut runs = match &header[usual] {
        _ if is_export => of_export(path, rows, x),
        CALLS => rows::runs(path, "history of W&B's API", rows, x),
        UPDATES if is_own(&header) => {
            rows::runs(path, "CSV of `dapo export` (read over its updates)", rows, x)
        }
        _ => rows::runs(path, "CSV", rows, x),
    }?;
    runs.iter_mut().for_each(|run| run.notes.steps_of = other.map(GlobalSteps::order));
    Ok(runs)
}

fn is_own(header: &StringRecord) -> bool {
    let has = |name: &str| header.iter().any(|column| column == name);
    ["cell", "arms", "step", UPDATES].into_iter().all(has)
}

fn cell_of_csv<'a>(name: &str, field: &'a str) -> Option<Cell<'a>> {
    let text = field.trim();
    let number = text.parse().ok().filter(|_| !RUNS.contains(&name));
    (!text.is_empty()).then(|| number.map_or(Cell::Text(text), Cell::Number))
}

fn of_export(
    path: &Path,
    rows: Vec<TrackedRow>,
    x: Option<&str>,
) -> Result<Vec<TrackedRun>, TableError> {
    let mut rows_by_run: BTreeMap<&str, Vec<TrackedRow>> = BTreeMap::new();
    for TrackedRow { line, step, tag, cells } in rows {
        let mut of_runs: BTreeMap<&str, Vec<(&str, Cell)>> = BTreeMap::new();
        for (column, cell) in &cells {
            if let Some((run, metric)) = column.rsplit_once(" - ") {
                of_runs.entry(run).or_default().push((metric, *cell));
            }
        }
        for (run, mut own) in of_runs {
            own.extend(cells.iter().filter(|(column, _)| !column.contains(" - ")));
            rows_by_run.entry(run).or_default().push(TrackedRow { line, step, tag, cells: own });
        }
    }
    let runs = rows_by_run.into_iter();
    let runs = runs.map(|(name, rows)| rows::run(path, WANDB_EXPORT, name, rows, x));
    let runs: Vec<TrackedRun> = runs.collect();
    let with_curves = || runs.iter().filter(|run| !run.curves.is_empty());
    // Groups have one key, and are of no seed.
    let shared = with_curves().next().and_then(|run| key_and_group(run).0);
    let may_be_groups = with_curves().all(|run| {
        let (key, group) = key_and_group(run);
        key == shared && group.is_none_or(|group| seed(group).is_none())
    });
    let is_group = |run: &&TrackedRun| {
        let key = key_and_group(run).0;
        key.is_some_and(|key| key == "Group" || may_be_groups && run.notes.is_averaged)
    };
    if let Some(TrackedRun { name, .. }) = runs.iter().find(is_group) {
        let reason = format!(
            "`{name}` is a mean over runs, as of a chart that is grouped, which counts as no run: ungroup the chart in \
             W&B and export it again; if it is a run's own name, write it without `: `"
        );
        return Err(refused(path, reason));
    }
    Ok(runs)
}

fn key_and_group(run: &TrackedRun) -> (Option<&str>, Option<&str>) {
    run.name.split_once(": ").unzip()
}

/// That of `x`, if it is one, before the usual ones. Where `x` is another clock, steps only join a metric with it, so
/// that every column with a number in each row will do.
fn column_of_steps(
    path: &Path,
    (header, rows): (&StringRecord, &[CsvRow]),
    x: Option<&str>,
) -> Result<usize, TableError> {
    let place = |name: &str| header.iter().position(|column| column == name);
    let named = STEPS.into_iter().filter(|name| Some(*name) == x);
    let updates = is_own(header).then_some(UPDATES);
    let clocks = CLOCKS.into_iter().filter(|_| x == Some(SECONDS));
    let candidates = named.chain(updates).chain(STEPS).chain(x).chain(clocks).filter_map(place);
    let candidates: Vec<usize> = candidates.collect();
    let Some(&first) = candidates.first() else {
        let (usual, present) = (STEPS.join(", "), header.iter().collect::<Vec<_>>().join(", "));
        let reason = if header.is_empty() {
            "the file is empty".to_string()
        } else {
            let clock = CLOCKS.into_iter().find(|clock| place(clock).is_some());
            let clock = clock.map(|clock| format!(", and --at {SECONDS} reads `{clock}`"));
            let clock = clock.unwrap_or_default();
            format!(
                "no column of steps ({usual}); the columns are {present}; --at names another{clock}"
            )
        };
        return Err(refused(path, reason));
    };
    let without = |column: usize| rows.iter().find(|(_, row)| step_of(row, column).is_none());
    let Some((line, row)) = without(first) else { return Ok(first) };
    let whole = candidates.into_iter().find(|column| without(*column).is_none());
    let reason = format!("`{}`: expected a number", &header[first]);
    match whole {
        Some(column) if x.and_then(place).is_some() => Ok(column),
        Some(column) => {
            let whole = &header[column];
            let reason = format!("{reason}; `{whole}` has one in each row: --at {whole}");
            Err(csv_rows::at(path, *line, reason))
        }
        None => Err(csv_rows::at(path, *line, csv_rows::no_number(&header[first], &row[first]))),
    }
}

fn step_of(row: &StringRecord, column: usize) -> Option<f64> {
    let step: f64 = row.get(column)?.trim().parse().ok()?;
    step.is_finite().then_some(step)
}
