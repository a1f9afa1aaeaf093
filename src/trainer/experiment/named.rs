//! Experiments by name: a file, or an arm of the folders of experiments here.

use crate::base::files;
use crate::experiment::{Experiment, ExperimentError, diagnose, extends};
use std::path::{Path, PathBuf};

/// Folders in which an arm is looked for.
const FOLDERS: [&str; 3] = ["experiments", "experiments/arms", "experiments/methods"];

/// Loads the experiment of a file, or of an arm with this name, with overrides `KEY=VALUE`.
///
/// # Errors
/// An experiment that cannot be found or used, and an override that it cannot have.
pub fn load(name: &Path, set: &[String]) -> Result<Experiment, ExperimentError> {
    extends::resolve(extends::overridden(extends::chain(&find(name)?)?, set)?)
}

/// The file that a path or an arm's name means. A path need not exist.
pub fn find(name: &Path) -> Result<PathBuf, ExperimentError> {
    let is_path = name.components().count() > 1 || name.extension().is_some();
    if is_path || name.exists() {
        return Ok(name.to_path_buf());
    }
    let shown = name.display().to_string();
    let mut files = FOLDERS.iter().map(|folder| Path::new(folder).join(format!("{shown}.toml")));
    if let Some(found) = files.find(|path| path.exists()) {
        return Ok(found);
    }
    let mut known = Vec::new();
    for (path, own) in arms() {
        if own == shown {
            return Ok(path);
        }
        known.push(own);
    }
    known.sort();
    let reason = match (diagnose::nearest(&shown, &known), known.is_empty()) {
        (_, true) => format!("there are no arms here (in {})", FOLDERS.join(", ")),
        (Some(nearest), _) => format!("did you mean {nearest}?"),
        (None, _) => format!("the arms here are {}", known.join(", ")),
    };
    Err(format!("{shown} is no file, no run folder, and no arm; {reason}").into())
}

/// File and name of each experiment here. One that cannot be used is passed over: it was not asked for.
fn arms() -> Vec<(PathBuf, String)> {
    let all = FOLDERS.iter().map(Path::new).flat_map(|folder| {
        let names = files::list(folder).unwrap_or_default().into_iter();
        names.filter(|name| name.ends_with(".toml")).map(move |name| folder.join(name))
    });
    all.filter_map(|path| Some((extends::load(&path).ok()?, path)))
        .map(|(experiment, path)| (path, experiment.name))
        .collect()
}
