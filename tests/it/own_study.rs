//! A study of one's own data: `experiments/own-task/grids/own-task.toml` from its grid to a report
//! that is about its test set, whose commands are pasted into a copy of the study.

use crate::binary::{Output, ended, failed, says, succeeded};
use crate::repository;
use dapo::base::files;
use dapo::experiment::Grid;
use dapo::records::RunFolder;
use dapo::records::event_file;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Exit code, standard output, standard error of a line for bash in which `dapo` is the binary.
fn bash(folder: &Path, line: &str) -> Output {
    let line = format!("set -e\ndapo() {{ \"$BINARY\" \"$@\"; }}\n{line}");
    let mut command = Command::new("bash");
    command.args(["-c", &line]).env("BINARY", env!("CARGO_BIN_EXE_dapo"));
    ended(command.current_dir(folder))
}

/// A folder in which the names of a checkout are: `experiments`, a copy, and `golden`.
fn checkout() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = repository::root();
    let line = format!("cp -r {root:?}/experiments . && ln -s {root:?}/golden golden");
    succeeded(bash(folder.path(), &line));
    folder
}

const GRID: &str = "experiments/own-task/grids/own-task.toml";

/// The grid with other words, beside it.
fn changed(checkout: &Path, from: &str, to: &str) {
    let text = files::read_text(&checkout.join(GRID)).unwrap();
    assert!(text.contains(from), "{text}");
    let path = checkout.join("experiments/own-task/grids/other.toml");
    files::write_atomic(&path, text.replacen(from, to, 1).as_bytes()).unwrap();
}

#[test]
fn a_study_over_files_is_judged_on_its_test_set_and_checked_from_a_copy() {
    let checkout = checkout();
    let root = checkout.path();
    succeeded(bash(root, &format!("dapo ablate {GRID} --jobs 2 --out runs/own")));

    says(bash(root, "dapo report runs/own"), 0, &["avg@k on test"]);
    let report: Value = files::read_json(&root.join("runs/own/report.json")).unwrap();
    let analysis = &report["analysis"];
    assert_eq!(analysis["declaration"]["primary_set"], "test");
    assert_eq!(analysis["declaration"]["curve_set"], "dev");
    let comparison = &analysis["families"][0]["comparisons"][0];
    assert_eq!(comparison["declared"]["metric"]["set"], "test", "{comparison}");
    assert!(comparison["result"]["p"].is_number(), "{comparison}");
    let arms = analysis["grids"][0]["arms"].as_array().unwrap();
    let scored = |arm: &&Value| arm["score"]["runs"] == 2;
    assert_eq!((arms.len(), arms.iter().filter(scored).count()), (2, 2), "{arms:?}");
    assert_eq!(report["claims"]["claims"], Value::Array(Vec::new()));
    let markdown = files::read_text(&root.join("runs/own/report.md")).unwrap();
    assert!(!markdown.contains("claim") && !markdown.contains("positive control"), "{markdown}");
    let (claims, _) = succeeded(bash(root, "dapo report runs/own --claims"));
    assert!(claims.contains("not tested on these data") && !claims.contains("INCONCLUSIVE"));

    let appendix = files::read_text(&root.join("runs/own/appendix.md")).unwrap();
    assert!(appendix.contains("avg@4 on test, %, by the tags of its problems"), "{appendix}");
    assert!(appendix.contains("| arm | even (5) | odd (3) |"), "{appendix}");
    a_copy_is_checked_by_the_commands_of_its_report(root, &appendix);
    a_run_exports_its_curves(root);
}

fn a_copy_is_checked_by_the_commands_of_its_report(root: &Path, appendix: &str) {
    let begin = appendix.find("dapo verify .").unwrap();
    let commands = &appendix[begin..begin + appendix[begin..].find("\n```").unwrap()];
    // Pasted where the study is, as it stands there: its inputs are found around it.
    let (out, talk) = succeeded(bash(&root.join("runs/own"), commands));
    assert!(out.contains("verified (records and report)"), "{out}");
    assert!(talk.contains("the run is the record's, to the ledger's head"), "{talk}");
    // Pasted into a copy elsewhere, then with the folder that it asks for.
    let elsewhere = tempfile::tempdir().unwrap();
    let copied = format!("cp -r {root:?}/runs/own/{{grids,cells}} . && dapo report .");
    assert_eq!(bash(elsewhere.path(), &copied).0, 0);
    let (code, _, talk) = bash(elsewhere.path(), commands);
    assert_eq!(code, 3, "the base policy is not around it: {talk}");
    let there = commands.replacen(" --out", &format!(" --inputs {root:?} --out"), 1);
    let (_, talk) = succeeded(bash(elsewhere.path(), &there));
    assert!(talk.contains("the run is the record's, to the ledger's head"), "{talk}");
    for name in ["report.md", "report.json"] {
        let ours = files::read(&root.join("runs/own").join(name)).unwrap();
        assert_eq!(files::read(&elsewhere.path().join(name)).unwrap(), ours);
    }
    let train = bash(root, "dapo train experiments/dapo.toml --inputs .");
    failed(train, 2, "--inputs is for JSON experiments");
}

fn a_run_exports_its_curves(root: &Path) {
    let run = root.join("runs/own/check");
    let (path, _) = succeeded(bash(&root.join("runs/own"), "dapo export check --tensorboard"));
    assert_eq!(path, "export/tensorboard/check/events.out.tfevents.0.dapo\n");
    let event_file = root.join("runs/own").join(path.trim());
    let bytes = files::read(&event_file).unwrap();
    let folder = RunFolder::at(&run);
    for line in folder.metrics().unwrap() {
        for (tag, value) in &line.metrics {
            // An event's tag and value, as they stand beside each other in the file.
            let (tag, step) = (tag.clone(), line.counters.updates);
            let whole = event_file::events(&[event_file::Scalar { tag, step, value: *value }]);
            let record = &whole[event_file::events(&[]).len()..];
            assert!(bytes.windows(record.len()).any(|part| part == record), "{line:?}");
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    for tag in ["evaluation/test/avg_at_k", "evaluation/dev/generated_rollouts"] {
        assert!(text.contains(tag), "{tag}");
    }
    // From inside the run, and of one that is at work and has written half a line.
    succeeded(bash(&run, "dapo export . --tensorboard"));
    assert_eq!(files::read(&event_file).unwrap(), bytes);
    let working = "cp -r check working && rm working/outcome.json && printf '{\"st' >> working/metrics.jsonl \
                   && dapo export working --tensorboard --out curves";
    succeeded(bash(&root.join("runs/own"), working));
    let curves = root.join("runs/own/curves/tensorboard/working/events.out.tfevents.0.dapo");
    assert_eq!(files::read(&curves).unwrap(), bytes);
    let csv = bash(&root.join("runs/own"), "dapo export check --csv");
    failed(csv, 2, "check is a run: --tensorboard exports");
}

#[test]
fn a_grid_names_sets_of_its_data_and_a_study_has_one_pair_of_them() {
    let checkout = checkout();
    let root = checkout.path();
    let other = "experiments/own-task/grids/other.toml";
    let look = |line: &str| bash(root, &format!("dapo ablate {line} --dry-run"));
    for (key, set, no_set) in [("primary_set", "test", "aime"), ("curve_set", "dev", "train")] {
        changed(root, &format!("{key} = \"{set}\""), &format!("{key} = \"{no_set}\""));
        let refusal = format!("{key}: there is no set \"{no_set}\"; there are dev, test");
        failed(look(other), 3, &refusal);
    }
    // Without the key: the only test set; of several one has to be named.
    changed(root, "primary_set = \"test\"", "");
    assert_eq!(look(other).0, 0);
    let only = dapo::experiment::grid::file::load(&root.join(other)).unwrap().grid;
    assert_eq!((only.sets().primary(), only.sets().curve()), ("test", "dev"));
    let task = root.join("experiments/own-task/own-task.toml");
    let text = files::read_text(&task).unwrap();
    let two = text.replace("[\"test.jsonl\"]", "[\"test.jsonl\", \"more.jsonl\"]");
    files::write_atomic(&task, two.as_bytes()).unwrap();
    let which = "must say which set scores and comparisons are about: dev, test, more";
    failed(look(other), 3, &format!("primary_set: {which}"));
    files::write_atomic(&task, text.as_bytes()).unwrap();

    // A study has one score: grids that name other sets are refused before anything is run.
    changed(root, "name = \"own-task\"", "name = \"second\"");
    let second = files::read_text(&root.join(other)).unwrap();
    let second = second.replacen("primary_set = \"test\"", "primary_set = \"dev\"", 1);
    files::write_atomic(&root.join(other), second.as_bytes()).unwrap();
    let other_sets = "its grids name other sets: `own-task` has primary_set \"test\" and curve_set \"dev\", `second` has primary_set \"dev\"";
    failed(look(&format!("{GRID} {other}")), 3, other_sets);
    let declaration = include_bytes!("ablate/declaration.toml");
    files::write_atomic(&root.join("declared.toml"), declaration).unwrap();
    let declared = format!("{GRID} {other} --declaration declared.toml");
    assert_eq!(look(&declared).0, 0);
    for grid in [GRID, other] {
        let grid = dapo::experiment::grid::file::load(&root.join(grid)).unwrap().grid;
        grid.write(&root.join("study")).unwrap();
    }
    failed(bash(root, "dapo report study"), 3, other_sets);

    // A resolved grid from before there were the keys means what it meant; a wrong name is refused.
    let path = root.join("study/grids/own-task.json");
    let text = files::read_text(&path).unwrap();
    let keys = |primary: &str| {
        text.replace("\"primary_set\": \"test\"", &format!("\"primary_set\": \"{primary}\""))
    };
    files::write_atomic(&path, keys("aime").as_bytes()).unwrap();
    let error = Grid::read(&path).unwrap_err().to_string();
    assert!(error.contains("primary_set: there is no set \"aime\""), "{error}");
    let old: Value = serde_json::from_str(&text).unwrap();
    let mut old = old.as_object().unwrap().clone();
    old.retain(|key, _| !key.ends_with("_set"));
    files::write_json(&path, &old).unwrap();
    let old = Grid::read(&path).unwrap();
    assert_eq!((old.sets().primary(), old.sets().curve()), ("mini-aime-plus", "dev"));
    let committed = repository::root().join("reports/study-1/grids/ladder.json");
    assert_eq!(Grid::read(&committed).unwrap().sets(), dapo::experiment::sets::Sets::default());
}
