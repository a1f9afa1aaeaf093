//! `dapo regress`: golden runs in a folder of their own, and the changes that must fail it.

use crate::binary::{dapo, succeeded};
use crate::diff::tiny;
use crate::repository::root;
use crate::transcript::play;
use dapo::base::files;
use dapo::experiment::Experiment;
use dapo::records::{RunFolder, tables};
use dapo::statistics::{equivalence, estimators::standard_error_of_mean};
use dapo::training::run::inputs::{self, Inputs};
use dapo::verification::regress::{self, bless, curves, exact, rule};
use dapo::verification::{Golden, RunDiff};
use std::time::Duration;

#[test]
fn a_rate_a_bound_or_a_reward_that_moves_breaks_the_golden_ledger() {
    let scratch = tempfile::tempdir().unwrap();
    let golden = Golden::at(scratch.path().join("golden"));
    let prepared = |change: fn(&mut Experiment)| inputs::prepare(tiny(change)).unwrap();
    let run = |name: &str, inputs: &Inputs| {
        let folder = RunFolder::at(scratch.path().join(name));
        regress::complete(inputs, &folder).unwrap();
        folder
    };
    let first = run("first", &prepared(|_| ()));
    assert!(exact::compare(&golden, &first).unwrap_err().to_string().contains("no golden run"));
    // Curves that are refused leave no ledger behind.
    let shipped = Golden::at(root().join("golden/runs"));
    let mut rule = rule::load(&shipped.rule()).unwrap().fast;
    let curves = curves::load(&shipped, &rule).unwrap();
    rule.points[0].margin = 1e-9;
    let leave = bless::Leave { commit: "c".to_string(), reason: "r".to_string() };
    let parts = (Some(&first), Some(&curves));
    let refused = bless::accept(&golden, &rule, parts, &leave, Duration::ZERO).unwrap_err();
    assert!(refused.to_string().contains("of its own noise"), "{refused}");
    assert!(!golden.root().exists());
    exact::bless(&golden, &first).unwrap().write().unwrap();
    let differ = |name: &str, inputs: &Inputs| -> RunDiff {
        exact::compare(&golden, &run(name, inputs)).unwrap().diff.unwrap()
    };
    let identity = |diff: &RunDiff| -> Vec<String> {
        diff.identity.iter().map(|named| named.name.clone()).collect()
    };

    // The unchanged program passes.
    let again = exact::compare(&golden, &run("again", &prepared(|_| ()))).unwrap();
    assert_eq!((again.diff, again.golden), (None, again.head));

    // Learning rate + 1e-9, in the experiment: another arm, and the first step's weights differ.
    let rate: fn(&mut Experiment) = |experiment| experiment.optimizer.learning_rate += 1e-9;
    let diff = differ("rate", &prepared(rate));
    assert_eq!(identity(&diff), ["arm"]);
    assert_eq!(diff.config[0].key, "optimizer.learning_rate");
    let first_step = diff.first.unwrap();
    assert_eq!(first_step.step, 1);
    assert!(first_step.differing.contains(&"weights".to_string()), "{first_step:#?}");
    assert!(first_step.agreeing.contains(&"tokens".to_string()), "{first_step:#?}");

    // The same in the program alone, which still believes to run the golden arm.
    let mut inputs = prepared(|_| ());
    rate(&mut inputs.experiment);
    let diff = differ("program", &inputs);
    assert_eq!(identity(&diff), [""; 0]);
    assert_eq!(diff.first.unwrap().step, 1);

    // Clip-Higher's bound + 1e-7: no token lies in between, so only what is bound before the
    // first step differs.
    let diff = differ("clip", &prepared(|experiment| experiment.dapo.clip.high = 0.2800001));
    assert_eq!(identity(&diff), ["arm"]);
    assert_eq!(diff.config[0].key, "dapo.clip.high");

    // One reward flipped: the program grades one response by another answer.
    let rows = tables::read_rollouts(&first.rollouts(1)).unwrap();
    let solved = |row: &tables::RolloutRow| {
        let group = rows.iter().filter(|other| other.group == row.group);
        row.is_correct && group.filter(|other| other.is_correct).count() == 1
    };
    let row = rows.iter().find(|row| solved(row)).expect("a group with one correct response");
    let mut inputs = prepared(|_| ());
    let mut train = inputs.data.train.iter_mut();
    train.find(|problem| problem.id == row.problem).unwrap().answer = "-1".to_string();
    let flipped = run("reward", &inputs);
    let changed = tables::read_rollouts(&flipped.rollouts(1)).unwrap();
    let rewards = rows.iter().zip(&changed).filter(|(a, b)| a.is_correct != b.is_correct);
    assert_eq!(rewards.count(), 1);
    let diff = exact::compare(&golden, &flipped).unwrap().diff.unwrap();
    assert_eq!(identity(&diff), [""; 0]);
    let first_step = diff.first.unwrap();
    assert_eq!(first_step.step, 1);
    // The group is now all wrong, so another round of prompts is drawn: more than rewards differs.
    assert!(first_step.differing.contains(&"rewards".to_string()), "{first_step:#?}");
}

#[test]
fn a_blessing_needs_a_reason_and_a_clean_tree_and_a_change_then_fails() {
    let scratch = tempfile::tempdir().unwrap();
    play(scratch.path(), include_str!("regress/unblessed.txt"));
    let commit = "git -c user.name=test -c user.email=test@example.org commit -q -m part";
    play(scratch.path(), &format!("mkdir part; touch part/kept new.txt; git add part; {commit}"));
    // The untracked file lies outside this golden folder.
    assert!(bless::leave(&Golden::at(scratch.path().join("part")), "first").is_ok());
    play(scratch.path(), "rm new.txt");
    let golden = scratch.path().display().to_string();
    let reason = "the first | golden\nruns";
    succeeded(dapo(&["regress", "--golden", &golden, "--bless", "--reason", reason]));
    let log = files::read_text(&scratch.path().join("LOG.md")).unwrap();
    assert!(log.contains("| the first \\| golden runs |\n"), "{log}");
    assert_eq!(log.matches("none → ").count(), 2, "{log}");

    let snapshot = |name: &str, more: &[&str]| {
        let (code, out, talk) = dapo(&[&["regress", "--golden", &golden], more].concat());
        let folder = regex::escape(&golden);
        let filters = [
            (r"\d+(\.\d+)? s\b", "[seconds]"),
            (r"[0-9a-f]{64}", "[sha256]"),
            (folder.as_str(), "[golden]"),
            (r"/\S*/exact\b", "[new]"),
        ];
        insta::with_settings!({filters => filters}, {
            insta::assert_snapshot!(name, format!("{out}\nexit code {code}\n{talk}"));
        });
    };
    snapshot("passed", &[]);
    // A learning rate of its own fails both parts; a margin that was moved fails the second.
    play(
        scratch.path(),
        "echo optimizer.learning_rate = 2.00001e-4 | cat - tiny.toml > t; mv t tiny.toml",
    );
    snapshot("differs", &["--part", "exact"]);
    play(scratch.path(), include_str!("regress/changed.txt"));
}

#[test]
fn the_golden_curves_pass_their_own_rule_whose_margins_are_not_wide() {
    let golden = Golden::at(root().join("golden/runs"));
    let rule = rule::load(&golden.rule()).unwrap().fast;
    let curves = curves::load(&golden, &rule).unwrap();
    let judged = curves::compare(&golden, &rule, &curves, &curves).unwrap();
    assert_eq!(curves::verdict(&judged), equivalence::EquivalenceVerdict::Reproduced);
    for point in &rule.points {
        let values = curves.values_of(point).unwrap();
        let deviation = standard_error_of_mean(&values) * (values.len() as f64).sqrt();
        // The margin is no wider than four standard deviations of one run.
        assert!(point.margin < 4.0 * deviation, "{}: {deviation}", point.name());
    }
    // Curves of a policy that stopped learning after step 4 are not reproduced.
    let mut stopped = curves.clone();
    let accuracy = stopped.values.get_mut("rollout/accuracy").unwrap();
    accuracy.extend((5..=8).map(|step| (step, accuracy[&1].clone())).collect::<Vec<_>>());
    let judged = curves::compare(&golden, &rule, &curves, &stopped).unwrap();
    assert_eq!(curves::verdict(&judged), equivalence::EquivalenceVerdict::NotReproduced);
}
