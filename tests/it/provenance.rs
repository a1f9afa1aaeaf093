//! Statements about a run. What other programs say of them is in `golden/provenance/`.

use crate::binary::{dapo, failed};
use crate::{run_fixture, verify};
use dapo::base::files;
use dapo::records::RunFolder;
use dapo::report::export::statement::{self, StatementProblem};
use dapo::report::run;
use dapo::verification::verify::VerifyVerdict;
use serde_json::{Value, json};
use std::path::PathBuf;

pub fn finished() -> (tempfile::TempDir, RunFolder) {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::finished(&folder.path().join("run"));
    run::write(&run).unwrap();
    (folder, run)
}

/// The example that other programs were given: see `golden/provenance/README.md`.
#[test]
#[ignore = "writes into the folder that DAPO_EXAMPLE names, for other programs to look at"]
fn the_example_run_is_written_for_other_programs() {
    let out = PathBuf::from(std::env::var_os("DAPO_EXAMPLE").expect("DAPO_EXAMPLE names a folder"));
    let run = run_fixture::finished(&out.join("run"));
    run::write(&run).unwrap();
    statement::write(&run).unwrap();
}

#[test]
fn a_stated_run_holds_and_every_change_to_it_is_named() {
    let (_folder, run) = finished();
    let root = run.root().display().to_string();
    let (code, stdout, talk) = dapo(&["export", &root, "--statement"]);
    assert_eq!((code, stdout.trim()), (0, run.path(statement::NAME).to_str().unwrap()), "{talk}");
    let problems = || statement::check(&run).unwrap().1;
    assert_eq!(statement::check(&run).unwrap(), (25, Vec::new()));
    // A report that is made again is the same report.
    run::write(&run).unwrap();
    assert_eq!(problems(), Vec::new());

    let metrics = files::read(&run.path("metrics.jsonl")).unwrap();
    let mut changed = metrics.clone();
    *changed.last_mut().unwrap() = b' ';
    files::write_atomic(&run.path("metrics.jsonl"), &changed).unwrap();
    assert!(
        matches!(&problems()[..], [StatementProblem::Differs { name, .. }] if name == "metrics.jsonl")
    );
    files::remove_file(&run.path("metrics.jsonl")).unwrap();
    assert_eq!(problems(), [StatementProblem::Missing { name: "metrics.jsonl".into() }]);
    std::os::unix::fs::symlink("timings.jsonl", run.path("metrics.jsonl")).unwrap();
    let named = [StatementProblem::Missing { name: "metrics.jsonl".into() }];
    assert_eq!(problems(), named, "a link is no file of the folder");
    files::remove_file(&run.path("metrics.jsonl")).unwrap();
    files::write_atomic(&run.path("metrics.jsonl"), &metrics).unwrap();
    files::write_atomic(&run.path("rollouts/extra.parquet"), b"x").unwrap();
    assert_eq!(problems(), [StatementProblem::Unlisted { name: "rollouts/extra.parquet".into() }]);
    files::remove_file(&run.path("rollouts/extra.parquet")).unwrap();
    assert_eq!(problems(), Vec::new());
}

#[test]
fn verify_holds_a_run_against_its_statement() {
    let (_scratch, run) = verify::trained(verify::experiment());
    let mut stated = statement::write(&run).unwrap();
    let found = verify::verified(&run);
    assert!(found.checks.iter().any(|check| check.name == "statement"));
    assert_eq!(verify::findings(&found, VerifyVerdict::Mismatch), Vec::<String>::new());
    stated.predicate.insert("seed".to_string(), json!(2));
    files::write_json(&run.path(statement::NAME), &stated).unwrap();
    let found = verify::findings(&verify::verified(&run), VerifyVerdict::Mismatch);
    assert_eq!(found, ["statement.json: seed of the statement is not that of the folder"]);
}

#[test]
fn a_statement_about_another_run_or_of_another_kind_is_refused() {
    let (folder, run) = finished();
    files::write_atomic(&folder.path().join("outside"), b"x").unwrap();
    statement::write(&run).unwrap();
    let mut stated: Value = files::read_json(&run.path(statement::NAME)).unwrap();
    let check = |stated: &Value| {
        files::write_json(&run.path(statement::NAME), stated).unwrap();
        statement::check(&run)
    };
    stated["predicate"]["seed"] = json!(2);
    assert_eq!(check(&stated).unwrap().1, [StatementProblem::OtherRun { key: "seed".into() }]);
    // Nothing outside the folder is read.
    for name in ["../outside", "/etc/hostname", ""] {
        stated["subject"][0]["name"] = name.into();
        let found = check(&stated).unwrap().1;
        assert!(found.contains(&StatementProblem::Missing { name: name.into() }), "{name}");
    }
    let refused = |stated: &Value| check(stated).unwrap_err().to_string();
    stated["subject"][0]["digest"] = json!({ "sha1": "00" });
    assert!(refused(&stated).contains("has no SHA-256"));
    stated["subject"] = json!([]);
    assert!(refused(&stated).contains("names no subject"));
    stated["predicateType"] = "https://in-toto.io/attestation/svr/v0.2".into();
    assert!(refused(&stated).contains("predicateType is `https://in-toto.io/attestation/svr"));
    stated["_type"] = json!(7);
    assert!(refused(&stated).contains("not a statement about a run"));
    for text in ["", "[]", "{\"payload\":1}", "\u{0}"] {
        files::write_atomic(&run.path(statement::NAME), text.as_bytes()).unwrap();
        let error = statement::check(&run).unwrap_err().to_string();
        assert!(error.contains("not a statement about a run"), "{text}: {error}");
    }
}

#[test]
fn what_has_not_ended_or_was_altered_is_not_stated() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::started(folder.path());
    let root = run.root().display().to_string();
    failed(dapo(&["export", &root, "--statement"]), 3, "has not ended");
    let (_folder, run) = finished();
    let root = run.root().display().to_string();
    files::append_line(&run.path("metrics.jsonl"), &1).unwrap();
    failed(
        dapo(&["export", &root, "--statement"]),
        4,
        "metrics.jsonl is not the file of outcome.json",
    );
    assert!(!run.path(statement::NAME).exists());
    let study = folder.path().join("study");
    files::create_folder(&study).unwrap();
    failed(dapo(&["export", study.to_str().unwrap(), "--statement"]), 2, "is for a run folder");
}
