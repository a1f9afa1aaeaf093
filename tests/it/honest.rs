//! Honest runs that look odd: `verify` accuses none of them.

use crate::verify::{copy, experiment, made, trained, verified};
use dapo::base::files;
use dapo::records::RunFolder;
use dapo::verification::verify::replay::ReplayRequest;
use dapo::verification::verify::{self, Options, VerifyVerdict};
use dapo::verification::{Challenge, Verification};
use serde_json::{Value, json};
use std::path::Path;

fn with_base(folder: &RunFolder, base: &Path) -> Verification {
    let replay = Some(ReplayRequest { steps: 1, problems: 4, challenge: Challenge::Seed(7) });
    let options = Options { base: Some(base.to_path_buf()), replay, ..Options::default() };
    verify::verify(folder, &options, &mut |_| ()).unwrap()
}

#[test]
fn a_stop_token_may_be_ordinary_and_a_text_may_be_unreadable() {
    let scratch = tempfile::tempdir().unwrap();
    let embedded = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/mini-aime/base");
    let base = scratch.path().join("base");
    type Change = fn(&mut Value);
    let changes: [(&str, &str, Change); 4] = [
        // Its texts cannot be tokenized again: that is no sign of anything.
        ("a decoder that puts blanks between tokens", "tokenizer.json", |it| {
            it["decoder"] = Value::Null;
            let vocabulary = it["model"]["vocab"].as_object_mut().unwrap();
            let blank = vocabulary.remove(" ").unwrap();
            vocabulary.insert("_".to_string(), blank);
        }),
        ("an added token that is not special", "tokenizer.json", |it| {
            it["added_tokens"][1]["special"] = json!(false);
        }),
        ("a character", "generation_config.json", |it| it["eos_token_id"] = json!(18)),
        ("a special one and a character", "generation_config.json", |it| {
            it["eos_token_id"] = json!([1, 15]);
        }),
    ];
    for (name, file, change) in changes {
        copy(&embedded, &base);
        let mut value: Value = files::read_json(&base.join(file)).unwrap();
        change(&mut value);
        files::write_json(&base.join(file), &value).unwrap();
        let mut experiment = experiment();
        experiment.inputs.model = base.clone();
        experiment.training.rollout_steps = 1;
        let folder = RunFolder::at(scratch.path().join("run"));
        made(experiment, &folder);
        let found = with_base(&folder, &base);
        if name.starts_with("a decoder") {
            assert_eq!(found.verdict, VerifyVerdict::Inconclusive, "{:#?}", found.checks);
            files::remove_folder(folder.root()).unwrap();
            files::remove_folder(&base).unwrap();
            continue;
        }
        assert_eq!(found.verdict, VerifyVerdict::Verified, "{name}: {:#?}", found.checks);
        assert!(found.summary.ends_with(", not the embedded benchmark's"), "{}", found.summary);
        files::remove_folder(folder.root()).unwrap();
        files::remove_folder(&base).unwrap();
    }
}

#[test]
fn other_words_in_the_report_of_a_run_change_no_verdict_and_verify_says_that_it_reads_none() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = RunFolder::at(scratch.path().join("run"));
    made(experiment(), &folder);
    let mut report: Value = files::read_json(&folder.path("report.json")).unwrap();
    report["headline"] = json!("in other words");
    files::write_json(&folder.path("report.json"), &report).unwrap();
    files::write_atomic(&folder.path("report.html"), b"in other words").unwrap();
    let verification = verified(&folder);
    assert_eq!(verification.verdict, VerifyVerdict::Verified, "{:#?}", verification.checks);
    let says =
        verification.not_checked.iter().any(|line| line.starts_with("the words and pictures"));
    assert!(says, "{:?}", verification.not_checked);
    report["counts"]["counters"]["updates"] = json!(99);
    files::write_json(&folder.path("report.json"), &report).unwrap();
    assert_eq!(verified(&folder).verdict, VerifyVerdict::Mismatch);
}

#[test]
fn a_report_in_the_format_of_another_version_is_not_held_against_the_run() {
    let (_scratch, folder) = trained(experiment());
    let mut report: Value = files::read_json(&folder.path("report.json")).unwrap();
    report["schema"] = json!("dapo-report/2");
    report["headline"] = json!("in other words");
    files::write_json(&folder.path("report.json"), &report).unwrap();
    let found = verified(&folder);
    assert_eq!(found.verdict, VerifyVerdict::Inconclusive, "{:#?}", found.checks);
    dapo::report::run::write(&folder).unwrap();
    assert_eq!(verified(&folder).verdict, VerifyVerdict::Verified);
}

#[test]
fn a_folder_of_problems_that_nothing_reads_is_told() {
    let (_scratch, folder) = trained(experiment());
    let mut command = assert_cmd::Command::cargo_bin("dapo").unwrap();
    let output = command.arg("verify").arg(folder.root()).args(["--data", "nowhere"]).output();
    let output = output.unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("--data is not read"), "{told}");
}
