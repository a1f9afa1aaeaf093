//! Lines and documents of JSON.

use crate::base::files::{self, FileError};
use crate::base::visible;
use crate::records::tables::{TableError, csv_rows, format};
use crate::records::tracked::rows::{self, Cell, RUNS, TrackedRow};
use crate::records::tracked::steps::{CALLS, GlobalSteps, STEPS, global_steps};
use crate::records::tracked::{TrackedRun, refused};
use serde_json::{Map, Value};
use std::path::Path;
use std::time::UNIX_EPOCH;

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
pub fn read(
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
