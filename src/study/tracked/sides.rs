//! The files of a side, and which of their runs belong to it.

use crate::base::{files, visible};
use crate::experiment::diagnose;
use crate::records::TrackedRun;
use crate::records::tracked;
use crate::study::{StudyError, TrackedOptions};
use std::collections::BTreeSet;
use std::path::Path;

/// Its runs, other runs of its files and, where a `FILE:TEXT` takes several, their names without seeds.
pub type TrackedSide = (Vec<TrackedRun>, BTreeSet<String>, BTreeSet<String>);

/// The runs of some files. `FILE:TEXT` is the run of the file with this name, else those that have the text in their
/// names, as words if there are any, and of a table with a row a run those of the arm with this name.
pub fn side(paths: &[String], options: &TrackedOptions) -> Result<TrackedSide, StudyError> {
    let (mut runs, mut others, mut names) = TrackedSide::default();
    let mut known: BTreeSet<(String, String)> = BTreeSet::new();
    let metric = options.metric.as_deref();
    for path in paths {
        let (file, part) = file_and_part(path);
        let (chosen, other, several) =
            named(file, part, tracked::read(Path::new(file), &options.at, metric)?)?;
        others.extend(other);
        names.extend(several);
        for run in chosen.iter().filter(|run| run.notes.format != tracked::TABLE) {
            if !known.insert(identity(run)?) {
                let reason = format!("{}given twice; a run counts once", prefix(run));
                return Err(StudyError::invalid(file, reason));
            }
        }
        runs.extend(chosen);
    }
    Ok((runs, others, names))
}

pub fn check_differ(a: &[TrackedRun], b: &[TrackedRun]) -> Result<(), StudyError> {
    let known: BTreeSet<_> = a.iter().map(identity).collect::<Result<_, StudyError>>()?;
    for run in b {
        if known.contains(&identity(run)?) {
            let reason = format!("{}given on both sides: name runs that differ", prefix(run));
            return Err(StudyError::invalid(&run.path, reason));
        }
    }
    Ok(())
}

fn identity(run: &TrackedRun) -> Result<(String, String), StudyError> {
    Ok((files::state(&run.path)?, prefix(run)))
}

pub fn arm(table: &str, name: &str) -> Result<TrackedSide, StudyError> {
    named(table, name, tracked::table::read(Path::new(table))?)
}

fn named(file: &str, part: &str, runs: Vec<TrackedRun>) -> Result<TrackedSide, StudyError> {
    let names: BTreeSet<String> = runs.iter().map(|run| run.name.clone()).collect();
    let is_table = runs.iter().any(|run| run.notes.format == tracked::TABLE);
    let plain = |name: &str| name.split_whitespace().collect::<String>().to_lowercase();
    let near = names.iter().find(|name| *name != part && plain(name) == plain(part));
    if let Some(near) = near.filter(|_| is_table && names.contains(part)) {
        let reason = format!(
            "arms `{part}` and `{near}` differ in capitals or blanks alone: write one name in all rows of an arm"
        );
        return Err(StudyError::invalid(file, reason));
    }
    let is_column = |name: &str| part.strip_prefix(name).is_some_and(|it| it.starts_with(" - "));
    let rules: [&dyn Fn(&str) -> bool; 3] = [
        &|name| name == part || !is_table && is_column(name),
        &|name| !is_table && has_words(name, part),
        &|name| !is_table && name.contains(part),
    ];
    let Some(rule) = rules.into_iter().find(|rule| names.iter().any(|name| rule(name))) else {
        let columns: BTreeSet<&String> = runs.iter().flat_map(|run| run.curves.keys()).collect();
        let mut reason = format!("no run is called {part:?}; there are {}", listed(&names));
        let is_meant =
            |name: &&String| plain(name) == plain(part) || diagnose::is_misspelt(part, name);
        if let Some(name) = names.iter().find(is_meant) {
            reason = format!("{reason}; did you mean {}?", listed([name]));
        }
        if !is_table && columns.iter().any(|column| column.contains(part)) {
            let what = "is a metric; where each is a run, write rows with the columns run, step and metric";
            reason = format!("{reason}; each of its columns {} {what}", listed(columns));
        }
        return Err(StudyError::invalid(file, reason));
    };
    let is_other = |name: &String| !rule(name) && (is_table || plain(name).contains(&plain(part)));
    let others = names.iter().filter(|name| is_other(name)).cloned().collect();
    let chosen: Vec<TrackedRun> = runs.into_iter().filter(|run| rule(&run.name)).collect();
    let several = several_names(file, part, &chosen)?;
    Ok((chosen, others, several))
}

fn several_names(
    file: &str,
    part: &str,
    chosen: &[TrackedRun],
) -> Result<BTreeSet<String>, StudyError> {
    let names = chosen.iter().map(|run| tracked::without_seed(&run.name));
    let names: BTreeSet<String> = names.collect();
    if part.is_empty() || names.len() < 2 {
        return Ok(BTreeSet::new());
    }
    for (place, run) in chosen.iter().enumerate() {
        let is_same = |other: &&TrackedRun| run.seed.is_some() && other.seed == run.seed;
        if let Some(other) = chosen[..place].iter().find(is_same) {
            let both = listed([&other.name, &run.name]);
            let reason = format!(
                "{part:?} is in the names of {both}, which have one seed: they are runs of several methods; name more of \
                 a name, or each run"
            );
            return Err(StudyError::invalid(file, reason));
        }
    }
    Ok(names)
}

fn has_words(name: &str, text: &str) -> bool {
    let is_inside = |one: &str, next: &str| {
        let ends = one.chars().next_back().zip(next.chars().next());
        ends.is_some_and(|(one, next)| one.is_alphanumeric() && next.is_alphanumeric())
    };
    !text.is_empty()
        && name.match_indices(text).any(|(at, _)| {
            !is_inside(&name[..at], text) && !is_inside(text, &name[at + text.len()..])
        })
}

/// The run's name in a message that begins with its file.
pub fn prefix(run: &TrackedRun) -> String {
    if Path::new(&run.name) == run.path { String::new() } else { format!("{}: ", run.name) }
}

/// Names of arms may have colons, too.
fn file_and_part(path: &str) -> (&str, &str) {
    let is_there = |file: &str| Path::new(file).exists();
    let parts = || path.match_indices(':').map(|(at, _)| (&path[..at], &path[at + 1..]));
    let whole = (path, "");
    if is_there(path) {
        return whole;
    }
    parts().find(|(file, _)| is_there(file)).or_else(|| path.rsplit_once(':')).unwrap_or(whole)
}

pub fn listed<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names = names.into_iter().map(|name| format!("`{}`", visible::shortened(name, 80)));
    names.collect::<Vec<_>>().join(", ")
}
