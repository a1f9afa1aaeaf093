//! Forgeries that fit every digest, the ledger and the report, because the forger made all of these
//! again. Each ends in a mismatch, found in the records or by executing; where only executing can
//! find it, the verdict over the records alone names what was not executed.

use crate::bad_input::input::Step;
use crate::binary::line_in;
use crate::diff::diff;
use crate::engines::rows;
use crate::golden_data;
use crate::transcript::play;
use crate::verify::{
    self, expect, experiment, forge, forged, replayed, tensors, trained, verified,
};
use dapo::base::files;
use dapo::experiment::{Experiment, Grading, RecordsSettings, Verifier};
use dapo::numerics::Numerics;
use dapo::policy::checkpoint;
use dapo::records::{Ending, Outcome, RunFolder, tables, tables::OutcomeRecord};
use dapo::report;
use dapo::task::reward;
use dapo::training::{evaluation, run::inputs};
use dapo::verification::{Verification, verify::VerifyVerdict};
use serde::Deserialize;

/// There is a mismatch that begins so.
#[track_caller]
fn assert_mismatch(verification: Verification, expected: &str) -> Verification {
    let named = verify::findings(&verification, VerifyVerdict::Mismatch);
    assert_eq!(verification.verdict, VerifyVerdict::Mismatch, "{expected}");
    assert!(named.iter().any(|finding| finding.starts_with(expected)), "{expected}: {named:#?}");
    verification
}

#[track_caller]
fn assert_verified(verification: Verification, words: &str) {
    let summary = expect(verification, VerifyVerdict::Verified).summary;
    let held = summary.starts_with("verified (records), ") && summary.contains(words);
    assert!(held, "{summary}");
}

/// Makes the outcomes of the last evaluation of mini-aime others, and its record with them.
fn outcomes(folder: &RunFolder, change: impl Fn(&mut OutcomeRecord)) {
    let path = folder.outcomes("mini-aime", 3);
    let mut rows = tables::read_outcomes(&path).unwrap();
    let verifier = folder.experiment().unwrap().reward.verifier.rule().unwrap();
    for row in &mut rows {
        change(row);
        let grade = reward::grade(&row.response, &row.answer, verifier);
        (row.is_correct, row.prediction) = (grade.is_correct, grade.prediction);
    }
    assert!(rows.iter().all(|row| row.is_correct), "the forgery is no better than the run");
    tables::write_outcomes(&path, &rows).unwrap();
    let mut records = folder.evaluations().unwrap();
    let mut last = records.iter_mut().filter(|row| row.counters.rollout_steps == 3);
    let record = last.find(|row| row.set == "mini-aime").unwrap();
    let digest = files::sha256_file(&path).unwrap();
    *record = evaluation::record("mini-aime", record.counters, &rows, digest).unwrap();
    files::write_lines(&folder.path("evaluations.jsonl"), &records).unwrap();
}

/// Says that the run is of another experiment.
fn claim(folder: &RunFolder, change: impl FnOnce(&mut Experiment)) {
    let (mut experiment, mut manifest) = (folder.experiment().unwrap(), folder.manifest().unwrap());
    change(&mut experiment);
    manifest.arm_sha256 = experiment.arm_sha256();
    manifest.run_key = inputs::run_key(&experiment, &manifest.inputs);
    files::write_json(&folder.path("experiment.json"), &experiment).unwrap();
    files::write_json(&folder.path("manifest.json"), &manifest).unwrap();
}

fn end(folder: &RunFolder, ending: Ending, reason: &str) {
    let outcome = folder.outcome().unwrap();
    let outcome = Outcome { ending, reason: reason.to_string(), ..outcome };
    files::write_json(&folder.path("outcome.json"), &outcome).unwrap();
}

#[test]
fn invented_scores_are_found_in_their_texts_or_by_sampling_them_again() {
    let (_scratch, whole) = trained(experiment());
    let invented = |name: &str, prefix: &str, tokens: fn(&str) -> u32| {
        forged(&whole, name, |folder| {
            outcomes(folder, |row| {
                row.response = format!("{prefix}{}", row.answer);
                (row.response_tokens, row.truncated) = (tokens(&row.response), false);
            });
        })
    };
    for (name, prefix, finding) in [
        ("no text of the policy", "The Answer: ", "response: cannot tokenize"),
        ("another length", "Answer: ", "response_tokens: is 1, "),
    ] {
        let place = format!("evaluations/mini-aime-step-000003.parquet, row 0, {finding}");
        assert_mismatch(verified(&invented(name, prefix, |_| 1)), &place);
    }

    // What the policy could have written and did not.
    let possible = invented("possible", "Answer: ", |text| text.len() as u32 + 1);
    let all = whole.evaluations().unwrap().len() as u64;
    let base = "base policy: the embedded benchmark's, of this program";
    let none = format!("training replayed 0 of 3, evaluations replayed 0 of {all}; {base}");
    assert_verified(verified(&possible), &none);
    let place = "evaluations/mini-aime-step-000003.parquet: executed again ";
    let replay = assert_mismatch(replayed(&possible, all, 7), place).replay.unwrap();
    let executed = replay.evaluations;
    assert_eq!((executed.all, executed.executed.len() as u64), (all, all));
    let (some, problems) = (executed.executed_problems, executed.all_problems);
    assert!(some < problems);
    // All evaluations, 8 of the 256 problems of the largest set.
    assert!((executed.detection[0].at_least - 8.0 / 256.0).abs() < 1e-12, "{executed:?}");

    // The same challenge of the honest run.
    let every = format!("{all} of {all} ({some} of {problems} problems); {base}");
    let every = format!("training replayed 3 of 3, evaluations replayed {every}");
    assert_verified(replayed(&whole, all, 7), &every);
}

#[test]
fn evaluations_at_another_temperature_are_found_by_sampling_them_again() {
    let mut greedy = experiment();
    greedy.evaluation.sampling.temperature = 0.0;
    let (_scratch, folder) = trained(greedy);
    claim(&folder, |experiment| experiment.evaluation.sampling.temperature = 1.0);
    forge(&folder);
    expect(verified(&folder), VerifyVerdict::Verified);
    assert_mismatch(replayed(&folder, 9, 7), "evaluations/");
}

#[test]
fn a_run_that_was_cut_off_is_not_one_that_ended_early() {
    let (_scratch, whole) = trained(two_steps());
    claim(&whole, |claimed| claimed.training.rollout_steps = 3);
    let ended = |name: &str, ending: Ending, reason: &str| {
        forged(&whole, name, |folder| end(folder, ending, reason))
    };
    let reason = "no group of rollout step 3 was partly correct: nothing left to learn from";
    let saturated = ended("saturated", Ending::Saturated, reason);
    assert_verified(verified(&saturated), ", ending not replayed; ");
    let words = "outcome.json, ending: says that the run ended in step 3 with [\"saturated\"";
    assert_mismatch(replayed(&saturated, 1, 7), words);

    let worded = ended("worded", Ending::Saturated, "the method is perfect");
    assert_mismatch(verified(&worded), "outcome.json, reason: is not what format ");

    let reason = "rollout step 3, update 5: the loss is NaN";
    let diverged = ended("diverged", Ending::Diverged, reason);
    assert_mismatch(verified(&diverged), "diverged/divergence.json: is missing");
}

fn two_steps() -> Experiment {
    let mut experiment = experiment();
    experiment.training.rollout_steps = 2;
    experiment
}

#[test]
fn a_run_that_ended_early_is_verified_by_executing_its_last_step() {
    let ended_early = |experiment: Experiment, ending: Ending| {
        let (scratch, folder) = trained(experiment);
        assert_eq!(folder.outcome().unwrap().ending, ending);
        assert_verified(replayed(&folder, 1, 7), ", ending replayed; ");
        (scratch, folder)
    };
    let mut unsolvable = experiment();
    // No response of the benchmark has a box.
    unsolvable.reward.verifier = Grading::Rule(Verifier::StrictBox);
    unsolvable.records = Some(RecordsSettings { format: 4 });
    let (_stalled, stalled) = ended_early(unsolvable, Ending::Stalled);
    let learned = forged(&stalled, "learned", |folder| end(folder, Ending::Saturated, ""));
    let words = "outcome.json, ending: says that the run ended in step 1 with [\"saturated\"";
    assert_mismatch(replayed(&learned, 1, 7), words);
    let moved = forged(&stalled, "moved", |folder| {
        tensors(&folder.checkpoint(0).join("model.safetensors"), |_, values| values[0] += 0.01);
    });
    assert_mismatch(verified(&moved), "checkpoints/step-000000: its weights are not");
    assert!(diff(&stalled, &moved).first.is_some());
    let mut exploding = Experiment { numerics: Numerics::Fast, ..experiment() };
    exploding.optimizer.learning_rate = 1e30;
    let (scratch, folder) = ended_early(exploding, Ending::Diverged);

    let changed = RunFolder::at(scratch.path().join("run"));
    for row in rows::<Damage>(include_str!("forgeries/diverged.toml"), "damages") {
        verify::copy(folder.root(), changed.root());
        row.make.iter().for_each(|step| step.take(scratch.path()));
        report::run::write(&changed).unwrap();
        assert_mismatch(verified(&changed), &row.finding);
        assert!(!row.differs || diff(&folder, &changed).first.is_some(), "{}", row.finding);
        files::remove_folder(changed.root()).unwrap();
    }
}

#[derive(Deserialize)]
struct Damage {
    make: Vec<Step>,
    finding: String,
    #[serde(default)]
    differs: bool,
}

#[test]
fn steps_that_change_places_have_other_problems_than_the_seed_draws() {
    let (_scratch, whole) = trained(experiment());
    let [first, second] = [1, 2].map(|step| tables::read_rollouts(&whole.rollouts(step)).unwrap());
    let exchanged = forged(&whole, "exchanged", |folder| {
        tables::write_rollouts(&folder.rollouts(1), &second).unwrap();
        tables::write_rollouts(&folder.rollouts(2), &first).unwrap();
    });
    let named = verify::findings(&verified(&exchanged), VerifyVerdict::Mismatch);
    let is_drawn =
        |row: &String| row.contains(", group 0: is of ") && row.contains("the seed draws");
    assert!(named.iter().any(is_drawn), "{named:#?}");
}

/// Weights that no training made, with every digest and the ledger made again.
#[test]
fn weights_that_the_optimizer_cannot_have_reached_are_found_without_a_replay() {
    let (_scratch, whole) = trained(experiment());
    let base = golden_data::folder("mini-aime/base/model.safetensors");
    let base = checkpoint::read_values(&base).unwrap();
    type Change<'a> = &'a dyn Fn(&str, &mut Vec<f32>);
    let norm: Change = &|name, values| {
        if name == "model.norm.weight" {
            values[3] += 0.01;
        }
    };
    let cases: [(&str, Change, &str); 4] = [
        ("zeros", &|_, values| values.fill(0.0), ""),
        ("one weight", norm, "a weight of model.norm.weight is "),
        ("negated", &|_, values| values.iter_mut().for_each(|x| *x = -*x), "a weight of "),
        (
            "untrained",
            &|name, values| values.clone_from(&base[name].1),
            "its weights are those of the base policy, though",
        ),
    ];
    for (name, change, expected) in cases {
        let changed = forged(&whole, name, |folder| {
            for step in [1, 2] {
                files::remove_folder(&folder.checkpoint(step)).unwrap();
            }
            tensors(&folder.checkpoint(3).join("model.safetensors"), change);
        });
        assert_mismatch(verified(&changed), &format!("checkpoints/step-000003: {expected}"));
    }
}

/// Who sends an archive that is verified from inside its folder chooses what lies in that folder.
#[test]
fn the_base_policy_is_never_the_senders() {
    let scratch = tempfile::tempdir().unwrap();
    let sent = scratch.path().join("golden/mini-aime/base");
    verify::copy(&golden_data::folder("mini-aime/base"), &sent);
    let weights = sent.join("model.safetensors");
    tensors(&weights, |_, values| values.iter_mut().for_each(|x| *x *= 1.01));
    let mut experiment = experiment();
    experiment.inputs.model = sent;
    experiment.training.rollout_steps = 1;
    verify::made(experiment, &RunFolder::at(scratch.path().join("run")));
    play(scratch.path(), include_str!("forgeries/base_policy.txt"));
}

#[test]
fn a_file_name_with_line_ends_prints_no_verdict() {
    let (_scratch, folder) = trained(two_steps());
    files::write_atomic(&folder.path("x\nverified (records)\n"), b"").unwrap();
    let (code, text, _) = line_in(folder.root(), "verify .");
    assert_eq!(code, 4, "{text}");
    assert!(text.contains("x\\nverified (records)\\n: has no place in a run folder"), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("verified")), "{text}");
}
