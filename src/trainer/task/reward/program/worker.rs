//! One process that grades. It ends with this one, and is started again after it was lost.

use crate::base::{python, visible};
use crate::experiment::{ProgramKind, RewardProgram};
use crate::task::TaskError;
use crate::task::reward::program::answer::{
    Answer, CallForm, Lost, Ready, Returned, of_command, shown,
};
use crate::task::reward::program::pipes::{self, MOST_ANSWER_BYTES};
use crate::task::reward::program::{Asked, Ungraded, descendants};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use serde_json::{Value, json};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const BRIDGE: &str = concat!(include_str!("sources.py"), include_str!("bridge.py"));

/// The harness's own function for Math-Verify.
pub const MATH_VERIFY: &str = include_str!("math_verify.py");

/// Importing PyTorch on a busy machine takes half a minute.
const LOAD_SECONDS: u64 = 180;

const FIRST_SECONDS: f64 = 60.0;

const NO_ANSWER: &str = "; it gets the next request only after its answer, which it must flush (flush=True in Python, \
     `$| = 1` in Perl, `mawk -W interactive`, `jq --unbuffered`)";

pub const CLOSE: Duration = Duration::from_secs(1);

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
        let mark = descendants::mark();
        command
            .args(&line[1..])
            .env("PYTHONHASHSEED", "0")
            .env(descendants::MARK, &mark)
            .process_group(0);
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
        std::thread::spawn(move || pipes::keep_last(stderr, &kept));
        let part_of_line = Arc::new(Mutex::new(Vec::new()));
        let form = if is_python { CallForm::Plain } else { CallForm::Lines };
        let watch = descendants::watch(&child, &mark);
        // Its own limit is of the processor: on a busy machine that takes longer.
        let seconds = if own.is_some() { 10.0 * program.seconds } else { program.seconds };
        let mut worker = Self {
            child,
            form,
            watch,
            mark,
            requests: Some(pipes::writer(stdin)),
            answers: pipes::lines(stdout, part_of_line.clone()),
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
        while !rest().is_zero() && !descendants::has_ended(&mut self.child) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let part = self.part_of_line.lock().unwrap_or_else(PoisonError::into_inner);
        surplus.or_else(|| is_answer(&part).then(|| Ungraded::Surplus(shown(&part))))
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
            let value = match answer {
                Ok(Answer::Value(value)) => Ok(value),
                Ok(Answer::Refused(reason)) => Err(Ungraded::Broke(reason)),
                Ok(Answer::Failed(reason)) => Err(Ungraded::Raised(reason)),
                Ok(Answer::Unrecorded(file)) => Err(Ungraded::Unrecorded(file)),
                Ok(Answer::Running(())) => continue,
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
            };
            match value {
                Err(error) if is_batch => return none(error),
                value => values.push(value),
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
        if !descendants::has_ended(&mut self.child) {
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
        descendants::kill(&mut self.child, &self.mark);
        let _watch = self.watch.as_mut().map(Child::wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::files;

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
