//! Outcomes as a table or JSON lines: usual names, verl's dumps of rollouts, lm-eval's samples.

use crate::base::files::{self, FileError, foreign};
use crate::records::GradedTable;
use crate::records::tables::graded::{self, ColumnNames, Graded};
use crate::records::tables::problem_rows::{self, WantedKeys};
use crate::records::tables::{Refusal, TableError, csv_rows, format};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Line = Map<String, Value>;

type GradedColumns = (String, Option<String>, String);

/// Columns by whose values rows are parts of something, beside their names with `_id` or `_name`.
const PARTS: [&str; 13] = [
    "set",
    "testset",
    "dataset",
    "datasource",
    "source",
    "split",
    "benchmark",
    "problem",
    "question",
    "task",
    "item",
    "sample",
    "metric",
];

pub fn names_parts(name: &str) -> bool {
    let plain = name.to_lowercase().replace(['_', ' ', '-'], "");
    let plain = plain.strip_suffix("name").or(plain.strip_suffix("id")).unwrap_or(&plain);
    PARTS.contains(&plain)
}

/// Keys of lm-eval whose numbers are no metrics.
const LM_EVAL: [&str; 5] = ["doc_id", "doc", "target", "idx", "task_id"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    Anybody,
    /// `input`, `output`, `gts`, `score`, `step`: prompt and ground truth name a problem.
    Verl,
    /// `doc_id`, `resps`, `filter` and metrics: a document has a line for each filter.
    LmEval,
}

/// NaN may be in keys that nobody reads.
fn parsed(path: &Path, number: usize, bytes: &[u8]) -> Result<Option<Line>, FileError> {
    files::parse_line(path, number, bytes).or_else(|refused| {
        let text = std::str::from_utf8(bytes).map_err(|_| refused)?;
        let text = format::with_not_finite_as(text, |_| "null".to_string());
        files::parse_line(path, number, text.as_bytes())
    })
}

/// JSON lines (`.jsonl`, `.json`, `.ndjson`), CSV with a line of names (tabs in a `.tsv`), or parquet; of another name
/// what its first bytes tell. Truth values are booleans, `true` and `false` in any case, or 0 and 1. Errors: a file of
/// another format; a line without a column or truth value; more than one possible column, filter or step.
pub fn read(path: &Path, names: &ColumnNames) -> Result<GradedTable, TableError> {
    format::check(path, "parquet, CSV or JSON lines", true)?;
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("");
    let extension = extension.to_ascii_lowercase();
    let is_named = |names: &[&str]| names.contains(&extension.as_str());
    let begins = |mark: &[u8]| !is_named(&["csv", "tsv", "parquet"]) && format::begins(path, mark);
    let mut outcomes = LineReader::new(path, names);
    if is_named(&["jsonl", "json", "ndjson"]) || begins(b"{") {
        let file = std::io::BufReader::new(foreign::open(path)?);
        foreign::each_line(path, file, foreign::DATA, |number, bytes| {
            let line = parsed(path, number, bytes)?;
            line.map_or(Ok(()), |line| outcomes.take(number, &line))
        })?;
    } else if is_named(&["parquet"]) || begins(b"PAR1") {
        let present = problem_rows::column_names(path)?;
        let columns = graded::choose(path, names, &present)?;
        let wanted = wanted(&columns, &present);
        outcomes.chosen = Some((Writer::Anybody, columns));
        let mut number = 0;
        problem_rows::each_problem_row(path, &wanted, &mut |_, row| {
            number += 1;
            outcomes.take(number, &row)
        })?;
    } else {
        let (header, records) = csv_rows::read(path)?;
        let present: Vec<String> = header.iter().map(str::to_string).collect();
        outcomes.chosen = Some((Writer::Anybody, graded::choose(path, names, &present)?));
        for record in records {
            let (number, record) = record?;
            let pairs = header.iter().zip(&record);
            let line = pairs.map(|(name, text)| (name.to_string(), text.trim().into()));
            outcomes.take(number, &line.collect())?;
        }
    }
    outcomes.table()
}

fn wanted((problem, sample, correct): &GradedColumns, present: &[String]) -> WantedKeys {
    let others = present
        .iter()
        .filter(|name| Some(*name) == sample.as_ref() || tells_apart(name))
        .filter(|name| ![problem, correct].contains(name));
    WantedKeys {
        question: vec![problem.clone()],
        answer: vec![correct.clone()],
        others: others.cloned().collect(),
        all: false,
    }
}

struct LineReader<'a> {
    path: &'a Path,
    names: &'a ColumnNames,
    chosen: Option<(Writer, GradedColumns)>,
    rows: Vec<Graded>,
    filters: BTreeSet<String>,
    left_out: usize,
    steps: BTreeSet<i64>,
    /// What tells the rows of a problem apart, by problem.
    parts: BTreeMap<String, Vec<(String, String)>>,
}

impl<'a> LineReader<'a> {
    fn new(path: &'a Path, names: &'a ColumnNames) -> Self {
        let (rows, parts) = (Vec::new(), BTreeMap::new());
        let (filters, steps) = (BTreeSet::new(), BTreeSet::new());
        Self { path, names, chosen: None, rows, filters, left_out: 0, steps, parts }
    }

    /// Such as `exact_match,strict-match`, from lm-eval's results.
    fn filter(&self) -> Option<&'a str> {
        Some(self.names.correct.as_deref()?.split_once(',')?.1)
    }

    fn take(&mut self, number: usize, line: &Line) -> Result<(), TableError> {
        let at = |reason: String| csv_rows::at(self.path, number, reason);
        let (writer, columns) = match self.chosen.clone() {
            Some(chosen) => chosen,
            None => {
                let writer = writer(line, self.names);
                let columns = columns(self.path, line, writer, self.names)?;
                self.chosen.insert((writer, columns)).clone()
            }
        };
        let (problem, sample, correct) = &columns;
        if writer == Writer::LmEval
            && let Some(filter) = line.get("filter").and_then(Value::as_str)
        {
            if self.filter().is_some_and(|wanted| wanted != filter) {
                self.left_out += 1;
                return Ok(());
            }
            self.filters.insert(filter.to_string());
        }
        if writer == Writer::Verl {
            self.steps.extend(line.get("step").and_then(Value::as_i64));
        }
        let name = |key: &str, flag: &str| name(line, key, flag).map_err(at);
        let problem = match writer {
            Writer::Verl if problem == "input" => prompt_name(line),
            Writer::LmEval if problem == "doc_id" => {
                let hash = line.get("doc_hash").and_then(Value::as_str).unwrap_or_default();
                let hash: String = hash.chars().take(8).collect();
                [name(problem, "problem")?, hash].join("/").trim_end_matches('/').to_string()
            }
            _ => name(problem, "problem")?,
        };
        let is_correct = outcome(line, correct, writer).map_err(at)?;
        if self.rows.len() == graded::MOST_ROWS {
            return Err(at(format!("more than {} rows", graded::MOST_ROWS)));
        }
        if writer == Writer::Anybody {
            self.check_is_one_problems(&problem, line, &columns).map_err(at)?;
        }
        let sample = sample.as_deref().map(|key| name(key, "sample")).transpose()?;
        self.rows.push(Graded { problem, sample, is_correct });
        Ok(())
    }

    /// Errors: a row that another set, model or metric than the problem's first row has.
    fn check_is_one_problems(
        &mut self,
        problem: &str,
        line: &Line,
        (key, sample, correct): &GradedColumns,
    ) -> Result<(), String> {
        let own = [Some(key), Some(correct), sample.as_ref()];
        let is_own = |key: &String| own.contains(&Some(key));
        let told = line.iter().filter(|(key, _)| tells_apart(key) && !is_own(key));
        let told = told.map(|(key, value)| (key.clone(), cut(&value.to_string())));
        let told: Vec<(String, String)> = told.collect();
        let first = self.parts.entry(problem.to_string()).or_insert_with(|| told.clone());
        let Some((key, value)) = told.iter().find(|it| !first.contains(it)) else {
            return Ok(());
        };
        let of_first = first.iter().find(|it| it.0 == *key).map_or("nothing", |it| &it.1);
        Err(format!(
            "problem `{}` has rows of `{key}` {of_first} and of {value}, which are not one problem's samples: keep the \
             rows of one `{key}` in a file, or write it into the problem's name",
            cut(problem)
        ))
    }

    fn table(self) -> Result<GradedTable, TableError> {
        let (path, named) = (self.path, self.filter());
        let Some((_, columns)) = self.chosen else {
            return Err(ambiguous(path, "no line", String::new()));
        };
        if self.filters.len() > 1 {
            let filters = self.filters.iter().map(|filter| format!("{},{filter}", columns.2));
            let what = "several filters; choose one with --correct-column";
            return Err(ambiguous(path, what, filters.collect::<Vec<_>>().join(" or ")));
        }
        if let Some(filter) = named.filter(|_| self.rows.is_empty() && self.left_out > 0) {
            return Err(ambiguous(path, "no line of the filter", filter.to_string()));
        }
        if self.steps.len() > 1 {
            let steps: Vec<String> = self.steps.iter().map(i64::to_string).collect();
            let what = "rollouts of several steps, a file of one is compared";
            return Err(ambiguous(path, what, steps.join(", ")));
        }
        Ok(GradedTable { rows: self.rows, columns })
    }
}

fn value<'a>(line: &'a Line, key: &str) -> Result<&'a Value, String> {
    let inside = || {
        let (first, rest) = key.split_once('.')?;
        line.get(first)?.get(rest)
    };
    let value = line.get(key).or_else(inside);
    value.ok_or_else(|| format!("no key `{key}`, which the first line has"))
}

fn name(line: &Line, key: &str, flag: &str) -> Result<String, String> {
    let value = value(line, key)?;
    let number = whole(value);
    let is_name = value.is_string() || number.is_some();
    let text = number.or_else(|| value.as_str().map(str::to_string));
    let text = text.unwrap_or_else(|| value.to_string());
    if is_name && !text.is_empty() && text.len() <= graded::MOST_NAME_BYTES {
        return Ok(text);
    }
    let (expected, got) = ("text of at most 1024 bytes or an integer", cut(&text));
    Err(format!("`{key}`: expected {expected}, got `{got}`; name another with --{flag}-column"))
}

fn outcome(line: &Line, key: &str, writer: Writer) -> Result<bool, String> {
    let value = value(line, key)?;
    truth(value, writer).ok_or_else(|| {
        let got = value.as_str().map_or_else(|| value.to_string(), str::to_string);
        let reason = format!("`{key}`: expected true, false, 0 or 1, got `{}`", cut(&got));
        let is_mean = writer == Writer::LmEval && value.is_f64();
        let mean = "a mean over responses, as lm-eval writes of repeats, is no outcome: log each response, or ";
        let mean = if is_mean { mean } else { "" };
        format!("{reason}; {mean}name another with --correct-column")
    })
}

/// pandas makes floats of integers in a column with gaps.
fn whole(value: &Value) -> Option<String> {
    let exact = |it: &f64| it.fract() == 0.0 && it.abs() <= (1u64 << 53) as f64;
    let of_float = || value.as_f64().filter(exact).map(|it| (it as i64).to_string());
    if value.is_i64() || value.is_u64() { Some(value.to_string()) } else { of_float() }
}

fn tells_apart(name: &str) -> bool {
    let is_model = ["model", "model_name", "model_id"].contains(&name);
    (is_model || names_parts(name)) && !graded::SAMPLE_NAMES.contains(&name)
}

fn ambiguous(path: &Path, what: &str, candidates: String) -> TableError {
    Refusal::Ambiguous { what: what.to_string(), candidates: cut(&candidates) }.of(path)
}

fn writer(line: &Line, names: &ColumnNames) -> Writer {
    let has = |keys: &[&str]| keys.iter().all(|key| line.contains_key(*key));
    match () {
        () if names.problem.is_some() => Writer::Anybody,
        () if has(&["input", "output", "score"]) => Writer::Verl,
        () if has(&["doc_id"]) && (has(&["resps"]) || has(&["filtered_resps"])) => Writer::LmEval,
        () => Writer::Anybody,
    }
}

fn columns(
    path: &Path,
    line: &Line,
    writer: Writer,
    names: &ColumnNames,
) -> Result<GradedColumns, TableError> {
    let text = |text: &str| Some(text.to_string());
    let (problem, correct) = match writer {
        Writer::Anybody => (names.problem.clone(), names.correct.clone()),
        Writer::Verl => {
            let usual = if line.contains_key("acc") { "acc" } else { "score" };
            (text("input"), names.correct.clone().or_else(|| text(usual)))
        }
        Writer::LmEval => (text("doc_id"), Some(metric_of_lm_eval(path, line, names)?)),
    };
    // Rows of a prompt or document are its samples.
    let no_sample = names.no_sample || (writer != Writer::Anybody && names.sample.is_none());
    let mut present: Vec<String> = line.keys().cloned().collect();
    for (key, value) in line {
        let inside = value.as_object().into_iter().flat_map(Map::keys);
        present.extend(inside.map(|name| format!("{key}.{name}")));
    }
    let or_nested = |named: Option<String>, usual: &[&str]| -> Result<Option<String>, TableError> {
        if named.is_some() || present.iter().any(|name| usual.contains(&name.as_str())) {
            return Ok(named);
        }
        let inner =
            |name: &&String| name.rsplit_once('.').is_some_and(|(_, last)| usual.contains(&last));
        let mut found: Vec<String> = present.iter().filter(inner).cloned().collect();
        if found.len() > 1 {
            let what = "several keys could be meant; name one with --problem-column, --sample-column or --correct-column";
            return Err(ambiguous(path, what, found.join(", ")));
        }
        Ok(found.pop())
    };
    let sample = || or_nested(names.sample.clone(), &graded::SAMPLE_NAMES);
    let chosen = ColumnNames {
        problem: or_nested(problem, &graded::PROBLEM_NAMES)?,
        sample: if no_sample { None } else { sample()? },
        correct: or_nested(correct, &graded::CORRECT_NAMES)?,
        no_sample,
    };
    graded::choose(path, &chosen, &present)
}

fn metric_of_lm_eval(path: &Path, line: &Line, names: &ColumnNames) -> Result<String, TableError> {
    if let Some(correct) = &names.correct {
        return Ok(correct.split(',').next().unwrap_or_default().to_string());
    }
    let is_metric = |(key, value): &(&String, &Value)| {
        (value.is_number() || value.is_boolean()) && !LM_EVAL.contains(&key.as_str())
    };
    let metrics: Vec<&str> = match line.get("metrics").and_then(Value::as_array) {
        Some(stated) => stated.iter().filter_map(Value::as_str).collect(),
        None => line.iter().filter(is_metric).map(|(key, _)| key.as_str()).collect(),
    };
    let [metric] = metrics[..] else {
        let what = "no metric or several; choose one with --correct-column";
        return Err(ambiguous(path, what, metrics.join(", ")));
    };
    Ok(metric.to_string())
}

/// It ends with a digest of prompt and ground truth.
fn prompt_name(line: &Line) -> String {
    let text = |key: &str| line.get(key).map(Value::to_string).unwrap_or_default();
    let (input, truth) = (text("input"), text("gts"));
    let digest = files::sha256(format!("{input}\n{truth}").as_bytes());
    let input = line.get("input").and_then(Value::as_str).unwrap_or_default();
    let start: String =
        input.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(60).collect();
    format!("{start} ({})", &digest[..12])
}

fn truth(value: &Value, writer: Writer) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::Number(number) => match number.as_f64()? {
            1.0 => Some(true),
            0.0 => Some(false),
            // A wrong response by Eq. 7.
            -1.0 if writer == Writer::Verl => Some(false),
            _ => None,
        },
        Value::String(text) => match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "1.0" => Some(true),
            "false" | "0" | "0.0" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn cut(text: &str) -> String {
    text.chars().take(200).collect()
}
