//! The user's Python: installed versions, and a trainer as a child process with a log file.

use crate::base::{files, python};
use crate::engines::EngineError;
use rustix::process::{Pid, Signal};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The log's end is searched for a reason.
const LAST_BYTES: usize = 4000;

pub const VERSIONS: &str = include_str!("versions.py");

/// Returns versions of Python and of installed packages, and the platform that verl is told of. The first package is required.
pub fn versions(program: &str, packages: &[&str]) -> Result<BTreeMap<String, String>, EngineError> {
    let start = |source| EngineError::Start { program: program.to_string(), source };
    let output =
        python::command(program).args(["-c", VERSIONS]).args(packages).output().map_err(start)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let Ok(found) = serde_json::from_str::<BTreeMap<String, String>>(said.trim()) else {
        let reason = String::from_utf8_lossy(&output.stderr);
        let reason = reason.lines().last().unwrap_or("it said nothing").to_string();
        return Err(EngineError::Program { program: program.to_string(), reason });
    };
    match packages.first().filter(|package| !found.contains_key(**package)) {
        Some(package) => {
            let (program, package) = (program.to_string(), (*package).to_string());
            Err(EngineError::NotInstalled { program, package })
        }
        None => Ok(found),
    }
}

/// The script reads JSON from standard input and prints JSON in its last line. Until it calls `trusted()` it has 1 GiB
/// and 15 s of processor time. It ends with this process. Errors: another end, with its last line of standard error.
pub fn ask<T: DeserializeOwned>(
    program: &str,
    script: &str,
    input: &Value,
) -> Result<T, EngineError> {
    let start = |source| EngineError::Start { program: program.to_string(), source };
    let input = input.to_string();
    let child = python::fed(program, &script_of_caller(script), input.as_bytes()).map_err(start)?;
    let output = child.wait_with_output().map_err(|error| {
        let reason = format!("its output cannot be read: {error}");
        EngineError::Program { program: program.to_string(), reason }
    })?;
    let said = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(said.lines().last().unwrap_or_default()).map_err(|_| {
        let errors = String::from_utf8_lossy(&output.stderr);
        let reason = errors.lines().rev().find(|line| !line.trim().is_empty());
        let reason = match output.status.signal() {
            Some(signal) if signal == Signal::PROF.as_raw() => {
                "it used up its processor time (15 s for a file); give a smaller file, or another \
                 Python (--python)"
            }
            Some(signal) if signal == Signal::ALARM.as_raw() => {
                "it took longer than 10 min; look what this Python waits for, or give another one \
                 (--python)"
            }
            Some(_) => "it was ended from outside",
            None => reason.unwrap_or("it said nothing"),
        };
        EngineError::Program { program: program.to_string(), reason: reason.to_string() }
    })
}

fn script_of_caller(script: &str) -> String {
    format!("CALLER = {}\n{}\n{script}", std::process::id(), include_str!("asked.py"))
}

/// Ends with its children when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// The command gets its own process group, so that Ctrl-C reaches only this process.
    pub fn start(mut command: Command, log: &Path) -> Result<Self, EngineError> {
        let program = command.get_program().to_string_lossy().into_owned();
        let started = |source| EngineError::Start { program: program.clone(), source };
        let (out, errors) = files::log_writers(log)?;
        command.stdin(Stdio::null()).stdout(out).stderr(errors).process_group(0);
        Ok(Self { child: command.spawn().map_err(started)?, log: log.to_path_buf() })
    }

    /// `None` while it runs.
    pub fn ended(&mut self) -> Option<String> {
        let status = match self.child.try_wait() {
            Ok(None) => return None,
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let bytes = files::read(&self.log).unwrap_or_default();
        let last = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LAST_BYTES)..]);
        let line = last.lines().rev().find(|line| !line.trim().is_empty());
        Some(line.map_or(status.clone(), |line| format!("{status}: {}", line.trim())))
    }

    pub fn output(&self) -> &Path {
        &self.log
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            // The group may end between the check and the signal.
            let _gone = group.map(|group| rustix::process::kill_process_group(group, Signal::TERM));
            let _status = self.child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::time::{Duration, Instant};

    const PYTHON: &str = "python3";

    fn refused(script: &str) -> String {
        ask::<Value>(PYTHON, script, &Value::Null).unwrap_err().to_string()
    }

    #[test]
    fn a_script_that_asks_for_much_memory_or_never_ends_is_ended() {
        let found = refused("bytearray(2 << 30)");
        assert!(found.contains("MemoryError"), "{found}");
        let started = Instant::now();
        let found = refused("while True: pass");
        assert!(found.contains("--python"), "{found}");
        assert!(started.elapsed() < Duration::from_secs(900));
        let value: Value = ask(PYTHON, "print('{\"a\": 1}')", &Value::Null).unwrap();
        assert_eq!(value["a"], 1);
    }

    #[test]
    fn a_module_in_the_working_folder_is_not_loaded() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["ctypes.py", "json.py"] {
            files::write_atomic(&folder.path().join(name), b"raise SystemExit(1)").unwrap();
        }
        for script in [VERSIONS.to_string(), script_of_caller("import json")] {
            let mut asked = Command::new(PYTHON);
            asked.args(["-c", &script]).current_dir(folder.path());
            assert!(asked.status().unwrap().success(), "{script}");
        }
    }

    #[test]
    fn a_script_ends_with_its_caller_that_is_killed() {
        let script = script_of_caller("print(os.getpid(), flush=True)\nsignal.pause()");
        let mut caller = Command::new("bash");
        caller.args(["-c", "\"$0\" -c \"$1\"; exit 0", PYTHON, &script]);
        let mut caller = caller.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(caller.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let asked = Path::new("/proc").join(line.trim());
        assert!(asked.exists(), "{line}");
        caller.kill().unwrap();
        caller.wait().unwrap();
        let started = Instant::now();
        while asked.exists() {
            assert!(started.elapsed() < Duration::from_secs(20), "{line} goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
