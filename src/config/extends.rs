//! Loading an experiment file: follow `extends`, merge, resolve paths, deserialise, validate.

use crate::config::Experiment;
use crate::config::validate;
use crate::files;
use std::path::Component;
use std::path::Path;
use std::path::PathBuf;
use toml::Table;
use toml::Value;

/// Longest chain of files, the first one included.
const MAX_FILES: usize = 8;

/// An experiment file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] files::Error),
    /// Not TOML.
    #[error("{}: {reason}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// The parser's reason, with line and column.
        reason: String,
    },
    /// A file extends itself, directly or through others.
    #[error("extends goes in a circle: {chain}")]
    Cycle {
        /// The files, from the first to the one that closes the circle.
        chain: String,
    },
    /// More files than anybody can follow.
    #[error("extends is more than {MAX_FILES} files deep: {chain}")]
    TooDeep {
        /// The files.
        chain: String,
    },
    /// A key that is unknown, missing or of the wrong type.
    #[error("{}: {key}: {reason}", path.display())]
    Key {
        /// The file that states the key, or the first file when none does.
        path: PathBuf,
        /// The key's path, such as `dapo.clip.low`.
        key: String,
        /// What is wrong, with the nearest valid name.
        reason: String,
    },
    /// Values that cannot be used, all of them.
    #[error("{}", problems.join("\n"))]
    Invalid {
        /// One line each: file, key, rule, value.
        problems: Vec<String>,
    },
}

/// Loads an experiment file with everything that it extends.
///
/// `extends = "base.toml"` names one parent, relative to the file. The file's values win:
/// tables merge, scalars and arrays are replaced, and a table with a `kind` key, in the file
/// or in the parent, is replaced whole. Relative paths in `[inputs]` are relative to the file
/// that states them.
///
/// # Errors
/// When a file cannot be read, the chain is circular, a key is unknown, missing or of the
/// wrong type (one at a time), or values are refused by [`validate::problems`] (all at once).
pub fn load(path: &Path) -> Result<Experiment, Error> {
    let chain = read_chain(path)?;
    let mut merged = Table::new();
    for (_, table) in chain.iter().rev() {
        merge(&mut merged, table);
    }
    let experiment: Experiment =
        serde_path_to_error::deserialize(Value::Table(merged)).map_err(|error| {
            let key = error.path().to_string();
            let reason = with_suggestion(error.into_inner().message());
            let path = stated_in(&chain, &key).to_path_buf();
            Error::Key { path, key, reason }
        })?;
    let problems = validate::problems(&experiment);
    if problems.is_empty() {
        return Ok(experiment);
    }
    let problems = problems
        .into_iter()
        .map(|problem| {
            let key = problem.split(' ').next().unwrap_or_default();
            format!("{}: {problem}", stated_in(&chain, key).display())
        })
        .collect();
    Err(Error::Invalid { problems })
}

/// The file and its ancestors, without their `extends` keys.
fn read_chain(path: &Path) -> Result<Vec<(PathBuf, Table)>, Error> {
    let mut chain: Vec<(PathBuf, Table)> = Vec::new();
    let mut next = Some(normal(path));
    while let Some(path) = next {
        let names = || {
            let known = chain.iter().map(|(path, _)| path.display().to_string());
            known.chain([path.display().to_string()]).collect::<Vec<_>>().join(" -> ")
        };
        if chain.iter().any(|(known, _)| *known == path) {
            return Err(Error::Cycle { chain: names() });
        }
        if chain.len() == MAX_FILES {
            return Err(Error::TooDeep { chain: names() });
        }
        let mut table: Table =
            files::read_text(&path)?.parse().map_err(|error: toml::de::Error| {
                let reason = error.to_string().trim_end().to_string();
                Error::Toml { path: path.clone(), reason }
            })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        next = match table.remove("extends") {
            None => None,
            Some(Value::String(parent)) => Some(normal(&folder.join(parent))),
            Some(other) => {
                let reason = format!("expected the name of one file, got {other}");
                return Err(Error::Key { path, key: "extends".into(), reason });
            }
        };
        resolve_inputs(&mut table, &folder);
        chain.push((path, table));
    }
    Ok(chain)
}

/// Without `.` and `folder/..`, so that two spellings of one file are equal.
fn normal(path: &Path) -> PathBuf {
    let mut parts: Vec<Component> = Vec::new();
    for part in path.components() {
        match (part, parts.last()) {
            (Component::CurDir, _) => {}
            (Component::ParentDir, Some(Component::Normal(_))) => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.iter().collect()
}

/// Makes the paths of `[inputs]` relative to where the process runs.
fn resolve_inputs(table: &mut Table, folder: &Path) {
    let Some(Value::Table(inputs)) = table.get_mut("inputs") else { return };
    let resolve = |value: &mut Value| {
        let paths = match value {
            Value::Array(values) => values.as_mut_slice(),
            single => std::slice::from_mut(single),
        };
        for path in paths {
            // What is not text is left for the deserialiser to refuse.
            if let Value::String(text) = path {
                *text = normal(&folder.join(&*text)).to_string_lossy().into_owned();
            }
        }
    };
    inputs.get_mut("model").map(resolve);
    if let Some(Value::Table(data)) = inputs.get_mut("data") {
        for key in ["train", "dev", "test"] {
            data.get_mut(key).map(resolve);
        }
    }
}

fn merge(base: &mut Table, overlay: &Table) {
    for (key, value) in overlay {
        match (base.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above))
                if !below.contains_key("kind") && !above.contains_key("kind") =>
            {
                merge(below, above);
            }
            _ => {
                base.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The nearest file of the chain that states a key, or the longest part of it.
fn stated_in<'a>(chain: &'a [(PathBuf, Table)], key: &str) -> &'a Path {
    let depth = |table: &Table| {
        let mut value = Some(table);
        let mut depth = 0;
        for part in key.split('.') {
            let Some(inner) = value.and_then(|table| table.get(part)) else { break };
            depth += 1;
            value = inner.as_table();
        }
        depth
    };
    let depths: Vec<usize> = chain.iter().map(|(_, table)| depth(table)).collect();
    let deepest = depths.iter().max().expect("a chain has at least one file");
    let nearest = depths.iter().position(|depth| depth == deepest).expect("the maximum is there");
    &chain[nearest].0
}

/// serde lists the valid names in backticks; the nearest one to the unknown name is put first.
fn with_suggestion(reason: &str) -> String {
    let unknown = reason.starts_with("unknown field") || reason.starts_with("unknown variant");
    let mut names = reason.split('`').skip(1).step_by(2);
    let nearest = match (unknown, names.next()) {
        (true, Some(wrong)) => names
            .map(|name| (distance(wrong, name), name))
            .min()
            .filter(|(distance, name)| 2 * distance <= wrong.len().max(name.len())),
        _ => None,
    };
    match nearest {
        Some((_, name)) => format!("{reason}; did you mean `{name}`?"),
        None => reason.to_string(),
    }
}

/// Levenshtein: single-character insertions, deletions and substitutions.
fn distance(one: &str, two: &str) -> usize {
    let two: Vec<char> = two.chars().collect();
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (index, a) in one.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, b) in two.iter().enumerate() {
            let substituted = diagonal + usize::from(a != *b);
            diagonal = row[column + 1];
            row[column + 1] = substituted.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[two.len()]
}

#[cfg(test)]
mod tests;
