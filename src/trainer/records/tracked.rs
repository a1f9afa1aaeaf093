//! Curves that other programs tracked. The format is recognised by its content.

use crate::base::files::{self, FileError, FileKind, foreign};
use crate::records::event_file;
use crate::records::tables::{TableError, csv_rows};
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
    /// By metric; [`SECONDS`] has the clock.
    pub curves: BTreeMap<String, TrackedCurve>,
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

/// Wall clock, from any start.
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

/// The runs of a file, or the run of a folder of event files. `x` is the column that stands in for steps in a CSV file
/// without them. Errors: a file that cannot be read, of an unknown format or without a value, with file and line.
pub fn read(path: &Path, x: &str) -> Result<Vec<TrackedRun>, TableError> {
    let is_folder = files::kind(path)? == Some(FileKind::Folder);
    let bytes = if is_folder { Vec::new() } else { files::read(path)? };
    let mut document: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let mut runs = if is_folder || event_file::is_event_file(&bytes) {
        vec![of_events(path, is_folder)?]
    } else if let Some(run) = of_trackio(path, &document) {
        vec![run]
    } else if bytes.trim_ascii_start().starts_with(b"{") {
        vec![of_lines(path, serde_json::from_value(document["log_history"].take()).ok())?]
    } else {
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
        let (curves, unread) = (BTreeMap::new(), BTreeMap::new());
        Self { name, path: path.to_path_buf(), seed: None, curves, unread, notes }
    }

    fn skip(&mut self, metric: &str) {
        *self.unread.entry(metric.to_string()).or_default() += 1;
    }

    /// The point takes the place of those at its step and after it.
    pub fn put(&mut self, metric: &str, step: f64, value: f64) {
        let curve = self.curves.entry(metric.to_string()).or_default();
        let kept = curve.partition_point(|(at, _)| *at < step);
        if metric != SECONDS {
            self.notes.replaced += curve.len() - kept;
        }
        curve.truncate(kept);
        curve.push((step, value));
    }
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
            run.put(&scalar.tag, scalar.step as f64, scalar.value);
            run.put(SECONDS, scalar.step as f64, seconds);
        }
    }
    Ok(run)
}

/// By `trackio get metric … --json`; `None` of another document.
fn of_trackio(path: &Path, document: &Value) -> Option<TrackedRun> {
    let mut run = TrackedRun::new(path, "trackio", document["run"].as_str()?);
    for point in document["values"].as_array()? {
        let step = point["step"].as_f64()?;
        run.put(document["metric"].as_str()?, step, point["value"].as_f64().unwrap_or(f64::NAN));
        let time = point["timestamp"].as_str()?.replace("+00:00", "Z");
        let time = humantime::parse_rfc3339(&time).ok()?.duration_since(UNIX_EPOCH).ok()?;
        run.put(SECONDS, step, time.as_secs_f64());
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
) -> Result<TrackedRun, TableError> {
    let format =
        history.as_ref().map_or("JSON lines, as verl's file log", |_| "TRL's trainer_state.json");
    let mut run = TrackedRun::new(path, format, "");
    // pandas' to_json writes what is missing as null.
    let text = quoted_not_finite(&files::read_text(path)?);
    let lines: Vec<Map<String, Value>> = match history {
        Some(history) => history,
        None => files::parse_lines(path, text.as_bytes())?,
    };
    for (index, line) in lines.iter().enumerate() {
        let step = STEPS.iter().find_map(|name| line.get(*name)).and_then(Value::as_f64);
        let step = step.ok_or_else(|| {
            let reason = r#"no `step`; a line of verl's log is {"step": 1, "data": {…}}"#;
            csv_rows::at(path, index + 1, reason.to_string())
        })?;
        for (metric, value) in line.get("data").and_then(Value::as_object).unwrap_or(line) {
            if STEPS.contains(&metric.as_str()) {
                continue;
            }
            match value {
                Value::Bool(_) | Value::Array(_) | Value::Object(_) => {}
                value => match number(value) {
                    Some(number) => run.put(metric, step, number),
                    None => run.skip(metric),
                },
            }
        }
    }
    Ok(run)
}

fn of_csv(path: &Path, x: &str) -> Result<Vec<TrackedRun>, TableError> {
    let (header, rows) = csv_rows::read(path)?;
    let mut columns = header.iter().skip(1).peekable();
    let is_export = columns.peek().is_some() && columns.all(|name| name.contains(" - "));
    let place = |name: &str| header.iter().position(|column| column == name);
    if place("arm").is_some() {
        if let Some(step) = STEPS.iter().find(|step| place(step).is_some()) {
            let reason = format!(
                "it has the columns arm and {step}: rows of one run are not runs; a table of runs has one row a run \
                 (arm, seed, value), and rows of curves name their run in a column `run`"
            );
            return Err(refused(path, reason));
        }
        return of_table(path);
    }
    let name_of_run =
        ["run", "run_name", "run_id"].into_iter().find_map(place).filter(|_| !is_export);
    let clocks = CLOCKS.into_iter().filter(|_| x == SECONDS);
    let Some(steps) = STEPS.into_iter().chain([x]).chain(clocks).find_map(place) else {
        let (usual, present) = (STEPS.join(", "), header.iter().collect::<Vec<_>>().join(", "));
        let reason = format!("no column of steps ({usual}) but {present}; --at names another");
        return Err(refused(path, reason));
    };
    let is_clock = CLOCKS.contains(&&header[steps]);
    let format = match &header[steps] {
        _ if is_export => WANDB_EXPORT,
        "_step" => "history of W&B's API",
        _ => "CSV",
    };
    let mut read = Vec::new();
    for row in rows {
        let (line, row) = row?;
        let step = row.get(steps).unwrap_or("").trim().parse().ok();
        let step = step.filter(|step: &f64| step.is_finite()).ok_or_else(|| {
            csv_rows::at(path, line, format!("`{}`: expected a number", &header[steps]))
        })?;
        read.push((step, row));
    }
    // A resumed run goes back once or twice. Rows that go back more often are in another order than that of time.
    let back = read.windows(2).filter(|pair| pair[1].0 < pair[0].0).count();
    let is_sorted = name_of_run.is_none() && back * 4 > read.len();
    if is_sorted {
        read.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    let mut runs: BTreeMap<&str, TrackedRun> = BTreeMap::new();
    for (step, row) in &read {
        let step = *step;
        let field = |place: usize| row.get(place).unwrap_or("").trim();
        for (column, name) in header.iter().enumerate().filter(|(at, _)| Some(*at) != name_of_run) {
            let value = field(column);
            if value.is_empty() {
                continue;
            }
            let parts = name.rsplit_once(" - ").filter(|_| is_export);
            let own = name_of_run.map_or("", |place| row.get(place).unwrap_or("").trim());
            let (named, metric) = parts.unwrap_or((own, name));
            let run = runs.entry(named).or_insert_with(|| TrackedRun::new(path, format, named));
            run.notes.is_sorted = is_sorted;
            let Ok(value) = value.parse::<f64>() else {
                run.skip(metric);
                continue;
            };
            match metric {
                "" | "_timestamp" => {}
                _ if column == steps && name != x => {}
                _ if CLOCKS.contains(&metric) => run.put(SECONDS, step, value),
                _ if is_export && metric.ends_with("__MIN") => {}
                _ if is_export && metric.ends_with("__MAX") => {
                    let least = place(&name.replace("__MAX", "__MIN")).map(field);
                    run.notes.is_averaged |= least.is_some_and(|least| least != field(column));
                }
                _ => {
                    run.put(metric, step, value);
                    if is_clock {
                        run.put(SECONDS, step, step);
                    }
                }
            }
        }
    }
    Ok(runs.into_values().collect())
}

#[derive(Deserialize)]
struct TableRow {
    arm: String,
    seed: Option<u64>,
    value: f64,
}

/// Runs are named by their arms.
fn of_table(path: &Path) -> Result<Vec<TrackedRun>, TableError> {
    let mut runs: Vec<TrackedRun> = Vec::new();
    for (line, TableRow { arm: name, seed, value }) in csv_rows::records(path)? {
        let is_twice = seed.is_some() && runs.iter().any(|it| it.seed == seed && it.name == name);
        if !value.is_finite() || is_twice {
            let reason = "a value must be finite, and an arm has a seed once".to_string();
            return Err(csv_rows::at(path, line, reason));
        }
        let curves = [("value".to_string(), vec![(0.0, value)])].into();
        runs.push(TrackedRun { seed, curves, ..TrackedRun::new(path, TABLE, &name) });
    }
    Ok(runs)
}
