//! Executes the lines that `verify` prints for this repository's studies, in a folder that has what it has.

use crate::binary::{PROGRAM, line_in};
use crate::{repository, verify};
use dapo::base::files;
use dapo::experiment::bases;
use dapo::records::run_folder::is_portable;
use dapo::study::Cell;
use dapo::training::run::inputs;
use serde_json::Value;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The names of all studies of this repository.
pub fn studies() -> Vec<String> {
    let reports = repository::root().join("reports");
    let mut studies = files::list(&reports).unwrap();
    studies.retain(|name| reports.join(name).join("grids").is_dir());
    assert!(studies.len() >= 12, "{studies:?}");
    studies
}

/// A copy of a study where `verify` of the copy prints its lines, beside the repository's other files.
struct Bench {
    folder: tempfile::TempDir,
    lines: Vec<String>,
    cell: Cell,
}

impl Bench {
    fn of(study: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // A path of a recipe, `../../data/words`, leads to this folder from a copy, and past it from a link.
        let (root, here) = (repository::root(), folder.path());
        verify::copy(&root.join("experiments"), &here.join("experiments"));
        for name in ["golden", "models"] {
            symlink(root.join(name), here.join(name)).unwrap();
        }
        let copy = format!("reports/{study}");
        verify::copy(&root.join(&copy), &here.join(&copy));
        let (_code, verification, talk) = line_in(here, &format!("verify {copy} --json"));
        let verification: Value = serde_json::from_str(&verification).expect(&talk);
        let lines: Vec<String> = serde_json::from_value(verification["commands"].clone()).unwrap();
        let is_command =
            |line: &String| ["cd ", "dapo ", "python3 "].iter().any(|it| line.starts_with(it));
        let lines: Vec<String> = lines.into_iter().filter(is_command).collect();
        let mut words = lines.last().unwrap().split_whitespace();
        let record = words.find(|word| word.starts_with("cells/")).unwrap();
        let cell = Cell::read(&here.join(&copy).join(record)).unwrap();
        Self { folder, lines, cell }
    }

    /// A shell that has the program and has followed the first line, which enters the study's folder.
    fn shell(&self, line: &str) -> Command {
        let bin = Path::new(PROGRAM).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let script = format!("set -e\n{}\n{line}", self.lines[0]);
        let mut shell = Command::new("bash");
        shell.args(["-c", &script]).env("PATH", path).current_dir(self.folder.path());
        shell.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        shell
    }

    /// Starts a line and kills it when `is_far_enough`, or at its end.
    fn begin(&self, line: &str, is_far_enough: impl Fn() -> bool) -> Option<Output> {
        // `exec` gives the program the shell's process, which is the one that is killed.
        let line = format!("exec {}", line.split(" && ").next().unwrap());
        let mut child = self.shell(&line).spawn().unwrap();
        let started = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if is_far_enough() {
                child.kill().unwrap();
                child.wait().unwrap();
                return None;
            }
            assert!(started.elapsed() < Duration::from_secs(120), "{line}");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(child.wait_with_output().unwrap())
    }

    fn study(&self) -> PathBuf {
        self.folder.path().join(self.lines[0].split_whitespace().nth(1).unwrap())
    }

    fn model(&self) -> PathBuf {
        let inputs = self.lines.last().unwrap().split_once("--inputs ");
        let inputs = inputs.map_or(".", |(_, rest)| rest.split(' ').next().unwrap());
        self.study().join(inputs).join(&self.cell.experiment.inputs.model)
    }

    /// From a model that has to be downloaded.
    fn is_tuned(&self) -> bool {
        self.lines.iter().any(|line| line.starts_with("dapo model tune "))
    }

    /// Those of the base policy, but for its weights: name and digest.
    fn companions(&self) -> Vec<(&str, &String)> {
        let inputs = self.cell.inputs.iter();
        let base = inputs.filter_map(|(name, digest)| Some((name.strip_prefix("base/")?, digest)));
        base.filter(|(name, _)| *name != "model.safetensors").collect()
    }
}

/// Whether every file is there with its digest.
fn are_there(folder: &Path, files: &[(&str, &String)]) -> bool {
    let digest = |name: &str| files::sha256_file(&folder.join(name)).ok();
    files.iter().all(|(name, wanted)| digest(name).as_ref() == Some(wanted))
}

/// As far as the first seconds show: the recipe gives the record's tokenizer and shape, and the run
/// that begins has the record's key.
fn begins(study: &str) {
    let bench = Bench::of(study);
    let (commands, last) = (&bench.lines[1..], bench.lines.last().unwrap());
    let embedded = bench.cell.experiment.inputs.model.starts_with("golden");
    let (texts, commands): (Vec<_>, Vec<_>) =
        commands.iter().partition(|line| line.starts_with("python3 "));
    assert_eq!(commands.len(), if embedded { 1 } else { 2 }, "{commands:?}");
    if !embedded {
        let refused = bench.begin(last, || false).unwrap();
        let message = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(3), "{message}");
        let made = commands[0].split(" --").next().unwrap().replace("../", "");
        assert!(message.contains(&made), "{message}");
        if bench.is_tuned() {
            return;
        }
        let files = bench.companions();
        assert_eq!(files.len(), 4);
        for line in texts {
            let output = bench.shell(line).output().unwrap();
            assert!(output.status.success(), "{line}: {output:?}");
        }
        let bases = bench.model().parent().unwrap().to_path_buf();
        let made = |name: &String| are_there(&bases.join(name).join("made"), &files);
        let is_begun = || files::list(&bases).unwrap_or_default().iter().any(made);
        let ended = bench.begin(commands[0], is_begun);
        assert!(ended.is_none(), "{ended:?}");
        return;
    }
    let manifest = bench.study().join("check/manifest.json");
    let ended = bench.begin(last, || manifest.exists());
    assert!(ended.is_none(), "{ended:?}");
    let manifest: Value = files::read_json(&manifest).unwrap();
    assert_eq!(manifest["run_key"], bench.cell.run_key);
    assert_eq!(inputs::run_key(&bench.cell.experiment, &bench.cell.inputs), bench.cell.run_key);
}

/// Every line to its end. A base policy that was made before is taken from `target/bases`.
fn holds(study: &str) {
    let bench = Bench::of(study);
    if bench.is_tuned() && !repository::root().join("models").exists() {
        return;
    }
    let base = bench.cell.inputs["base/model.safetensors"].clone();
    let cached = repository::root().join("target/bases").join(&base);
    for line in &bench.lines[1..] {
        let makes_base = line.starts_with("dapo model ");
        if makes_base && cached.exists() {
            verify::copy(&cached, &bench.model());
            continue;
        }
        let output = bench.shell(line).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let may_differ = output.status.code() == Some(4) && !is_portable(&bench.cell.exactness);
        assert!(output.status.success() || may_differ, "{line}: {output:?}");
        if makes_base {
            assert!(printed.starts_with(&base), "{line}: {printed}");
            verify::copy(&bench.model(), &cached);
        }
    }
    let digest = files::sha256_file(&bench.model().join("model.safetensors"));
    assert!(bench.lines.len() == 2 || digest.unwrap() == base);
}

#[test]
fn the_printed_check_of_every_study_begins_with_what_its_record_has() {
    studies().iter().for_each(|study| begins(study));
}

#[test]
fn every_recipe_of_a_base_policy_of_a_seed_is_there_and_every_such_experiment_has_one() {
    let root = repository::root();
    let known = bases::all();
    for base in known.values() {
        assert!(root.join(&base.recipe).exists(), "{base:?}");
    }
    let mut files = repository::tracked_text();
    files.retain(|file| file.path.starts_with("experiments/") && file.path.ends_with(".toml"));
    let name = |line: &'_ str| -> Option<String> {
        Some(line.split_once("runs/bases/")?.1.split_once("-{seed}")?.0.into())
    };
    let named: Vec<String> =
        files.iter().flat_map(|file| file.text.lines().filter_map(name)).collect();
    assert_eq!(named.len(), 9);
    assert!(named.iter().all(|name| known.contains_key(name)), "{named:?}");
}

#[test]
#[ignore = "takes 30 minutes, and more until the base policies are there: just printed-checks"]
fn the_printed_check_of_every_study_gives_its_record() {
    studies().iter().for_each(|study| holds(study));
}
