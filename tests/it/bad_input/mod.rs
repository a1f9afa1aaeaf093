//! What a user can get wrong, and what the binary says. Each `.toml` file beside this one is a table
//! of cases: the input (`make`), the command, the exit code and words of the message. Each case has
//! a folder of its own, in which the binary runs; beside what its row states, no case prints a
//! panic or a control character, and a refusal changes no file.

pub mod input;

use crate::bad_input::input::Step;
use crate::binary::dapo_given;
use crate::forked;
use dapo::base::files::{self, FileKind};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A file of cases.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// The command and the exit code of a case that states none.
    command: String,
    code: i32,
    cases: Vec<Case>,
}

/// One row.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// What is wrong.
    name: String,
    /// Makes the input in an empty folder.
    #[serde(default)]
    make: Vec<Step>,
    /// Arguments of `dapo`; `stdin`, if there is such a file, is its standard input.
    command: Option<String>,
    code: Option<i32>,
    /// Words that standard error must have, or either output of a success and of a verdict.
    says: Vec<String>,
}

#[test]
fn bad_experiment_files_are_refused_as_the_table_says() {
    check_tables(&["experiment_files"]);
}

#[test]
fn bad_checkpoints_and_tokenizers_are_refused_as_the_tables_say() {
    check_tables(&["checkpoints", "tokenizers"]);
}

#[test]
fn bad_problems_prompts_and_responses_are_refused_as_the_table_says() {
    check_tables(&["problems"]);
}

#[test]
fn missing_files_and_places_that_cannot_be_written_are_refused_as_the_table_says() {
    check_tables(&["missing_and_unwritable"]);
}

#[test]
fn damaged_run_folders_are_refused_or_described_as_the_table_says() {
    check_tables(&["run_folders"]);
}

#[test]
fn files_made_to_do_harm_are_refused_as_the_table_says() {
    check_tables(&["harmful"]);
}

#[test]
fn grids_test_sets_cells_and_launchers_that_cannot_be_used_are_refused_as_the_tables_say() {
    check_tables(&["grids", "test_sets", "cells"]);
}

#[test]
fn what_cannot_be_compared_or_drawn_is_refused_as_the_tables_say() {
    check_tables(&["comparisons", "curves", "figures"]);
}

#[test]
fn mistakes_in_the_keys_of_a_reward_program_are_refused_as_the_table_says() {
    check_tables(&["reward_programs"]);
}

#[test]
fn tampered_runs_are_found_as_the_table_says() {
    check_tables(&["tampered_runs"]);
}

fn check_tables(names: &[&str]) {
    forked::prepare();
    let wrong: Vec<String> = names.iter().flat_map(|name| wrong_cases(name)).collect();
    assert!(wrong.is_empty(), "{} of {names:?}:\n\n{}", wrong.len(), wrong.join("\n\n"));
}

fn wrong_cases(name: &str) -> Vec<String> {
    let path = format!("{}/tests/it/bad_input/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let table: Table = toml::from_str(&files::read_text(Path::new(&path)).unwrap()).unwrap();
    let names: BTreeSet<&str> = table.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names.len(), table.cases.len(), "two cases of {name}.toml have one name");
    table.cases.iter().filter_map(|case| check(case, &table).err()).collect()
}

fn check(case: &Case, table: &Table) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    case.make.iter().for_each(|step| step.take(folder.path()));
    let before = tree(folder.path());
    let command = case.command.as_ref().unwrap_or(&table.command);
    let expected = case.code.unwrap_or(table.code);
    let arguments: Vec<&str> = command.split(' ').collect();
    let input = files::read(&folder.path().join("stdin")).unwrap_or_default();
    let (code, stdout, stderr) = dapo_given(folder.path(), &arguments, &input);
    let on_both = [0, 4, 6].contains(&expected);
    let message = if on_both { format!("{stdout}{stderr}") } else { stderr.clone() };
    let is_comparison = command.starts_with("compare") && [2, 3].contains(&expected);
    let panics = stderr.contains("panicked") || stderr.contains("RUST_BACKTRACE");
    let faults = [
        (code != expected, format!("exit code {code}, expected {expected}")),
        (is_comparison && !stdout.is_empty(), "prints what was asked for and refuses it".into()),
        (panics, "prints a panic".into()),
        (stderr.len() > 20_000, format!("prints {} bytes of errors", stderr.len())),
        (expected != 0 && tree(folder.path()) != before, "changes files".into()),
    ];
    let mut wrong: Vec<String> =
        faults.into_iter().filter_map(|(holds, fault)| holds.then_some(fault)).collect();
    let missing = case.says.iter().filter(|words| !message.contains(*words));
    wrong.extend(missing.map(|words| format!("does not say {words:?}")));
    let control = stdout.chars().chain(stderr.chars()).find(acts);
    wrong.extend(control.map(|control| format!("prints {control:?}")));
    if wrong.is_empty() {
        return Ok(());
    }
    let short: String = message.chars().take(2000).collect();
    Err(format!("{} ({command}): {}\n{short}", case.name, wrong.join("; ")))
}

/// Characters that move a terminal, hide or reorder.
pub fn acts(character: &char) -> bool {
    let reorders = matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (character.is_control() && *character != '\n') || reorders
}

/// Every file below a folder with its digest; folders without one.
pub fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut entries = BTreeMap::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for name in files::list(&root.join(&folder)).unwrap() {
            let relative = Path::new(&folder).join(name).display().to_string();
            let path = root.join(&relative);
            let digest = match files::kind(&path).unwrap() {
                // A file of holes is not read; the refusal names its size.
                Some(FileKind::File) => {
                    files::sha256_file(&path).unwrap_or_else(|error| error.to_string())
                }
                kind => format!("{kind:?}"),
            };
            entries.insert(relative.clone(), digest);
            if path.is_dir() && !path.is_symlink() {
                folders.push(relative);
            }
        }
    }
    entries
}
