//! Experiments by name: a file, or an arm of the folders of experiments here or of the program.

use crate::base::{files, program};
use crate::experiment::{Experiment, ExperimentError, diagnose, extends, shipped};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use toml::Value;

const FOLDERS: [&str; 3] = ["experiments", "experiments/arms", "experiments/methods"];

/// Loads a file, or an arm of this name, with overrides `KEY=VALUE`. Errors: not found, unusable, or a bad override.
pub fn load(name: &Path, set: &[String]) -> Result<Experiment, ExperimentError> {
    let path = find(name)?;
    let chain = extends::chain(&path)?;
    let stated = &chain[0].1;
    if let Some(base) = stated.get("base").and_then(Value::as_str)
        && (stated.contains_key("arms") || stated.contains_key("axes"))
    {
        let base = extends::normal(&path.parent().unwrap_or(Path::new("")).join(base));
        return Err(grid(&path, &format!("; its arms begin with {}", base.display())));
    }
    extends::resolve(extends::overridden(chain, set)?)
}

pub fn is_run(folder: &Path) -> bool {
    matches!(files::kind(&folder.join("experiment.json")), Ok(Some(_)))
}

/// The file or run folder that a path or an arm's name means. A path need not exist. Something else that has an arm's
/// name here, such as a clone of the program, does not hide the arm.
pub fn find(name: &Path) -> Result<PathBuf, ExperimentError> {
    let is_ours = |it: &OsStr| ["toml", "json"].iter().any(|own| it.eq_ignore_ascii_case(own));
    let is_file = name.extension().is_some_and(|it| is_ours(it) || name.exists());
    if name.components().count() > 1 || is_file || is_run(name) {
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
    let of_grid = Path::new(shipped::GRIDS).join(format!("{shown}.toml"));
    if of_grid.exists() || shipped::text(&of_grid).is_some() {
        return Err(grid(name, ""));
    }
    let reason = diagnose::known(&shown, "the arms here are", &Vec::from_iter(known));
    Err(format!("{shown} is no file, no run folder, and no arm; {reason}").into())
}

fn grid(path: &Path, more: &str) -> ExperimentError {
    let word = program::path_word(path);
    format!("{} is a grid, which `dapo ablate {word}` runs{more}", path.display()).into()
}

/// File and name of each experiment here and in the program; unusable ones, which nobody asked for, are passed over.
fn arms() -> Vec<(PathBuf, String)> {
    let all = FOLDERS.iter().map(Path::new).flat_map(|folder| {
        let names = files::list(folder).unwrap_or_default().into_iter();
        names.filter(|name| name.ends_with(".toml")).map(move |name| folder.join(name))
    });
    let shipped = shipped::all().map(|(path, _)| PathBuf::from(path));
    let shipped =
        shipped.filter(|path| path.parent().is_some_and(|it| FOLDERS.map(Path::new).contains(&it)));
    let all: BTreeSet<PathBuf> = all.chain(shipped).collect();
    all.into_iter()
        .filter_map(|path| Some((extends::load(&path).ok()?, path)))
        .map(|(experiment, path)| (path, experiment.name))
        .collect()
}
