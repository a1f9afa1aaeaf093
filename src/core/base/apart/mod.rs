//! A second process of this program for reads that may not end well. polars decodes parquet with unchecked access and
//! trusts the counts in a page: on some damaged files it asks for 2^61 bytes, and a failed allocation ends the process
//! (SIGABRT), which nothing can catch. The second process holds no files, no lock and no run, has limits on memory and
//! time, and answers with a table that it wrote itself. If it dies of that, the file is damaged, and a message says so.
//!
//! The process is this program with a hidden verb. It starts with the first read and serves later ones too, because
//! loading LibTorch takes longer than most reads. It ends with this process or after some idle seconds. Larger files go
//! through [`stream`]. A program that does not call [`use_program`] (the library's tests) reads in its own process.

use crate::base::files::{self, FileError};
use rustix::event::{self, PollFd, PollFlags, Timespec};
use rustix::process::{self, Resource, Rlimit};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

pub mod stream;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApartLimits {
    /// Address space beyond what the idle process has.
    pub memory_bytes: u64,
    pub processor_seconds: u64,
    pub answer_bytes: u64,
}

const IDLE_SECONDS: i64 = 5;

const WALL_PER_PROCESSOR_SECOND: u64 = 10;
const WALL_SECONDS_TO_START: u64 = 120;

#[derive(Debug, thiserror::Error)]
pub enum NoAnswer {
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Machine(#[from] io::Error),
}

impl From<String> for NoAnswer {
    fn from(reason: String) -> Self {
        Self::Refused(reason)
    }
}

impl NoAnswer {
    pub fn of<E: From<FileError>>(self, path: &Path, refused: impl FnOnce(String) -> E) -> E {
        match self {
            Self::Refused(reason) => refused(reason),
            Self::Machine(source) => {
                FileError::Io { action: "read", path: path.to_path_buf(), source }.into()
            }
        }
    }
}

const ANSWER: u8 = 0;
const REFUSAL: u8 = 1;

static PROGRAM: OnceLock<(PathBuf, &'static str)> = OnceLock::new();
static READER: Mutex<Option<Reader>> = Mutex::new(None);

/// From now on [`ask`] starts this program with this verb, which calls [`serve`].
pub fn use_program(program: PathBuf, verb: &'static str) {
    // A second call changes nothing: there is one program.
    let _again = PROGRAM.set((program, verb));
}

pub fn is_available() -> bool {
    PROGRAM.get().is_some()
}

fn command() -> io::Result<Command> {
    let none = || io::Error::other("no program to read tables with");
    let (program, verb) = PROGRAM.get().ok_or_else(none)?;
    let mut command = Command::new(program);
    command.process_group(0).arg(verb).stdout(Stdio::piped()).stderr(Stdio::null());
    // One thread: its stacks count as memory. Verbose readers print where the answer goes.
    command.env("POLARS_MAX_THREADS", "1").env("OMP_NUM_THREADS", "1");
    command.env_remove("POLARS_VERBOSE").env_remove("PARQUET_DO_VERBOSE");
    Ok(command)
}

fn cannot_start(error: &io::Error) -> io::Error {
    let program = PROGRAM.get().map_or_else(String::new, |(path, _)| path.display().to_string());
    io::Error::other(format!("cannot start {program}: {error}"))
}

fn no_pipe() -> io::Error {
    io::Error::other("no pipe to its reader")
}

struct Reader {
    process: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Reader {
    fn start() -> io::Result<Self> {
        let mut process =
            command()?.stdin(Stdio::piped()).spawn().map_err(|error| cannot_start(&error))?;
        let input = process.stdin.take().ok_or_else(no_pipe)?;
        let output = process.stdout.take().ok_or_else(no_pipe)?;
        Ok(Self { process, input, output })
    }

    /// `Err` is a process that is of no use any more.
    fn request(
        &mut self,
        request: &[u8],
        limits: ApartLimits,
    ) -> Result<Result<Vec<u8>, String>, Lost> {
        let header = [limits.memory_bytes, limits.processor_seconds, request.len() as u64];
        let header = header.map(u64::to_le_bytes);
        let parts = [header.as_flattened(), request];
        let sent = parts.into_iter().try_for_each(|part| self.input.write_all(part));
        sent.and_then(|()| self.input.flush()).map_err(|_broken| Lost::Ended)?;
        let seconds = wall_seconds(limits) as i64;
        let ready = readable_within(&self.output, seconds).map_err(|_error| Lost::Ended)?;
        if !ready {
            return Err(Lost::Slow);
        }
        let mut head = [0; 9];
        self.output.read_exact(&mut head).map_err(|_broken| Lost::Ended)?;
        let [kind, length @ ..] = head;
        let length = u64::from_le_bytes(length);
        if length > limits.answer_bytes {
            return Err(Lost::Large(length));
        }
        let mut answer = Vec::new();
        let taken = (&mut self.output).take(length).read_to_end(&mut answer);
        if taken.map_err(|_broken| Lost::Ended)? as u64 != length {
            return Err(Lost::Ended);
        }
        Ok(match kind {
            ANSWER => Ok(answer),
            _ => Err(String::from_utf8_lossy(&answer).into_owned()),
        })
    }

    fn end(mut self) -> Option<ExitStatus> {
        let _ended = self.process.kill();
        self.process.wait().ok()
    }
}

enum Lost {
    Ended,
    Slow,
    Large(u64),
}

fn wall_seconds(limits: ApartLimits) -> u64 {
    let seconds = limits.processor_seconds.saturating_mul(WALL_PER_PROCESSOR_SECOND);
    seconds.saturating_add(WALL_SECONDS_TO_START)
}

pub fn ask(request: &[u8], limits: ApartLimits) -> Result<Vec<u8>, NoAnswer> {
    let mut reader = READER.lock().unwrap_or_else(PoisonError::into_inner);
    // It may have ended after its idle time, before this request or during it: hence two tries.
    for _ in 0..2 {
        let mut running =
            match reader.take_if(|running| matches!(running.process.try_wait(), Ok(None))) {
                Some(running) => running,
                None => Reader::start()?,
            };
        let lost = match running.request(request, limits) {
            Ok(result) => {
                *reader = Some(running);
                return result.map_err(NoAnswer::Refused);
            }
            Err(lost) => lost,
        };
        let status = running.end();
        match lost {
            Lost::Ended if status.is_some_and(|status| status.success()) => {}
            lost => return Err(explain(&lost, status, limits)),
        }
    }
    Err(io::Error::other("its reader ended twice before it was asked").into())
}

/// Linux's numbers of the signals that end a process which asked for too much.
const SIGABRT: i32 = 6;
const SIGXCPU: i32 = 24;

const HUP_INT_KILL_TERM: [i32; 4] = [1, 2, 9, 15];

fn explain(lost: &Lost, status: Option<ExitStatus>, limits: ApartLimits) -> NoAnswer {
    let memory = limits.memory_bytes >> 20;
    let seconds = limits.processor_seconds;
    let machine = |reason: String| NoAnswer::Machine(io::Error::other(reason));
    let reason = match (lost, status.and_then(|status| status.signal())) {
        (Lost::Large(bytes), _) => format!("it expands to {bytes} bytes"),
        (Lost::Slow, _) => {
            let seconds = wall_seconds(limits);
            return machine(format!(
                "no answer of its reader for {seconds} s: is this machine busy or suspended?"
            ));
        }
        (_, Some(signal)) if HUP_INT_KILL_TERM.contains(&signal) => {
            return machine(format!("signal {signal} ended its reader"));
        }
        (_, Some(SIGXCPU)) => format!("damaged (reading it takes more than {seconds} s)"),
        (_, Some(SIGABRT)) => format!("damaged (reading it takes more than {memory} MiB)"),
        (_, Some(signal)) => format!("damaged (signal {signal} ended its reader)"),
        (_, None) => "damaged (its reader ended without an answer)".to_string(),
    };
    NoAnswer::Refused(reason)
}

/// Answers requests on standard input until it ends, or until nothing is asked for some seconds.
pub fn serve(answer: impl Fn(&[u8]) -> Result<Vec<u8>, String>) -> io::Result<()> {
    no_core_file()?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    while readable_within(&io::stdin(), IDLE_SECONDS)? {
        let mut header = [[0; 8]; 3];
        if input.read_exact(header.as_flattened_mut()).is_err() {
            return Ok(());
        }
        let [memory_bytes, processor_seconds, length] = header.map(u64::from_le_bytes);
        let mut request = Vec::new();
        (&mut input).take(length).read_to_end(&mut request)?;
        limit(memory_bytes, processor_seconds)?;
        let (kind, text) = match answer(&request) {
            Ok(bytes) => (ANSWER, bytes),
            Err(message) => (REFUSAL, message.into_bytes()),
        };
        output.write_all(&[kind])?;
        output.write_all(&(text.len() as u64).to_le_bytes())?;
        output.write_all(&text)?;
        output.flush()?;
    }
    Ok(())
}

fn no_core_file() -> io::Result<()> {
    Ok(process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?)
}

/// Limits this process to so much more than it uses now. The hard limits stay, so that later requests can have others.
fn limit(memory_bytes: u64, processor_seconds: u64) -> io::Result<()> {
    let set = |resource: Resource, most: u64| {
        let maximum = process::getrlimit(resource).maximum;
        let current = Some(maximum.map_or(most, |maximum| most.min(maximum)));
        process::setrlimit(resource, Rlimit { current, maximum })
    };
    let statistics = files::kernel_text(Path::new("/proc/self/statm"));
    let statistics = statistics.map_err(io::Error::other)?;
    let pages = statistics.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io::Error::other("/proc/self/statm has no number"))?;
    let present = pages.saturating_mul(rustix::param::page_size() as u64);
    set(Resource::As, present.saturating_add(memory_bytes))?;
    let used = cpu_time::ProcessTime::try_now()?.as_duration().as_secs();
    set(Resource::Cpu, used.saturating_add(1).saturating_add(processor_seconds))?;
    Ok(())
}

fn readable_within(source: &impl AsFd, seconds: i64) -> io::Result<bool> {
    let mut sources = [PollFd::new(source, PollFlags::IN)];
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    loop {
        match event::poll(&mut sources, Some(&time)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_and_a_reader_killed_from_outside_are_not_held_against_a_file() {
        let limits = ApartLimits { memory_bytes: 1 << 20, processor_seconds: 8, answer_bytes: 1 };
        let told = |lost: Lost, signal: i32| {
            let refused = |reason| FileError::Json { path: "t".into(), reason };
            let no_answer = explain(&lost, Some(ExitStatus::from_raw(signal)), limits);
            let error = no_answer.of(Path::new("t"), refused);
            (files::is_unread(&error), error.to_string())
        };
        let slow =
            "cannot read t: no answer of its reader for 200 s: is this machine busy or suspended?";
        assert_eq!(told(Lost::Slow, 9), (true, slow.to_string()));
        let killed = "cannot read t: signal 9 ended its reader".to_string();
        assert_eq!(told(Lost::Ended, 9), (true, killed));
        let heavy = "t: damaged (reading it takes more than 8 s)".to_string();
        assert_eq!(told(Lost::Ended, SIGXCPU), (false, heavy));
        for (lost, signal) in [(Lost::Ended, SIGABRT), (Lost::Ended, 11), (Lost::Large(2), 9)] {
            assert!(!told(lost, signal).0);
        }
    }
}
