//! `dapo diff`: two runs, whole or tampered with, and what it names.

use crate::binary::{failed, line_in, says};
use crate::{repository, run_fixture, verify};
use dapo::base::files;
use dapo::experiment::Experiment;
use dapo::records::ledger::{self, Kind, LedgerEntry};
use dapo::records::{Components, RolloutRow, RunFolder, tables};
use dapo::report::terminal;
use dapo::training::{Unfinished, run::inputs};
use dapo::verification::diff::{self, DiffVerdict, text};
use dapo::verification::{Basis, RunDiff, diff::finding::DiffFinding};
use serde_json::Value;
use std::path::Path;

/// Two rollout steps of the walkthrough's task, with short responses.
pub fn tiny(change: impl FnOnce(&mut Experiment)) -> Experiment {
    // A seed whose steps both have groups to learn from.
    let mut experiment = repository::experiment(
        "own-task/own-task.toml",
        "execution.threads=1 execution.seed=4 rollout.max_response_tokens=64 checkpoints.keep_last=2 \
         checkpoints.every_steps=1 evaluation.samples={dev=1,test=1}",
    );
    change(&mut experiment);
    experiment
}

/// Runs an experiment; at most `steps` rollout steps of it.
fn train(root: &Path, steps: u64, change: impl FnOnce(&mut Experiment)) -> RunFolder {
    let (inputs, folder) = (inputs::prepare(tiny(change)).unwrap(), RunFolder::at(root));
    verify::session(&inputs, &folder, Unfinished::Refuse, steps).unwrap();
    folder
}

/// A copy of a run, as a stranger would receive it.
pub fn copy(from: &RunFolder, to: &Path) -> RunFolder {
    verify::copy(from.root(), to);
    RunFolder::at(to)
}

pub fn diff(a: &RunFolder, b: &RunFolder) -> RunDiff {
    diff::compare(a, b).unwrap()
}

fn finding<'a>(diff: &'a RunDiff, component: &str) -> &'a DiffFinding {
    let mut findings = diff.findings.iter();
    findings.find(|finding| finding.component == component).unwrap_or_else(|| panic!("{diff:#?}"))
}

fn first(diff: &RunDiff) -> (u64, &str, bool) {
    let first = diff.first.as_ref().unwrap_or_else(|| panic!("{diff:#?}"));
    (first.step, &first.component, first.by_ledger)
}

#[test]
fn runs_differ_where_seed_rate_or_length_make_them_differ() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let one = train(&at("one"), 9, |_| ());
    let again = train(&at("again"), 9, |_| ());
    let same = diff(&one, &again);
    assert_eq!((same.verdict, same.basis), (DiffVerdict::Identical, Basis::Ledgers));
    assert_eq!(same.agreeing_steps, 2);
    assert_eq!((same.first, same.findings, same.identity), (None, vec![], vec![]));

    // Another seed: the first rollout step draws other problems.
    let seed = train(&at("seed"), 9, |experiment| experiment.execution.seed = 2);
    let other = diff(&one, &seed);
    assert_eq!((other.verdict, first(&other)), (DiffVerdict::Different, (1, "problems", true)));
    assert!(other.identity.iter().any(|named| named.name == "seed"), "{other:#?}");
    assert_eq!(finding(&other, "gradients").first, None);
    assert!(finding(&other, "gradients").remark.as_ref().unwrap().contains("not stored"));

    // Another learning rate: the first step is sampled, graded and differentiated alike.
    let rate = train(&at("rate"), 9, |experiment| experiment.optimizer.learning_rate *= 1.5);
    let other = diff(&one, &rate);
    let first_step = other.first.as_ref().unwrap();
    assert_eq!(first_step.step, 1);
    for name in ["problems", "tokens", "sampler_log_probs", "rewards", "old_log_probs"] {
        assert!(first_step.agreeing.contains(&name.to_string()), "{first_step:#?}");
    }
    assert!(first_step.differing.contains(&"weights".to_string()), "{first_step:#?}");
    let weights = finding(&other, "weights");
    assert_eq!(weights.file.as_deref(), Some("checkpoints/step-000001/model.safetensors"));
    assert!(weights.differing > 1000 && weights.first.as_ref().unwrap().ulps > Some(0));
    let keys: Vec<&str> = other.config.iter().map(|key| key.key.as_str()).collect();
    assert_eq!(keys, ["optimizer.learning_rate"]);

    // A run that was stopped agrees as far as it goes.
    let short = train(&at("short"), 1, |_| ());
    let prefix = diff(&one, &short);
    assert_eq!((prefix.verdict, prefix.agreeing_steps), (DiffVerdict::Prefix, 1), "{prefix:#?}");
    let lines = terminal::render(&text::sections(&prefix), None);
    assert!(lines.contains("they agree up to rollout step 1"), "{lines}");

    // Without ledgers the stored records tell; a missing one is no agreement.
    for run in [&one, &again, &seed] {
        files::remove_file(&run.path(ledger::FILE)).unwrap();
    }
    let same = diff(&one, &again);
    assert_eq!((same.verdict, same.basis), (DiffVerdict::Identical, Basis::Files));
    assert_eq!(same.notes.len(), 2, "{:?}", same.notes);
    assert_eq!(first(&diff(&one, &seed)), (1, "problems", false));
    files::remove_file(&again.rollouts(2)).unwrap();
    assert_eq!(diff(&one, &again).verdict, DiffVerdict::Inconclusive);
}

#[test]
fn one_flipped_bit_is_found_and_counted_in_ulps() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let whole = train(&at("whole"), 9, |_| ());

    let changed = copy(&whole, &at("log-prob"));
    let mut place = String::new();
    verify::rollouts(&changed, 2, |rows| {
        let row = &mut rows[5];
        row.rollout_log_probs[3] = f64::from_bits(row.rollout_log_probs[3].to_bits() ^ 1);
        let RolloutRow { problem, attempt, sample, .. } = row;
        place = format!("problem {problem}, attempt {attempt}, sample {sample}, token 3");
    });
    let changes = diff(&whole, &changed);
    assert_eq!(first(&changes), (2, "sampler_log_probs", false));
    let one = finding(&changes, "sampler_log_probs");
    let pair = one.first.as_ref().unwrap();
    assert_eq!((one.differing, pair.ulps), (1, Some(1)));
    assert_eq!(pair.at.text(), place);
    let note = &changes.notes[0];
    assert!(note.contains("b's rollouts are not those of its ledger"), "{note}");

    let changed = copy(&whole, &at("reward"));
    verify::rollouts(&changed, 1, |rows| rows[7].reward = -rows[7].reward);
    let changes = diff(&changed, &whole);
    assert_eq!(first(&changes), (1, "rewards", false));
    assert_eq!(finding(&changes, "rewards").differing, 1);

    let changed = copy(&whole, &at("weight"));
    verify::weight(&changed, 2);
    let changes = diff(&whole, &changed);
    assert_eq!(first(&changes), (2, "weights", false));
    let weights = finding(&changes, "weights");
    let pair = weights.first.as_ref().unwrap();
    assert_eq!((weights.differing, pair.ulps), (1, Some(1)));
    assert!(pair.at.text().starts_with("tensor "), "{}", pair.at.text());
    assert!(weights.compared > 100_000);

    let changed = copy(&whole, &at("outcome"));
    let mut rows = tables::read_outcomes(&changed.outcomes("dev", 0)).unwrap();
    rows[0].is_correct = !rows[0].is_correct;
    tables::write_outcomes(&changed.outcomes("dev", 0), &rows).unwrap();
    let changes = diff(&whole, &changed);
    assert_eq!((first(&changes), changes.agreeing_steps), ((0, "evaluations", false), 2));
}

/// A ledger of made-up digests for a made-up run; `odd` gives other ones from a step on.
fn with_ledger(run: &RunFolder, odd: &[(u64, &str)]) {
    let genesis = ledger::genesis(&run.manifest().unwrap(), &run.experiment().unwrap());
    let mut entries = vec![genesis];
    for step in 1..=run_fixture::STEPS {
        let digest = |name: &&str| {
            let changed = odd.iter().any(|(from, odd)| odd == name && step >= *from);
            files::sha256(format!("{name} {step} {changed}").as_bytes())
        };
        let components: Components =
            ledger::STEP_COMPONENTS.iter().map(|name| (name.to_string(), digest(name))).collect();
        let head = entries.last().unwrap().head.clone();
        entries.push(LedgerEntry::after(&head, Kind::RolloutStep, step, components));
    }
    files::write_lines(&run.path(ledger::FILE), &entries).unwrap();
}

/// What the command prints of a difference; it says nothing else.
fn different(scratch: &Path, line: &str) -> String {
    let (code, out, talk) = line_in(scratch, line);
    assert_eq!((code, talk.as_str()), (4, ""));
    out
}

#[test]
fn a_difference_reads_as_these_lines() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let (a, b) = (run_fixture::finished(&at("a")), run_fixture::finished(&at("b")));
    let identical = line_in(scratch.path(), "diff a b");
    says(identical, 0, &["identical: 40 rollout steps"]);

    // No ledgers: the stored records tell. The machine differs too.
    verify::rollouts(&b, 20, |rows| {
        let log_probs = &mut rows[9].rollout_log_probs;
        log_probs[2] = log_probs[2].next_up();
        log_probs[4] = f64::NAN;
        rows[9].reward = 1.0;
    });
    let mut environment = b.environment().unwrap();
    environment.facts.insert("cpu".to_string(), "another CPU".to_string());
    files::write_json(&b.path("environment.json"), &environment).unwrap();
    insta::assert_snapshot!("records_differ", different(scratch.path(), "diff a b"));
    let json: Value = serde_json::from_str(&different(scratch.path(), "diff a b --json")).unwrap();
    assert!(json["schema"] == "dapo-diff/1" && json["first"]["step"] == 20);
    assert_eq!(json["findings"][0]["first"]["a"]["bits"], "0xbfd0000000000000");

    // Ledgers: the gradients differ before anything that is stored does.
    let c = run_fixture::finished(&at("c"));
    let mut experiment = c.experiment().unwrap();
    experiment.optimizer.learning_rate = 2.00001e-4;
    files::write_json(&c.path("experiment.json"), &experiment).unwrap();
    with_ledger(&a, &[]);
    with_ledger(&c, &[(3, "gradients"), (3, "weights"), (4, "tokens")]);
    insta::assert_snapshot!("ledgers_differ", different(scratch.path(), "diff a c"));

    failed(line_in(scratch.path(), "diff a ."), 3, "is not a run folder");
}
