//! CSV with a row a run.

use crate::records::tables::{TableError, csv_rows, csv_rows::CsvRow, graded_lines};
use crate::records::tracked::rows::RUNS;
use crate::records::tracked::steps::STEPS;
use crate::records::tracked::{TABLE, TrackedRun, refused};
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

/// A table with a row a run. Runs are named by their arms.
pub fn read(path: &Path) -> Result<Vec<TrackedRun>, TableError> {
    let (header, rows) = csv_rows::read(path)?;
    let rows = rows.collect::<Result<Vec<CsvRow>, TableError>>()?;
    let has = |name: &str| header.iter().any(|column| column == name);
    if let Some(step) = STEPS.iter().find(|step| has("arm") && has(step)) {
        let reason = format!(
            "it has the columns arm and {step}: rows of one run are not runs; a table of runs has one row a run \
             (arm, seed, value), and rows of curves are compared with --curves FILE:ARM --against FILE:ARM"
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
    for (line, Row { arm: name, seed, value }) in csv_rows::records(path)? {
        let at = |reason: String| csv_rows::at(path, line, reason);
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
            && let Some(first) = lines.insert((name.clone(), seed), line)
        {
            let reason = format!("arm {name} has seed {seed} in line {first}, too");
            return Err(at(format!("{reason}; a run has one row: remove one, or mend its seed")));
        }
        let curves = [("value".to_string(), vec![(0.0, value)])].into();
        let mut run = TrackedRun { seed, curves, ..TrackedRun::new(path, TABLE, &name) };
        for name in header.iter().filter(|name| !OWN.contains(name)) {
            run.skip(name, line, None);
        }
        runs.push(run);
    }
    Ok(runs)
}
