//! `dapo runs`, `dapo runs gc`, `dapo completions`, `dapo doctor`, and standard output that goes nowhere.

#![expect(
    clippy::disallowed_types,
    reason = "locks and devices are opened as another process would"
)]

use crate::binary::{line_in as dapo, succeeded};
use crate::run_fixture;
use dapo::base::files;
use dapo::records::RunFolder;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;

fn checkpoint(run: &RunFolder, step: u64) {
    files::write_atomic(&run.checkpoint(step).join("model.safetensors"), b"weights").unwrap();
}

/// `runs/` with a finished run, an unfinished one, a damaged one, leftovers, and things that
/// are no runs.
fn runs(root: &Path) {
    let finished = run_fixture::finished(&root.join("runs/b-finished"));
    for step in [10, 20, 30] {
        checkpoint(&finished, step);
    }
    let unfinished = run_fixture::started(&root.join("runs/study/unfinished"));
    (1..=3).for_each(|step| run_fixture::record_step(&unfinished, step));
    (1..=3).for_each(|step| checkpoint(&unfinished, step));
    for name in [".partial-Ab3x", "checkpoints/step-000004.partial/model.safetensors"] {
        files::write_atomic(&unfinished.path(name), b"half").unwrap();
    }
    let damaged = run_fixture::started(&root.join("runs/damaged"));
    files::write_atomic(&damaged.path("outcome.json"), b"{").unwrap();
    files::write_atomic(&damaged.path(".partial-keep"), b"half").unwrap();
    files::write_atomic(&root.join("runs/notes/checkpoints/step-000001/x"), b"mine").unwrap();
    files::write_atomic(&root.join("runs/notes/.partial-mine"), b"mine").unwrap();
    files::write_atomic(&root.join("elsewhere/checkpoints/step-000001/model.safetensors"), b"mine")
        .unwrap();
    run_fixture::started(&root.join("elsewhere"));
    std::os::unix::fs::symlink(root.join("elsewhere"), root.join("runs/link")).unwrap();
    std::os::unix::fs::symlink(root.join("elsewhere"), unfinished.path(".partial-link")).unwrap();
}

#[test]
fn runs_are_listed_with_state_steps_and_accuracy() {
    let folder = tempfile::tempdir().unwrap();
    runs(folder.path());
    let (out, talk) = succeeded(dapo(folder.path(), "runs"));
    assert!(talk.contains("runs/damaged: runs/damaged/outcome.json: EOF"), "{talk}");
    let sized = regex_free_sizes(&out);
    insta::assert_snapshot!(sized);
    let (_, json, _) = dapo(folder.path(), "runs --json");
    let records: Vec<Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let states: Vec<&str> = records.iter().map(|run| run["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["finished", "damaged", "unfinished"]);
    assert_eq!(records[2]["steps_done"], 3);
    assert!(records[0]["size_bytes"].as_u64().unwrap() > 10_000);
    let (code, one, _) = dapo(folder.path(), "runs runs/study/unfinished --json");
    assert_eq!((code, one.lines().count()), (0, 1));
}

#[test]
fn a_study_has_no_runs_but_records() {
    let root = crate::repository::root();
    let (out, talk) = succeeded(dapo(&root, "runs reports/study-2"));
    assert!(out.is_empty() && talk.contains("dapo runs cells reports/study-2"), "{out}{talk}");
}

/// The table with sizes left out: they depend on the version of the parquet writer.
fn regex_free_sizes(table: &str) -> String {
    let column = |line: &str| {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty());
        let mut cells: Vec<&str> = cells.collect();
        cells[6] = "…";
        cells.join(" | ")
    };
    table.lines().map(column).collect::<Vec<_>>().join("\n")
}

#[test]
fn gc_lists_what_could_go_and_deletes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    runs(folder.path());
    let (listed, talk) = succeeded(dapo(folder.path(), "runs gc"));
    let expected = [
        "runs/b-finished/checkpoints/step-000010",
        "runs/b-finished/checkpoints/step-000020",
        "runs/b-finished/checkpoints/step-000030",
        "runs/study/unfinished/.partial-Ab3x",
        "runs/study/unfinished/checkpoints/step-000004.partial",
        "runs/study/unfinished/checkpoints/step-000001",
    ];
    let paths: Vec<&str> = listed.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(paths, expected);
    assert!(talk.contains("6 could be deleted"), "{talk}");
    assert!(expected.iter().all(|name| folder.path().join(name).exists()));
    let (_, listed, _) = dapo(folder.path(), "runs gc --keep-last 9");
    assert_eq!(listed.lines().count(), 2, "{listed}");
}

#[test]
fn gc_lists_unfinished_runs_when_asked_and_never_one_that_is_locked() {
    let folder = tempfile::tempdir().unwrap();
    runs(folder.path());
    let lock = folder.path().join("runs/study/unfinished/run.lock");
    files::write_atomic(&lock, b"").unwrap();
    let held = std::fs::File::open(&lock).unwrap();
    held.lock().unwrap();
    let (_, listed, _) = dapo(folder.path(), "runs --json");
    assert!(listed.contains("\"state\":\"running\""), "{listed}");
    let (code, listed, _) = dapo(folder.path(), "runs gc --unfinished --json");
    assert!(code == 0 && !listed.contains("study/unfinished"), "{listed}");
    held.unlock().unwrap();
    let (_, listed, _) = dapo(folder.path(), "runs gc --unfinished --json");
    let record: Value = serde_json::from_str(listed.lines().last().unwrap()).unwrap();
    assert_eq!(record["path"], "runs/study/unfinished");
    assert_eq!(record["reason"], "a run without an outcome");
}

#[test]
fn completions_know_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (script, _) = succeeded(dapo(folder.path(), &format!("completions {shell}")));
        for verb in ["train", "pretrain", "runs", "gc", "--keep-last"] {
            assert!(script.contains(verb.trim_start_matches("--")), "{shell}: {verb}");
        }
    }
}

#[test]
fn a_reader_that_leaves_is_no_error_and_a_full_disk_is_one_line() {
    let program = assert_cmd::cargo::cargo_bin("dapo");
    let folder = tempfile::tempdir().unwrap();
    run_fixture::finished(&folder.path().join("run"));
    for arguments in [["report", "run", "--json"], ["completions", "bash", ""], ["runs", ".", ""]] {
        let arguments: Vec<&str> = arguments.into_iter().filter(|part| !part.is_empty()).collect();
        let mut command = std::process::Command::new(&program);
        let command = command.args(&arguments).current_dir(folder.path());
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).stderr(Stdio::piped()).output().unwrap();
        let talk = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {talk}");
        assert!(talk.starts_with("error: ") && talk.contains("No space left"), "{talk}");
        assert!(!talk.contains("panicked"), "{talk}");

        let mut command = std::process::Command::new(&program);
        let command = command.args(&arguments).current_dir(folder.path());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    }
}

#[test]
fn the_doctor_states_facts_and_every_check_holds() {
    let (out, _) = succeeded(dapo(Path::new("."), "doctor --json"));
    let examined: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(examined["facts"]["libtorch_cpu_sha256"].as_str().unwrap().len(), 64);
    let checks = examined["checks"].as_array().unwrap();
    assert!(checks.len() == 6 && checks.iter().all(|check| check["held"] == true), "{checks:?}");
}

#[test]
fn the_container_recipe_names_the_pinned_toolchain() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| files::read_text(&root.join(name)).unwrap();
    let pin = read("rust-toolchain.toml");
    let version = pin.split('"').nth(1).unwrap();
    assert!(read("Containerfile").contains(&format!("FROM rust:{version}-bookworm AS build")));
    let version = env!("CARGO_PKG_VERSION");
    assert!(read("CITATION.cff").contains(&format!("\nversion: {version}\n")));
}
