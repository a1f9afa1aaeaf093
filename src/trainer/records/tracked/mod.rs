//! Curves that other programs tracked. The format is recognised by its content.

mod rows;

use crate::base::files::{self, FileError, FileKind, foreign};
use crate::base::visible;
use crate::records::event_file::{self, Logged};
use crate::records::tables::{TableError, csv_rows, csv_rows::CsvRow, format, graded_lines};
use crate::records::tracked::rows::{Cell, RUNS, TrackedRow};
use csv::StringRecord;
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// (step, value), steps rising. A value may be NaN.
pub type TrackedCurve = Vec<(f64, f64)>;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrackedRun {
    /// The tracker's name of the run, or the file.
    pub name: String,
    pub path: PathBuf,
    /// Of a column, or of a name: the run's, the file's or a folder's above it.
    pub seed: Option<u64>,
    pub curves: BTreeMap<String, TrackedCurve>,
    /// By metric: the clock at its points, since the run's start or with times of day. A metric that goes back in its
    /// steps takes no other's.
    pub seconds: BTreeMap<String, TrackedCurve>,
    /// By metric: values that are `null` or text, which are no points; of a table of runs, its other columns.
    pub unread: BTreeMap<String, Unread>,
    pub replaced: BTreeMap<String, Replaced>,
    pub notes: TrackedNotes,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Unread {
    pub nulls: usize,
    pub texts: usize,
    pub first_text: Option<String>,
    /// Line and text of the first one with a digit, which is a number that is written otherwise.
    pub first_number: Option<(usize, String)>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Replaced {
    pub points: usize,
    first_and_has_other: BTreeMap<u64, (u64, bool)>,
}

impl Replaced {
    pub fn several_and_all_steps(&self) -> (usize, usize) {
        let steps = &self.first_and_has_other;
        (steps.values().filter(|(_, has_other)| *has_other).count(), steps.len())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TrackedNotes {
    pub format: &'static str,
    /// Points of the metric that gave way, because a later line has their step with another value, or an earlier
    /// step, as after a resumed run.
    pub replaced: usize,
    /// Rows went back in their steps again and again, and were sorted.
    pub is_sorted: bool,
    pub is_cut: bool,
    /// Points are summaries of several steps, by the columns of their least and largest values.
    pub is_averaged: bool,
    /// Its clock has times of day: seconds count from the first one.
    pub has_times: bool,
    /// Points of the metric before the first reading of a running total, which do not count.
    pub before_clock: usize,
    /// The column that counts the steps, and another one that has other numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_of: Option<[&'static str; 2]>,
    /// On a clock of seconds, where it is many times the usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_gap_seconds: Option<u64>,
}

pub const SECONDS: &str = "seconds";

/// Columns with that clock, best first: of W&B's history and its chart, and of TensorBoard's download.
pub const CLOCKS: [&str; 5] =
    ["_runtime", "Relative Time (Process)", "Relative Time (Wall)", TIMES[0], TIMES[1]];

/// Those of them with times of day, and not with seconds since the run's start.
pub const TIMES: [&str; 2] = ["Wall time", "_timestamp"];

/// CSV of W&B's page: `Step`, then `RUN - METRIC` with its `__MIN` and `__MAX`, of several runs.
const WANDB_EXPORT: &str = "W&B's export";

/// CSV with a row a run: `arm`, `value` and, where there is one, `seed`.
pub const TABLE: &str = "a table of runs";

const STEPS: [&str; 10] = [
    "step",
    CALLS,
    "Step",
    "steps",
    "global_step",
    "train/global_step",
    "training/global_step",
    "trainer/global_step",
    "update",
    "iteration",
];

/// W&B's count of calls of its log, which are more than the steps where a step is logged in parts.
const CALLS: &str = "_step";

const GLOBAL_STEPS: [&str; 4] =
    ["train/global_step", "training/global_step", "trainer/global_step", "global_step"];

const UPDATES: &str = "updates";

pub fn read(path: &Path, x: &str) -> Result<Vec<TrackedRun>, TableError> {
    read_for(path, x, None)
}

/// The runs of a file, or the run of a folder of event files. `x` is the column that stands in for steps in a file
/// without them, or with several. Errors: a file that cannot be read, of an unknown format or without a value, with
/// file and line.
pub fn read_for(path: &Path, x: &str, metric: Option<&str>) -> Result<Vec<TrackedRun>, TableError> {
    // `steps` are those of any name.
    let x = Some(x).filter(|x| !["", "steps"].contains(x));
    let is_folder = files::kind(path)? == Some(FileKind::Folder);
    let bytes = if is_folder { Vec::new() } else { files::read(path)? };
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let way = way(path, is_folder, text);
    let mut runs = if is_folder || event_file::is_event_file(&bytes) {
        vec![of_events(path, is_folder)?]
    } else if text.trim_ascii_start().starts_with(b"{") {
        of_json(path, x, metric)
            .map_err(|error| way.map_or(error, |way| refused(path, way.into())))?
    } else {
        let is_store = [&b"SQLite format 3"[..], b":W&B"].iter().any(|mark| text.starts_with(mark));
        let parquet = text.starts_with(b"PAR1").then_some(PARQUET);
        let console = is_console(text).then_some(CONSOLE);
        let mlflow = is_of_mlflow(text).then_some(MLFLOW);
        if let Some(way) = way.filter(|_| is_store).or(parquet).or(console).or(mlflow) {
            return Err(refused(path, way.to_string()));
        }
        format::check(path, "CSV, JSON lines or event files of TensorBoard", false)?;
        of_csv(path, x, metric)?
    };
    if runs.iter().all(|run| run.curves.is_empty()) {
        check_has_no_numbers_as_text(&runs)?;
    }
    let no_number = runs.iter().flat_map(|run| &run.unread).find_map(|(name, unread)| {
        let text = visible::shortened(unread.first_text.as_ref()?, 40);
        Some(format!("it has no value of any metric that is a number: `{name}` has `{text}`"))
    });
    let is_written_otherwise = |run: &TrackedRun| run.unread.values().any(Unread::is_of_numbers);
    runs.retain(|run| !run.curves.is_empty() || is_written_otherwise(run));
    let above: Vec<&str> = path.iter().rev().take(3).filter_map(OsStr::to_str).collect();
    for run in runs.iter_mut().filter(|run| run.notes.format != TABLE) {
        let named = || [&*run.name].iter().chain(&above).find_map(|name| seed(name));
        run.seed = run.seed.or_else(named);
    }
    if runs.is_empty() {
        let reason = way.map(str::to_string).or(no_number);
        return Err(refused(path, reason.unwrap_or_else(|| without_values(path, is_folder))));
    }
    Ok(runs)
}

fn check_has_no_numbers_as_text(runs: &[TrackedRun]) -> Result<(), TableError> {
    let columns = runs.iter().flat_map(|run| run.unread.iter().map(move |it| (run, it)));
    for (run, (name, unread)) in columns {
        if let Some((line, text)) = unread.first_number.as_ref().filter(|_| unread.is_of_numbers())
        {
            let reason =
                format!("it has no value of any metric: {}", csv_rows::no_number(name, text));
            return Err(csv_rows::at(&run.path, *line, reason));
        }
    }
    Ok(())
}

fn without_values(path: &Path, is_folder: bool) -> String {
    let reason = "it has no value of any metric, nor event files".to_string();
    let names = if is_folder { files::list(path).unwrap_or_default() } else { Vec::new() };
    let is_folder = |name: &&String| path.join(name).is_dir();
    let folders: Vec<&str> = names.iter().filter(is_folder).map(String::as_str).collect();
    if folders.is_empty() {
        return reason;
    }
    format!("{reason}; name a folder in it: {}", folders.join(", "))
}

const PARQUET: &str = "it is a parquet file, as W&B gives a whole history: write it as CSV \
     (in Python: pandas.read_parquet(FILE).to_csv(CSV, index=False))";

const CONSOLE: &str = "it is what verl prints on the console: trainer.logger='[console,file]' and \
     VERL_FILE_LOGGER_PATH=FILE.jsonl write a log that is read";

const MLFLOW: &str = "it is what MLflow keeps for itself: write CSV with the columns run_id, key, step and value \
     (in Python: mlflow.MlflowClient().get_metric_history(RUN, KEY) has them)";

fn is_of_mlflow(text: &[u8]) -> bool {
    let first = text.split(|byte| *byte == b'\n').next().map(String::from_utf8_lossy);
    let first = first.unwrap_or_default();
    let fields: Vec<&str> = first.split_whitespace().collect();
    let [time, value, step] = fields[..] else { return false };
    let is_time = time.len() == 13 && time.parse::<u64>().is_ok();
    is_time && value.parse::<f64>().is_ok() && step.parse::<u64>().is_ok()
}

fn is_console(text: &[u8]) -> bool {
    String::from_utf8_lossy(&text[..text.len().min(1 << 20)]).lines().any(|line| {
        let step = line.split_once("step:").and_then(|(_, rest)| rest.split_once(" - "));
        step.is_some_and(|(step, rest)| step.parse::<u64>().is_ok() && rest.contains(':'))
    })
}

fn way(path: &Path, is_folder: bool, text: &[u8]) -> Option<&'static str> {
    let file = || path.file_name().map(|name| name.to_string_lossy().into_owned());
    let names = if is_folder { files::list(path).ok()? } else { Vec::from_iter(file()) };
    let has = |end: &str| names.iter().any(|name| name.ends_with(end));
    let is_own = is_folder && (has("manifest.json") || names.iter().any(|name| name == "cells"));
    if is_own || text.starts_with(b"{\"counters\":") {
        return Some(
            "it is of a run or study of dapo: `dapo export STUDY --csv` writes the curves of a study into \
             STUDY/export/metrics.csv, `dapo export RUN --tensorboard` those of a run into the folder `export` beside it",
        );
    }
    if has(".wandb") {
        return Some(
            "it is what W&B keeps for itself: `wandb sync` the run and export a chart as CSV, or write its history, \
             as W&B's API gives it, as CSV",
        );
    }
    if is_folder && names.iter().any(|name| name == "meta.yaml") {
        return Some(MLFLOW);
    }
    has(".db").then_some(
        "it is a database, such as trackio's: `trackio get metric --project P --run R --metric M --json > FILE` \
         writes a curve of it",
    )
}

/// The last `seed=3`, `seed: 3`, `seed_3`, `seed3` or, where there is none, `s3`, as a word of a name or a path.
fn seed(name: &str) -> Option<u64> {
    name[seed_in(name)?].parse().ok()
}

fn seed_in(name: &str) -> Option<Range<usize>> {
    let of = |word: &str| {
        let rule = format!(r"(?is)^(?:.*[^a-z0-9]|){word}(\d{{1,18}})(?:[^a-z0-9]|$)");
        let word = Regex::new(&rule).expect("a fixed expression").captures(name)?;
        Some(word.get(1)?.range())
    };
    of("seed(?:[=_-]|:? ?)").or_else(|| of("s[=_-]?"))
}

/// A run's name without its seed and a number at its end: runs of one method have the same.
pub fn without_seed(name: &str) -> String {
    let seed = seed_in(name).unwrap_or_default();
    let name = [&name[..seed.start], &name[seed.end..]].concat();
    name.trim_end_matches(|character: char| character.is_ascii_digit()).to_string()
}

fn refused(path: &Path, reason: String) -> TableError {
    TableError::File(FileError::Json { path: path.to_path_buf(), reason })
}

const MISSING: [&str; 3] = ["null", "none", "nan"];

impl Unread {
    fn is_of_numbers(&self) -> bool {
        let first = self.first_number.as_ref();
        first.is_some_and(|(_, text)| !text.contains(char::is_alphabetic) && !rows::is_time(text))
    }
}

impl TrackedRun {
    fn new(path: &Path, format: &'static str, name: &str) -> Self {
        let notes = TrackedNotes { format, ..TrackedNotes::default() };
        let name = if name.is_empty() { path.display().to_string() } else { name.to_string() };
        Self { name, path: path.to_path_buf(), notes, ..Self::default() }
    }

    fn skip(&mut self, metric: &str, line: usize, text: Option<&str>) {
        let unread = self.unread.entry(metric.to_string()).or_default();
        let is_null = |text: &str| MISSING.iter().any(|word| text.eq_ignore_ascii_case(word));
        let Some(text) = text.filter(|text| !is_null(text)) else {
            unread.nulls += 1;
            return;
        };
        unread.texts += 1;
        unread.first_text.get_or_insert_with(|| text.to_string());
        if text.contains(char::is_numeric) {
            unread.first_number.get_or_insert_with(|| (line, text.to_string()));
        }
    }

    fn cut(&mut self, step: f64, gives_way: impl Fn(&str) -> bool) {
        for (metric, curve) in self.curves.iter_mut().filter(|(metric, _)| gives_way(metric)) {
            let kept = curve.partition_point(|(at, _)| *at < step);
            self.replaced.entry(metric.clone()).or_default().points += curve.len() - kept;
            curve.truncate(kept);
        }
        for (_, clock) in self.seconds.iter_mut().filter(|(metric, _)| gives_way(metric)) {
            clock.truncate(clock.partition_point(|(at, _)| *at < step));
        }
        self.curves.retain(|_, curve| !curve.is_empty());
        self.seconds.retain(|_, clock| !clock.is_empty());
    }

    /// As TensorBoard shows it (`EventAccumulator`).
    fn restart(&mut self, step: f64) {
        self.cut(step, |_| true);
        for replaced in self.replaced.values_mut() {
            replaced.first_and_has_other.retain(|at, _| f64::from_bits(*at) < step);
        }
    }

    /// The point takes the place of those at its step and after it.
    fn put(&mut self, metric: &str, step: f64, value: f64, seconds: Option<f64>) {
        let replaced = put(&mut self.curves, metric, (step, value));
        let of_metric = self.replaced.entry(metric.to_string()).or_default();
        of_metric.points += replaced;
        let new = (value.to_bits(), false);
        let first = of_metric.first_and_has_other.entry(step.to_bits()).or_insert(new);
        first.1 |= first.0 != new.0;
        if let Some(seconds) = seconds {
            put(&mut self.seconds, metric, (step, seconds));
        }
    }
}

fn put(curves: &mut BTreeMap<String, TrackedCurve>, metric: &str, point: (f64, f64)) -> usize {
    let curve = curves.entry(metric.to_string()).or_default();
    let kept = curve.partition_point(|(at, _)| *at < point.0);
    let is_other = |it: &&(f64, f64)| it.0 != point.0 || it.1.to_bits() != point.1.to_bits();
    let replaced = curve[kept..].iter().filter(is_other).count();
    curve.truncate(kept);
    curve.push(point);
    replaced
}

const NO_SCALAR: &str = "a tensor that is not one float or double";

fn of_events(path: &Path, is_folder: bool) -> Result<TrackedRun, TableError> {
    let mut run = TrackedRun::new(path, "TensorBoard", "");
    run.notes.has_times = true;
    let names = if is_folder { files::list(path)? } else { vec![String::new()] };
    for name in names.iter().filter(|name| name.contains(".tfevents.") || !is_folder) {
        let path = if is_folder { foreign::inside(path, name)? } else { path.to_path_buf() };
        let (logged, is_cut) = event_file::read(&files::read(&path)?)
            .map_err(|at| refused(&path, format!("the record at byte {at} is damaged")))?;
        run.notes.is_cut |= is_cut;
        for logged in logged {
            match logged {
                Logged::Scalar(event_file::Scalar { tag, step, value }, seconds) => {
                    run.put(&tag, step as f64, value, Some(seconds));
                }
                Logged::NoScalar(tag) => run.skip(&tag, 0, Some(NO_SCALAR)),
                Logged::Restart(step) => run.restart(step as f64),
            }
        }
    }
    Ok(run)
}

fn of_trackio(path: &Path, document: &Value) -> Result<Option<TrackedRun>, TableError> {
    let (Some(metric), Some(points)) = (document["metric"].as_str(), document["values"].as_array())
    else {
        return Ok(None);
    };
    let mut run = TrackedRun::new(path, "trackio", document["run"].as_str().unwrap_or_default());
    run.notes.has_times = true;
    let seconds = |point: &Value| {
        let time = point["timestamp"].as_str()?.replace("+00:00", "Z");
        let time = humantime::parse_rfc3339_weak(&time).ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some(time.as_secs_f64())
    };
    for (place, point) in points.iter().enumerate() {
        let (Some(step), Some(seconds)) = (point["step"].as_f64(), seconds(point)) else {
            let reason = format!(
                "`values[{place}]` of trackio's document needs a number `step` and a `timestamp` in UTC, such as \
                 2026-11-28T21:57:57+00:00"
            );
            return Err(refused(path, reason));
        };
        run.put(metric, step, number(&point["value"]).unwrap_or(f64::NAN), Some(seconds));
    }
    Ok(Some(run))
}

const NOT_FINITE: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

pub fn quoted_not_finite(text: &str) -> String {
    format::with_not_finite_as(text, |word| format!("\"{word}\"")).into_owned()
}

/// Of a file in which Python may have written NaN. That of a trainer that was killed while it wrote ends in the middle of
/// a line, which is left out and told.
pub fn whole_lines(
    path: &Path,
    quoted: &str,
) -> Result<(Vec<Map<String, Value>>, bool), FileError> {
    let (whole, last) = quoted.rsplit_once('\n').unwrap_or(("", quoted));
    let parsed = serde_json::from_str::<Map<String, Value>>(last);
    let is_cut = !last.is_empty() && parsed.is_err_and(|error| error.is_eof());
    let kept = if is_cut { whole } else { quoted };
    Ok((files::parse_lines(path, kept.as_bytes())?, is_cut))
}

pub fn number(value: &Value) -> Option<f64> {
    let named = |word: &&str| NOT_FINITE.contains(word);
    value.as_f64().or_else(|| value.as_str().filter(named)?.parse().ok())
}

/// trackio's document, TRL's `trainer_state.json`, or lines: `{"step": 1, "data": {…}}` (verl/utils/tracking.py,
/// `FileLogger`), or values beside the step.
fn of_json(
    path: &Path,
    x: Option<&str>,
    metric: Option<&str>,
) -> Result<Vec<TrackedRun>, TableError> {
    let text = quoted_not_finite(files::read_text(path)?.trim_start_matches('\u{feff}'));
    let mut document: Value = serde_json::from_str(&text).unwrap_or_default();
    if let Some(run) = of_trackio(path, &document)? {
        return Ok(vec![run]);
    }
    let history: Option<Vec<Map<String, Value>>> =
        serde_json::from_value(document["log_history"].take()).ok();
    let format =
        history.as_ref().map_or("JSON lines, as verl's file log", |_| "TRL's trainer_state.json");
    let (lines, is_cut) = match history {
        Some(history) => (history, false),
        None => whole_lines(path, &text)?,
    };
    if is_cut && lines.is_empty() {
        return Err(csv_rows::at(path, 1, "the line is cut off: copy the file again".to_string()));
    }
    let has = |name: &str| lines.iter().any(|line| line.contains_key(name));
    let named = STEPS.iter().find(|name| Some(**name) == x && has(name));
    let usual = STEPS.iter().find(|name| has(name));
    let other = usual
        .filter(|name| **name == CALLS && named.is_none())
        .and_then(|_| global_steps(&lines, |line, name| line.get(name).and_then(number), metric));
    let is_chosen = |name: &&&str| other.is_some_and(|it| it.is_whole && it.name == **name);
    let chosen = STEPS.iter().find(is_chosen);
    let names = named.or(chosen).map_or(&STEPS[..], std::slice::from_ref);
    let mut rows = Vec::new();
    for (line, object) in (1..).zip(&lines) {
        if chosen.is_some_and(|name| !object.contains_key(*name)) {
            continue;
        }
        let stated = names.iter().find_map(|name| Some((name, object.get(*name)?)));
        let step = stated.and_then(|(_, step)| step.as_f64()).ok_or_else(|| {
            let reason = r#"a line of verl's log is {"step": 1, "data": {…}}"#;
            let absent = || format!("no `{}`; {reason}", names[0]);
            let no_number = |(name, value)| format!("`{name}`: expected a number, got {value}");
            csv_rows::at(path, line, stated.map_or_else(absent, no_number))
        })?;
        let data = object.get("data").and_then(Value::as_object);
        let is_read = |(name, value): &(&String, &Value)| {
            data.is_none() || RUNS.contains(&name.as_str()) || !value.is_number()
        };
        let cells = object.iter().filter(is_read).chain(data.into_iter().flatten());
        let cells = cells.filter_map(|(name, value)| Some((name.as_str(), cell_of_json(value)?)));
        rows.push(TrackedRow { line, step, tag: "", cells: cells.collect() });
    }
    let mut runs = rows::runs(path, format, rows, x)?;
    for run in &mut runs {
        run.notes.is_cut = is_cut;
        run.notes.steps_of = other.map(GlobalSteps::order);
    }
    let nested = lines.iter().flatten().find(|(name, value)| *name != "data" && value.is_object());
    if let Some((name, _)) = nested.filter(|_| runs.iter().all(|run| run.curves.is_empty())) {
        let name = visible::shortened(name, 40);
        let reason = format!(
            "it has no value of any metric: those in `{name}` are nested; write each beside its step, such as \
             {{\"step\": 1, \"{name}/accuracy\": 0.5}}"
        );
        return Err(refused(path, reason));
    }
    Ok(runs)
}

#[derive(Clone, Copy)]
struct GlobalSteps {
    name: &'static str,
    is_whole: bool,
}

impl GlobalSteps {
    fn order(self) -> [&'static str; 2] {
        if self.is_whole { [self.name, CALLS] } else { [CALLS, self.name] }
    }
}

fn global_steps<R>(
    rows: &[R],
    number: impl Fn(&R, &str) -> Option<f64>,
    metric: Option<&str>,
) -> Option<GlobalSteps> {
    let differs = |row: &R, name: &str| {
        number(row, CALLS).zip(number(row, name)).is_some_and(|(calls, steps)| calls != steps)
    };
    let metric = metric.filter(|it| rows.iter().any(|row| number(row, it).is_some()));
    let is_of_metric = |row: &&R| metric.is_none_or(|metric| number(row, metric).is_some());
    let differing = GLOBAL_STEPS.into_iter().filter(|name| rows.iter().any(|it| differs(it, name)));
    let differing = differing.map(|name| {
        let is_whole = rows.iter().filter(is_of_metric).all(|row| number(row, name).is_some());
        GlobalSteps { name, is_whole }
    });
    differing.reduce(|best, next| if best.is_whole { best } else { next })
}

fn cell_of_json(value: &Value) -> Option<Cell<'_>> {
    match (number(value), value) {
        (Some(number), _) => Some(Cell::Number(number)),
        (None, Value::String(text)) => Some(Cell::Text(text)),
        (None, Value::Bool(true)) => Some(Cell::Text("true")),
        (None, Value::Bool(false)) => Some(Cell::Text("false")),
        (None, Value::Null) => Some(Cell::Null),
        (None, _) => None,
    }
}

fn of_csv(
    path: &Path,
    x: Option<&str>,
    metric: Option<&str>,
) -> Result<Vec<TrackedRun>, TableError> {
    let (header, records) = csv_rows::read(path)?;
    let mut columns = header.iter().skip(1).peekable();
    let is_export = columns.peek().is_some() && columns.all(|name| name.contains(" - "));
    let has_steps = header.iter().any(|name| STEPS.contains(&name));
    if header.iter().any(|name| name == "arm") && !has_steps {
        return read_table(path);
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

#[derive(Deserialize)]
struct TableRow {
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
pub fn read_table(path: &Path) -> Result<Vec<TrackedRun>, TableError> {
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
        let mut run = TrackedRun { seed, curves, ..TrackedRun::new(path, TABLE, &name) };
        for name in header.iter().filter(|name| !OWN.contains(name)) {
            run.skip(name, line, None);
        }
        runs.push(run);
    }
    Ok(runs)
}

#[cfg(test)]
mod tests;
