//! Loading an experiment file: follow `extends`, merge, resolve paths, deserialise, validate.

use crate::base::files;
use crate::experiment::sources::is_within;
use crate::experiment::{Experiment, ExperimentError, diagnose, shipped, validate};
use std::path::{Component, Path, PathBuf};
use toml::{Table, Value};

/// Files in a chain, the first one included.
const MAX_FILES: usize = 8;

/// A larger experiment file is not read.
const MAX_FILE_BYTES: u64 = 1 << 20;

const MAX_PROBLEMS: usize = 50;

/// Loads a file with its chain of parents: `extends = "base.toml"`, relative to the file. The file's values win: tables
/// merge, scalars and arrays are replaced, and a table with a `kind` key in either is replaced whole. Paths in
/// `[inputs]`, and that of a program in `[reward]`, are relative to the file that states them.
pub fn load(path: &Path) -> Result<Experiment, ExperimentError> {
    resolve(chain(path)?)
}

/// The place of what [`overridden`] states, in messages.
const OVERRIDE: &str = "--set";

/// A chain whose first table states each `KEY=VALUE`: a TOML value, or else a text. A key inside a table with a `kind`
/// keeps the table's other keys. Errors: a text without a key or a value, and a key that is stated twice.
pub fn overridden(mut chain: Chain, set: &[String]) -> Result<Chain, ExperimentError> {
    let (below, mut overlay) = (merged(&chain), Table::new());
    let mut pairs = Vec::new();
    for text in set {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let (key, value) = (key.trim(), value.trim());
        if value.is_empty() || key.split('.').any(str::is_empty) {
            return Err(
                format!("{OVERRIDE} {text}: expected KEY=VALUE, such as execution.seed=2").into()
            );
        }
        let parsed = format!("value = {value}").parse::<Table>().ok();
        let parsed =
            parsed.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
        pairs.push((key, parsed.unwrap_or_else(|| Value::String(value.to_string()))));
    }
    // A kind replaces its table, whose other keys come after it.
    pairs.sort_by_key(|(key, _)| !key.ends_with(".kind"));
    for (index, (key, value)) in pairs.iter().enumerate() {
        let clash = |(other, _): &&(&str, Value)| overlap(key, other);
        if let Some((other, _)) = pairs[..index].iter().find(clash) {
            return Err(format!("{OVERRIDE} {key}: {OVERRIDE} {other} states it too").into());
        }
        state(&mut overlay, &below, key, value);
    }
    if !pairs.is_empty() {
        chain.insert(0, (PathBuf::from(OVERRIDE), overlay));
    }
    Ok(chain)
}

pub fn overlap(a: &str, b: &str) -> bool {
    is_within(a, b) || is_within(b, a)
}

/// Puts a value at a key. A table with a `kind`, which will replace that of `below` whole, is copied from
/// there first; a new kind begins an empty one.
pub fn state(overlay: &mut Table, below: &Table, key: &str, value: &Value) {
    let Some((part, rest)) = key.split_once('.') else {
        overlay.insert(key.to_string(), value.clone());
        return;
    };
    let under = below.get(part).and_then(Value::as_table).cloned().unwrap_or_default();
    let start =
        if rest != "kind" && under.contains_key("kind") { under.clone() } else { Table::new() };
    if let Value::Table(inner) = overlay.entry(part).or_insert(Value::Table(start)) {
        state(inner, &under, rest, value);
    }
}

/// Tables with the place that states them, the one that wins first.
pub type Chain = Vec<(PathBuf, Table)>;

/// Merges a chain of at least one table and checks it. Each problem begins with the place that states it.
pub fn resolve(mut chain: Chain) -> Result<Experiment, ExperimentError> {
    let mut problems: Vec<String> = Vec::new();
    while problems.len() < MAX_PROBLEMS {
        let merged = merged(&chain);
        let failure = match diagnose::parse(&merged) {
            Ok(experiment) => return checked(&chain, experiment, problems),
            Err(failure) => failure,
        };
        if let Some(problem) = quoted_name(&chain, &failure.reason) {
            problems.push(problem);
            break;
        }
        let failure = diagnose::explained(&merged, failure);
        let stating = stated_in(&chain, &failure.key);
        let path = chain[stating].0.display();
        let problem = match failure.key.as_str() {
            "." => format!("{path}: {}", failure.reason),
            key => format!("{path}: {key}: {}", failure.reason),
        };
        // What is missing only because a wrong value was taken away is no problem of its own.
        let follows = !problems.is_empty() && failure.reason.starts_with("missing field");
        if !follows {
            problems.push(problem);
        }
        // The next problem shows when this one is out of the way: without the key a parent's value stands, if any.
        if follows || !remove(&mut chain[stating].1, &failure.key) {
            break;
        }
    }
    Err(ExperimentError::Invalid { problems })
}

fn checked(
    chain: &[(PathBuf, Table)],
    mut experiment: Experiment,
    mut problems: Vec<String>,
) -> Result<Experiment, ExperimentError> {
    // Format 1 has no key in the records of earlier runs.
    experiment.records = experiment.records.filter(|records| records.format != 1);
    problems.extend(keep_sets(chain, &mut experiment));
    // Rules between keys say nothing while a key's value is not the one meant.
    let rules = if problems.is_empty() { validate::problems } else { validate::ranges };
    problems.extend(rules(&experiment).into_iter().map(|problem| with_cause(chain, problem)));
    if problems.is_empty() { Ok(experiment) } else { Err(ExperimentError::Invalid { problems }) }
}

fn quoted_name(chain: &[(PathBuf, Table)], reason: &str) -> Option<String> {
    let name = reason.strip_prefix("unknown field `")?.split('`').next()?;
    let (path, _) = chain.iter().find(|(_, table)| name.contains('.') && has_name(table, name))?;
    let path = path.display();
    Some(format!(
        "{path}: {name:?} in quotes is one name, which is no key; write it without quotes"
    ))
}

fn has_name(table: &Table, name: &str) -> bool {
    let is_inside = |value: &Value| value.as_table().is_some_and(|inner| has_name(inner, name));
    table.contains_key(name) || table.values().any(is_inside)
}

/// Takes away samples of a parent's sets that the file's data lack; a set that the data never had is a problem.
fn keep_sets(chain: &[(PathBuf, Table)], experiment: &mut Experiment) -> Vec<String> {
    let of_files = experiment.inputs.data.set_names();
    let of_data = stated_in(chain, "inputs.data.kind");
    let mut problems = Vec::new();
    let mut is_kept = |known: &[String], (key, set): (String, &str)| {
        let is_known = known.iter().any(|name| name == set);
        if !is_known && stated_in(chain, &key) <= of_data {
            let sets = known.join(", ");
            let problem = format!("{key} names no set of the data, which are {sets}");
            problems.push(with_file(chain, problem));
        }
        is_known
    };
    experiment.evaluation.sets.retain(|name, set| match &set.problems {
        Some(other) => is_kept(&of_files, (format!("evaluation.sets.{name}.problems"), other)),
        None => is_kept(&of_files, (format!("evaluation.sets.{name}"), name)),
    });
    let known = experiment.set_names();
    let samples = &mut experiment.evaluation.samples;
    samples.retain(|set, _| is_kept(&known, (format!("evaluation.samples.{set}"), set)));
    if stated_in(chain, "evaluation.during_training") > of_data {
        experiment.evaluation.during_training.retain(|set| known.contains(set));
    }
    problems
}

fn merged(chain: &[(PathBuf, Table)]) -> Table {
    let mut merged = Table::new();
    for (_, table) in chain.iter().rev() {
        merge(&mut merged, table);
    }
    merged
}

/// As [`with_file`], of the place from which on a rule between keys is broken; a parent may state the named key.
fn with_cause(chain: &[(PathBuf, Table)], problem: String) -> String {
    let is_broken = |above: &usize| {
        let chain = &chain[*above..];
        let Ok(mut experiment) = diagnose::parse(&merged(chain)) else { return false };
        keep_sets(chain, &mut experiment);
        validate::problems(&experiment).contains(&problem)
    };
    let key = problem.split([' ', ':']).next().unwrap_or_default();
    let stating = stated_in(chain, key);
    let causing = (0..=stating).rev().find(is_broken).unwrap_or(stating);
    if causing == stating {
        return with_file(chain, problem);
    }
    let [(place, table), (stating, _)] = [causing, stating].map(|index| &chain[index]);
    let of_flag = || format!(", beside {OVERRIDE} {}", keys(table, |_| false).join(", "));
    let is_flag = place == Path::new(OVERRIDE);
    let beside = if is_flag { of_flag() } else { String::new() };
    format!("{}: {problem} ({key} is that of {}{beside})", place.display(), stating.display())
}

pub fn keys(table: &Table, is_one: fn(&Table) -> bool) -> Vec<String> {
    let of_entry = |(key, value): (&String, &Value)| match value {
        Value::Table(inner) if !is_one(inner) => {
            keys(inner, is_one).into_iter().map(|rest| format!("{key}.{rest}")).collect()
        }
        _ => vec![key.clone()],
    };
    table.iter().flat_map(of_entry).collect()
}

fn with_file(chain: &[(PathBuf, Table)], problem: String) -> String {
    let key = problem.split(' ').next().unwrap_or_default();
    format!("{}: {problem}", chain[stated_in(chain, key)].0.display())
}

/// Removes a key, or the longest stated part of it; in a table with a `kind` the table, which would be incomplete.
fn remove(table: &mut Table, key: &str) -> bool {
    let (part, rest) = key.split_once('.').map_or((key, None), |(part, rest)| (part, Some(rest)));
    match (table.get_mut(part), rest) {
        (Some(Value::Table(inner)), Some(rest)) if !inner.contains_key("kind") => {
            remove(inner, rest) || table.remove(part).is_some()
        }
        _ => table.remove(part).is_some(),
    }
}

/// The file and its ancestors, without their `extends` keys, with its paths relative to where the process runs.
pub fn chain(path: &Path) -> Result<Chain, ExperimentError> {
    let mut chain: Chain = Vec::new();
    let mut next = Some(normal(path));
    while let Some(path) = next {
        let names = |last: &Path| {
            let known = chain.iter().map(|(path, _)| path.as_path());
            let known = known.chain([last]).map(|path| path.display().to_string());
            known.collect::<Vec<_>>().join(" -> ")
        };
        if chain.iter().any(|(known, _)| *known == path) {
            let own = files::state(&path).ok();
            let is_own = |it: &&(PathBuf, Table)| own.is_some() && files::state(&it.0).ok() == own;
            let first = chain.iter().find(is_own).map_or(&path, |(first, _)| first);
            return Err(format!("extends goes in a circle: {}", names(first)).into());
        }
        if chain.len() == MAX_FILES {
            let deep = format!("extends is more than {MAX_FILES} files deep: {}", names(&path));
            return Err(deep.into());
        }
        if let Some((child, _)) = chain.last() {
            named(child, "extends", &path)?;
        }
        let mut table = read_table(&path)?;
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        next = match table.remove("extends") {
            None => None,
            Some(Value::String(parent)) => Some(normal(&folder.join(parent))),
            Some(other) => {
                let expected = "expected the name of one file";
                return Err(format!("{}: extends: {expected}, got {other}", path.display()).into());
            }
        };
        resolve_paths(&mut table, &folder);
        chain.push((path, table));
    }
    Ok(chain)
}

/// Errors: a path that a key of `file` names, and that is neither there nor in the program.
pub fn named(file: &Path, key: &str, path: &Path) -> Result<(), ExperimentError> {
    if path.exists() || shipped::text(path).is_some() {
        return Ok(());
    }
    Err(format!(
        "{}: {key}: there is no file {}; it is the path of a TOML file, from the folder of this one",
        file.display(),
        path.display()
    )
    .into())
}

/// Reads a TOML file of at most `MAX_FILE_BYTES`, or one of the program that is not here.
pub fn read_table(path: &Path) -> Result<Table, ExperimentError> {
    let text = match shipped::text(path).filter(|_| !path.exists()) {
        Some(text) => text.to_string(),
        None => files::read_text_up_to(path, MAX_FILE_BYTES)?,
    };
    text.parse().map_err(|error: toml::de::Error| {
        // The text of a file that is no experiment by its name, or a link, is not shown.
        let is_own = path.extension().is_some_and(|extension| extension == "toml")
            && matches!(files::kind(path), Ok(Some(files::FileKind::File)));
        let mut reason = if is_own {
            error.to_string().trim_end().to_string()
        } else {
            files::foreign::without_text(&text, error.message(), error.span())
        };
        if !reason.starts_with("TOML") {
            reason = format!("not TOML: {reason}");
        }
        format!("{}: {reason}", path.display()).into()
    })
}

/// Removes `.` and `folder/..`, so that two spellings of one file are equal.
pub fn normal(path: &Path) -> PathBuf {
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

/// Makes the paths of `[inputs]` and of a program relative to where the process runs.
pub fn resolve_paths(table: &mut Table, folder: &Path) {
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
    let resolve_program = |owner: &mut Value| {
        owner.get_mut("verifier").and_then(|verifier| verifier.get_mut("file")).map(resolve);
    };
    table.get_mut("reward").map(resolve_program);
    let sets = table.get_mut("evaluation").and_then(|evaluation| evaluation.get_mut("sets"));
    let sets = sets.and_then(Value::as_table_mut).into_iter().flat_map(Table::iter_mut);
    sets.for_each(|(_, set)| resolve_program(set));
    let Some(Value::Table(inputs)) = table.get_mut("inputs") else { return };
    inputs.get_mut("model").map(resolve);
    if let Some(Value::Table(data)) = inputs.get_mut("data") {
        for key in ["train", "dev", "test"] {
            data.get_mut(key).map(resolve);
        }
    }
}

pub fn merge(base: &mut Table, overlay: &Table) {
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

/// Index of the nearest file of the chain that states a key, or the longest part of it.
fn stated_in(chain: &[(PathBuf, Table)], key: &str) -> usize {
    let depth = |index: &usize| {
        let mut table = Some(&chain[*index].1);
        let stated = key.split('.').map_while(|part| {
            let value = table?.get(part)?;
            table = value.as_table();
            Some(())
        });
        stated.count()
    };
    (0..chain.len()).rev().max_by_key(depth).expect("a chain has at least one file")
}

#[cfg(test)]
mod tests;
