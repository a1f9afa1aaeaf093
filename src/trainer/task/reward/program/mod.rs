//! A user's program as the verifier. A Python file has one function or several with weights, which worker processes
//! call (`bridge.py`): verl's `compute_score`, a reward function of TRL, or `grade(response, answer)`. A command gets a
//! line of JSON for each response ([`Asked`]) and answers with one: a number, a truth value, a dictionary with `score`
//! (and `acc`, `pred`, further numbers), or one with `error`.

pub mod answer;
mod descendants;
mod pipes;
pub mod worker;

use crate::base::files::{self, FileError, FileKind, foreign};
use crate::base::{visible, workers};
use crate::experiment::{ProgramKind, RewardProgram};
use crate::task::TaskError;
use crate::task::reward::Grade;
use crate::task::reward::program::answer::{Ready, Returned};
use crate::task::reward::program::worker::Worker;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A response to grade, as the function sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Asked {
    pub prompt: Value,
    pub response: String,
    /// As it stands in the data: a text, or any other value.
    pub ground_truth: Value,
    pub data_source: String,
    /// verl's `extra_info`; of a row without it TRL's further columns.
    pub extra: Map<String, Value>,
    /// TRL's further columns beside `extra_info`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub columns: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_ids: Option<Vec<u32>>,
}

impl Asked {
    /// Takes `data_source` and an object `extra_info` out of a problem's further columns; without it the others are the
    /// extra ones. A `ground_truth` among them is the one that the program gets.
    pub fn new(
        prompt: Value,
        response: String,
        ground_truth: String,
        mut columns: Map<String, Value>,
    ) -> Self {
        let data_source = match columns.remove("data_source") {
            Some(Value::String(text)) => text,
            None | Some(Value::Null) => String::new(),
            Some(other) => other.to_string(),
        };
        let stated = columns.get("ground_truth").filter(|it| !it.is_null());
        let ground_truth = stated.cloned().unwrap_or(Value::String(ground_truth));
        let extra = columns.remove("extra_info").map(extra_info);
        if !matches!(extra, Some(Value::Object(_))) {
            columns.retain(|key, value| key != "ground_truth" || value.is_null());
        }
        let (extra, columns) = match extra {
            Some(Value::Object(extra)) => (extra, columns),
            None | Some(Value::Null) => (columns, Map::new()),
            Some(other) => {
                columns.insert("extra_info".to_string(), other);
                (columns, Map::new())
            }
        };
        Self { prompt, response, ground_truth, data_source, extra, columns, completion_ids: None }
    }
}

/// An object that a file has as JSON in a text, as CSV must, is the object.
pub fn extra_info(stated: Value) -> Value {
    let inside = stated.as_str().filter(|text| text.trim_start().starts_with('{'));
    match inside.and_then(|text| serde_json::from_str(text).ok()) {
        Some(object) => Value::Object(object),
        None => stated,
    }
}

/// Why a response has no grade.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Ungraded {
    #[error("the program raised {0}")]
    Raised(String),
    #[error(
        "the program took longer than {seconds} s for {} and was stopped{seen}",
        if *responses == 1 { "a response".to_string() } else { format!("{responses} responses") }
    )]
    TookTooLong { seconds: f64, responses: usize, seen: String },
    #[error("the program ended its process: {0}")]
    Ended(String),
    #[error("the program failed: {0}")]
    Broke(String),
    #[error(
        "the program wrote more than one line for a response, {0} at last, so that nobody knows which answer belongs to \
         which response: write one line for each; notes belong on standard error"
    )]
    Surplus(String),
    #[error(
        "the program answered the request with the id {asked} with {answered}, so that nobody knows which answer belongs \
         to which response: write one line for each, with its own id in all of them or in none"
    )]
    OtherId { asked: u64, answered: String },
    #[error(
        "the program returned {0}, expected a finite number, a truth value, or a dictionary with `score`"
    )]
    NoNumber(String),
    #[error(
        "the program returned {0}, and TRL leaves such a response out of the mean: drop the problem, or state in \
         `functions` a second function that always returns a number"
    )]
    LeftOut(String),
    #[error("the program returned {0} as `acc`, expected a truth value or a number")]
    NoCorrectness(String),
    #[error("the program returned {returned} rewards for {responses} responses")]
    WrongLength { returned: usize, responses: usize },
    #[error(
        "the program graded the response twice and gave another {field}, {first} and then {second}: it is not \
         deterministic; make it so, or count such responses with `allow_nondeterministic = true` in reward.verifier"
    )]
    Disagrees { field: &'static str, first: String, second: String },
    #[error(
        "the program loaded {0} while it graded, which is not among the recorded files, so that a change of it would \
         not be noticed: load it at the top of the program's file, or list it in `files` where it lies in that folder"
    )]
    Unrecorded(String),
    #[error(
        "the further number `{name}` would be the metric {metric}, which is that of `{other}`: give it another name"
    )]
    NameTaken { name: String, metric: String, other: String },
    #[error("the program failed {0} times before and was not called again")]
    GivenUp(usize),
}

pub type Graded = Result<Grade, Ungraded>;

/// After so many ends and time-outs of a worker in one call the rest is not graded.
const MOST_RESTARTS: usize = 3;

/// Responses that a worker is sent at once.
const CHUNK: usize = 64;

#[derive(Debug)]
pub struct Graders {
    program: RewardProgram,
    ready: Ready,
    idle: Mutex<Vec<Worker>>,
    /// Further numbers that are not recorded as they are, and why: told once.
    odd: Mutex<BTreeMap<String, OddNumber>>,
    named: Mutex<BTreeMap<String, String>>,
}

/// The path of a recorded file: `above-2/…` lies two folders above the program's.
pub fn placed(folder: &Path, name: &str) -> PathBuf {
    let above = name.strip_prefix("above-").and_then(|rest| rest.split_once('/'));
    match above.and_then(|(levels, rest)| Some((levels.parse::<u8>().ok()?, rest))) {
        Some((levels, rest)) => {
            (0..levels).fold(folder.to_path_buf(), |it, _| it.join("..")).join(rest)
        }
        None => folder.join(name),
    }
}

pub const DISAGREEING: &str = "reward/disagreeing_share";

pub fn metric(name: &str) -> String {
    let plain = |it: char| if it.is_ascii_alphanumeric() || "-_.".contains(it) { it } else { '_' };
    format!("reward/{}", name.chars().map(plain).collect::<String>())
}

/// How many responses have no grade, and why the first of them has none; `place` says where it stands.
pub fn not_graded(
    graded: &[Graded],
    place: impl FnOnce(usize) -> String,
) -> Option<(String, &Ungraded)> {
    let errors: Vec<&Ungraded> = graded.iter().filter_map(|it| it.as_ref().err()).collect();
    let (all, first) = (graded.len(), graded.iter().position(Result::is_err)?);
    let failed = if are_lost_together(&errors, all) {
        format!("none of {all} responses was graded")
    } else {
        let (count, number, place) = (errors.len(), first + 1, place(first));
        format!(
            "{count} of {all} responses were not graded; the first is response {number} ({place})"
        )
    };
    Some((failed, errors[0]))
}

fn are_lost_together(errors: &[&Ungraded], responses: usize) -> bool {
    responses > 1 && errors.len() == responses && errors.windows(2).all(|it| it[0] == it[1])
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum OddNumber {
    #[error("is not finite for some responses, which its metric leaves out")]
    NotFinite,
    #[error("differs where a response is graded twice: its metric is not reproducible")]
    Differs,
}

impl Drop for Graders {
    fn drop(&mut self) {
        let _nobody_listens = self.close();
    }
}

impl Graders {
    /// Errors: a Python or command that does not start, a file that cannot be loaded, no function to call.
    pub fn start(program: RewardProgram) -> Result<Self, TaskError> {
        // A name that Python would not find says so here.
        if program.kind != ProgramKind::MathVerify {
            foreign::open(&program.file)?;
        }
        let (worker, ready) = Worker::start(&program)?;
        let (idle, odd) = (Mutex::new(vec![worker]), Mutex::default());
        let own = (DISAGREEING.to_string(), "allow_nondeterministic".to_string());
        let named = Mutex::new(BTreeMap::from([own]));
        Ok(Self { program, ready, idle, odd, named })
    }

    pub fn program(&self) -> &RewardProgram {
        &self.program
    }

    pub fn stated(&self, folder: &Path, name: &str) -> Result<PathBuf, TaskError> {
        let reason = match foreign::inside(folder, name) {
            Ok(path) => match files::kind(&path)? {
                Some(FileKind::File) => return Ok(path),
                Some(_) => "it is a folder".to_string(),
                None => "it is not there".to_string(),
            },
            Err(FileError::Outside { reason, .. }) => reason,
            Err(error) => return Err(error.into()),
        };
        let looked = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let reason = format!(
            "its key `files` names {name:?}, which was looked for in {}: {reason}; name regular \
             files by plain paths from that folder (a link is not followed: list its target)",
            looked.display()
        );
        Err(TaskError::Program { path: self.program.name().into(), reason })
    }

    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// One result for each response, in order.
    pub fn grade(&self, asked: &[Asked]) -> Vec<Graded> {
        // A function that takes batches may compare the responses that it gets with each other.
        let is_batch = self.ready.form.takes_batches();
        let parts = if is_batch { asked.len() } else { asked.len().div_ceil(workers::count()) };
        let is_whole = is_batch || self.program.kind == ProgramKind::Command;
        let chunk = if is_whole { parts } else { CHUNK };
        let parts: Vec<&[Asked]> = asked.chunks(parts.max(1)).collect();
        let graded = workers::on_all_cores(&parts, |part| self.part(part, chunk.max(1)));
        graded.into_iter().flatten().collect()
    }

    pub fn grade_twice(&self, asked: &[Asked]) -> Vec<Graded> {
        let mut graded = self.grade(asked);
        if graded.iter().any(Result::is_ok) {
            self.grade_again(asked, &Vec::from_iter(0..asked.len()), &mut graded);
        }
        graded
    }

    pub fn odd_numbers(&self) -> Vec<String> {
        let odd = self.odd.lock().unwrap_or_else(PoisonError::into_inner);
        let told = |(name, what): (&String, &OddNumber)| {
            let name = visible::shortened(name, 60);
            format!("{}: the further number `{name}` {what}", self.program.name())
        };
        odd.iter().map(told).collect()
    }

    pub fn close(&self) -> Result<(), Ungraded> {
        let mut closed = std::mem::take(&mut *self.idle());
        closed.iter_mut().for_each(Worker::close);
        let end = Instant::now() + worker::CLOSE;
        let left: Vec<Ungraded> = closed.iter_mut().filter_map(|it| it.left(end)).collect();
        left.into_iter().next().map_or(Ok(()), Err)
    }

    pub fn stderr(&self) -> Vec<String> {
        self.idle().iter().map(Worker::stderr).filter(|text| !text.is_empty()).collect()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Worker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_name(&self, name: &str) -> Result<(), Ungraded> {
        let metric = metric(name);
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let first = named.entry(metric.clone()).or_insert_with(|| name.to_string());
        if first == name {
            return Ok(());
        }
        let [name, other] = [name, first].map(|it| visible::shortened(it, 60));
        Err(Ungraded::NameTaken { name, metric, other })
    }

    fn note(&self, name: &str, what: OddNumber) {
        let mut odd = self.odd.lock().unwrap_or_else(PoisonError::into_inner);
        odd.entry(name.to_string()).or_insert(what);
    }

    /// Grades these once more and returns how many differ: they have no grade unless that is allowed. Further
    /// numbers are no part of a grade: they are noted.
    pub fn grade_again(&self, asked: &[Asked], again: &[usize], first: &mut [Graded]) -> u64 {
        let chosen: Vec<Asked> = again.iter().map(|&index| asked[index].clone()).collect();
        let mut disagreeing = 0;
        for (&index, second) in again.iter().zip(self.grade(&chosen)) {
            if let (Ok(first), Ok(second)) = (&first[index], &second) {
                differing_extra(first, second).for_each(|name| self.note(name, OddNumber::Differs));
            }
            let Some(disagreement) = disagreement(&first[index], &second) else { continue };
            disagreeing += 1;
            if !self.program.allow_nondeterministic {
                first[index] = Err(disagreement);
            }
        }
        disagreeing
    }

    fn part(&self, part: &[Asked], chunk: usize) -> Vec<Graded> {
        let mut worker = self.idle().pop();
        let (mut restarts, mut alone) = (0, 0);
        let mut graded = Vec::with_capacity(part.len());
        while graded.len() < part.len() {
            let rest = &part[graded.len()..];
            if restarts > MOST_RESTARTS {
                graded.extend(rest.iter().map(|_| Err(Ungraded::GivenUp(restarts))));
                break;
            }
            let running = match worker.take() {
                Some(worker) => Ok(worker),
                None => Worker::start(&self.program).map(|(worker, _)| worker),
            };
            let mut running = match running {
                Ok(running) => running,
                Err(error) => {
                    graded.extend(rest.iter().map(|_| Err(Ungraded::Broke(error.to_string()))));
                    break;
                }
            };
            let chunk = if graded.len() < alone { 1 } else { chunk };
            let chunk = &rest[..chunk.min(rest.len())];
            let of_batch = graded.len() + chunk.len();
            let (values, lost) = running.ask(chunk);
            graded.extend(values.into_iter().map(|value| self.graded(value?)));
            match lost {
                None => worker = Some(running).filter(|worker| !worker.has_ended()),
                // Any of those that wait may have ended it.
                Some(_) if self.ready.waits && chunk.len() > 1 => alone = of_batch,
                Some(lost) => {
                    (restarts, alone) = (restarts + 1, 0);
                    let is_never =
                        !running.has_answered() && matches!(lost, Ungraded::TookTooLong { .. });
                    let is_whole = self.ready.form.takes_batches() || is_never;
                    let end = if is_whole { of_batch } else { graded.len() + 1 };
                    graded.resize(end, Err(lost));
                }
            }
        }
        self.idle().extend(worker);
        graded
    }

    fn graded(&self, value: Returned) -> Graded {
        let of = |reward, is_correct| Grade { is_correct, reward, ..Grade::default() };
        match value {
            // verl and TRL make a number of it; a grade is a reward as the built-in rules give it.
            Returned::Flag(is_correct) => {
                let wrong = if self.ready.counts_flags() { 0.0 } else { -1.0 };
                Ok(of(if is_correct { 1.0 } else { wrong }, is_correct))
            }
            Returned::Number(number) => Ok(of(number, number > self.program.threshold)),
            Returned::Text(text) => {
                Err(Ungraded::NoNumber(format!("{:?}", visible::shortened(&text, 60))))
            }
            Returned::Other(what) => {
                let is_left_out = what.starts_with("None") && self.ready.is_of_trl();
                let of = if is_left_out { Ungraded::LeftOut } else { Ungraded::NoNumber };
                Err(of(visible::shortened(&what, 90)))
            }
            Returned::Fields(mut fields) => {
                let Some(score) = fields.remove("score") else {
                    return Err(Ungraded::NoNumber("a dictionary without `score`".to_string()));
                };
                let mut grade = self.graded(score)?;
                match fields.remove("acc") {
                    Some(Returned::Flag(is_correct)) => grade.is_correct = is_correct,
                    Some(Returned::Number(share)) => {
                        grade.is_correct = share > self.program.threshold
                    }
                    None => {}
                    Some(other) => return Err(Ungraded::NoCorrectness(shown(&other))),
                }
                grade.prediction = fields.remove("pred").and_then(prediction);
                fields.iter().filter(|(_, value)| is_not_finite(value)).for_each(|(name, _)| {
                    self.note(name, OddNumber::NotFinite);
                });
                grade.extra = fields.into_iter().filter_map(number).collect();
                grade.extra.keys().try_for_each(|name| self.check_name(name))?;
                Ok(grade)
            }
        }
    }
}

fn number((name, value): (String, Returned)) -> Option<(String, f64)> {
    match value {
        Returned::Number(number) => Some((name, number)),
        Returned::Flag(flag) => Some((name, f64::from(flag))),
        Returned::Text(_) | Returned::Other(_) | Returned::Fields(_) => None,
    }
}

/// As Python's `repr` writes them; JSON has null.
fn is_not_finite(value: &Returned) -> bool {
    matches!(value, Returned::Other(what) if ["nan", "inf", "-inf", "null"].contains(&what.as_str()))
}

fn prediction(value: Returned) -> Option<String> {
    match value {
        Returned::Other(what) if ["None", "null"].contains(&what.as_str()) => None,
        Returned::Text(text) | Returned::Other(text) => Some(text),
        Returned::Number(number) => Some(number.to_string()),
        Returned::Flag(flag) => Some(flag.to_string()),
        Returned::Fields(_) => None,
    }
}

fn shown(value: &Returned) -> String {
    match value {
        Returned::Text(text) => format!("the text {:?}", visible::shortened(text, 60)),
        Returned::Other(what) => visible::shortened(what, 60),
        Returned::Number(number) => number.to_string(),
        Returned::Flag(flag) => flag.to_string(),
        Returned::Fields(_) => "a dictionary".to_string(),
    }
}

fn differing_extra<'a>(first: &'a Grade, second: &'a Grade) -> impl Iterator<Item = &'a str> {
    let names = first.extra.keys().chain(second.extra.keys());
    names.filter(|name| first.extra.get(*name) != second.extra.get(*name)).map(String::as_str)
}

/// The first part of two grades that differs, or why there are no two grades.
fn disagreement(first: &Graded, second: &Graded) -> Option<Ungraded> {
    let (first, second) = match (first, second) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(first), Err(second)) if first == second => return None,
        (Err(error), _) | (_, Err(error)) => return Some(error.clone()),
    };
    let prediction = |grade: &Grade| match &grade.prediction {
        Some(text) => format!("{:?}", visible::shortened(text, 60)),
        None => "none".to_string(),
    };
    let label = |grade: &Grade| if grade.is_correct { "correct" } else { "wrong" }.to_string();
    let (field, first, second) = if first.reward != second.reward {
        ("score", first.reward.to_string(), second.reward.to_string())
    } else if first.is_correct != second.is_correct {
        ("acc", label(first), label(second))
    } else if first.prediction != second.prediction {
        ("pred", prediction(first), prediction(second))
    } else {
        return None;
    };
    Some(Ungraded::Disagrees { field, first, second })
}

#[cfg(test)]
mod functions_tests;
#[cfg(test)]
mod tests;
