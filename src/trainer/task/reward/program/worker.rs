//! One process that calls the function. It ends with this one, and is started again after it was lost.

use crate::base::python;
use crate::task::TaskError;
use crate::task::reward::program::{Asked, RewardProgram, Ungraded};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const BRIDGE: &str = include_str!("bridge.py");

/// Importing PyTorch on a busy machine takes half a minute.
const LOAD_SECONDS: u64 = 180;

/// An answer is a number, or a dictionary of some.
const MOST_ANSWER_BYTES: u64 = 1 << 20;

/// Of standard error, for messages.
const LAST_BYTES: usize = 2000;

/// The function that a worker has found.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Ready {
    pub function: String,
    form: CallForm,
    /// The version of Python.
    pub python: String,
    /// The program's file and what it imports from its folder, relative to it.
    pub files: Vec<String>,
}

impl Ready {
    /// How the function is called, in words.
    pub fn form(&self) -> &'static str {
        match self.form {
            CallForm::Verl => "as verl calls it",
            CallForm::Trl => "as TRL calls it",
            CallForm::Plain => "with a response and an answer",
        }
    }

    pub fn takes_batches(&self) -> bool {
        self.form == CallForm::Trl
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CallForm {
    Verl,
    Trl,
    Plain,
}

/// What the function returned for a response.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Returned {
    Flag(bool),
    Number(f64),
    Text(String),
    Fields(BTreeMap<String, Returned>),
    /// A type or a value that is no reward.
    Other(String),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Answer {
    Ready(Ready),
    Failed(String),
    Length(usize),
    #[serde(untagged)]
    Value(Returned),
}

#[derive(Debug)]
pub struct Worker {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<Vec<u8>>,
    errors: Arc<Mutex<Vec<u8>>>,
    seconds: f64,
}

impl Worker {
    pub fn start(program: &RewardProgram) -> Result<(Self, Ready), TaskError> {
        let failed = |reason: String| TaskError::Program { path: program.file.clone(), reason };
        let cannot = |error| failed(format!("cannot start {}: {error}", program.python));
        let mut command = python::command(&program.python);
        command.args(["-c", BRIDGE]).env("PYTHONHASHSEED", "0").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(cannot)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(requests), Some(stdout), Some(stderr)) = pipes else {
            return Err(failed("no pipes to its process".to_string()));
        };
        let errors = Arc::new(Mutex::new(Vec::new()));
        let kept = errors.clone();
        std::thread::spawn(move || keep_last(stderr, &kept));
        let answers = lines(stdout);
        let mut worker = Self { child, requests, answers, errors, seconds: program.seconds };
        let settings = json!({
            "file": std::path::absolute(&program.file).map_err(cannot)?,
            "function": program.function,
            "memory_bytes": program.memory_bytes,
            "caller": std::process::id(),
        });
        // Where the process has ended already, its end says why.
        let _gone = writeln!(worker.requests, "{settings}");
        match worker.answer(Duration::from_secs(LOAD_SECONDS)) {
            Ok(Answer::Ready(ready)) => Ok((worker, ready)),
            Ok(Answer::Failed(reason)) => Err(failed(reason)),
            Ok(_) => Err(failed("it answered before it was asked".to_string())),
            Err(Lost::TimedOut) => {
                Err(failed(format!("it took longer than {LOAD_SECONDS} s to load")))
            }
            Err(Lost::Ended(how)) => Err(failed(how)),
        }
    }

    /// The values of the first responses, and how the worker was lost at the next one. A batch has all
    /// values or is lost as one response.
    pub fn ask(
        &mut self,
        asked: &[Asked],
        is_batch: bool,
    ) -> (Vec<Result<Returned, Ungraded>>, Option<Ungraded>) {
        let mut values = Vec::with_capacity(asked.len());
        let request = serde_json::to_vec(asked).expect("responses are text");
        // Where the process has ended, its missing answer says so.
        let _gone = self.requests.write_all(&request).and_then(|()| self.requests.write_all(b"\n"));
        let responses = if is_batch { asked.len() } else { 1 };
        let seconds = self.seconds * responses as f64;
        while values.len() < asked.len() {
            let all = || vec![(); asked.len()].into_iter();
            match self.answer(Duration::from_secs_f64(seconds)) {
                Ok(Answer::Value(value)) => values.push(Ok(value)),
                Ok(Answer::Failed(reason)) if is_batch => {
                    return (all().map(|()| Err(Ungraded::Raised(reason.clone()))).collect(), None);
                }
                Ok(Answer::Failed(reason)) => values.push(Err(Ungraded::Raised(reason))),
                Ok(Answer::Length(returned)) if returned == asked.len() => {}
                Ok(Answer::Length(returned)) => {
                    let wrong = Ungraded::WrongLength { returned, responses };
                    return (all().map(|()| Err(wrong.clone())).collect(), None);
                }
                Ok(Answer::Ready(_)) => {
                    return (values, Some(Ungraded::Ended("it started again".into())));
                }
                Err(Lost::TimedOut) => {
                    return (values, Some(Ungraded::TookTooLong { seconds, responses }));
                }
                Err(Lost::Ended(how)) => return (values, Some(Ungraded::Ended(how))),
            }
        }
        (values, None)
    }

    fn answer(&mut self, within: Duration) -> Result<Answer, Lost> {
        match self.answers.recv_timeout(within) {
            Ok(line) => serde_json::from_slice(&line)
                .map_err(|_| Lost::Ended("its answer cannot be read".to_string())),
            Err(RecvTimeoutError::Timeout) => Err(Lost::TimedOut),
            Err(RecvTimeoutError::Disconnected) => Err(Lost::Ended(self.end())),
        }
    }

    /// How the process ended, with what it said last.
    fn end(&mut self) -> String {
        // It may have closed its answers and go on.
        std::thread::sleep(Duration::from_millis(200));
        if matches!(self.child.try_wait(), Ok(None)) {
            return "it closed its standard output".to_string();
        }
        let how = match self.child.wait() {
            Ok(status) => match status.signal() {
                Some(signal) => format!("signal {signal}"),
                None => format!("exit status {}", status.code().unwrap_or_default()),
            },
            Err(error) => error.to_string(),
        };
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&errors);
        match text.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => format!("{how}, after {:?}", line.trim()),
            None => how,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // What it forked is in its group. All of it may have ended.
        let _gone = group.map(|group| kill_process_group(group, Signal::KILL));
        let _status = self.child.wait();
    }
}

enum Lost {
    TimedOut,
    Ended(String),
}

/// Lines of at most [`MOST_ANSWER_BYTES`]; a longer one ends them.
fn lines(stdout: ChildStdout) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        loop {
            let mut line = Vec::new();
            let read = reader.by_ref().take(MOST_ANSWER_BYTES).read_until(b'\n', &mut line);
            let is_whole = read.is_ok() && line.ends_with(b"\n");
            if !is_whole || sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn keep_last(mut from: impl Read, kept: &Mutex<Vec<u8>>) {
    let mut part = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut part) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&part[..count]);
        let over = kept.len().saturating_sub(LAST_BYTES);
        kept.drain(..over);
    }
}
