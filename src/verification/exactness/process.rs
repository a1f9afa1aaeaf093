//! A cell as a process: its environment, its arguments, what it says, how it ended.

use crate::numerics::Numerics;
use crate::verification::exactness::VARIABLES;
use crate::verification::{Digests, Outcome, Setting, Size};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The verb that computes one cell; not listed.
pub const VERB: &str = "exactness-cell";

/// Exit code of a cell that this machine cannot run.
pub const UNSUPPORTED: u8 = 6;

/// The program that runs another processor's user programs.
const EMULATOR: &str = "qemu-x86_64";

/// What a cell says, one JSON object a line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// A checkpoint of this rollout step is on the disk.
    Saved(u64),
    /// The end.
    Done(Digests),
}

/// What all cells of a matrix have in common.
#[derive(Debug, Clone)]
pub struct Common {
    /// This program.
    pub program: PathBuf,
    /// The experiment file.
    pub experiment: PathBuf,
    /// The recipe of pretraining.
    pub recipe: PathBuf,
    /// The arithmetic.
    pub numerics: Numerics,
    /// How much a cell computes.
    pub size: Size,
    /// Longest time of one process.
    pub limit: Duration,
}

/// Runs a cell in an empty folder. Returns what became of it and the seconds that it took.
///
/// # Errors
/// When no process can be started.
pub fn run(common: &Common, setting: &Setting, folder: &Path) -> io::Result<(Outcome, f64)> {
    let started = Instant::now();
    if let Some(threads) = setting.killed {
        let first = Setting { threads, ..setting.clone() };
        let mut command = command(common, &first, folder);
        command.arg("--without-pretraining");
        let ended = watch(command.spawn()?, common.limit, true)?;
        // It must have been in the middle of its work, or nothing is shown.
        if ended.status.signal() != Some(KILLED) {
            let how = format!("it was not killed: {}", ended.how());
            return Ok((Outcome::Failed(how), started.elapsed().as_secs_f64()));
        }
    }
    let ended = watch(command(common, setting, folder).spawn()?, common.limit, false)?;
    let seconds = started.elapsed().as_secs_f64();
    Ok((ended.outcome(setting, folder), seconds))
}

/// SIGKILL.
const KILLED: i32 = 9;

fn command(common: &Common, setting: &Setting, folder: &Path) -> Command {
    let mut command = match &setting.processor {
        None => Command::new(&common.program),
        Some(processor) => {
            let mut command = Command::new(EMULATOR);
            command.args(["-cpu", processor]).arg(&common.program);
            command
        }
    };
    for name in VARIABLES {
        command.env_remove(name);
    }
    command.envs(setting.environment.iter().copied());
    command.arg(VERB).arg(&common.experiment).arg("--recipe").arg(&common.recipe);
    command.arg("--out").arg(folder);
    for (name, value) in [
        ("--numerics", common.numerics.to_string()),
        ("--size", common.size.to_string()),
        ("--threads", setting.threads.to_string()),
        ("--micro-batch", setting.micro_batch_rollouts.to_string()),
        ("--generation-batch", setting.generation_batch_rollouts.to_string()),
    ] {
        command.args([name, &value]);
    }
    if setting.check_orders {
        command.arg("--check-orders");
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A process that is over.
struct Ended {
    status: ExitStatus,
    digests: Option<Digests>,
    /// It ran longer than it may.
    late: bool,
    errors: String,
}

/// Listens until the process ends, kills it when it is late or, where that is asked for, after
/// its first checkpoint.
fn watch(mut child: Child, limit: Duration, kill: bool) -> io::Result<Ended> {
    let deadline = Instant::now() + limit;
    let (sender, receiver) = mpsc::channel();
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let lines = std::thread::spawn(move || {
        let lines = output.into_iter().flat_map(|output| io::BufReader::new(output).lines());
        // Nobody listens only when the parent is going down.
        lines.map_while(Result::ok).for_each(|line| drop(sender.send(line)));
    });
    let errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What can be read of it is enough: it is for the reader.
        errors.into_iter().for_each(|mut errors| drop(errors.read_to_end(&mut bytes)));
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let (mut digests, mut late) = (None, false);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left) {
            Ok(line) => match serde_json::from_str(&line) {
                Ok(Message::Saved(_)) if kill => child.kill()?,
                Ok(Message::Done(done)) => digests = Some(done),
                Ok(Message::Saved(_)) | Err(_) => {}
            },
            Err(RecvTimeoutError::Timeout) if !late => {
                late = true;
                child.kill()?;
            }
            Err(_) => break,
        }
    }
    let status = child.wait()?;
    drop(lines.join());
    Ok(Ended { status, digests, late, errors: errors.join().unwrap_or_default() })
}

impl Ended {
    fn how(&self) -> String {
        let last = self.errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        match (self.late, self.status.signal()) {
            (true, _) => "it ran longer than allowed".to_string(),
            (_, Some(signal)) => format!("signal {signal} {last}"),
            _ => format!("{} {last}", self.status),
        }
    }

    fn outcome(self, setting: &Setting, folder: &Path) -> Outcome {
        // A folder that is gone by then says nothing to the reader.
        let how = self.how().replace(&folder.display().to_string(), "the run folder");
        if self.status.code() == Some(i32::from(UNSUPPORTED)) {
            return Outcome::Unsupported(how);
        }
        match self.digests {
            Some(digests) if self.status.success() => {
                match (setting.killed, digests.resumed_after, digests.sums_compared) {
                    (Some(_), None, _) => Outcome::Failed("it began again".to_string()),
                    (_, _, 0) if setting.check_orders => {
                        Outcome::Failed("no sum was compared".to_string())
                    }
                    _ => Outcome::Computed(digests),
                }
            }
            _ => Outcome::Failed(how),
        }
    }
}
