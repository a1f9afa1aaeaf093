//! Runs a cell as `dapo train` in a process group: Ctrl-C reaches only the parent, which asks each child once to stop.

use crate::base::files;
use crate::records::RunFolder;
use crate::study::{Job, StudyError, ablate::AblateStudy};
use rustix::process::{Pid, Signal};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Lines of standard error that are kept.
const MOST_LINES: usize = 40;

const MOST_CHARACTERS: usize = 800;

type Lines = Arc<Mutex<VecDeque<String>>>;

#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: Lines,
    listener: Option<JoinHandle<()>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessEnded {
    pub status: ExitStatus,
    pub last_words: String,
}

impl ProcessEnded {
    /// A signal ended the process or asked it to stop; the run folder is then in order.
    pub fn by_signal(&self) -> bool {
        let asked = [129, 130, 138, 141, 143].map(Some).contains(&self.status.code());
        self.status.signal().is_some() || asked
    }

    /// A full disk, or a folder that was taken away. A panic, which has the same code, prints no such line.
    pub fn by_machine(&self) -> bool {
        self.status.code() == Some(1) && self.last_words.starts_with("error: ")
    }

    pub fn reason(&self) -> String {
        match (self.status.signal(), self.last_words.as_str()) {
            (Some(signal), _) => format!("signal {signal} ended the process"),
            (None, "") => format!("the process ended with {}", self.status),
            (None, words) => words.to_string(),
        }
    }
}

/// `dapo train` begins or resumes the run.
pub fn arguments(experiment: &Path, folder: &RunFolder) -> Vec<OsString> {
    let flags = ["--threads", "1", "--no-plan", "--resume", "--out"].map(OsString::from);
    let (experiment, folder) = (experiment.as_os_str(), folder.root().as_os_str());
    [experiment.into()].into_iter().chain(flags).chain([folder.into()]).collect()
}

impl Process {
    pub fn start(program: &Path, study: &AblateStudy, job: &Job) -> Result<Self, StudyError> {
        let experiment = study.experiment(&job.run_name());
        files::write_json(&experiment, &job.experiment)?;
        let mut command = Command::new(program);
        command.arg("train").args(arguments(&experiment, &job.folder));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.process_group(0);
        let mut child = command
            .spawn()
            .map_err(|source| StudyError::Start { program: program.to_path_buf(), source })?;
        let lines = Lines::default();
        let (errors, kept) = (child.stderr.take(), Arc::clone(&lines));
        let listener = std::thread::spawn(move || {
            let errors = errors.into_iter().map(io::BufReader::new);
            for bytes in errors.flat_map(|errors| errors.split(b'\n')).map_while(Result::ok) {
                let line = String::from_utf8_lossy(&bytes);
                let line: String = line.trim_end().chars().take(MOST_CHARACTERS).collect();
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_back(line);
                if kept.len() > MOST_LINES {
                    kept.pop_front();
                }
            }
        });
        Ok(Self { child, lines, listener: Some(listener) })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn ask_to_stop(&mut self) {
        let alive = matches!(self.child.try_wait(), Ok(None));
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| alive) {
            // SIGINT is ignored where a script began the process behind it (`&`).
            let _gone = rustix::process::kill_process(pid, Signal::TERM);
        }
    }

    pub fn ended(&mut self) -> io::Result<Option<ProcessEnded>> {
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        if let Some(listener) = self.listener.take() {
            // A listener that panicked has kept its lines.
            drop(listener.join());
        }
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let error = lines.iter().rev().find(|line| line.starts_with("error: "));
        let last = error.or_else(|| lines.iter().rev().find(|line| !line.trim().is_empty()));
        Ok(Some(ProcessEnded { status, last_words: last.cloned().unwrap_or_default() }))
    }
}

impl Drop for Process {
    /// A parent that gives up leaves no process behind; the last checkpoint is on disk.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _gone = self.child.kill();
            let _status = self.child.wait();
        }
    }
}
