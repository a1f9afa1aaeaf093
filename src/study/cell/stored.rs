//! A stored experiment: a run's, a cell record's, or resolved JSON, with the places of its inputs.

use crate::base::{files, visible};
use crate::experiment::compare::differing_keys;
use crate::experiment::{Experiment, ExperimentError, bases, named, shipped, validate};
use crate::records::RunFolder;
use crate::study::cell::packed;
use crate::study::{Cell, StudyError};
use crate::task::reward::program::placed;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// STUDY/cells, STUDY, and two folders more.
const DEPTH: usize = 4;

/// Input → SHA-256, or the version of a package.
pub type Digests = BTreeMap<String, String>;

const WAY_OUT: &str =
    "--inputs FOLDER says where the inputs are; --set inputs.model=DIR and the like name others";

#[derive(Debug)]
pub struct Stored {
    path: PathBuf,
    pub experiment: Experiment,
    digests: Digests,
}

#[derive(Debug, Default)]
pub struct Recorded {
    path: PathBuf,
    digests: Digests,
    exchanged: Vec<&'static str>,
}

pub fn is_stored(path: &Path) -> bool {
    path.to_string_lossy().ends_with(".json")
}

impl Stored {
    /// Errors: an unreadable file, something else than an experiment, an experiment that cannot run.
    pub fn read(path: &Path) -> Result<Self, StudyError> {
        let value = match packed::text(path)? {
            Some(_) => Value::Null,
            None => files::read_json(path)?,
        };
        let stored = |experiment, digests| Self { path: path.to_path_buf(), experiment, digests };
        if value.is_null() || value.get("record_sha256").is_some() {
            let Cell { experiment, inputs, .. } = Cell::read(path)?;
            return Ok(stored(experiment, inputs));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        if value.get("dapo").is_none() {
            let next = if named::is_run(folder) && !path.ends_with("experiment.json") {
                format!("it is a file of a run; name the run folder {}", folder.display())
            } else {
                "it is neither an experiment nor the record of a cell; name a TOML file, an arm, a run folder, its \
                 experiment.json or a cell's record"
                    .to_string()
            };
            return Err(StudyError::invalid(path, next));
        }
        let experiment: Experiment = files::read_json(path)?;
        let problems = validate::problems(&experiment).into_iter();
        let problems: Vec<String> =
            problems.map(|problem| format!("{}: {problem}", path.display())).collect();
        if !problems.is_empty() {
            return Err(ExperimentError::Invalid { problems }.into());
        }
        let run = RunFolder::at(folder);
        let has_manifest =
            path.ends_with("experiment.json") && files::kind(&run.path("manifest.json"))?.is_some();
        let digests = if has_manifest { run.manifest()?.inputs } else { Digests::new() };
        Ok(stored(experiment, digests))
    }

    pub fn ran(&self) -> bool {
        !self.digests.is_empty()
    }

    /// Relative paths start from `inputs`, else from the working folder or a folder around the file, whichever has what
    /// ran. `exchange` makes the user's changes. Starts no program. Errors: inputs that are missing or others.
    pub fn placed<E: From<StudyError>>(
        self,
        inputs: Option<&Path>,
        exchange: impl Fn(Experiment) -> Result<Experiment, E>,
    ) -> Result<(Experiment, Recorded), E> {
        let Self { path, experiment, digests } = self;
        let exchanged = exchanged(&experiment, &exchange(experiment.clone())?);
        let recorded = Recorded { path, digests, exchanged };
        let absolute =
            std::path::absolute(&recorded.path).unwrap_or_else(|_| recorded.path.clone());
        let around = absolute.ancestors().skip(1).take(DEPTH).map(Path::to_path_buf);
        let folders: Vec<PathBuf> = match inputs {
            Some(folder) => vec![folder.to_path_buf()],
            None => [PathBuf::new()].into_iter().chain(around).collect(),
        };
        let mut nearest: Option<(Vec<String>, Experiment)> = None;
        for folder in folders {
            let mut there = experiment.clone();
            there.start_from(&folder);
            let there = exchange(recorded.with_embedded(there)?)?;
            let faults = recorded.faults(&there)?;
            if faults.is_empty() {
                return Ok((there, recorded));
            }
            if nearest.as_ref().is_none_or(|(least, _)| faults.len() < least.len()) {
                nearest = Some((faults, there));
            }
        }
        let (faults, there) = nearest.unwrap_or((Vec::new(), experiment));
        let Experiment { inputs: paths, execution, .. } = &there;
        let is_made =
            paths.base.is_some() || bases::of_seed(&paths.model, execution.seed).is_some();
        if is_made && !paths.model.exists() {
            return Ok((there, recorded));
        }
        let faults = visible::first_of(&faults, 3, "; ");
        Err(StudyError::invalid(recorded.path, format!("{faults}; {WAY_OUT}")).into())
    }
}

fn exchanged(before: &Experiment, after: &Experiment) -> Vec<&'static str> {
    let has_verifier = before.reward.verifier != after.reward.verifier;
    let parts = [
        ("base/", before.inputs.model != after.inputs.model),
        ("data/", before.inputs.data != after.inputs.data),
        ("reward/", has_verifier),
        ("package/", has_verifier),
        ("evaluation/", before.evaluation.sets != after.evaluation.sets),
    ];
    parts.into_iter().filter(|(_, differs)| *differs).map(|(start, _)| start).collect()
}

impl Recorded {
    fn counts(&self, name: &str) -> bool {
        !self.exchanged.iter().any(|start| name.starts_with(start))
    }

    fn with_embedded(&self, mut experiment: Experiment) -> Result<Experiment, StudyError> {
        let is_embedded = |(name, bytes): &(&str, &[u8])| {
            self.digests.get(&format!("base/{name}")) == Some(&files::sha256(bytes))
        };
        if !experiment.inputs.model.exists() && shipped::MODEL.iter().all(is_embedded) {
            experiment.inputs.model = shipped::write_model()?;
        }
        experiment.inputs.model = shipped::model_folder(&experiment.inputs.model)?;
        Ok(experiment)
    }

    fn faults(&self, there: &Experiment) -> Result<Vec<String>, StudyError> {
        let mut there = there.clone().of_its_seed();
        let programs = there.gradings().filter_map(|(_, grading)| grading.program());
        let mut paths: Vec<PathBuf> = programs.map(|program| program.file.clone()).collect();
        paths.retain(|path| !path.as_os_str().is_empty());
        paths.extend(there.inputs.paths().into_iter().map(|path| path.clone()));
        paths.retain(|path| !path.exists());
        let mut faults: Vec<String> =
            paths.iter().map(|path| format!("there is no {}", path.display())).collect();
        for (name, digest) in self.digests.iter().filter(|(name, _)| self.counts(name)) {
            let Some(file) = place(&there, name) else { continue };
            if paths.iter().any(|path| file.starts_with(path)) {
                continue;
            }
            let own = files::optional(files::sha256_file_once(&file))?;
            if own.as_ref() != Some(digest) {
                let own =
                    own.map_or("is not there".to_string(), |own| format!("has {}", short(&own)));
                let (file, digest) = (file.display(), short(digest));
                faults.push(format!("the run's {name} has SHA-256 {digest}, {file} {own}"));
            }
        }
        Ok(faults)
    }

    /// Errors: the inputs that are others than those that ran.
    pub fn check(&self, own: &Digests) -> Result<(), StudyError> {
        if self.digests.is_empty() {
            return Ok(());
        }
        let mut differing = differing_keys(own, &self.digests);
        differing.retain(|name| self.counts(name));
        if differing.is_empty() {
            return Ok(());
        }
        let of = |all: &Digests, name| all.get(name).map_or("none".to_string(), |it| short(it));
        let named = differing
            .into_iter()
            .take(5)
            .map(|name| format!("{name} ({}, here {})", of(&self.digests, name), of(own, name)));
        let named = Vec::from_iter(named).join(", ");
        let reason = format!("these are not the inputs of the run: {named}; {WAY_OUT}");
        Err(StudyError::invalid(&self.path, reason))
    }
}

fn short(digest: &str) -> String {
    visible::start(digest, 12)
}

fn place(experiment: &Experiment, input: &str) -> Option<PathBuf> {
    let (set, own) = match input.strip_prefix("evaluation/") {
        Some(rest) => rest.split_once('/').map(|(set, own)| (Some(set), own))?,
        None => (None, input),
    };
    let (kind, file) = own.split_once('/')?;
    if !Path::new(file).components().all(|part| matches!(part, Component::Normal(_))) {
        return None;
    }
    if kind == "base" {
        return Some(experiment.inputs.model.join(file));
    }
    let (_, grading) = experiment.gradings().find(|(of, _)| *of == set)?;
    let folder = grading.program()?.file.parent().filter(|_| kind == "reward")?;
    let in_working_folder = file.strip_prefix("working-folder/").map(PathBuf::from);
    Some(in_working_folder.unwrap_or_else(|| placed(folder, file)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Data, Grading, starter};
    use serde_json::json;

    fn stored(folder: &Path) -> Stored {
        for name in ["base/config.json", "rew.py", "a.jsonl"] {
            files::write_atomic(&folder.join(name), name.as_bytes()).unwrap();
        }
        let mut experiment = starter::paper().unwrap();
        let file = || PathBuf::from("a.jsonl");
        experiment.inputs.model = PathBuf::from("base");
        experiment.inputs.data = Data::Files { train: file(), dev: file(), test: vec![file()] };
        let program = json!({ "kind": "command", "file": "rew.py" });
        experiment.reward.verifier = serde_json::from_value(program).unwrap();
        let sha256 = |name: &str| files::sha256(name.as_bytes());
        let digests = Digests::from([
            ("base/config.json".to_string(), sha256("base/config.json")),
            ("reward/rew.py".to_string(), sha256("rew.py")),
        ]);
        Stored { path: folder.join("runs/one/experiment.json"), experiment, digests }
    }

    fn placed(stored: Stored, inputs: Option<&Path>) -> Result<(Experiment, Recorded), String> {
        stored.placed(inputs, Ok::<_, StudyError>).map_err(|error| error.to_string())
    }

    #[test]
    fn inputs_are_those_that_ran_or_are_named_as_others_before_anything_starts() {
        let folder = tempfile::tempdir().unwrap();
        let (there, copy) = (folder.path().join("there"), folder.path().join("copy"));
        let (experiment, recorded) = placed(stored(&there), None).unwrap();
        assert_eq!(experiment.inputs.model, there.join("base"));
        stored(&copy);
        assert_eq!(placed(stored(&there), Some(&copy)).unwrap().0.inputs.model, copy.join("base"));

        let mut own = recorded.digests.clone();
        recorded.check(&own).unwrap();
        own.insert("data/train".to_string(), "0".repeat(64));
        let error = recorded.check(&own).unwrap_err().to_string();
        assert!(error.contains("data/train (none, here 000000000000…)"), "{error}");

        let changed = stored(&there);
        files::write_atomic(&there.join("rew.py"), b"other").unwrap();
        let error = placed(changed, None).unwrap_err();
        assert!(error.contains("the run's reward/rew.py has SHA-256 "), "{error}");
        assert!(error.contains("--inputs FOLDER"), "{error}");
        let error = placed(stored(&there), Some(&folder.path().join("gone"))).unwrap_err();
        assert!(error.contains("there is no ") && !error.contains("SHA-256"), "{error}");
    }

    #[test]
    fn what_the_user_exchanges_is_not_held_against_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let changed = stored(folder.path());
        files::write_atomic(&folder.path().join("rew.py"), b"other").unwrap();
        let rule = starter::paper().unwrap().reward.verifier;
        assert!(matches!(rule, Grading::Rule(_)));
        let exchange = |mut experiment: Experiment| {
            experiment.reward.verifier = rule.clone();
            Ok::<_, StudyError>(experiment)
        };
        let (_, recorded) = changed.placed(None, exchange).unwrap();
        let mut own = recorded.digests.clone();
        own.remove("reward/rew.py");
        recorded.check(&own).unwrap();
    }

    #[test]
    fn another_file_of_a_run_is_no_experiment() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        for name in ["experiment.json", "report.json"] {
            files::write_json(&run.join(name), &json!({ "name": "one" })).unwrap();
        }
        let error = Stored::read(&run.join("report.json")).unwrap_err().to_string();
        assert!(error.contains("name the run folder ") && error.ends_with("run"), "{error}");
        let error = Stored::read(&run.join("experiment.json")).unwrap_err().to_string();
        assert!(error.contains("neither an experiment nor the record"), "{error}");
    }
}
