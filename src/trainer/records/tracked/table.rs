//! CSV with a row a run.

use crate::base::visible;
use crate::records::tables::{TableError, csv_rows, csv_rows::CsvRow, graded_lines};
use crate::records::tracked::rows::RUNS;
use crate::records::tracked::steps::STEPS;
use crate::records::tracked::{TABLE, TrackedRun, Unread, refused};
use csv::StringRecord;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[derive(Deserialize)]
struct Row {
    arm: String,
    seed: Option<String>,
    value: f64,
}

const OWN: [&str; 3] = ["arm", "seed", "value"];
/// Columns, beside [`RUNS`], that runs of several arms may share.
const AROUND: [&str; 8] = ["", "id", "index", "host", "node", "date", "commit", "notes"];

/// A column by which rows are parts of runs: by its name or, where no seeds tell rows apart, by values that arms share.
fn column_of_parts<'a>(header: &'a StringRecord, rows: &[CsvRow]) -> Option<&'a str> {
    let place = |name: &str| header.iter().position(|column| column == name);
    let (arm, seed) = (place("arm")?, place("seed"));
    let pairs = |column: usize| {
        let pairs = rows.iter().map(|(_, row)| (row[arm].trim(), row[column].trim()));
        pairs.collect::<BTreeSet<(&str, &str)>>()
    };
    let arms = pairs(arm).len();
    let has_seeds = seed.is_some_and(|seed| pairs(seed).len() == rows.len());
    let is_parts = |(column, name): &(usize, &str)| {
        let pairs = pairs(*column);
        let values = pairs.iter().map(|pair| pair.1).collect::<BTreeSet<&str>>().len();
        let is_around = RUNS.contains(name) || AROUND.contains(name);
        let is_shared = !has_seeds && !is_around && pairs.len() > values;
        let varies = pairs.len() > arms && rows.len() > values;
        varies && !OWN.contains(name) && (is_shared || graded_lines::names_parts(name))
    };
    header.iter().enumerate().find(is_parts).map(|(_, name)| name)
}

pub fn read(path: &Path) -> Result<Vec<TrackedRun>, TableError> {
    let (header, rows) = csv_rows::read(path)?;
    let rows = rows.collect::<Result<Vec<CsvRow>, TableError>>()?;
    let has = |name: &str| header.iter().any(|column| column == name);
    if let Some(step) = STEPS.iter().find(|step| has("arm") && is_of_curves(&header, &rows, step)) {
        let reason = format!(
            "rows of one run differ in `{step}`, and are not runs: a table of runs has one row a run (arm, seed, value), \
             and rows of curves are compared with --curves FILE:ARM --against FILE:ARM"
        );
        return Err(refused(path, reason));
    }
    if header.is_empty() {
        return Err(refused(path, "the file is empty".to_string()));
    }
    if !has("arm") || !has("value") {
        let present = header.iter().collect::<Vec<_>>().join(", ");
        let reason = format!(
            "a table of runs has the columns arm, value and, where runs have one, seed, in small letters; this one \
             has {present}: rename them"
        );
        return Err(refused(path, reason));
    }
    if let Some(column) = column_of_parts(&header, &rows) {
        let reason = format!(
            "rows of one arm differ in `{column}`, which makes them parts of runs: a table of runs has one row a run; \
             choose the rows of one `{column}` or take means first, or leave the column out where it means nothing"
        );
        return Err(refused(path, reason));
    }
    let mut runs: Vec<TrackedRun> = Vec::new();
    let mut lines: BTreeMap<(String, u64), usize> = BTreeMap::new();
    let records = rows.iter().map(|row| csv_rows::record(path, &header, row));
    let records: Vec<Row> = records.collect::<Result<_, _>>()?;
    for (Row { arm: name, seed, value }, (line, cells)) in records.into_iter().zip(&rows) {
        let at = |reason: String| csv_rows::at(path, *line, reason);
        if !value.is_finite() {
            return Err(at(format!("`value`: expected a finite number, got {value}")));
        }
        // pandas writes whole numbers as 1.0 where one is missing.
        let whole = |text: String| {
            let digits = text.strip_suffix(".0").unwrap_or(&text);
            digits
                .parse::<u64>()
                .map_err(|_no_number| at(format!("`seed`: expected a whole number, got `{text}`")))
        };
        let seed = seed.map(whole).transpose()?;
        if let Some(seed) = seed
            && let Some(first) = lines.insert((name.clone(), seed), *line)
        {
            let reason = format!("arm {name} has seed {seed} in line {first}, too");
            return Err(at(format!("{reason}; a run has one row: remove one, or mend its seed")));
        }
        let curves = [("value".to_string(), vec![(0.0, value)])].into();
        let mut run = TrackedRun { seed, curves, ..TrackedRun::new(path, TABLE, &name) };
        for (name, cell) in header.iter().zip(cells).filter(|(name, _)| !OWN.contains(name)) {
            let first_text = Some(cell.trim().to_string()).filter(|text| !text.is_empty());
            run.unread.insert(name.to_string(), Unread { first_text, ..Unread::default() });
        }
        runs.push(run);
    }
    Ok(runs)
}

fn is_of_curves(header: &StringRecord, rows: &[CsvRow], step: &str) -> bool {
    let Some(step) = header.iter().position(|column| column == step) else { return false };
    let of_runs = header.iter().enumerate().filter(|(_, name)| RUNS.contains(name));
    let of_runs: Vec<usize> = of_runs.map(|(place, _)| place).collect();
    let run = |row: &StringRecord| -> Vec<String> {
        of_runs.iter().map(|place| row[*place].trim().to_string()).collect()
    };
    let mut steps: BTreeMap<Vec<String>, &str> = BTreeMap::new();
    rows.iter().any(|(_, row)| {
        let at = row[step].trim();
        *steps.entry(run(row)).or_insert(at) != at
    })
}

/// Other columns with one value in each of two arms. Errors: such a column that says what was measured.
pub fn differing(
    a: &[&TrackedRun],
    b: &[&TrackedRun],
) -> Result<BTreeMap<String, [String; 2]>, TableError> {
    let mut differing = BTreeMap::new();
    let of_tables = || a.iter().chain(b).all(|run| run.notes.format == TABLE);
    let Some(first) = a.first().filter(|_| of_tables()) else { return Ok(differing) };
    let is_told = |name: &&String| !name.is_empty() && !RUNS.contains(&name.as_str());
    for column in first.unread.keys().filter(is_told) {
        let values = only_text(a, column).zip(only_text(b, column));
        let Some((of_a, of_b)) = values.filter(|(of_a, of_b)| of_a != of_b) else { continue };
        if graded_lines::names_parts(column) {
            let shown = |text| visible::shortened(text, 40);
            let reason = format!(
                "`{column}` is `{}` in all rows of one arm and `{}` in all rows of the other: they were measured on \
                 different things; compare arms of one `{column}`, or leave the column out where it means nothing",
                shown(of_a),
                shown(of_b)
            );
            return Err(refused(&first.path, reason));
        }
        differing.insert(column.clone(), [of_a, of_b].map(str::to_string));
    }
    Ok(differing)
}

fn only_text<'a>(runs: &[&'a TrackedRun], column: &str) -> Option<&'a str> {
    let text = |run: &'a TrackedRun| run.unread.get(column)?.first_text.as_deref();
    let first = text(runs.first()?);
    first.filter(|_| runs.iter().all(|run| text(run) == first))
}
