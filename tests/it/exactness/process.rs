//! A cell as a process: its environment, its arguments, what it says, how it ended. The process is this
//! test program again, which runs [`a_cell`] alone.

use crate::exactness::cell::{self, Digests, Work};
use crate::exactness::matrix::Outcome;
use crate::exactness::{Setting, Size, VARIABLES};
use dapo::commands::pretrain;
use dapo::experiment::extends;
use dapo::numerics::{Numerics, NumericsError, vectorised};
use dapo::records::RunFolder;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The run of a cell, and the recipe that its updates of pretraining follow.
pub const EXPERIMENT: &str = "experiments/exactness.toml";
const RECIPE: &str = "golden/mini-aime/recipe.toml";

/// The variable that says what is asked of the cell.
const ASKED: &str = "DAPO_EXACTNESS_CELL";

/// What is asked of a cell.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    numerics: Numerics,
    size: Size,
    threads: u64,
    micro_batch_rollouts: u64,
    generation_batch_rollouts: u64,
    check_orders: bool,
    pretrains: bool,
    folder: PathBuf,
}

#[test]
#[ignore = "computes what DAPO_EXACTNESS_CELL asks for: one cell of a matrix"]
fn a_cell() {
    let Ok(asked) = std::env::var(ASKED) else { return };
    let asked: Asked = serde_json::from_str(&asked).unwrap();
    if let Err(NumericsError::MissingInstructions(_)) = vectorised::check() {
        std::process::exit(UNSUPPORTED);
    }
    let mut experiment = extends::load(Path::new(EXPERIMENT)).unwrap();
    experiment.numerics = asked.numerics;
    experiment.execution.threads = asked.threads;
    experiment.execution.micro_batch_rollouts = asked.micro_batch_rollouts;
    experiment.execution.generation_batch_rollouts = asked.generation_batch_rollouts;
    let (mut recipe, _) = pretrain::recipe(Path::new(RECIPE)).unwrap();
    recipe.numerics = asked.numerics;
    let recipe = asked.pretrains.then_some(recipe);
    let work = Work { experiment, recipe, size: asked.size, check_orders: asked.check_orders };
    let folder = RunFolder::at(asked.folder);
    let digests = cell::run(work, &folder, &mut |step| say(&Message::Saved(step)));
    say(&Message::Done(digests.unwrap_or_else(|error| panic!("{error}"))));
}

/// The parent must hear of a checkpoint at once, on a line of its own.
fn say(message: &Message) {
    println!("\n{}", serde_json::to_string(message).unwrap());
    std::io::stdout().flush().unwrap();
}

/// Exit code of a cell that this machine cannot run.
const UNSUPPORTED: i32 = 6;

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
#[derive(Debug, Clone, Copy)]
pub struct Common {
    /// The arithmetic.
    pub numerics: Numerics,
    /// How much a cell computes.
    pub size: Size,
}

/// Longest time of one process; an emulated one is slow.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs a cell in an empty folder. Returns what became of it and the seconds that it took.
///
/// # Errors
/// When no process can be started.
pub fn run(common: Common, setting: &Setting, folder: &Path) -> io::Result<(Outcome, f64)> {
    let started = Instant::now();
    if let Some(threads) = setting.killed {
        let first = Setting { threads, ..setting.clone() };
        let ended = watch(command(common, &first, false, folder)?.spawn()?, LIMIT, true)?;
        // It must have been in the middle of its work, or nothing is shown.
        if ended.status.signal() != Some(KILLED) {
            let how = format!("it was not killed: {}", ended.how());
            return Ok((Outcome::Failed(how), started.elapsed().as_secs_f64()));
        }
    }
    let ended = watch(command(common, setting, true, folder)?.spawn()?, LIMIT, false)?;
    let seconds = started.elapsed().as_secs_f64();
    Ok((ended.outcome(setting, folder), seconds))
}

/// SIGKILL.
const KILLED: i32 = 9;

fn command(
    common: Common,
    setting: &Setting,
    pretrains: bool,
    folder: &Path,
) -> io::Result<Command> {
    let program = std::env::current_exe()?;
    let mut command = match &setting.processor {
        None => Command::new(program),
        Some(processor) => {
            let mut command = Command::new(EMULATOR);
            command.args(["-cpu", processor]).arg(program);
            command
        }
    };
    for name in VARIABLES {
        command.env_remove(name);
    }
    let asked = Asked {
        numerics: common.numerics,
        size: common.size,
        threads: setting.threads,
        micro_batch_rollouts: setting.micro_batch_rollouts,
        generation_batch_rollouts: setting.generation_batch_rollouts,
        check_orders: setting.check_orders,
        pretrains,
        folder: folder.to_path_buf(),
    };
    command.envs(setting.environment.iter().copied());
    command.env(ASKED, serde_json::to_string(&asked)?);
    command.args(["exactness::process::a_cell", "--exact", "--ignored", "--nocapture"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok(command)
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
        if self.status.code() == Some(UNSUPPORTED) {
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
