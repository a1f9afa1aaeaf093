//! Every command that README, the READMEs below it, `docs/`, a study's report and the help texts print works.
//! `printed_commands/commands.txt` says of each whether it is run, in a small copy of a checkout, or only
//! parsed, and why. A printed command that is not listed fails, and so does a listed one that nothing prints.

use crate::binary::{PROGRAM, ended, line_in};
use crate::repository::{self, Source};
use crate::study_fixture;
use clap::{CommandFactory, Parser};
use dapo::base::files;
use dapo::commands::Cli;
use dapo::report::study;
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

/// A line of `commands.txt`.
struct Listed {
    command: &'static str,
    /// What runs; `None`: the command is only parsed.
    runs: Option<&'static str>,
    /// Why it is only parsed.
    reason: &'static str,
}

/// The listed commands, in an order in which they can be run.
fn listed() -> Vec<Listed> {
    let (mut listed, mut reason) = (Vec::new(), "");
    for line in include_str!("printed_commands/commands.txt").lines() {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            reason = section.strip_prefix("parsed: ").unwrap_or_default();
        } else if !line.is_empty() && !line.starts_with('#') {
            let (command, instead) = line.split_once("  =>  ").unwrap_or((line, line));
            let runs = reason.is_empty().then_some(instead);
            listed.push(Listed { command, runs, reason });
        }
    }
    listed
}

#[test]
fn every_printed_command_is_listed_and_every_listed_one_is_printed() {
    let printed = printed();
    let all = listed();
    let listed: BTreeSet<&str> = all.iter().map(|line| line.command).collect();
    assert_eq!(listed.len(), all.len(), "a command is listed twice");
    let unlisted = printed.iter().filter(|(command, _)| !listed.contains(command.as_str()));
    let unlisted: Vec<_> = unlisted.collect();
    assert!(unlisted.is_empty(), "printed and in no list: {unlisted:#?}");
    let gone: Vec<_> = listed.iter().filter(|command| !printed.contains_key(**command)).collect();
    assert!(gone.is_empty(), "listed and printed nowhere: {gone:#?}");
}

#[test]
fn the_arguments_of_every_listed_command_parse() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["received", "runs/ablate"] {
        files::create_folder(&folder.path().join(name)).unwrap();
    }
    let calls = folder.path().join("home/calls");
    let mut wrong = Vec::new();
    for Listed { command, reason, .. } in listed() {
        files::write_atomic(&calls, b"").unwrap();
        // A program that reads from the binary finds nothing; the calls are what counts.
        let _ = bash(folder.path(), NOTE, &script(command));
        let text = files::read_text(&calls).unwrap();
        if text.is_empty() && reason != "runs tools that are not the binary" {
            wrong.push(format!("{command}: calls nothing"));
        }
        for call in text.lines() {
            let arguments = call.trim_end_matches('\u{1f}').split('\u{1f}');
            if let Err(error) = Cli::try_parse_from(arguments) {
                wrong.push(format!("{command}: {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn listed_commands_run() {
    let folder = tempfile::tempdir().unwrap();
    bash(folder.path(), RUN, include_str!("printed_commands/checkout.sh")).unwrap();
    // The committed records of the ladder, three seeds of each arm.
    let (_, cells) = study_fixture::published("ladder", usize::MAX, &[101, 102, 103]);
    study_fixture::write(&folder.path().join("reports/study-1"), &[], &cells);
    // One command often stands for several printed ones.
    let mut begun = BTreeSet::new();
    let lines = listed().into_iter().filter_map(|it| it.runs).filter(|it| begun.insert(*it));
    let failed: Vec<String> = lines.filter_map(|line| run(folder.path(), line).err()).collect();
    assert!(failed.is_empty(), "{} commands failed:\n{}", failed.len(), failed.join("\n"));
}

/// Every printed command, with where it stands.
fn printed() -> BTreeMap<String, BTreeSet<String>> {
    let mut printed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut add = |place: &str, commands: BTreeSet<String>| {
        for command in commands {
            printed.entry(command).or_default().insert(place.to_string());
        }
    };
    for Source { path, text } in repository::tracked_text() {
        let is_readme = path.rsplit('/').next() == Some("README.md");
        if is_readme || path.starts_with("docs/") || path == "ARCHITECTURE.md" {
            add(&path, of_markdown(&text));
        }
    }
    let mut examples = BTreeSet::new();
    let mut command = Cli::command();
    command.build();
    of_help(&mut command, &mut examples);
    add("--help", examples);
    let report = small_report();
    for page in [&report.page, &report.appendix] {
        add("a study's report", of_markdown(&dapo::report::markdown::render(page)));
    }
    assert!(printed.len() > 100, "only {} commands: a reader of texts is broken", printed.len());
    printed
}

fn small_report() -> study::StudyReport {
    let mut grids = study_fixture::grids(&[1]);
    grids.retain(|grid| grid.name == "ladder");
    let shape = study_fixture::Shape::default();
    let cells = grids[0].arms.iter().map(|arm| study_fixture::cell(arm, 1, &shape)).collect();
    let study = dapo::study::collection::Study::new(grids, cells, None);
    study::report(&study, &dapo::study::claims::shipped())
}

/// Whether a line calls the binary or a recipe.
fn is_ours(line: &str) -> bool {
    line.split(['|', '&', ';', '(']).any(|part| {
        let program = part.split_whitespace().next().unwrap_or_default();
        ["dapo", "just", "justw"].contains(&program.rsplit('/').next().unwrap_or_default())
    })
}

/// One space between words, and one name for every record.
fn normal(line: &str) -> String {
    static RECORD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"/[[:xdigit:]]{12}-seed\d+\.").unwrap());
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    RECORD.replace_all(&line, "/CELL.").into_owned()
}

/// Commands of a Markdown text: lines of `sh` fences, and code spans. Spans that hold a program and
/// the names of verbs alone mention a verb and are left out; those verbs exist.
fn of_markdown(text: &str) -> BTreeSet<String> {
    let (mut found, mut prose) = (BTreeSet::new(), String::new());
    let (mut fence, mut begun) = (None, String::new());
    for line in text.lines() {
        match (fence, line.trim().strip_prefix("```")) {
            (None, Some(language)) => fence = Some(language),
            (Some(_), Some(_)) => fence = None,
            (Some("sh" | "text"), None) => {
                let line = line.split(" #").next().unwrap_or_default().trim();
                begun += line.trim_end_matches('\\');
                if !line.ends_with('\\') {
                    found.insert(std::mem::take(&mut begun));
                }
            }
            (Some(_), None) => {}
            (None, None) => prose += &format!("{line}\n"),
        }
    }
    for paragraph in prose.split("\n\n") {
        let spans = paragraph.split('`').skip(1).step_by(2);
        found.extend(spans.map(|span| span.replace("\\|", "|")).filter(|span| !is_mention(span)));
    }
    found.into_iter().filter(|line| is_ours(line)).map(|line| normal(&line)).collect()
}

/// A program, alone or with verbs and nothing else.
fn is_mention(span: &str) -> bool {
    let mut words = span.split_whitespace();
    let is_just = words.next().is_some_and(|program| program.contains("just"));
    let mut command = Cli::command();
    for word in words {
        match command.find_subcommand(word) {
            Some(verb) if !is_just => command = verb.clone(),
            _ => return false,
        }
    }
    true
}

/// The examples in the help of a verb and of the verbs below it, as a terminal of 100 columns shows
/// them: a line that is wrapped cannot be pasted.
fn of_help(command: &mut clap::Command, found: &mut BTreeSet<String>) {
    let text = command.render_long_help().to_string();
    let examples = text.lines().skip_while(|line| {
        !line.trim_end().ends_with("xample:") && !line.trim_end().ends_with("xamples:")
    });
    let lines = examples.skip(1).take_while(|line| !line.trim().is_empty());
    let lines = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    found.extend(lines.filter(|line| is_ours(line)).map(normal));
    for verb in command.get_subcommands_mut().filter(|verb| !verb.is_hide_set()) {
        of_help(verb, found);
    }
}

/// A line for bash: a recipe's is what the recipe does with the binary.
fn script(line: &str) -> String {
    if line.contains(" && ") {
        return line.split(" && ").map(script).collect::<Vec<_>>().join("\n");
    }
    let mut words = line.split_whitespace();
    if !words.next().is_some_and(|program| program.contains("just")) {
        return line.to_string();
    }
    let recipe = words.next().unwrap_or_default();
    let justfile = files::read_text(&repository::root().join("justfile")).unwrap();
    let is_head = |line: &&str| {
        let name: String = line.chars().take_while(|c| c.is_alphanumeric() || *c == '-').collect();
        name == recipe && line.contains(':')
    };
    let mut lines = justfile.lines().skip_while(|line| !is_head(line));
    assert!(lines.next().is_some(), "{line}: the justfile has no recipe {recipe}");
    let body = lines.take_while(|line| line.starts_with("    ")).map(str::trim);
    let calls = body.filter_map(|line| line.strip_prefix("{{ dapo }}"));
    let calls: String = calls.map(|rest| format!("\ndapo {rest}")).collect();
    format!("set -- {}{calls}", words.collect::<Vec<_>>().join(" "))
}

const RUN: &str = "\"$BINARY\" \"$@\"";

/// Notes a call of the binary in a line, its arguments apart.
const NOTE: &str = "printf '%s\\037' dapo \"$@\" >> \"$HOME/calls\"; echo >> \"$HOME/calls\"";

/// Runs a line in a folder. What bash would only split into words needs no bash.
fn run(folder: &Path, line: &str) -> Result<(), String> {
    let plain = |line: &str| !line.contains(|c| "|&;<>()$`\\\"'*?[]#~=%{}".contains(c));
    let words = line.strip_prefix("dapo ").filter(|words| plain(words));
    let Some(words) = words else {
        return bash(folder, RUN, &script(line));
    };
    match line_in(folder, words) {
        (0, ..) => Ok(()),
        (code, _, talk) => Err(format!("{line}\n  {code} {talk}")),
    }
}

/// Runs a line in a folder; `dapo` is what a call of the binary does.
fn bash(folder: &Path, dapo: &str, line: &str) -> Result<(), String> {
    let names = ["dapo", "target/debug/dapo", "../../target/debug/dapo"];
    let functions = names.map(|name| format!("{name}() {{ {dapo}; }}\n")).concat();
    let mut bash = Command::new("bash");
    bash.args(["-c", &format!("set -eo pipefail\n{functions}{line}")]).current_dir(folder);
    bash.env("BINARY", PROGRAM).env("ROOT", repository::root());
    let (code, _, talk) = ended(bash.env("HOME", folder.join("home")).env("OMP_NUM_THREADS", "1"));
    if code == 0 { Ok(()) } else { Err(format!("{line}\n  {code} {talk}")) }
}
