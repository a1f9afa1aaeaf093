//! One process that grades. It ends with this one, and is started again after it was lost.

use crate::base::{python, visible};
use crate::experiment::{ProgramKind, RewardProgram};
use crate::task::TaskError;
use crate::task::reward::program::{Asked, Ungraded};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, prlimit};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const BRIDGE: &str = concat!(include_str!("sources.py"), include_str!("bridge.py"));

/// The harness's own function for Math-Verify.
pub const MATH_VERIFY: &str = include_str!("math_verify.py");

/// Importing PyTorch on a busy machine takes half a minute.
const LOAD_SECONDS: u64 = 180;

/// An answer is a number, or a dictionary of some.
const MOST_ANSWER_BYTES: u64 = 1 << 20;

const LAST_BYTES: usize = 2000;

/// What a worker is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Ready {
    /// Several by commas; empty for a command.
    pub function: String,
    form: CallForm,
    /// Parameters that get the response and the answer, where verl or TRL do not say it.
    roles: Vec<String>,
    /// Parameters of functions of TRL that get the ground truth where the rows have no such column.
    #[serde(default)]
    pub truths: Vec<String>,
    /// Versions of Python and of the packages that were asked for.
    pub packages: BTreeMap<String, String>,
    /// The program's file and what it imports from its folder, also while it grades, relative to it.
    pub files: Vec<String>,
    /// What it imports from the working folder, relative to that.
    #[serde(default)]
    pub working_files: Vec<String>,
}

impl Ready {
    /// How the function is called, in words.
    pub fn form(&self) -> String {
        if let [response, truth] = &self.roles[..] {
            return format!("with a response as `{response}` and an answer as `{truth}`");
        }
        let form = match self.form {
            CallForm::Verl => "as verl calls it",
            CallForm::VerlBatch => "as verl's batch reward manager calls it",
            CallForm::Trl => "as TRL calls it",
            CallForm::Mixed => "each in its own form",
            CallForm::Plain => "with a response and an answer",
            CallForm::Lines => "a command that answers lines",
        };
        match &self.truths[..] {
            [] => form.to_string(),
            truths => format!("{form}, {}", Self::told(truths)),
        }
    }

    pub fn told(truths: &[String]) -> String {
        format!("with the ground truth as `{}` where rows have no such column", truths.join("`, `"))
    }

    pub fn takes_batches(&self) -> bool {
        self.form.takes_batches()
    }

    /// `False` is the number 0.
    pub fn counts_flags(&self) -> bool {
        matches!(self.form, CallForm::Trl | CallForm::Verl | CallForm::VerlBatch)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CallForm {
    Verl,
    VerlBatch,
    Trl,
    Plain,
    /// Functions of several forms.
    Mixed,
    Lines,
}

impl CallForm {
    fn takes_batches(self) -> bool {
        matches!(self, Self::Trl | Self::VerlBatch | Self::Mixed)
    }
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
    /// A file that was loaded while it graded and is not among [`Ready::files`].
    Unrecorded(String),
    Length(usize),
    #[serde(untagged)]
    Value(Returned),
}

#[derive(Debug)]
pub struct Worker {
    child: Child,
    form: CallForm,
    /// To the thread that writes: a process that does not read its input would hold this one up.
    requests: Sender<Vec<u8>>,
    answers: Receiver<Vec<u8>>,
    errors: Arc<Mutex<Vec<u8>>>,
    seconds: f64,
    /// The harness's own function, which limits its time of the processor.
    is_own: bool,
    has_ended: bool,
}

impl Worker {
    pub fn start(program: &RewardProgram) -> Result<(Self, Ready), TaskError> {
        let failed = |reason: String| TaskError::Program { path: program.name().into(), reason };
        let path =
            std::path::absolute(program.name()).map_err(|error| failed(error.to_string()))?;
        let python = program.python.clone().unwrap_or_else(python::of_environment);
        let is_python = program.kind != ProgramKind::Command;
        let own = (program.kind == ProgramKind::MathVerify).then_some(MATH_VERIFY);
        let mut line = if is_python {
            vec![python, "-c".to_string(), BRIDGE.to_string()]
        } else {
            let file = path.to_string_lossy();
            program.command.iter().map(|part| part.replace("{file}", &file)).collect()
        };
        if line.is_empty() {
            line = vec![path.to_string_lossy().into_owned()];
        }
        let mut command = python::command(&line[0]);
        command.args(&line[1..]).env("PYTHONHASHSEED", "0").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .map_err(|error| failed(format!("cannot start {}: {error}", line[0])))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(failed("no pipes to its process".to_string()));
        };
        let errors = Arc::new(Mutex::new(Vec::new()));
        let kept = errors.clone();
        std::thread::spawn(move || keep_last(stderr, &kept));
        let (requests, answers) = (writer(stdin), lines(stdout));
        let form = if is_python { CallForm::Plain } else { CallForm::Lines };
        let (is_own, has_ended) = (own.is_some(), false);
        // Its own limit is of the processor: on a busy machine that takes longer.
        let seconds = if is_own { 10.0 * program.seconds } else { program.seconds };
        let mut worker =
            Self { child, form, requests, answers, errors, seconds, is_own, has_ended };
        if !is_python {
            worker.limit(program.memory_gib << 30).map_err(failed)?;
            let files = program.file.file_name().map(|name| name.to_string_lossy().into_owned());
            let (function, packages) = (String::new(), BTreeMap::new());
            let files = files.into_iter().collect();
            let working_files = Vec::new();
            let (roles, truths) = (Vec::new(), Vec::new());
            let ready = Ready { function, form, roles, truths, packages, files, working_files };
            return Ok((worker, ready));
        }
        let settings = json!({
            "file": path,
            "text": own,
            "function": program.function,
            "functions": program.functions,
            "weights": program.weights,
            "kwargs": program.kwargs,
            "packages": program.packages,
            "memory_bytes": program.memory_gib << 30,
            "caller": std::process::id(),
        });
        worker.send(format!("{settings}\n").into_bytes());
        match worker.answer(Duration::from_secs(LOAD_SECONDS)) {
            Ok(Answer::Ready(ready)) => {
                worker.form = ready.form;
                Ok((worker, ready))
            }
            Ok(Answer::Failed(reason)) => Err(failed(reason)),
            Ok(_) => Err(failed("it answered before it was asked".to_string())),
            Err(Lost::TimedOut) => {
                Err(failed(format!("it took longer than {LOAD_SECONDS} s to load")))
            }
            Err(Lost::Ended(how)) => Err(failed(how)),
            Err(Lost::OutOfTime) => {
                Err(failed("its limit of the processor's time ended it".to_string()))
            }
        }
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Where the process has ended, its missing answer says so.
    fn send(&self, request: Vec<u8>) {
        let _gone = self.requests.send(request);
    }

    fn limit(&self, memory_bytes: u64) -> Result<(), String> {
        let most = Some(memory_bytes);
        let limit = Rlimit { current: most, maximum: most };
        let child = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        prlimit(child, Resource::As, limit)
            .map(drop)
            .map_err(|error| format!("cannot limit its memory: {error}"))
    }

    /// The values of the first responses, and how the worker was lost at the next. A batch is lost as a whole.
    pub fn ask(&mut self, asked: &[Asked]) -> (Vec<Result<Returned, Ungraded>>, Option<Ungraded>) {
        let mut values = Vec::with_capacity(asked.len());
        let is_batch = self.form.takes_batches();
        let line = |of: Value| format!("{of}\n");
        let request: String = if self.form == CallForm::Lines {
            asked.iter().map(|asked| line(json!(asked))).collect()
        } else {
            line(json!(asked))
        };
        self.send(request.into_bytes());
        let responses = if is_batch { asked.len() } else { 1 };
        let seconds = self.seconds * responses as f64;
        let none = |reason: Ungraded| (vec![Err(reason); asked.len()], None);
        while values.len() < asked.len() {
            match self.answer(Duration::from_secs_f64(seconds)) {
                Ok(Answer::Value(value)) => values.push(Ok(value)),
                Ok(Answer::Failed(reason)) if is_batch => return none(Ungraded::Raised(reason)),
                Ok(Answer::Failed(reason)) => values.push(Err(Ungraded::Raised(reason))),
                Ok(Answer::Unrecorded(file)) if is_batch => {
                    return none(Ungraded::Unrecorded(file));
                }
                Ok(Answer::Unrecorded(file)) => values.push(Err(Ungraded::Unrecorded(file))),
                Ok(Answer::Length(returned)) if returned == asked.len() => {}
                Ok(Answer::Length(returned)) => {
                    return none(Ungraded::WrongLength { returned, responses });
                }
                Ok(Answer::Ready(_)) => {
                    return (values, Some(Ungraded::Ended("it started again".into())));
                }
                Err(Lost::TimedOut) => {
                    return (values, Some(Ungraded::TookTooLong { seconds, responses }));
                }
                Err(Lost::Ended(how)) => return (values, Some(Ungraded::Ended(how))),
                Err(Lost::OutOfTime) => {
                    values.push(Ok(without_verdict()));
                    self.has_ended = true;
                    break;
                }
            }
        }
        (values, None)
    }

    fn answer(&mut self, within: Duration) -> Result<Answer, Lost> {
        match self.answers.recv_timeout(within) {
            Ok(line) => {
                let read = if self.form == CallForm::Lines {
                    serde_json::from_slice(&line).map(of_command)
                } else {
                    serde_json::from_slice(&line)
                };
                read.map_err(|_| {
                    let text = visible::shortened(String::from_utf8_lossy(&line).trim(), 60);
                    Lost::Ended(format!("its answer {text:?} is no line of JSON"))
                })
            }
            Err(RecvTimeoutError::Timeout) => Err(Lost::TimedOut),
            Err(RecvTimeoutError::Disconnected) => Err(self.end()),
        }
    }

    fn end(&mut self) -> Lost {
        // It may have closed its answers and go on.
        std::thread::sleep(Duration::from_millis(200));
        if matches!(self.child.try_wait(), Ok(None)) {
            return Lost::Ended("it closed its standard output".to_string());
        }
        let how = match self.child.wait() {
            Ok(status) => match status.signal() {
                Some(signal) if self.is_own && signal == Signal::XCPU.as_raw() => {
                    return Lost::OutOfTime;
                }
                Some(signal) => format!("signal {signal}"),
                None => format!("exit status {}", status.code().unwrap_or_default()),
            },
            Err(error) => error.to_string(),
        };
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&errors);
        Lost::Ended(match text.lines().rev().find(|line| !line.trim().is_empty()) {
            Some(line) => format!("{how}, after {:?}", line.trim()),
            None => how,
        })
    }
}

fn without_verdict() -> Returned {
    let fields = [
        ("score", Returned::Number(-1.0)),
        ("acc", Returned::Flag(false)),
        ("without_verdict", Returned::Number(1.0)),
    ];
    Returned::Fields(fields.map(|(name, value)| (name.to_string(), value)).into())
}

impl Drop for Worker {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // What it forked is in its group. All of it may have ended.
        let _gone = group.map(|group| kill_process_group(group, Signal::KILL));
        let _status = self.child.wait();
    }
}

/// A command's answer as the bridge would write it.
fn of_command(answer: Value) -> Answer {
    match &answer {
        Value::Object(fields) if fields.len() == 1 && fields.contains_key("error") => {
            let text = fields["error"].as_str().map(str::to_string);
            Answer::Failed(text.unwrap_or_else(|| fields["error"].to_string()))
        }
        _ => Answer::Value(returned(answer)),
    }
}

fn returned(value: Value) -> Returned {
    match value {
        Value::Bool(flag) => Returned::Flag(flag),
        Value::Number(number) => Returned::Number(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => Returned::Text(text),
        Value::Object(fields) => {
            let field = |(name, value)| (name, returned(value));
            Returned::Fields(fields.into_iter().map(field).collect())
        }
        Value::Null | Value::Array(_) => Returned::Other(value.to_string()),
    }
}

fn writer(mut stdin: ChildStdin) -> Sender<Vec<u8>> {
    let (sender, receiver) = mpsc::channel::<Vec<u8>>();
    std::thread::spawn(move || {
        for request in receiver {
            if stdin.write_all(&request).is_err() {
                return;
            }
        }
    });
    sender
}

enum Lost {
    TimedOut,
    OutOfTime,
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
