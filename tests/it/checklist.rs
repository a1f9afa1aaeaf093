//! The reproducibility checklist: what is met, and what is not.

use crate::run_fixture;
use dapo::base::files;
use dapo::records::{Environment, RunFolder, Session};
use dapo::report::{Item, run};
use std::collections::BTreeMap;

pub fn items(run: &RunFolder) -> BTreeMap<&'static str, Item> {
    let list = run::build(run).unwrap().checklist;
    list.items.into_iter().map(|item| (item.variable, item)).collect()
}

#[test]
fn the_checklist_says_not_met_and_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_fixture::started(folder.path());
    let with = |facts: &[(&str, &str)]| {
        let mut all: BTreeMap<String, String> = [
            ("cpu", "a CPU"),
            ("cores", "2"),
            ("memory", "8 kB"),
            ("libtorch", "2.11.0"),
            ("libtorch_cpu_sha256", "ab"),
            ("cargo_lock_sha256", "cd"),
            ("target", "x86_64-linux"),
            ("kernel", "6"),
            ("git_commit", "0123"),
            ("git_dirty", "false"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        for (name, value) in facts {
            match value.is_empty() {
                true => all.remove(*name),
                false => all.insert(name.to_string(), value.to_string()),
            };
        }
        files::write_json(&run.path("environment.json"), &Environment { facts: all }).unwrap();
        items(&run)
    };
    let met = with(&[]);
    for variable in [
        "research type",
        "pseudocode",
        "code",
        "data",
        "hardware specification",
        "software dependencies",
        "experiment setup",
    ] {
        assert!(met[variable].met, "{variable}: {}", met[variable].fact);
    }
    // The fixture's manifest has no digest of the development set.
    assert!(!met["dataset splits"].met && met["dataset splits"].fact == "no digest of dev");
    let missing = |facts: &[(&str, &str)], variable: &str, fact: &str| {
        let item = &with(facts)[variable];
        assert!(!item.met && item.fact.contains(fact), "{variable}: {}", item.fact);
    };
    missing(&[("git_dirty", "true")], "code", "uncommitted changes");
    missing(&[("git_commit", "")], "code", "no commit is recorded");
    missing(&[("git_dirty", "")], "code", "whether it was changed is not recorded");
    missing(&[("cpu", "")], "hardware specification", "not recorded: cpu");
    missing(&[("libtorch_cpu_sha256", "")], "software dependencies", "libtorch_cpu_sha256");
    let changed = [("git_commit".to_string(), ["0123".to_string(), "4567".to_string()])].into();
    let session = Session { from_step: 1, changed, started_ms: None, ended_ms: None };
    files::write_lines(&run.path("sessions.jsonl"), &[session]).unwrap();
    missing(&[], "code", "resumed with another state");
    let mut experiment = run_fixture::experiment();
    experiment.optimizer.learning_rate *= 2.0;
    files::write_json(&run.path("experiment.json"), &experiment).unwrap();
    missing(&[], "experiment setup", "is not the configuration of the arm");
    for (variable, item) in items(&run) {
        let scored_no = ["dataset splits", "hardware specification", "software dependencies"];
        assert_eq!(item.paper, scored_no.contains(&variable).then_some(false));
    }
    run::write(&run).unwrap();
    let markdown = files::read_text(&run.path("report.md")).unwrap();
    assert!(markdown.contains("Reproducibility checklist") && markdown.contains("not met"));
}
