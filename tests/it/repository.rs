//! The files of this repository, for tests that look at the sources themselves.

use dapo::base::files;
use dapo::experiment::{Experiment, extends};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// A file with its path relative to the repository's root, with `/` between its parts.
#[derive(Debug, Clone, Deserialize)]
pub struct Source {
    /// Such as `src/trainer/experiment/mod.rs`.
    pub path: String,
    pub text: String,
}

impl Source {
    /// A source that exists in a test only.
    pub fn planted(path: &str, text: &str) -> Self {
        Self { path: path.into(), text: text.into() }
    }
}

/// The first problems of mini-AIME's sets: most of the time of a few short steps is their evaluations.
pub const FEW_PROBLEMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/few_problems");

/// Their data, as a line of an experiment and as a word of `--set`.
pub fn few_problems() -> String {
    include_str!("few_problems/data.toml").replace("FEW", FEW_PROBLEMS)
}

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// An experiment of `experiments/`, with every word's `KEY=VALUE`.
pub fn experiment(name: &str, set: &str) -> Experiment {
    let chain = extends::chain(&root().join("experiments").join(name)).unwrap();
    let set: Vec<String> = set.split_whitespace().map(str::to_string).collect();
    extends::resolve(extends::overridden(chain, &set).unwrap()).unwrap()
}

/// Replaces the first place of a text in a file.
pub fn replace(path: &Path, from: &str, to: &str) {
    let text = files::read_text(path).unwrap();
    assert!(text.contains(from), "{} has no {from}", path.display());
    files::write_atomic(path, text.replacen(from, to, 1).as_bytes()).unwrap();
}

/// Every Rust file under `src/`, in order of path.
pub fn sources() -> Vec<Source> {
    paths(&root().join("src"))
        .into_iter()
        .filter(|path| path.ends_with(".rs"))
        .map(|path| read(&format!("src/{path}")).expect("a Rust file is text"))
        .collect()
}

/// Every text file that could be committed: what `.gitignore` names at the root is left out.
pub fn tracked_text() -> Vec<Source> {
    let ignored = files::read_text(&root().join(".gitignore")).expect(".gitignore is readable");
    let ignored: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('/')).collect();
    let is_ignored = |name: &str| {
        name == ".git"
            || ignored.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => name == *pattern,
            })
    };
    let mut found = Vec::new();
    for name in files::list(&root()).expect("the root can be listed") {
        if is_ignored(&name) {
            continue;
        }
        if root().join(&name).is_dir() {
            let mut inside = paths(&root().join(&name));
            // What a study leaves beside its records: /reports/*/runs, /reports/*/experiments.
            let second = |path: &String| path.split('/').nth(1).unwrap_or_default().to_string();
            let left = ["runs", "experiments", "ablate.lock"];
            inside.retain(|path| name != "reports" || !left.contains(&second(path).as_str()));
            found.extend(inside.iter().filter_map(|path| read(&format!("{name}/{path}"))));
        } else {
            found.extend(read(&name));
        }
    }
    found
}

/// The file's text; `None` when it is not UTF-8.
fn read(path: &str) -> Option<Source> {
    let bytes = files::read(&root().join(path)).expect("a listed file is readable");
    let text = String::from_utf8(bytes).ok()?;
    Some(Source { path: path.to_string(), text })
}

/// Files below a folder, relative to it, sorted; links are left out.
fn paths(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in files::list(folder).expect("a folder of the repository can be listed") {
        let path = folder.join(&name);
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            found.extend(paths(&path).into_iter().map(|inner| format!("{name}/{inner}")));
        } else {
            found.push(name);
        }
    }
    found
}
