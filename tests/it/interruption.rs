//! A run that is killed, stopped, starved of disk or damaged goes on to the bits of one that was
//! not. What must be equal is everything that `outcome.json` digests.

use crate::bad_input::{input::Step, tree};
use crate::binary::{Output, PROGRAM, ended, failed, says, succeeded};
use crate::engines::rows;
use crate::repository::few_problems;
use crate::transcript::play;
use crate::verify::{copy, expect, findings, flip, verified};
use dapo::base::{Purpose, files, rng::Id, rng::Stream, rng::stream, workers};
use dapo::experiment::extends;
use dapo::records::RunFolder;
use dapo::training::{Phase, TrainingError, Unfinished, run, run::RunEvent, run::inputs};
use dapo::verification::verify::VerifyVerdict;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A folder with the experiment, and the digests of a run that nothing disturbed.
struct Scene {
    folder: tempfile::TempDir,
    expected: BTreeMap<String, String>,
}

impl Scene {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = few_problems() + include_str!("interruption/experiment.toml");
        let text = text.replace("ROOT", env!("CARGO_MANIFEST_DIR"));
        files::write_atomic(&folder.path().join("experiment.toml"), text.as_bytes()).unwrap();
        let scene = Self { folder, expected: BTreeMap::new() };
        succeeded(scene.finish("undisturbed", "--restart"));
        let expected = RunFolder::at(scene.run("undisturbed")).outcome().unwrap().digests;
        assert!(expected.keys().any(|name| name.ends_with("carried.parquet")), "{expected:?}");
        Self { expected, ..scene }
    }

    fn run(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, name: &str, flag: &str) -> Command {
        let mut command = Command::new("env");
        command.args(["--default-signal", PROGRAM, "train", "experiment.toml", "--no-plan"]);
        command.args([flag, "--out", name]).current_dir(&self.folder).env("DAPO_LOG", "debug");
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Runs to the end.
    fn finish(&self, name: &str, flag: &str) -> Output {
        ended(&mut self.command(name, flag))
    }

    /// Runs until the log has told `occurrences` times what contains `marker`, and a little
    /// longer. `None` when the process ended before.
    fn run_until(&self, name: &str, marker: &str, occurrences: usize, wait: f64) -> Option<Child> {
        let mut child = self.command(name, "--resume").spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let is_told = |line: &String| line.contains(" DEBUG ") && line.contains(marker);
        let told = lines.by_ref().map_while(Result::ok).filter(is_told).take(occurrences);
        if told.count() < occurrences {
            child.wait().unwrap();
            return None;
        }
        // Nobody closes the pipe on a process that still talks.
        std::thread::spawn(move || lines.for_each(drop));
        std::thread::sleep(Duration::from_secs_f64(wait));
        Some(child)
    }

    /// Kills a run when the log has told what contains `marker`.
    fn kill_at(&self, name: &str, marker: &str) {
        kill(&mut self.run_until(name, marker, 1, 0.0).unwrap());
    }

    /// Kills runs at five random moments after `marker`, resumes each until it ends, and
    /// compares.
    fn kills(&self, marker: &str, most_seconds: f64) {
        let mut draws: Stream = stream(1, Purpose::Generate, &[Id::from(marker)]);
        let (mut struck, mut attempts, mut round) = (0, 0, 0);
        while struck < 5 {
            attempts += 1;
            assert!(attempts <= 20, "{marker}: {struck} of 20 kills struck a living process");
            let name = format!("killed-in-{marker}-{round}");
            // Only the report is written by a session that finds the run finished.
            let occurrences =
                if marker == "report" { 1 } else { 1 + (draws.uniform() * 2.0) as usize };
            let wait = draws.uniform() * most_seconds;
            let mut child = self.run_until(&name, marker, occurrences, wait);
            let reached = child.is_some();
            if let Some(child) = &mut child {
                struck += usize::from(child.try_wait().unwrap().is_none());
                kill(child);
                self.is_no_forgery(&name);
            }
            if !reached || struck == 5 {
                self.resumes_to_the_same_bits(&name);
                round += 1;
            }
        }
        println!("{marker}: {struck} kills in {attempts} attempts, {round} runs");
    }

    /// A run that was killed is unfinished, or ended without its report.
    fn is_no_forgery(&self, name: &str) {
        let folder = RunFolder::at(self.run(name));
        if !folder.path("manifest.json").exists() {
            return;
        }
        let verification = verified(&folder);
        assert_eq!(findings(&verification, VerifyVerdict::Mismatch), [""; 0], "{name}");
        if !folder.path("outcome.json").exists() {
            let summary = expect(verification, VerifyVerdict::Inconclusive).summary;
            assert!(summary.contains("the run is unfinished after "), "{name}: {summary}");
        }
    }

    fn resumes_to_the_same_bits(&self, name: &str) {
        succeeded(self.finish(name, "--resume"));
        let folder = RunFolder::at(self.run(name));
        assert_eq!(folder.outcome().unwrap().digests, self.expected, "{name}");
        assert_eq!(folder.digests().unwrap(), self.expected, "{name}");
        assert!(folder.path("report.html").exists());
        for inside in ["", "rollouts", "evaluations", "checkpoints"] {
            let names = files::list(&folder.path(inside)).unwrap();
            assert!(!names.iter().any(|name| files::leftovers::is_partial(name)), "{names:?}");
        }
    }
}

pub fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Waits until a process has come so far.
pub fn wait_until(child: &mut Child, has_come: impl Fn() -> bool) {
    let begun = Instant::now();
    while !has_come() {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        assert!(begun.elapsed() < Duration::from_secs(1200), "it takes too long");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_run_killed_at_random_moments_of_every_phase_ends_with_the_same_bits() {
    let scene = Scene::new();
    for (marker, most_seconds) in [
        ("generation", 0.15),
        ("update", 0.1),
        ("checkpoint", 0.02),
        ("evaluation", 0.1),
        ("report", 0.02),
    ] {
        scene.kills(marker, most_seconds);
    }
}

#[test]
fn the_first_signal_stops_after_the_step_and_the_second_at_once() {
    let scene = Scene::new();
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let name = format!("stopped-by-{signal}");
        let mut child = scene.run_until(&name, "generation", 1, 0.0).unwrap();
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        let folder = RunFolder::at(scene.run(&name));
        scene.is_no_forgery(&name);
        // The step that was under way: the first, or on a busy machine the second.
        let stopped = *folder.checkpoint_steps().unwrap().last().unwrap();
        let report = files::read_text(&folder.path("report.md")).unwrap();
        assert!(stopped < 3 && report.contains(&format!("{stopped} of 3 rollout")), "{report}");

        let mut child = scene.run_until(&name, "generation", 1, 0.0).unwrap();
        send(&child, signal);
        std::thread::sleep(Duration::from_millis(20));
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(code));
        assert_eq!(folder.metrics().unwrap().len() as u64, stopped);
        scene.is_no_forgery(&name);
        scene.resumes_to_the_same_bits(&name);
    }
}

pub fn send(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
}

#[test]
fn an_unfinished_run_is_neither_repeated_nor_entered_twice_unless_asked_for() {
    let scene = Scene::new();
    let mut child = scene.run_until("run", "generation step=2", 1, 0.0).unwrap();
    send(&child, "STOP");
    failed(scene.finish("run", "--resume"), 3, "in use by another process");
    kill(&mut child);

    play(scene.folder.path(), include_str!("interruption/unfinished.txt"));
    assert_eq!(RunFolder::at(scene.run("run")).digests().unwrap(), scene.expected);
}

#[test]
fn a_damaged_checkpoint_is_refused_by_name_and_the_one_before_it_is_used() {
    let scene = Scene::new();
    let damage = |file: &str| flip(&scene.run("run/checkpoints").join(file));
    scene.kill_at("run", "generation step=3");
    damage("step-000002/optimizer.safetensors");
    scene.kill_at("run", "generation step=3");
    let root = RunFolder::at(scene.run("run"));
    assert!(root.path("checkpoints/damaged-step-000002").exists());

    // Both damaged: the run begins again from the base policy.
    damage("step-000001/model.safetensors");
    files::remove_file(&root.checkpoint(2).join("trainer.json")).unwrap();
    let refused =
        ["step-000002 is refused", "step-000001 is refused", "model.safetensors: damaged"];
    says(scene.finish("run", "--resume"), 0, &refused);
    // They are nobody's results, and no sign of a forgery.
    let verification = expect(verified(&root), VerifyVerdict::Verified);
    for step in [1, 2] {
        let note = format!("checkpoints/damaged-step-{step:06}: a damaged checkpoint that");
        assert!(verification.not_checked.iter().any(|row| row.starts_with(&note)), "{note}");
    }
    scene.resumes_to_the_same_bits("run");
}

#[derive(Deserialize)]
struct Damage {
    make: Vec<Step>,
    passed_over: Vec<u64>,
    says: String,
}

#[test]
fn damaged_records_and_evaluations_are_named_and_made_again_from_a_checkpoint_before_them() {
    let scene = Scene::new();
    scene.kill_at("killed", "generation step=3");
    for damage in rows::<Damage>(include_str!("interruption/damages.toml"), "damages") {
        let root = RunFolder::at(scene.run("run"));
        copy(&scene.run("killed"), root.root());
        damage.make.iter().for_each(|step| step.take(scene.folder.path()));
        let (_, talk) = succeeded(scene.finish("run", "--resume"));
        for checkpoint in [1, 2] {
            let told = talk.contains(&format!("step-{checkpoint:06} is passed over"));
            assert_eq!(told, damage.passed_over.contains(&checkpoint), "{}: {talk}", damage.says);
        }
        assert!(talk.contains(&damage.says), "{}: {talk}", damage.says);
        assert_eq!(root.digests().unwrap(), scene.expected, "{}", damage.says);
        files::remove_folder(root.root()).unwrap();
    }
}

#[test]
fn a_session_whose_lock_is_taken_away_writes_nothing_further() {
    let scene = Scene::new();
    let experiment = extends::load(&scene.run("experiment.toml")).unwrap();
    workers::set_count(1);
    let inputs = inputs::prepare(experiment).unwrap();
    for is_replaced in [false, true] {
        // After a step is recorded, after an evaluation, after a checkpoint, and while a step
        // computes.
        for moment in ["step", "evaluated", "saved", "update"] {
            let root = RunFolder::at(scene.run(&format!("{moment}-{is_replaced}")));
            let mut left = None;
            let mut watch = |event: RunEvent| {
                let now = match event {
                    RunEvent::Step(..) => "step",
                    RunEvent::Evaluated(_) => "evaluated",
                    RunEvent::Saved(_) => "saved",
                    RunEvent::Phase(2, Phase::Update(1, _)) => "update",
                    _ => "",
                };
                if now == moment && left.is_none() {
                    files::remove_file(&root.path("run.lock")).unwrap();
                    if is_replaced {
                        // As a second process makes it anew.
                        files::write_atomic(&root.path("run.lock"), b"").unwrap();
                    }
                    left = Some(tree(root.root()));
                }
            };
            let ended = run::run(&inputs, &root, Unfinished::Refuse, &|| false, &mut watch);
            let error = ended.unwrap_err();
            assert!(matches!(error, TrainingError::LockLost { .. }), "{error}");
            assert!(error.to_string().contains("run.lock was removed or replaced"), "{error}");
            assert_eq!(Some(tree(root.root())), left, "{moment}, {is_replaced}");
        }
    }
    scene.resumes_to_the_same_bits("update-false");
}

/// A limit on file size is a full disk that needs no privilege: a write beyond it fails.
#[test]
fn a_disk_that_fills_ends_the_run_with_code_1_and_the_run_goes_on_when_there_is_room() {
    let scene = Scene::new();
    play(scene.folder.path(), include_str!("interruption/full_disk.txt"));
    scene.resumes_to_the_same_bits("full");
}
