//! `dapo runs`, `dapo runs gc`, `dapo completions`, `dapo doctor`, and standard output that goes nowhere.

use crate::binary::{json, json_lines, line_in as dapo, succeeded};
use crate::transcript::play;
use crate::{repository, run_fixture};
use dapo::base::files;
use dapo::records::RunFolder;
use std::os::unix::fs::symlink;
use std::path::Path;

fn checkpoint(run: &RunFolder, step: u64) {
    files::write_atomic(&run.checkpoint(step).join("model.safetensors"), b"weights").unwrap();
}

/// `runs/` with a finished run, an unfinished one, a damaged one, leftovers, and things that
/// are no runs.
fn runs(root: &Path) {
    let finished = run_fixture::finished(&root.join("runs/b-finished"));
    [10, 20, 30].iter().for_each(|step| checkpoint(&finished, *step));
    let unfinished = run_fixture::started(&root.join("runs/study/unfinished"));
    (1..=3).for_each(|step| run_fixture::record_step(&unfinished, step));
    (1..=3).for_each(|step| checkpoint(&unfinished, step));
    let damaged = run_fixture::started(&root.join("runs/damaged"));
    for (path, text) in [
        (unfinished.path("ledger.jsonl"), ""),
        (unfinished.path("evaluations.jsonl"), ""),
        (unfinished.path(".partial-Ab3x"), "half"),
        (unfinished.path("checkpoints/step-000004.partial/model.safetensors"), "half"),
        (damaged.path("outcome.json"), "{"),
        (damaged.path(".partial-keep"), "half"),
        (root.join("runs/notes/checkpoints/step-000001/x"), "mine"),
        (root.join("runs/notes/.partial-mine"), "mine"),
        (root.join("elsewhere/checkpoints/step-000001/model.safetensors"), "mine"),
    ] {
        files::write_atomic(&path, text.as_bytes()).unwrap();
    }
    run_fixture::started(&root.join("elsewhere"));
    symlink(root.join("elsewhere"), root.join("runs/link")).unwrap();
    symlink(root.join("elsewhere"), unfinished.path(".partial-link")).unwrap();
}

#[test]
fn runs_are_listed_with_state_steps_and_accuracy() {
    let folder = tempfile::tempdir().unwrap();
    runs(folder.path());
    let (out, talk) = succeeded(dapo(folder.path(), "runs"));
    assert!(talk.contains("; runs/damaged/outcome.json: EOF"), "{talk}");
    insta::assert_snapshot!(without_sizes(&out));
    let (json, _) = succeeded(dapo(folder.path(), "runs --json"));
    let records = json_lines(&json);
    let states: Vec<&str> = records.iter().map(|run| run["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["finished", "damaged", "unfinished"]);
    assert_eq!(records[2]["steps_done"], 3);
    assert!(records[0]["size_bytes"].as_u64().unwrap() > 10_000);
    let (one, _) = succeeded(dapo(folder.path(), "runs runs/study/unfinished --json"));
    assert_eq!(one.lines().count(), 1);
}

/// The table with sizes left out: they depend on the version of the parquet writer.
fn without_sizes(table: &str) -> String {
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
    play(folder.path(), include_str!("housekeeping/gc.txt"));
}

#[test]
fn gc_lists_unfinished_runs_when_asked_and_never_one_that_is_locked() {
    let folder = tempfile::tempdir().unwrap();
    runs(folder.path());
    play(folder.path(), include_str!("housekeeping/locked.txt"));
}

#[test]
fn completions_know_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (script, _) = succeeded(dapo(folder.path(), &format!("completions {shell}")));
        let verbs = ["train", "pretrain", "runs", "gc", "keep-last"];
        assert!(verbs.iter().all(|verb| script.contains(verb)), "{shell}: {script}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_error_and_a_full_disk_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    run_fixture::finished(&folder.path().join("run"));
    play(folder.path(), include_str!("housekeeping/nowhere.txt"));
}

#[test]
fn the_doctor_states_facts_and_every_check_holds() {
    let examined = json(dapo(Path::new("."), "doctor --json"));
    assert_eq!(examined["facts"]["libtorch_cpu_sha256"].as_str().unwrap().len(), 64);
    let checks = examined["checks"].as_array().unwrap();
    assert!(checks.len() == 3 && checks.iter().all(|check| check["held"] == true), "{checks:?}");
}

#[test]
fn the_container_recipe_names_the_pinned_toolchain() {
    let read = |name: &str| files::read_text(&repository::root().join(name)).unwrap();
    let pin = read("rust-toolchain.toml");
    let version = pin.split('"').nth(1).unwrap();
    assert!(read("Containerfile").contains(&format!("FROM rust:{version}-bookworm AS build")));
    let version = env!("CARGO_PKG_VERSION");
    assert!(read("CITATION.cff").contains(&format!("\nversion: {version}\n")));
}
