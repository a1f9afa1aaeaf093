//! What verbs print on terminals of 80 and 120 columns: no column that answers is lost, and prose ends between words.

use crate::{repository, run_fixture};
use dapo::base::files;
use dapo::commands;
use std::collections::BTreeSet;
use std::num::NonZero;
use std::process::Command;

/// Name and words of a call in a folder with fixtures, and the reports and golden data of the repository.
const CALLS: [(&str, &str); 24] = [
    ("help", "--help"),
    ("verify-study", "verify reports/methods-1"),
    ("verify-run", "verify runs/finished"),
    ("runs", "runs"),
    ("cells", "runs cells reports/methods-1"),
    ("report-study", "report reports/methods-1 --out report"),
    ("compare-tables", "compare a.csv b.csv"),
    ("compare-arms", "compare reports/methods-1 --arm rloo --against grpo --fail-if worse"),
    ("grade-summary", "data grade responses.jsonl --summary"),
    ("grade-compare", "data grade responses.jsonl --compare last-number"),
    ("config-diff", "config diff grpo dapo"),
    ("plan", "plan dapo --no-probe --verbose"),
    ("dry-run", "ablate add-one --dry-run --out study"),
    ("init", "init my-study --arms grpo,dapo"),
    ("diff", "diff runs/finished runs/other"),
    ("report-run", "report runs/finished"),
    (
        "compare-curves",
        "compare --curves golden/curves/wandb-export.csv:dapo --against golden/curves/wandb-export.csv:grpo",
    ),
    ("config-explain", "config explain dapo.overlong.punishment"),
    ("claims", "report --claims"),
    ("audit", "data audit golden/data/schemas/math-500.jsonl"),
    ("eval", "eval dapo --evaluation-set dev --samples 1"),
    ("export", "export reports/methods-1 --csv --out tables"),
    ("figure", "figure reports/methods-1 --forest --out forest.svg"),
    (
        "engine-audit",
        "engine audit verl golden/engines/verl/dapo/rollouts --log golden/engines/verl/dapo/logs/1.jsonl --verifier answer-line",
    ),
];

/// Calls that print numbers of this machine: only their width is looked at.
const MEASURED: [&str; 3] = [
    "doctor",
    "bench golden/engines/verl/grpo.toml --model golden/mini-aime/base --repetitions 1",
    "bench throughput --model golden/mini-aime/base --prompt-tokens 16 --new-tokens 16 --batch 1",
];

/// Sizes of this machine.
const SIZE: &str = r"\d+(\.\d+)? [kMG]B";

#[test]
fn tables_and_prose_fit_80_and_120_columns() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["finished", "other"] {
        run_fixture::finished(&folder.path().join("runs").join(name));
    }
    write_files(folder.path());
    for name in ["reports", "golden"] {
        std::os::unix::fs::symlink(repository::root().join(name), folder.path().join(name))
            .unwrap();
    }
    let measured = MEASURED.map(|line| ("", line));
    for (name, line) in CALLS.into_iter().chain(measured) {
        for width in [80, 120] {
            // What a verb writes is not there before.
            files::remove_folder(&folder.path().join("my-study")).unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_dapo"));
            command
                .args(line.split(' '))
                .env("COLUMNS", width.to_string())
                .current_dir(folder.path());
            let output = command.output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let talk = String::from_utf8(output.stderr).unwrap();
            assert!(!text.is_empty(), "{line}: {talk}");
            for line in text.lines().filter(|line| !is_code(line)) {
                assert!(line.chars().count() <= width, "{name} at {width}: {text}");
            }
            if text.contains("(--wide also shows") {
                let words = format!("dapo {line} --wide");
                let parsed = commands::command().try_get_matches_from(words.split(' '));
                assert!(parsed.is_ok(), "{line} has no --wide: {text}");
            }
            if name.is_empty() {
                continue;
            }
            insta::with_settings!({filters => [(SIZE, "[size]")]}, {
                insta::assert_snapshot!(format!("{name}-{width}"), text);
            });
        }
    }
}

/// The screen of a real terminal after a run: the curves stay, and what is printed afterwards is below them.
#[test]
fn a_run_on_a_terminal_shows_its_curves() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["experiments", "golden"] {
        std::os::unix::fs::symlink(repository::root().join(name), folder.path().join(name))
            .unwrap();
    }
    for width in [80, 120] {
        let run = format!("run-{width}");
        let line = format!(
            "stty rows 40 cols {width}; exec {} train experiments/smoke.toml --out {run}",
            env!("CARGO_BIN_EXE_dapo")
        );
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        script.env_remove("COLUMNS").env("TERM", "xterm-256color").current_dir(folder.path());
        let output = script.stdin(std::process::Stdio::null()).output().unwrap();
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
        let filters = [(r"\d+[smh] evaluating", "[time] evaluating"), (SIZE, "[size]")];
        insta::with_settings!({filters => filters}, {
            insta::assert_snapshot!(format!("train-on-a-terminal-{width}"), text);
        });
    }
}

/// A command to copy.
fn is_code(line: &str) -> bool {
    let line = line.trim_start();
    ["dapo ", "cd "].iter().any(|start| line.starts_with(start))
}

fn write_files(folder: &std::path::Path) {
    let write = |name: &str, text: String| {
        files::write_atomic(&folder.join(name), text.as_bytes()).unwrap();
    };
    for (name, shift) in [("a.csv", 0), ("b.csv", 1)] {
        let row = |index: usize| {
            format!(
                "{},{},{}\n",
                index / 4,
                index % 4,
                usize::from((index * 7 + shift) % 5 > 1 + shift)
            )
        };
        let rows: String = (0..160).map(row).collect();
        write(name, format!("problem,sample,correct\n{rows}"));
    }
    let responses =
        [("Answer: 5", "5"), ("so it is 7", "7"), ("Answer: 12 apples in all of the boxes", "12")];
    let line = |(response, truth): (&str, &str)| {
        format!("{}\n", serde_json::json!({"response": response, "ground_truth": truth}))
    };
    write("responses.jsonl", responses.map(line).concat());
}

#[test]
fn the_help_lists_every_verb_in_one_group() {
    let command = commands::command();
    let help = command.clone().render_long_help().to_string();
    let groups = help.split_once("Study:\n").unwrap().1.split_once("\nOptions:").unwrap().0;
    let starts = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    let listed: Vec<&str> =
        groups.lines().filter(starts).filter_map(|line| line.split_whitespace().next()).collect();
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let verbs: BTreeSet<&str> = verbs.map(clap::Command::get_name).collect();
    assert_eq!(listed.len(), verbs.len(), "{listed:?}");
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), verbs);
}

#[test]
fn names_of_arms_and_grids_work_in_any_folder() {
    let folder = tempfile::tempdir().unwrap();
    let call = |line: &str| crate::binary::line_in(folder.path(), line);
    let (_, shipped, _) = crate::binary::dapo(&["config", "show", "clip-higher", "--json"]);
    let (code, here, talk) = call("config show clip-higher --json");
    assert_eq!((code, here), (0, shipped), "{talk}");
    crate::binary::says(call("ablate leave-one-out --dry-run"), 0, &["token-level-loss", "to run"]);
    crate::binary::says(call("train dapo --dry-run"), 0, &["40 rollout steps"]);
    crate::binary::failed(call("ablate laddre --dry-run"), 3, "did you mean ladder?");
    crate::binary::failed(call("plan clip-highr"), 3, "did you mean clip-higher?");
    assert!(files::list(folder.path()).unwrap().is_empty());
}
