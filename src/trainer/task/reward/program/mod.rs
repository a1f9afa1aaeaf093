//! A user's Python function as the verifier: verl's `compute_score`, a reward function of TRL, or
//! `grade(response, answer)`, each as it is. Worker processes call it (`bridge.py`).

pub mod worker;

use crate::base::{files, visible, workers};
use crate::task::TaskError;
use crate::task::reward::program::worker::{Ready, Returned, Worker};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// What calls the function, and its limits.
#[derive(Debug, Clone, PartialEq)]
pub struct RewardProgram {
    pub file: PathBuf,
    /// Absent: `compute_score`, `grade`, or the file's only function.
    pub function: Option<String>,
    /// The Python that has what the file imports.
    pub python: String,
    /// A number alone is correct above it.
    pub threshold: f64,
    /// For each response.
    pub seconds: f64,
    /// Address space of a worker.
    pub memory_bytes: u64,
}

/// A response to grade, as the function sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Asked {
    /// A text, or a list of messages.
    pub prompt: Value,
    pub response: String,
    pub ground_truth: String,
    pub data_source: String,
    /// verl's `extra_info`, TRL's further columns.
    pub extra: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProgramGrade {
    /// The dictionary's `acc`, a truth value, or a number above the threshold. Dynamic Sampling looks at this.
    pub is_correct: bool,
    /// The dictionary's `score`, or the number; of a truth value ±1 (Eq. 7). The advantage is of this.
    pub reward: f64,
    /// The dictionary's `pred`.
    pub prediction: Option<String>,
    /// The dictionary's other numbers.
    pub extra: BTreeMap<String, f64>,
}

/// Why a response has no grade.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Ungraded {
    #[error("the function raised {0}")]
    Raised(String),
    #[error("the function took longer than {seconds} s for {responses} responses and was stopped")]
    TookTooLong { seconds: f64, responses: usize },
    #[error("the function ended its process: {0}")]
    Ended(String),
    #[error(
        "the function returned {0}, expected a finite number, a truth value, or a dictionary with `score`"
    )]
    NoNumber(String),
    #[error("the function returned {returned} rewards for {responses} responses")]
    WrongLength { returned: usize, responses: usize },
    #[error("the function graded the response {first} and then {second}: it is not deterministic")]
    Disagrees { first: f64, second: f64 },
    #[error("the function failed {0} times before and was not called again")]
    GivenUp(usize),
}

/// After so many ends and time-outs of a worker in one call the rest is not graded.
const MOST_RESTARTS: usize = 3;

/// Responses that a worker is sent at once.
const CHUNK: usize = 64;

/// Workers that wait for responses.
pub struct Graders {
    program: RewardProgram,
    ready: Ready,
    idle: Mutex<Vec<Worker>>,
}

impl Graders {
    /// Starts a worker, which loads the file.
    ///
    /// # Errors
    /// A Python that does not start, a file that cannot be loaded, or no function that can be called.
    pub fn start(program: RewardProgram) -> Result<Self, TaskError> {
        // A name that Python would not find says so here.
        files::read_text_up_to(&program.file, 1 << 20)?;
        let (worker, ready) = Worker::start(&program)?;
        Ok(Self { program, ready, idle: Mutex::new(vec![worker]) })
    }

    /// What the first worker found.
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// One result for each response, in order.
    pub fn grade(&self, asked: &[Asked]) -> Vec<Result<ProgramGrade, Ungraded>> {
        // A function of TRL may compare the responses that it gets with each other.
        let (parts, chunk) = if self.ready.takes_batches() {
            (asked.len(), asked.len())
        } else {
            (asked.len().div_ceil(workers::count()), CHUNK)
        };
        let parts: Vec<&[Asked]> = asked.chunks(parts.max(1)).collect();
        let graded = workers::on_all_cores(&parts, |part| self.part(part, chunk.max(1)));
        graded.into_iter().flatten().collect()
    }

    /// As [`Graders::grade`], twice: a function that says two things of a response has not graded it.
    pub fn grade_twice(&self, asked: &[Asked]) -> Vec<Result<ProgramGrade, Ungraded>> {
        let first = self.grade(asked);
        if first.iter().any(Result::is_err) {
            return first;
        }
        first
            .into_iter()
            .zip(self.grade(asked))
            .map(|(first, second)| agreed(first, second))
            .collect()
    }

    fn part(&self, part: &[Asked], chunk: usize) -> Vec<Result<ProgramGrade, Ungraded>> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut worker = idle().pop();
        let mut restarts = 0;
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
                    graded.extend(rest.iter().map(|_| Err(Ungraded::Ended(error.to_string()))));
                    break;
                }
            };
            let chunk = &rest[..chunk.min(rest.len())];
            let (values, lost) = running.ask(chunk, self.ready.takes_batches());
            graded.extend(values.into_iter().map(|value| self.graded(value?)));
            match lost {
                None => worker = Some(running),
                Some(lost) => {
                    restarts += 1;
                    graded.push(Err(lost));
                }
            }
        }
        idle().extend(worker);
        graded
    }

    fn graded(&self, value: Returned) -> Result<ProgramGrade, Ungraded> {
        let of = |reward: f64, is_correct| ProgramGrade {
            is_correct,
            reward,
            prediction: None,
            extra: BTreeMap::new(),
        };
        match value {
            Returned::Flag(is_correct) => Ok(of(if is_correct { 1.0 } else { -1.0 }, is_correct)),
            Returned::Number(number) => Ok(of(number, number > self.program.threshold)),
            Returned::Text(text) => {
                Err(Ungraded::NoNumber(format!("{:?}", visible::shortened(&text, 60))))
            }
            Returned::Other(what) => Err(Ungraded::NoNumber(visible::shortened(&what, 60))),
            Returned::Fields(mut fields) => {
                let score = fields.remove("score");
                let Some(score) = score else {
                    return Err(Ungraded::NoNumber("a dictionary without `score`".to_string()));
                };
                let mut grade = self.graded(score)?;
                match fields.remove("acc") {
                    Some(Returned::Flag(is_correct)) => grade.is_correct = is_correct,
                    Some(Returned::Number(share)) => {
                        grade.is_correct = share > self.program.threshold
                    }
                    _ => {}
                }
                if let Some(Returned::Text(prediction)) = fields.remove("pred") {
                    grade.prediction = Some(prediction);
                }
                grade.extra = fields.into_iter().filter_map(number).collect();
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

fn agreed(
    first: Result<ProgramGrade, Ungraded>,
    second: Result<ProgramGrade, Ungraded>,
) -> Result<ProgramGrade, Ungraded> {
    let (first, second) = (first?, second?);
    if first == second {
        return Ok(first);
    }
    Err(Ungraded::Disagrees { first: first.reward, second: second.reward })
}

#[cfg(test)]
mod tests;
