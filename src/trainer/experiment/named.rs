//! Experiments by name: a file, or an arm of the folders of experiments here or of the program.

use crate::base::files;
use crate::experiment::{Experiment, ExperimentError, diagnose, extends, shipped};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const FOLDERS: [&str; 3] = ["experiments", "experiments/arms", "experiments/methods"];

/// Loads a file, or an arm of this name, with overrides `KEY=VALUE`. Errors: not found, unusable, or a bad override.
pub fn load(name: &Path, set: &[String]) -> Result<Experiment, ExperimentError> {
    extends::resolve(extends::overridden(extends::chain(&find(name)?)?, set)?)
}

pub fn is_run(folder: &Path) -> bool {
    matches!(files::kind(&folder.join("experiment.json")), Ok(Some(_)))
}

/// The file or run folder that a path or an arm's name means. A path need not exist. Something else that has an arm's
/// name here, such as a clone of the program, does not hide the arm.
pub fn find(name: &Path) -> Result<PathBuf, ExperimentError> {
    if name.components().count() > 1 || name.extension().is_some() || is_run(name) {
        return Ok(name.to_path_buf());
    }
    let shown = name.display().to_string();
    let mut files = FOLDERS.iter().map(|folder| Path::new(folder).join(format!("{shown}.toml")));
    if let Some(found) = files.find(|path| path.exists()) {
        return Ok(found);
    }
    let mut known = BTreeSet::new();
    for (path, own) in arms() {
        if own == shown || shipped::name(&path.to_string_lossy()) == shown {
            return Ok(path);
        }
        known.insert(own);
    }
    if name.exists() {
        return Ok(name.to_path_buf());
    }
    let reason = diagnose::known(&shown, "the arms here are", &Vec::from_iter(known));
    Err(format!("{shown} is no file, no run folder, and no arm; {reason}").into())
}

/// File and name of each experiment here and in the program; unusable ones, which nobody asked for, are passed over.
fn arms() -> Vec<(PathBuf, String)> {
    let all = FOLDERS.iter().map(Path::new).flat_map(|folder| {
        let names = files::list(folder).unwrap_or_default().into_iter();
        names.filter(|name| name.ends_with(".toml")).map(move |name| folder.join(name))
    });
    let shipped = shipped::paths().into_iter().map(PathBuf::from);
    let shipped =
        shipped.filter(|path| path.parent().is_some_and(|it| FOLDERS.map(Path::new).contains(&it)));
    let all: BTreeSet<PathBuf> = all.chain(shipped).collect();
    all.into_iter()
        .filter_map(|path| Some((extends::load(&path).ok()?, path)))
        .map(|(experiment, path)| (path, experiment.name))
        .collect()
}
