//! Curves that other programs tracked. The format is recognised by its content.

mod csv;
mod events;
pub mod json;
mod rows;
mod steps;
pub mod table;

use crate::base::files::{self, FileError, FileKind};
use crate::base::visible;
use crate::records::event_file;
use crate::records::tables::{TableError, csv_rows, format};
use regex::Regex;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};

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

/// CSV with a row a run: `arm`, `value` and, where there is one, `seed`.
pub const TABLE: &str = "a table of runs";

/// The runs of a file, or the run of a folder of event files. `x` is the column that stands in for steps in a file
/// without them, or with several. Errors: a file that cannot be read, of an unknown format or without a value, with
/// file and line.
pub fn read(path: &Path, x: &str, metric: Option<&str>) -> Result<Vec<TrackedRun>, TableError> {
    // `steps` are those of any name.
    let x = Some(x).filter(|x| !["", "steps"].contains(x));
    let is_folder = files::kind(path)? == Some(FileKind::Folder);
    let bytes = if is_folder { Vec::new() } else { files::read(path)? };
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let way = way(path, is_folder, text);
    let mut runs = if is_folder || event_file::is_event_file(&bytes) {
        vec![events::read(path, is_folder)?]
    } else if text.trim_ascii_start().starts_with(b"{") {
        json::read(path, x, metric)
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
        csv::read(path, x, metric)?
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

#[cfg(test)]
mod tests;
