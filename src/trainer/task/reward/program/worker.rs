//! One process that grades. It ends with this one, and is started again after it was lost.

use crate::base::files::{self, foreign};
use crate::base::{python, visible};
use crate::experiment::{ProgramKind, RewardProgram};
use crate::task::TaskError;
use crate::task::reward::program::{Asked, Ungraded};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, kill_process_group, prlimit};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const BRIDGE: &str = concat!(include_str!("sources.py"), include_str!("bridge.py"));

/// The harness's own function for Math-Verify.
pub const MATH_VERIFY: &str = include_str!("math_verify.py");

/// Importing PyTorch on a busy machine takes half a minute.
const LOAD_SECONDS: u64 = 180;

const FIRST_SECONDS: f64 = 60.0;

const KILL_WITH_CALLER: &str = "read -r _; sleep 1
for each in $(grep -lF -e \"$2\" /proc/[0-9]*/environ 2>/dev/null); do
each=${each%/environ}; kill -9 \"${each#/proc/}\"; done; kill -9 -\"$1\"";

const MARK: &str = "DAPO_WORKER";

const NO_ANSWER: &str = "; it gets the next request only after its answer, which it must flush (flush=True in Python, \
     `$| = 1` in Perl, `mawk -W interactive`, `jq --unbuffered`)";

/// An answer is a number, or a dictionary of some.
const MOST_ANSWER_BYTES: usize = 1 << 20;

const LAST_BYTES: usize = 2000;

pub const CLOSE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
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
    /// Installed packages that its files import and that nobody asked for.
    #[serde(default)]
    pub unstated_packages: Vec<String>,
    /// The program's file and the user's files that it executes, also while it grades, named as `placed` reads it.
    pub files: Vec<String>,
    #[serde(default)]
    pub data: Vec<String>,
    #[serde(default)]
    pub waits: bool,
}

impl Ready {
    /// How the function is called, in words.
    pub fn form(&self) -> String {
        if let [response, truth] = &self.roles[..] {
            return format!("with a response as `{response}` and an answer as `{truth}`");
        }
        match &self.truths[..] {
            [] => self.form.to_string(),
            truths => format!("{}, {}", self.form, Self::told(truths)),
        }
    }

    pub fn told(truths: &[String]) -> String {
        format!("with the ground truth as `{}` where rows have no such column", truths.join("`, `"))
    }

    pub fn takes_batches(&self) -> bool {
        self.form.takes_batches()
    }

    pub fn is_of_trl(&self) -> bool {
        matches!(self.form, CallForm::Trl | CallForm::Mixed)
    }

    /// `False` is the number 0.
    pub fn counts_flags(&self) -> bool {
        matches!(self.form, CallForm::Trl | CallForm::Verl | CallForm::VerlBatch)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
enum CallForm {
    #[error("as verl calls it")]
    Verl,
    #[error("as verl's batch reward manager calls it")]
    VerlBatch,
    #[error("as TRL calls it")]
    Trl,
    #[error("with a response and an answer")]
    Plain,
    /// Functions of several forms.
    #[error("each in its own form")]
    Mixed,
    #[default]
    #[error("a command that answers lines")]
    Lines,
}

impl CallForm {
    fn takes_batches(self) -> bool {
        matches!(self, Self::Trl | Self::VerlBatch | Self::Mixed)
    }
}

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
    Refused(String),
    Running(()),
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
    watch: Option<Child>,
    mark: String,
    /// To the thread that writes: a process that does not read its input would hold this one up.
    requests: Option<Sender<Vec<u8>>>,
    answers: Receiver<Vec<u8>>,
    part_of_line: Arc<Mutex<Vec<u8>>>,
    errors: Arc<Mutex<Vec<u8>>>,
    seconds: f64,
    has_answered: bool,
    requested: u64,
    echoes: bool,
    /// The harness's own function, which limits its time of the processor.
    is_own: bool,
    has_ended: bool,
}

impl Worker {
    pub fn start(program: &RewardProgram) -> Result<(Self, Ready), TaskError> {
        let failed = |reason: String| TaskError::Program { path: program.name().into(), reason };
        let path =
            std::path::absolute(program.name()).map_err(|error| failed(error.to_string()))?;
        let is_python = program.kind != ProgramKind::Command;
        let own = (program.kind == ProgramKind::MathVerify).then_some(MATH_VERIFY);
        let line = command_line(program, &path);
        let mut command = python::command(&line[0]);
        let mark = mark();
        command.args(&line[1..]).env("PYTHONHASHSEED", "0").env(MARK, &mark).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            failed(format!("cannot start {}: {error}{}", line[0], advice(program)))
        })?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(failed("no pipes to its process".to_string()));
        };
        let errors = Arc::new(Mutex::new(Vec::new()));
        let kept = errors.clone();
        std::thread::spawn(move || keep_last(stderr, &kept));
        let part_of_line = Arc::new(Mutex::new(Vec::new()));
        let form = if is_python { CallForm::Plain } else { CallForm::Lines };
        let watch = watch(&child, &mark);
        // Its own limit is of the processor: on a busy machine that takes longer.
        let seconds = if own.is_some() { 10.0 * program.seconds } else { program.seconds };
        let mut worker = Self {
            child,
            form,
            watch,
            mark,
            requests: Some(writer(stdin)),
            answers: lines(stdout, part_of_line.clone()),
            part_of_line,
            errors,
            seconds,
            has_answered: is_python,
            requested: 0,
            echoes: false,
            is_own: own.is_some(),
            has_ended: false,
        };
        if !is_python {
            worker.limit(program.memory_gib << 30).map_err(failed)?;
            let own = program.file.file_name().map(|name| name.to_string_lossy().into_owned());
            let files = own.into_iter().chain(program.files.iter().cloned()).collect();
            return Ok((worker, Ready { form, files, ..Ready::default() }));
        }
        let settings = json!({
            "file": path,
            "text": own,
            "function": program.function,
            "functions": program.functions,
            "weights": program.weights,
            "kwargs": program.kwargs,
            "packages": program.packages,
            "files": program.files,
            "memory_bytes": program.memory_gib << 30,
            "caller": std::process::id(),
        });
        worker.send(format!("{settings}\n").into_bytes());
        match worker.answer(Duration::from_secs(LOAD_SECONDS)) {
            Ok(Answer::Ready(mut ready)) => {
                worker.form = ready.form;
                let is_stated = |name: &&String| !ready.files.contains(name);
                let stated: Vec<String> = program.files.iter().filter(is_stated).cloned().collect();
                ready.files.extend(stated);
                Ok((worker, ready))
            }
            Ok(Answer::Failed(reason) | Answer::Refused(reason)) => Err(failed(reason)),
            Ok(_) => Err(failed("it answered before it was asked".to_string())),
            Err(Lost::TimedOut(seen)) => {
                Err(failed(format!("it took longer than {LOAD_SECONDS} s to load{seen}")))
            }
            Err(Lost::Ended(how) | Lost::Broke(how)) => Err(failed(how)),
            Err(Lost::OutOfTime | Lost::OtherId(_)) => {
                Err(failed("its limit of the processor's time ended it".to_string()))
            }
        }
    }

    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub fn has_answered(&self) -> bool {
        self.has_answered
    }

    pub fn close(&mut self) {
        self.requests = None;
    }

    pub fn left(&mut self, end: Instant) -> Option<Ungraded> {
        if self.form != CallForm::Lines {
            return None;
        }
        let rest = || end.saturating_duration_since(Instant::now());
        let is_answer = |line: &[u8]| of_command(line).is_ok();
        let mut surplus = None;
        while let Ok(line) = self.answers.recv_timeout(rest()) {
            surplus = surplus.or(is_answer(&line).then(|| Ungraded::Surplus(shown(&line))));
        }
        while !rest().is_zero() && !self.is_gone() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let part = self.part_of_line.lock().unwrap_or_else(PoisonError::into_inner);
        surplus.or_else(|| is_answer(&part).then(|| Ungraded::Surplus(shown(&part))))
    }

    pub fn is_gone(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    pub fn stderr(&self) -> String {
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&errors).trim().to_string()
    }

    /// Where the process has ended, its missing answer says so.
    fn send(&self, request: Vec<u8>) {
        let _gone = self.requests.as_ref().map(|requests| requests.send(request));
    }

    fn limit(&self, memory_bytes: u64) -> Result<(), String> {
        let most = Some(memory_bytes);
        let limit = Rlimit { current: most, maximum: most };
        let limited = prlimit(Some(Pid::from_child(&self.child)), Resource::As, limit);
        limited.map(drop).map_err(|error| format!("cannot limit its memory: {error}"))
    }

    /// The values of the first responses, and how the worker was lost at the next. A batch is lost as a whole.
    pub fn ask(&mut self, asked: &[Asked]) -> (Vec<Result<Returned, Ungraded>>, Option<Ungraded>) {
        let mut values = Vec::with_capacity(asked.len());
        let is_batch = self.form.takes_batches();
        let is_command = self.form == CallForm::Lines;
        let line = |of: Value| format!("{of}\n").into_bytes();
        if !is_command {
            self.send(line(json!(asked)));
        }
        let responses = if is_batch { asked.len() } else { 1 };
        let none = |reason: Ungraded| (vec![Err(reason); asked.len()], None);
        let mut longest = Duration::from_millis(if asked.len() > 1 { 50 } else { 1 });
        while values.len() < asked.len() {
            if is_command {
                if let Some(surplus) = self.surplus(Duration::ZERO) {
                    return none(surplus);
                }
                self.requested += 1;
                let mut request = json!(asked[values.len()]);
                request["id"] = json!(self.requested);
                self.send(line(request));
            }
            let sent = Instant::now();
            let first = if self.has_answered { 0.0 } else { FIRST_SECONDS };
            let seconds = self.seconds * responses as f64 + first;
            let answer = self.answer(Duration::from_secs_f64(seconds));
            self.has_answered |= answer.is_ok();
            longest = longest.max(sent.elapsed());
            match answer {
                Ok(Answer::Value(value)) => values.push(Ok(value)),
                Ok(Answer::Running(())) => {}
                Ok(Answer::Refused(reason)) if is_batch => return none(Ungraded::Broke(reason)),
                Ok(Answer::Refused(reason)) => values.push(Err(Ungraded::Broke(reason))),
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
                    return (values, Some(Ungraded::Broke("it started again".into())));
                }
                Err(Lost::TimedOut(mut seen)) => {
                    if is_command && !self.has_answered && !seen.contains("without a line end") {
                        seen += NO_ANSWER;
                    }
                    return (values, Some(Ungraded::TookTooLong { seconds, responses, seen }));
                }
                Err(Lost::OtherId(answered)) => {
                    self.has_ended = true;
                    return none(Ungraded::OtherId { asked: self.requested, answered });
                }
                Err(Lost::Ended(how)) => return (values, Some(Ungraded::Ended(how))),
                Err(Lost::Broke(how)) => return (values, Some(Ungraded::Broke(how))),
                Err(Lost::OutOfTime) => {
                    values.push(Ok(without_verdict()));
                    self.has_ended = true;
                    break;
                }
            }
        }
        // A line too many gives each later response the answer of the one before it.
        let grace = if self.echoes { Duration::ZERO } else { longest.min(CLOSE) };
        match is_command.then(|| self.surplus(grace)).flatten() {
            Some(surplus) => none(surplus),
            None => (values, None),
        }
    }

    fn surplus(&mut self, within: Duration) -> Option<Ungraded> {
        let line = self.answers.recv_timeout(within).ok()?;
        self.has_ended = true;
        Some(Ungraded::Surplus(shown(&line)))
    }

    fn answer(&mut self, within: Duration) -> Result<Answer, Lost> {
        match self.answers.recv_timeout(within) {
            Ok(line) if self.form == CallForm::Lines => {
                let (id, answer) = of_command(&line)?;
                if id.as_ref().map_or(self.echoes, |id| *id != json!(self.requested)) {
                    return Err(Lost::OtherId(id.map_or("no id".to_string(), |id| {
                        format!("the id {}", visible::shortened(&id.to_string(), 60))
                    })));
                }
                self.echoes |= id.is_some();
                Ok(answer)
            }
            Ok(line) => serde_json::from_slice(&line).map_err(|_| {
                Lost::Broke(format!("its answer {} is no line of JSON", shown(&line)))
            }),
            Err(RecvTimeoutError::Timeout) => Err(Lost::TimedOut(self.seen())),
            Err(RecvTimeoutError::Disconnected) => Err(self.end()),
        }
    }

    fn seen(&self) -> String {
        let stderr = self.stderr();
        let last = stderr.lines().next_back().map(|line| format!(", after {:?}", line.trim()));
        let part = self.part_of_line.lock().unwrap_or_else(PoisonError::into_inner);
        let part = (!part.is_empty())
            .then(|| format!("; it wrote {}, an answer without a line end", shown(&part)));
        format!("{}{}", last.unwrap_or_default(), part.unwrap_or_default())
    }

    fn end(&mut self) -> Lost {
        // It may have closed its answers and go on.
        std::thread::sleep(Duration::from_millis(200));
        let part = self.part_of_line.lock().unwrap_or_else(PoisonError::into_inner).len();
        if part > MOST_ANSWER_BYTES {
            return Lost::Broke(format!("its answer is longer than {MOST_ANSWER_BYTES} bytes"));
        }
        let seen = self.seen();
        if !self.is_gone() {
            return Lost::Broke(format!("it closed its standard output{seen}"));
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
        Lost::Ended(format!("{how}{seen}"))
    }
}

fn command_line(program: &RewardProgram, path: &Path) -> Vec<String> {
    if program.kind != ProgramKind::Command {
        let python = program.python.clone().unwrap_or_else(python::of_environment);
        return vec![python, "-c".to_string(), BRIDGE.to_string()];
    }
    let file = path.to_string_lossy();
    if program.command.is_empty() {
        return vec![file.into_owned()];
    }
    program.command.iter().map(|part| part.replace("{file}", &file)).collect()
}

fn shown(line: &[u8]) -> String {
    format!("{:?}", visible::shortened(String::from_utf8_lossy(line).trim(), 60))
}

fn advice(program: &RewardProgram) -> &'static str {
    match program.kind {
        ProgramKind::Command if program.command.is_empty() => {
            "; make the file executable (chmod +x) with a first line that names its interpreter (`#!/usr/bin/env node`), \
             or name what starts it in the key `command` (command = [\"node\", \"{file}\"])"
        }
        ProgramKind::Command => "; the key `command` names it: install it, or name its path there",
        _ => "; name a Python in the key `python`, or in DAPO_PYTHON",
    }
}

fn mark() -> String {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}.", std::process::id(), STARTED.fetch_add(1, Ordering::Relaxed))
}

pub fn watch(child: &Child, mark: &str) -> Option<Child> {
    let group = child.id().to_string();
    let mut command = Command::new("sh");
    command
        .args(["-c", KILL_WITH_CALLER, "sh", &group, &format!("{MARK}={mark}")])
        .process_group(i32::try_from(child.id()).ok()?);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().ok()
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
        // What it forked is in its group, or in a session of its own. All of it may have ended.
        let mut apart = self.started();
        let _gone = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        for _round in 0..3 {
            for process in apart {
                let _gone = kill_process(process, Signal::KILL);
            }
            apart = self.started();
            if apart.is_empty() {
                break;
            }
        }
        let _status = self.child.wait();
        let _watch = self.watch.as_mut().map(Child::wait);
    }
}

impl Worker {
    /// Processes below it, and those with its mark, also where what started them has ended.
    fn started(&mut self) -> Vec<Pid> {
        let own = Pid::from_child(&self.child);
        // The number of one that was waited for may be another's.
        let mut found: Vec<Pid> = Vec::from_iter((!self.is_gone()).then_some(own));
        let mark = format!("{MARK}={}", self.mark);
        let mut parents = Vec::new();
        for name in files::list(Path::new("/proc")).unwrap_or_default() {
            let Some(process) = name.parse().ok().and_then(Pid::from_raw) else { continue };
            let text = |part: &str| {
                files::kernel_text(&Path::new("/proc").join(&name).join(part)).unwrap_or_default()
            };
            if process != own && text("environ").split('\0').any(|entry| entry == mark) {
                found.push(process);
            }
            let status = text("status");
            let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
            let parent = parent.and_then(|number| number.trim().parse().ok());
            parents.extend(parent.and_then(Pid::from_raw).map(|parent| (process, parent)));
        }
        let mut next = 0;
        while let Some(&above) = found.get(next) {
            let is_new = |process: &Pid| !found.contains(process);
            let below = parents.iter().filter(|(it, parent)| *parent == above && is_new(it));
            let below: Vec<Pid> = below.map(|(process, _)| *process).collect();
            found.extend(below);
            next += 1;
        }
        found.retain(|process| *process != own);
        found
    }
}

/// A command's answer as the bridge would write it.
fn of_command(line: &[u8]) -> Result<(Option<Value>, Answer), Lost> {
    let broke = |why: String| Lost::Broke(format!("its answer {} {why}", shown(line)));
    let text = std::str::from_utf8(line).map_err(|_| broke("is no UTF-8".to_string()))?;
    let mut answer: Value =
        serde_json::from_str(text).map_err(|_| broke("is no line of JSON".to_string()))?;
    foreign::refuse_repeated_keys(text).map_err(|error| broke(format!("has a {error}")))?;
    let id = answer.as_object_mut().and_then(|fields| fields.remove("id"));
    let answer = match answer {
        Value::Object(fields) => match fields.get("error").filter(|error| !error.is_null()) {
            Some(error) => Answer::Failed(text_of(error)),
            None => Answer::Value(Returned::Fields(
                fields.into_iter().filter(|(name, _)| name != "error").map(field).collect(),
            )),
        },
        other => Answer::Value(returned(other)),
    };
    Ok((id.filter(|id| !id.is_null()), answer))
}

fn field((name, value): (String, Value)) -> (String, Returned) {
    let is_text = name == "pred" && !value.is_null();
    let value = if is_text { Returned::Text(text_of(&value)) } else { returned(value) };
    (name, value)
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

fn returned(value: Value) -> Returned {
    match value {
        Value::Bool(flag) => Returned::Flag(flag),
        Value::Number(number) => Returned::Number(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => Returned::Text(text),
        Value::Null | Value::Array(_) | Value::Object(_) => Returned::Other(value.to_string()),
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
    TimedOut(String),
    OutOfTime,
    OtherId(String),
    Ended(String),
    Broke(String),
}

/// Lines of at most [`MOST_ANSWER_BYTES`]; a longer one ends them. `part` has what has no line end yet.
fn lines(stdout: ChildStdout, part: Arc<Mutex<Vec<u8>>>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stdout);
        while let Ok(read @ [_, ..]) = reader.fill_buf() {
            let count = read.len();
            for piece in read.split_inclusive(|byte| *byte == b'\n') {
                let mut line = part.lock().unwrap_or_else(PoisonError::into_inner);
                line.extend_from_slice(piece);
                let is_too_long = line.len() > MOST_ANSWER_BYTES;
                let is_whole = line.ends_with(b"\n");
                if is_too_long || is_whole && sender.send(std::mem::take(&mut *line)).is_err() {
                    return;
                }
            }
            reader.consume(count);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_function_started_does_not_outlive_the_caller_or_its_worker() {
        // As the system does for a process that was killed.
        has_ended_after(|mut worker| {
            worker.close();
            drop(worker.watch.as_mut().unwrap().stdin.take());
            Some(worker)
        });
        has_ended_after(|_dropped| None);
    }

    fn has_ended_after(end: impl Fn(Worker) -> Option<Worker>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("reward.py");
        let text = "import subprocess\nown = subprocess.Popen(['sleep', '60'], start_new_session=True)\ndef grade(response, answer): return own.pid\n";
        files::write_atomic(&file, text.as_bytes()).unwrap();
        let (mut worker, _) = Worker::start(&RewardProgram::of_python(file, None)).unwrap();
        let (values, _) = worker.ask(&[Asked::default()]);
        let Ok(Returned::Number(started)) = values[0] else { panic!("{values:?}") };
        let _worker = end(worker);
        let status = format!("/proc/{started}/status");
        let lives = || {
            let status = files::kernel_text(Path::new(&status)).unwrap_or_default();
            !status.is_empty() && !status.contains("State:\tZ")
        };
        let end = Instant::now() + Duration::from_secs(20);
        while lives() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!lives());
    }
}
