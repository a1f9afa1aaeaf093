//! Signed statements about a run. What other programs say of them is in `golden/provenance/`.

use crate::{golden_data, run_fixture};
use assert_cmd::Command;
use dapo::base::files;
use dapo::records::RunFolder;
use dapo::report::attest::{self, check, envelope, key};
use dapo::report::{Envelope, Problem, Trust, run};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

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
    let private = out.join("key.pem");
    key::create(&private).unwrap();
    let key = key::read_private(&private).unwrap();
    attest::write(&run, "https://example.org/lab", Some(&key)).unwrap();
}

#[test]
fn a_signature_made_by_securesystemslib_is_accepted_here() {
    let golden = golden_data::folder("provenance");
    let envelope: Envelope = files::read_json(&golden.join("signed-elsewhere.json")).unwrap();
    let public = key::read_public(&golden.join("signed-elsewhere.pub")).unwrap();
    let payload = envelope.open(Some(&public)).unwrap();
    assert!(payload.starts_with(b"{\"_type\":\"https://in-toto.io/Statement/v1\""));
    let mut torn = envelope.clone();
    torn.payload.replace_range(0..4, "eyJf".chars().rev().collect::<String>().as_str());
    torn.open(Some(&public)).unwrap_err();
}

pub fn dapo(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("dapo").unwrap().args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn keys(folder: &Path, name: &str) -> (String, String) {
    let path = folder.join(name);
    let public = key::create(&path).unwrap();
    (path.display().to_string(), public.display().to_string())
}

#[test]
fn a_signed_run_holds_and_every_change_to_it_is_named() {
    let (folder, run) = finished();
    let (private, public) = keys(folder.path(), "lab.pem");
    let root = run.root().display().to_string();
    let (code, stdout, talk) = dapo(&["attest", &root, "--key", &private]);
    assert_eq!((code, stdout.trim()), (0, run.path(attest::NAME).to_str().unwrap()), "{talk}");
    assert!(talk.contains("SLSA Build L1 at most"), "{talk}");

    let public = key::read_public(Path::new(&public)).unwrap();
    let envelope = check::read(&run).unwrap();
    let problems = || check::check(&envelope, Some(&public), &run).unwrap().problems;
    let held = check::check(&envelope, Some(&public), &run).unwrap();
    assert_eq!(held.trust, Trust::Verified { keyid: key::id(&public) });
    assert_eq!((held.problems, held.builder_id.as_str()), (Vec::new(), "urn:dapo:self-attested"));
    assert_eq!(held.files, 25);
    // A report that is made again is the same report.
    run::write(&run).unwrap();
    assert_eq!(problems(), Vec::new());

    let metrics = files::read(&run.path("metrics.jsonl")).unwrap();
    let mut changed = metrics.clone();
    *changed.last_mut().unwrap() = b' ';
    files::write_atomic(&run.path("metrics.jsonl"), &changed).unwrap();
    assert!(matches!(&problems()[..], [Problem::Differs { name, .. }] if name == "metrics.jsonl"));
    files::remove_file(&run.path("metrics.jsonl")).unwrap();
    assert_eq!(problems(), [Problem::Missing { name: "metrics.jsonl".into() }]);
    std::os::unix::fs::symlink("timings.jsonl", run.path("metrics.jsonl")).unwrap();
    let named = [Problem::Missing { name: "metrics.jsonl".into() }];
    assert_eq!(problems(), named, "a link is no file of the folder");
    files::remove_file(&run.path("metrics.jsonl")).unwrap();
    files::write_atomic(&run.path("metrics.jsonl"), &metrics).unwrap();
    files::write_atomic(&run.path("rollouts/extra.parquet"), b"x").unwrap();
    assert_eq!(problems(), [Problem::Unlisted { name: "rollouts/extra.parquet".into() }]);
    files::remove_file(&run.path("rollouts/extra.parquet")).unwrap();
    assert_eq!(problems(), Vec::new());
}

#[test]
fn a_wrong_key_a_changed_payload_and_another_payload_type_are_refused() {
    let (folder, run) = finished();
    let (private, public) = keys(folder.path(), "lab.pem");
    let (_, stranger) = keys(folder.path(), "stranger.pem");
    let key = key::read_private(Path::new(&private)).unwrap();
    let envelope = attest::write(&run, "https://example.org/lab", Some(&key)).unwrap();
    let read = |path: &str| key::read_public(Path::new(path)).unwrap();
    let refused = |envelope: &Envelope, key: &str| {
        check::check(envelope, Some(&read(key)), &run).unwrap_err().to_string()
    };
    assert!(refused(&envelope, &stranger).contains("none of 1 signatures is valid under the key"));
    let payload = envelope.open(None).unwrap();
    let altered = String::from_utf8(payload.clone()).unwrap().replace("\"seed\":1", "\"seed\":2");
    assert_ne!(altered.as_bytes(), payload);
    let unsigned = envelope::seal(altered.as_bytes(), None);
    let altered = Envelope { payload: unsigned.payload.clone(), ..envelope.clone() };
    assert!(refused(&altered, &public).contains("an altered payload"));
    let other = Envelope { payload_type: "application/json".into(), ..envelope.clone() };
    assert!(refused(&other, &public).contains("payloadType is `application/json`"));
    assert_eq!(refused(&unsigned, &public), "the envelope is not signed");

    // Without a key nobody vouches, and what the statement says is still compared.
    let found = check::check(&altered, None, &run).unwrap();
    assert_eq!(found.trust, Trust::NotVerified { signatures: 1 });
    let parameter = |name: &str| Problem::OtherParameter { parameter: name.into() };
    assert_eq!(found.problems, [parameter("experiment"), parameter("seed")]);
    assert_eq!(check::check(&unsigned, None, &run).unwrap().trust, Trust::Unsigned {});
    assert_eq!(check::check(&envelope, None, &run).unwrap().builder_id, "https://example.org/lab");
}

#[test]
fn a_statement_that_names_files_outside_the_folder_reads_none_of_them() {
    let (folder, run) = finished();
    files::write_atomic(&folder.path().join("outside"), b"x").unwrap();
    let envelope = attest::write(&run, "urn:example:lab", None).unwrap();
    let mut statement: Value = serde_json::from_slice(&envelope.open(None).unwrap()).unwrap();
    for name in ["../outside", "/etc/hostname", ""] {
        statement["subject"][0]["name"] = name.into();
        let sealed = envelope::seal(statement.to_string().as_bytes(), None);
        let found = check::check(&sealed, None, &run).unwrap();
        assert!(found.problems.contains(&Problem::Missing { name: name.into() }), "{name}");
    }
    let refused = |statement: &Value| {
        let sealed = envelope::seal(statement.to_string().as_bytes(), None);
        check::check(&sealed, None, &run).unwrap_err().to_string()
    };
    statement["subject"][0]["digest"] = json!({ "sha1": "00" });
    assert!(refused(&statement).contains("has no SHA-256"));
    statement["subject"] = json!([]);
    assert!(refused(&statement).contains("names no subject"));
    statement["predicateType"] = "https://in-toto.io/attestation/svr/v0.2".into();
    assert!(refused(&statement).contains("predicateType is `https://in-toto.io/attestation/svr"));
    statement["_type"] = json!(7);
    assert!(refused(&statement).contains("no statement about a run"));
    for text in ["", "[]", "{\"payload\":1}", "\u{0}"] {
        files::write_atomic(&run.path(attest::NAME), text.as_bytes()).unwrap();
        assert!(check::read(&run).unwrap_err().to_string().contains("attestation.json"), "{text}");
    }
}

#[test]
fn what_has_not_ended_or_was_altered_is_not_attested() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::started(folder.path());
    let root = run.root().display().to_string();
    let (code, _, talk) = dapo(&["attest", &root]);
    assert!(code == 3 && talk.contains("has not ended"), "{talk}");
    let (_folder, run) = finished();
    let root = run.root().display().to_string();
    let (code, _, talk) = dapo(&["attest", &root, "--builder-id", "me"]);
    assert!(code == 3 && talk.contains("`me` is no builder id"), "{talk}");
    files::append_line(&run.path("metrics.jsonl"), &1).unwrap();
    let (code, _, talk) = dapo(&["attest", &root]);
    assert!(code == 4 && talk.contains("metrics.jsonl is not the file of outcome.json"), "{talk}");
    assert!(!run.path(attest::NAME).exists());
    let (code, _, talk) = dapo(&["attest", &root, "--key", "nowhere.pem"]);
    assert!(code == 3 && talk.contains("nowhere.pem"), "{talk}");
    assert_eq!(dapo(&["attest"]).0, 2);
}
