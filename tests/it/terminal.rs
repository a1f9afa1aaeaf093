//! What verbs print on terminals of 80 and 120 columns: no column that answers is lost, and prose ends between words.

use crate::bad_input::input::shell;
use crate::binary::{line_in, succeeded};
use crate::{repository, run_fixture, transcript};
use dapo::base::files;
use dapo::commands;
use std::collections::BTreeSet;
use std::num::NonZero;
use std::process::{Command, Stdio};

/// Sizes of this machine.
const SIZE: &str = r"\d+(\.\d+)? [kMG]B";

/// Each line of `calls.txt` has the name of a snapshot and a call; of a call that prints numbers of this machine
/// only the width is looked at.
#[test]
fn tables_and_prose_fit_80_and_120_columns() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["finished", "other"] {
        run_fixture::finished(&folder.path().join("runs").join(name));
    }
    shell(folder.path(), include_str!("terminal/files.sh"));
    for call in include_str!("terminal/calls.txt").lines() {
        let (name, line) = call.split_once(": ").unwrap();
        for width in [80, 120].into_iter().filter(|width| name != "measured" || *width == 80) {
            // What a verb writes is not there before.
            files::remove_folder(&folder.path().join("my-study")).unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_dapo"));
            command.args(line.split(' ')).env("COLUMNS", width.to_string());
            let output = command.current_dir(folder.path()).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let talk = String::from_utf8(output.stderr).unwrap();
            assert!(!text.is_empty(), "{line}: {talk}");
            for line in text.lines() {
                let is_to_copy =
                    ["dapo ", "cd "].iter().any(|it| line.trim_start().starts_with(it));
                let fits = is_to_copy || line.chars().count() <= width;
                assert!(fits, "{name} at {width}: {text}");
            }
            if text.contains("(--wide also shows") {
                let words = format!("dapo {line} --wide");
                let parsed = commands::command().try_get_matches_from(words.split(' '));
                assert!(parsed.is_ok(), "{line} has no --wide: {text}");
            }
            if name != "measured" {
                insta::with_settings!({filters => [(SIZE, "[size]")]}, {
                    insta::assert_snapshot!(format!("{name}-{width}"), text);
                });
            }
        }
    }
}

/// The screen of a real terminal after a run: the curves stay, and what is printed afterwards is below them.
#[test]
fn a_run_on_a_terminal_shows_its_curves() {
    let folder = tempfile::tempdir().unwrap();
    shell(folder.path(), "ln -s $ROOT/experiments $ROOT/golden .");
    for width in [80, 120] {
        let run = format!("run-{width}");
        let line = format!(
            "stty rows 40 cols {width}; exec {} train experiments/smoke.toml --out {run}",
            env!("CARGO_BIN_EXE_dapo")
        );
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        script.env_remove("COLUMNS").env("TERM", "xterm-256color").current_dir(folder.path());
        let output = script.stdin(Stdio::null()).output().unwrap();
        let [rows, columns] = [40, width].map(|size| NonZero::<u16>::new(size).unwrap());
        let mut screen = vt100::Parser::new(rows, columns, 0);
        let rows = |screen: &vt100::Parser| -> Vec<String> {
            let rows = screen.screen().rows(0, width);
            rows.map(|row| row.trim_end().to_owned()).collect()
        };
        let mut drawn = BTreeSet::new();
        for part in output.stdout.split_inclusive(|byte| *byte == b'\r') {
            screen.process(part);
            drawn.extend(rows(&screen).into_iter().filter(|row| row.starts_with("train [")));
        }
        let text = rows(&screen).join("\n");
        assert!(output.status.success(), "{text}");
        assert!(drawn.iter().any(|row| row.contains("1/2")), "the bar never moved: {drawn:?}");
        let filters = [(r"[\d.]+ (s|min \d\d s)  eval", "[time]  eval"), (SIZE, "[size]")];
        insta::with_settings!({filters => filters}, {
            insta::assert_snapshot!(format!("train-on-a-terminal-{width}"), text);
        });
    }
}

#[test]
fn the_help_lists_every_verb_in_one_group_and_they_are_few() {
    let command = commands::command();
    let help = command.clone().render_long_help().to_string();
    let groups = help.split_once("Study:\n").unwrap().1.split_once("\nOptions:").unwrap().0;
    let starts = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    let listed: Vec<&str> =
        groups.lines().filter(starts).filter_map(|line| line.split_whitespace().next()).collect();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let verbs: BTreeSet<&str> = verbs.map(clap::Command::get_name).collect();
    assert_eq!(listed.len(), verbs.len(), "{listed:?}");
    assert!(listed.len() <= 20, "{listed:?}");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), verbs);
}

#[test]
fn names_of_arms_and_grids_work_in_any_folder() {
    let folder = tempfile::tempdir().unwrap();
    let show = "config show clip-higher --json";
    let here = succeeded(line_in(folder.path(), show)).0;
    assert_eq!(here, succeeded(line_in(&repository::root(), show)).0);
    transcript::play(folder.path(), NAMES);
    assert!(files::list(folder.path()).unwrap().is_empty());
}

const NAMES: &str = "\
dapo ablate leave-one-out --dry-run
token-level-loss
to run

dapo train dapo --dry-run
40 rollout steps

dapo ablate laddre --dry-run
= 3
did you mean ladder?

dapo plan clip-highr
= 3
did you mean clip-higher?
";
