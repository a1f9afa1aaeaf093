//! Curves that other programs tracked. The format is recognised by its content.

use crate::base::files::{self, FileError, FileKind, foreign};
use crate::records::event_file;
use crate::records::tables::{TableError, csv_rows, csv_rows::CsvRow, format};
use csv::StringRecord;
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// (step, value), steps rising. A value may be NaN.
pub type TrackedCurve = Vec<(f64, f64)>;

#[derive(Debug, Clone, PartialEq)]
pub struct TrackedRun {
    /// The tracker's name of the run, or the file.
    pub name: String,
    pub path: PathBuf,
    /// Of a name, the run's, the file's or a folder's above it, or of a table.
    pub seed: Option<u64>,
    pub curves: BTreeMap<String, TrackedCurve>,
    /// By metric: the wall clock at its points, from any start. A metric that goes back in its steps takes no other's.
    pub seconds: BTreeMap<String, TrackedCurve>,
    /// By metric: values that are `null` or text, which are no points.
    pub unread: BTreeMap<String, usize>,
    pub notes: TrackedNotes,
}

/// What a reader must know of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TrackedNotes {
    pub format: &'static str,
    /// Points that gave way because a later line has their step or an earlier one, as after a resumed run.
    pub replaced: usize,
    /// Rows went back in their steps again and again, and were sorted.
    pub is_sorted: bool,
    /// The file ends in the middle of a record.
    pub is_cut: bool,
    /// Points are summaries of several steps, by the columns of their least and largest values.
    pub is_averaged: bool,
}

/// The name of the wall clock.
pub const SECONDS: &str = "seconds";

/// Columns of CSV with that clock: of W&B's history and its chart, and of TensorBoard's download.
const CLOCKS: [&str; 4] =
    ["_runtime", "Relative Time (Process)", "Relative Time (Wall)", "Wall time"];

/// CSV of W&B's page: `Step`, then `RUN - METRIC` with its `__MIN` and `__MAX`, of several runs.
const WANDB_EXPORT: &str = "W&B's export";

/// CSV with a row a run: `arm`, `value` and, where there is one, `seed`.
pub const TABLE: &str = "a table of runs";

/// Columns of steps, best first.
const STEPS: [&str; 8] =
    ["step", "_step", "Step", "steps", "global_step", "train/global_step", "update", "iteration"];

/// The runs of a file, or the run of a folder of event files. `x` is the column that stands in for steps in a file
/// without them, or with several. Errors: a file that cannot be read, of an unknown format or without a value, with
/// file and line.
pub fn read(path: &Path, x: &str) -> Result<Vec<TrackedRun>, TableError> {
    // `steps` are those of any name.
    let x = Some(x).filter(|x| !["", "steps"].contains(x));
    let is_folder = files::kind(path)? == Some(FileKind::Folder);
    let bytes = if is_folder { Vec::new() } else { files::read(path)? };
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let mut document: Value = serde_json::from_slice(text).unwrap_or_default();
    let mut runs = if is_folder || event_file::is_event_file(&bytes) {
        vec![of_events(path, is_folder)?]
    } else if let Some(run) = of_trackio(path, &document) {
        vec![run]
    } else if text.trim_ascii_start().starts_with(b"{") {
        let history = serde_json::from_value(document["log_history"].take()).ok();
        vec![of_lines(path, history, x)?]
    } else {
        format::check(path, "CSV, JSON lines or event files of TensorBoard", false)?;
        of_csv(path, x)?
    };
    runs.retain(|run| !run.curves.is_empty());
    let above: Vec<&str> = path.iter().rev().take(3).filter_map(OsStr::to_str).collect();
    for run in runs.iter_mut().filter(|run| run.notes.format != TABLE) {
        run.seed = [&*run.name].iter().chain(&above).find_map(|name| seed(name));
    }
    if runs.is_empty() {
        return Err(refused(path, "it has no value of any metric, nor event files".to_string()));
    }
    Ok(runs)
}

/// `seed=3`, `seed_3`, `seed3`, `s3`, as a word of a name.
fn seed(name: &str) -> Option<u64> {
    let rule = r"(?i)(?:^|[^a-z0-9])(?:seed|s)[=_-]?(\d{1,18})(?:[^a-z0-9]|$)";
    let word = Regex::new(rule).expect("a fixed expression").captures(name)?;
    word.get(1)?.as_str().parse().ok()
}

fn refused(path: &Path, reason: String) -> TableError {
    TableError::File(FileError::Json { path: path.to_path_buf(), reason })
}

impl TrackedRun {
    fn new(path: &Path, format: &'static str, name: &str) -> Self {
        let notes = TrackedNotes { format, ..TrackedNotes::default() };
        let name = if name.is_empty() { path.display().to_string() } else { name.to_string() };
        let (curves, seconds, unread) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { name, path: path.to_path_buf(), seed: None, curves, seconds, unread, notes }
    }

    fn skip(&mut self, metric: &str) {
        *self.unread.entry(metric.to_string()).or_default() += 1;
    }

    /// The point takes the place of those at its step and after it.
    fn put(&mut self, metric: &str, step: f64, value: f64, seconds: Option<f64>) {
        self.notes.replaced += put(&mut self.curves, metric, (step, value));
        if let Some(seconds) = seconds {
            put(&mut self.seconds, metric, (step, seconds));
        }
    }
}

/// How many points gave way.
fn put(curves: &mut BTreeMap<String, TrackedCurve>, metric: &str, point: (f64, f64)) -> usize {
    let curve = curves.entry(metric.to_string()).or_default();
    let kept = curve.partition_point(|(at, _)| *at < point.0);
    let replaced = curve.len() - kept;
    curve.truncate(kept);
    curve.push(point);
    replaced
}

fn of_events(path: &Path, is_folder: bool) -> Result<TrackedRun, TableError> {
    let mut run = TrackedRun::new(path, "TensorBoard", "");
    let names = if is_folder { files::list(path)? } else { vec![String::new()] };
    for name in names.iter().filter(|name| name.contains(".tfevents.") || !is_folder) {
        let path = if is_folder { foreign::inside(path, name)? } else { path.to_path_buf() };
        let (scalars, is_cut) = event_file::read(&files::read(&path)?)
            .map_err(|at| refused(&path, format!("the record at byte {at} is damaged")))?;
        run.notes.is_cut |= is_cut;
        for (scalar, seconds) in scalars {
            run.put(&scalar.tag, scalar.step as f64, scalar.value, Some(seconds));
        }
    }
    Ok(run)
}

/// By `trackio get metric … --json`; `None` of another document.
fn of_trackio(path: &Path, document: &Value) -> Option<TrackedRun> {
    let mut run = TrackedRun::new(path, "trackio", document["run"].as_str()?);
    for point in document["values"].as_array()? {
        let step = point["step"].as_f64()?;
        let value = point["value"].as_f64().unwrap_or(f64::NAN);
        let time = point["timestamp"].as_str()?.replace("+00:00", "Z");
        let time = humantime::parse_rfc3339(&time).ok()?.duration_since(UNIX_EPOCH).ok()?;
        run.put(document["metric"].as_str()?, step, value, Some(time.as_secs_f64()));
    }
    Some(run)
}

const NOT_FINITE: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// Python's json.dumps writes what is not finite as no JSON; [`number`] reads it then.
pub fn quoted_not_finite(text: &str) -> String {
    let (mut quoted, mut is_text, mut rest) = (String::with_capacity(text.len()), false, text);
    while let Some(next) = rest.chars().next() {
        let word = NOT_FINITE.iter().find(|word| !is_text && rest.starts_with(**word));
        let taken = match (word, next) {
            (Some(word), _) => word.len(),
            // An escaped character of a text ends nothing.
            (None, '\\') if is_text => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => next.len_utf8(),
        };
        is_text ^= next == '"';
        match word {
            Some(word) => quoted.extend(["\"", word, "\""]),
            None => quoted.push_str(&rest[..taken]),
        }
        rest = &rest[taken..];
    }
    quoted
}

pub fn number(value: &Value) -> Option<f64> {
    let named = |word: &&str| NOT_FINITE.contains(word);
    value.as_f64().or_else(|| value.as_str().filter(named)?.parse().ok())
}

/// Lines `{"step": 1, "data": {…}}` (verl/utils/tracking.py, `FileLogger`), or values beside the step (transformers).
fn of_lines(
    path: &Path,
    history: Option<Vec<Map<String, Value>>>,
    x: Option<&str>,
) -> Result<TrackedRun, TableError> {
    let format =
        history.as_ref().map_or("JSON lines, as verl's file log", |_| "TRL's trainer_state.json");
    let mut run = TrackedRun::new(path, format, "");
    // pandas' to_json writes what is missing as null.
    let text = quoted_not_finite(files::read_text(path)?.trim_start_matches('\u{feff}'));
    let lines: Vec<Map<String, Value>> = match history {
        Some(history) => history,
        None => files::parse_lines(path, text.as_bytes())?,
    };
    let has = |name: &str| lines.iter().any(|line| line.contains_key(name));
    let named = STEPS.iter().find(|name| Some(**name) == x && has(name));
    let names = named.map_or(&STEPS[..], std::slice::from_ref);
    let mut rows = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let step = names.iter().find_map(|name| line.get(*name)).and_then(Value::as_f64);
        let step = step.ok_or_else(|| {
            let reason = r#"a line of verl's log is {"step": 1, "data": {…}}"#;
            csv_rows::at(path, index + 1, format!("no `{}`; {reason}", names[0]))
        })?;
        rows.push((step, line));
    }
    run.notes.is_sorted = sort_unless_resumed(&mut rows);
    for (step, line) in rows {
        for (metric, value) in line.get("data").and_then(Value::as_object).unwrap_or(line) {
            if STEPS.contains(&metric.as_str()) && Some(metric.as_str()) != x {
                continue;
            }
            match value {
                Value::Bool(_) | Value::Array(_) | Value::Object(_) => {}
                value => match number(value) {
                    Some(number) => run.put(metric, step, number, None),
                    None => run.skip(metric),
                },
            }
        }
    }
    Ok(run)
}

/// A resumed run goes back once or twice. Rows that go back more often are in another order than that of time.
fn sort_unless_resumed<T>(rows: &mut [(f64, T)]) -> bool {
    let back = rows.windows(2).filter(|pair| pair[1].0 < pair[0].0).count();
    let is_sorted = back * 4 > rows.len();
    if is_sorted {
        rows.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    is_sorted
}

fn of_csv(path: &Path, x: Option<&str>) -> Result<Vec<TrackedRun>, TableError> {
    let (header, rows) = csv_rows::read(path)?;
    let mut columns = header.iter().skip(1).peekable();
    let is_export = columns.peek().is_some() && columns.all(|name| name.contains(" - "));
    let place = |name: &str| header.iter().position(|column| column == name);
    if place("arm").is_some() {
        return read_table(path);
    }
    let name_of_run =
        ["run", "run_name", "run_id"].into_iter().find_map(place).filter(|_| !is_export);
    let rows = rows.collect::<Result<Vec<CsvRow>, TableError>>()?;
    let steps = column_of_steps(path, (&header, &rows), x)?;
    let is_clock = CLOCKS.contains(&&header[steps]);
    let format = match &header[steps] {
        _ if is_export => WANDB_EXPORT,
        "_step" => "history of W&B's API",
        _ => "CSV",
    };
    let mut rows_by_run: BTreeMap<&str, Vec<(f64, &StringRecord)>> = BTreeMap::new();
    for (_, row) in &rows {
        let own = name_of_run.and_then(|place| row.get(place)).unwrap_or("").trim();
        rows_by_run.entry(own).or_default().extend(step_of(row, steps).map(|step| (step, row)));
    }
    let mut runs: BTreeMap<&str, TrackedRun> = BTreeMap::new();
    for (own, mut rows) in rows_by_run {
        let is_sorted = sort_unless_resumed(&mut rows);
        let columns = header.iter().enumerate().filter(|(column, _)| Some(*column) != name_of_run);
        let columns: Vec<(usize, &str, &str)> = columns
            .map(|(column, name)| {
                let parts = name.rsplit_once(" - ").filter(|_| is_export);
                let (named, metric) = parts.unwrap_or((own, name));
                (column, named, metric)
            })
            .collect();
        // The last reading of a run's clock holds for rows without one.
        let mut seconds: BTreeMap<&str, f64> = BTreeMap::new();
        for (step, row) in rows {
            let field = |place: usize| row.get(place).unwrap_or("").trim();
            for (column, named, _) in columns.iter().filter(|(.., metric)| CLOCKS.contains(metric))
            {
                seconds.extend(field(*column).parse().ok().map(|reading| (*named, reading)));
            }
            for &(column, named, metric) in &columns {
                let value = field(column);
                if value.is_empty() {
                    continue;
                }
                let run = runs.entry(named).or_insert_with(|| TrackedRun::new(path, format, named));
                run.notes.is_sorted = is_sorted;
                let Ok(value) = value.parse::<f64>() else {
                    run.skip(metric);
                    continue;
                };
                match metric {
                    "" | "_timestamp" => {}
                    _ if column == steps && Some(metric) != x => {}
                    _ if CLOCKS.contains(&metric) => {}
                    _ if is_export && metric.ends_with("__MIN") => {}
                    _ if is_export && metric.ends_with("__MAX") => {
                        let least = place(&header[column].replace("__MAX", "__MIN")).map(field);
                        run.notes.is_averaged |= least.is_some_and(|least| least != field(column));
                    }
                    _ => {
                        let read = seconds.get(named).copied();
                        run.put(metric, step, value, if is_clock { Some(step) } else { read });
                    }
                }
            }
        }
    }
    Ok(runs.into_values().collect())
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
    let clocks = CLOCKS.into_iter().filter(|_| x == Some(SECONDS));
    let candidates = named.chain(STEPS).chain(x).chain(clocks).filter_map(place);
    let candidates: Vec<usize> = candidates.collect();
    let Some(&first) = candidates.first() else {
        let (usual, present) = (STEPS.join(", "), header.iter().collect::<Vec<_>>().join(", "));
        let reason = format!("no column of steps ({usual}) but {present}; --at names another");
        return Err(refused(path, reason));
    };
    let without = |column: usize| rows.iter().find(|(_, row)| step_of(row, column).is_none());
    let Some((line, _)) = without(first) else { return Ok(first) };
    let whole = candidates.into_iter().find(|column| without(*column).is_none());
    let reason = format!("`{}`: expected a number", &header[first]);
    match whole {
        Some(column) if x.and_then(place).is_some() => Ok(column),
        Some(column) => {
            let whole = &header[column];
            let reason = format!("{reason}; `{whole}` has one in each row: --at {whole}");
            Err(csv_rows::at(path, *line, reason))
        }
        None => Err(csv_rows::at(path, *line, reason)),
    }
}

fn step_of(row: &StringRecord, column: usize) -> Option<f64> {
    let step: f64 = row.get(column)?.trim().parse().ok()?;
    step.is_finite().then_some(step)
}

#[derive(Deserialize)]
struct TableRow {
    arm: String,
    seed: Option<String>,
    value: f64,
}

/// A table with a row a run. Runs are named by their arms.
pub fn read_table(path: &Path) -> Result<Vec<TrackedRun>, TableError> {
    let (header, _) = csv_rows::read(path)?;
    let has = |name: &str| header.iter().any(|column| column == name);
    if let Some(step) = STEPS.iter().find(|step| has("arm") && has(step)) {
        let reason = format!(
            "it has the columns arm and {step}: rows of one run are not runs; a table of runs has one row a run \
             (arm, seed, value), and rows of curves name their run in a column `run`"
        );
        return Err(refused(path, reason));
    }
    if !has("arm") || !has("value") {
        let present = header.iter().collect::<Vec<_>>().join(", ");
        let reason = format!(
            "a table of runs has the columns arm, value and, where runs have one, seed, in small letters; this one \
             has {present}: rename them"
        );
        return Err(refused(path, reason));
    }
    let mut runs: Vec<TrackedRun> = Vec::new();
    let mut lines: BTreeMap<(String, u64), usize> = BTreeMap::new();
    for (line, TableRow { arm: name, seed, value }) in csv_rows::records(path)? {
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
        runs.push(TrackedRun { seed, curves, ..TrackedRun::new(path, TABLE, &name) });
    }
    Ok(runs)
}
