//! `dapo regress`: golden runs in a folder of their own, and the changes that must fail it.

use crate::binary::{Output, dapo, failed, says, succeeded};
use crate::diff::tiny;
use crate::repository::root;
use dapo::base::files;
use dapo::experiment::Experiment;
use dapo::records::{RunFolder, tables};
use dapo::statistics::{equivalence, estimators::standard_error_of_mean};
use dapo::training::run::inputs::{self, Inputs};
use dapo::verification::regress::{self, curves, exact, rule};
use dapo::verification::{Golden, RunDiff};
use std::path::Path;
use std::process;

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
    exact::replace(&golden, &first).unwrap();
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
    let found = diff.first.unwrap();
    assert_eq!(found.step, 1);
    assert!(found.differing.contains(&"weights".to_string()), "{found:#?}");
    assert!(found.agreeing.contains(&"tokens".to_string()), "{found:#?}");

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
    let found = diff.first.unwrap();
    assert_eq!(found.step, 1);
    // The group is now all wrong, so another round of prompts is drawn: more than rewards differs.
    assert!(found.differing.contains(&"rewards".to_string()), "{found:#?}");
}

/// A repository with a rule, and nothing blessed.
fn repository(scratch: &Path) -> String {
    let task = root().join("experiments/own-task/own-task.toml");
    let experiment = format!(
        "name = \"tiny\"\nextends = {:?}\n[execution]\nthreads = 1\n[rollout]\nmax_response_tokens = 64\n\
         [training]\nrollout_steps = 1\n[evaluation]\nsamples = {{ dev = 1, test = 1 }}\n",
        task.display()
    );
    let rule = "[exact]\nexperiment = \"tiny.toml\"\n[fast]\nexperiment = \"tiny.toml\"\n\
                seeds = [2, 4]\nalpha = 0.05\n[[fast.points]]\nvalue = \"evaluation/dev\"\n\
                steps = [1, 1]\nmargin = 20.0\n";
    for (name, text) in [("tiny.toml", experiment.as_str()), ("rule.toml", rule)] {
        files::write_atomic(&scratch.join(name), text.as_bytes()).unwrap();
    }
    git(scratch, &["init", "-q"]);
    commit(scratch);
    scratch.display().to_string()
}

fn git(folder: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"];
    let output =
        process::Command::new("git").arg("-C").arg(folder).args(identity).args(arguments).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn commit(folder: &Path) {
    git(folder, &["add", "-A"]);
    git(folder, &["commit", "-q", "-m", "state"]);
}

fn regress(arguments: &[&str]) -> Output {
    dapo(&[&["regress"], arguments].concat())
}

#[test]
fn a_blessing_needs_a_reason_and_a_clean_tree_and_a_change_then_fails() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path();
    let name = repository(root);
    let golden = ["--golden", name.as_str()];
    let name_in_text = regex::escape(&name);
    let with = |more: &[&str]| regress(&[&golden[..], more].concat());

    failed(with(&[]), 3, "there is no golden run");
    assert_eq!(with(&["--bless"]).0, 2);
    failed(with(&["--bless", "--reason", " . "]), 3, "a reason");
    files::write_atomic(&root.join("new.txt"), b"").unwrap();
    failed(with(&["--bless", "--reason", "first"]), 3, "new.txt first: commit");
    files::remove_file(&root.join("new.txt")).unwrap();

    succeeded(with(&["--bless", "--reason", "the first | golden\nruns"]));
    let log = files::read_text(&root.join("LOG.md")).unwrap();
    assert!(log.contains("| the first \\| golden runs |\n"), "{log}");
    assert_eq!(log.matches("none → ").count(), 2, "{log}");

    let snapshot = |name: &str, (code, out, talk): Output| {
        let filters = [
            (r"\d+(\.\d+)? s\b", "[seconds]"),
            (r"[0-9a-f]{64}", "[sha256]"),
            (name_in_text.as_str(), "[golden]"),
            (r"/\S*/exact\b", "[new]"),
        ];
        insta::with_settings!({filters => filters}, {
            insta::assert_snapshot!(name, format!("{out}\nexit code {code}\n{talk}"));
        });
    };
    let passed = with(&[]);
    says(passed.clone(), 0, &["exact: same ledger, ", "fast: reproduced"]);
    snapshot("passed", passed);

    // A learning rate of its own fails both parts; a margin that was moved fails the second.
    let path = root.join("tiny.toml");
    let text = files::read_text(&path).unwrap();
    let moved = format!("{text}[optimizer]\nlearning_rate = 2.00001e-4\n");
    files::write_atomic(&path, moved.as_bytes()).unwrap();
    let first = "different: first at rollout step 1, component ";
    let rate = "optimizer.learning_rate  0.0002  0.000200001";
    let differs = with(&["--part", "exact"]);
    says(differs.clone(), 4, &[first, rate]);
    snapshot("differs", differs);
    failed(with(&["--part", "fast"]), 3, "the arm is not that of the golden curves");
    let path = root.join("rule.toml");
    let text = files::read_text(&path).unwrap().replace("20.0", "21.0");
    files::write_atomic(&path, text.as_bytes()).unwrap();
    failed(with(&["--part", "fast"]), 3, "the rule is not that of the golden curves");
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
    let before = accuracy[&1].clone();
    for step in 5..=8 {
        accuracy.insert(step, before.clone());
    }
    let judged = curves::compare(&golden, &rule, &curves, &stopped).unwrap();
    assert_eq!(curves::verdict(&judged), equivalence::EquivalenceVerdict::NotReproduced);
}
