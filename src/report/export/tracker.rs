//! Sends curves to a tracker: TensorBoard's event files, or wandb, mlflow or trackio through a small Python program.

use crate::base::files;
use crate::records::event_file::{self, Scalar};
use crate::report::{ReportError, export::curves::RunCurves};
use clap::ValueEnum;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const BRIDGE: &str = include_str!("bridge.py");

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Tracker {
    Tensorboard,
    Wandb,
    Mlflow,
    Trackio,
}

impl Tracker {
    /// As the command line has it.
    pub fn name(self) -> String {
        let value = self.to_possible_value().expect("no tracker is hidden");
        value.get_name().to_owned()
    }
}

/// Each scalar is sent once, and the ending of a run, after which a Python tracker gets no more of it.
#[derive(Debug)]
pub struct CurveSender {
    sink: CurveSink,
    /// Run → tags and steps.
    sent: BTreeMap<String, BTreeSet<(String, u64)>>,
    ended: BTreeSet<String>,
    held: BTreeMap<String, files::locks::BriefLock>,
}

#[derive(Debug)]
enum CurveSink {
    /// `<folder>/tensorboard/<run>/events.out.tfevents.0.dapo`.
    Files(PathBuf),
    Python(PathBuf, Child),
}

impl CurveSender {
    /// `out` is for event files; `project` and `python` (with the tracker's package) are for others.
    /// Errors: without that interpreter, or without the tracker's package in it.
    pub fn new(
        tracker: Tracker,
        out: &Path,
        project: &str,
        python: &Path,
    ) -> Result<Self, ReportError> {
        let sink = match tracker {
            Tracker::Tensorboard => CurveSink::Files(out.to_path_buf()),
            _ => {
                let name = tracker.name();
                let tried = Command::new(python).args(["-c", BRIDGE, &name]).output();
                let hint = format!("--tracker-python names the Python that has {name}");
                let tried = tried.map_err(|it| bridge(python, &format!("{it}; {hint}")))?;
                if !tried.status.success() {
                    let printed = String::from_utf8_lossy(&tried.stderr);
                    let reason = format!("{} ({})", printed.trim(), tried.status);
                    return Err(bridge(python, &reason));
                }
                let mut command = Command::new(python);
                command.args(["-c", BRIDGE, &name, project]);
                // Output of trackers is for people.
                command.stdin(Stdio::piped()).stdout(io::stderr());
                let child = command.spawn().map_err(|source| bridge(python, &source))?;
                CurveSink::Python(python.to_path_buf(), child)
            }
        };
        Ok(Self { sink, sent: BTreeMap::new(), ended: BTreeSet::new(), held: BTreeMap::new() })
    }

    /// Sends new scalars only. Errors: a file that cannot be written or that another process writes, an ended tracker.
    pub fn send(&mut self, run: &RunCurves) -> Result<(), ReportError> {
        let is_first = !self.sent.contains_key(&run.name);
        let sent = self.sent.entry(run.name.clone()).or_default();
        let is_new = |it: &&Scalar| sent.insert((it.tag.clone(), it.step));
        let new: Vec<Scalar> = run.scalars.iter().filter(is_new).cloned().collect();
        match &mut self.sink {
            CurveSink::Files(out) => {
                let path = file_of(out, &run.name);
                if is_first {
                    let folder = path.parent().unwrap_or(out).to_path_buf();
                    files::create_folder(&folder)?;
                    let Some(lock) = files::locks::lock_briefly(&folder.join("dapo.lock"))? else {
                        let reason = "in use by another process; wait until it has ended";
                        return Err(ReportError::Refused { folder, reason: reason.into() });
                    };
                    self.held.insert(run.name.clone(), lock);
                    files::write_atomic(&path, &event_file::events(&new))?
                } else {
                    let head = event_file::events(&[]).len();
                    files::append(&path, &event_file::events(&new)[head..])?;
                }
                if run.ending.is_some() {
                    self.held.remove(&run.name);
                }
            }
            CurveSink::Python(..) if self.ended.contains(&run.name) => {}
            CurveSink::Python(python, child) => {
                let mut lines = Vec::new();
                if is_first {
                    let RunCurves { name, group, config, .. } = run;
                    lines.push(json!({"run": name, "group": group, "config": config}));
                }
                for scalars in new.chunk_by(|a, b| a.step == b.step) {
                    let value = |it: &Scalar| (it.tag.clone(), Value::from(it.value));
                    let values: serde_json::Map<String, Value> =
                        scalars.iter().map(value).collect();
                    lines.push(json!({"run": run.name, "step": scalars[0].step, "values": values}));
                }
                if let Some(ending) = run.ending {
                    self.ended.insert(run.name.clone());
                    lines.push(json!({"run": run.name, "end": ending}));
                }
                let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
                let stdin = child.stdin.as_mut().expect("it is piped and never taken");
                let written = stdin.write_all(text.as_bytes()).and_then(|()| stdin.flush());
                written.map_err(|source| bridge(python, &source))?;
            }
        }
        Ok(())
    }

    /// Waits for the tracker; returns the written files. Errors: a tracker that failed; it has printed why.
    pub fn end(self) -> Result<Vec<PathBuf>, ReportError> {
        match self.sink {
            CurveSink::Files(out) => Ok(self.sent.keys().map(|run| file_of(&out, run)).collect()),
            CurveSink::Python(python, mut child) => {
                drop(child.stdin.take());
                let status = child.wait().map_err(|source| bridge(&python, &source))?;
                if status.success() {
                    Ok(Vec::new())
                } else {
                    Err(bridge(&python, &format!("the tracker ended with {status}")))
                }
            }
        }
    }
}

fn bridge(python: &Path, reason: &dyn std::fmt::Display) -> ReportError {
    ReportError::Tracker { python: python.to_path_buf(), reason: reason.to_string() }
}

fn file_of(out: &Path, run: &str) -> PathBuf {
    out.join("tensorboard").join(run).join("events.out.tfevents.0.dapo")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A package that writes down each call, without the first value, which is a run.
    const PACKAGE: &str = r#"
import sys

class Recorder:
    def __init__(self, name):
        self.name = name

    def __getattr__(self, name):
        return Recorder(f"{self.name}.{name}")

    def __call__(self, *values, **named):
        with open("CALLS", "a") as calls:
            print(self.name, *values[1:], *sorted(named.items()), file=calls)
        return self

sys.modules[__name__] = Recorder(__name__)
"#;

    fn run(name: &str, ending: Option<&'static str>) -> RunCurves {
        RunCurves {
            name: name.to_string(),
            group: "g".to_string(),
            config: json!({"seed": 1}),
            scalars: vec![Scalar { tag: "loss".to_string(), step: 1, value: 0.5 }],
            ending,
        }
    }

    /// The calls that have this word, of a run that finished, one that diverged and one that goes on.
    fn called(tracker: Tracker, word: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let [python, calls] = ["python", "calls"].map(|name| folder.path().join(name));
        let shown = folder.path().display();
        let program = format!("#!/bin/sh\nPYTHONPATH={shown} exec python3 \"$@\"\n");
        files::write_program(&python, &program).unwrap();
        let package = PACKAGE.replace("CALLS", &calls.display().to_string());
        let file = folder.path().join(format!("{}.py", tracker.name()));
        files::write_atomic(&file, package.as_bytes()).unwrap();
        let mut sender = CurveSender::new(tracker, folder.path(), "p", &python).unwrap();
        for ending in [Some("finished"), Some("diverged"), None] {
            let run = run(&format!("{ending:?}"), ending);
            sender.send(&run).unwrap();
            sender.send(&run).unwrap();
        }
        sender.end().unwrap();
        let text = files::read_text(&calls).unwrap();
        text.lines().filter(|line| line.contains(word)).map(str::to_string).collect()
    }

    #[test]
    fn an_event_file_that_goes_on_has_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let new =
            || CurveSender::new(Tracker::Tensorboard, folder.path(), "p", Path::new("")).unwrap();
        let (mut first, mut second) = (new(), new());
        first.send(&run("run", None)).unwrap();
        let bytes = || files::read(&file_of(folder.path(), "run")).unwrap();
        let before = bytes();
        let refused = second.send(&run("run", None)).unwrap_err().to_string();
        assert!(refused.contains("run: in use by another process"), "{refused}");
        first.send(&run("run", Some("finished"))).unwrap();
        let mut third = new();
        third.send(&run("run", None)).unwrap();
        assert_eq!(bytes(), before);
        third.end().unwrap();
        let left = files::list(&folder.path().join("tensorboard/run")).unwrap();
        assert_eq!(left, ["events.out.tfevents.0.dapo"]);
    }

    #[test]
    fn trackers_are_told_how_runs_ended_and_begin_new_ones() {
        let finish = |code: u8| format!("wandb.init.finish ('exit_code', {code})");
        assert_eq!(called(Tracker::Wandb, ".finish"), [finish(0), finish(1), finish(1)]);
        let states = ["FINISHED", "FAILED", "KILLED"];
        let states = states.map(|state| format!("mlflow.MlflowClient.set_terminated {state}"));
        assert_eq!(called(Tracker::Mlflow, "set_terminated"), states);
        assert_eq!(called(Tracker::Trackio, "('resume', 'never')").len(), 3);
        assert_eq!(called(Tracker::Trackio, "trackio.init.log").len(), 3);
    }
}
