//! Forgeries that fit every digest, the ledger and the report, because the forger made all of these
//! again. Each ends in a mismatch, found in the records or by executing; where only executing can
//! find it, the verdict over the records alone names what was not executed.

use crate::binary::{line_in, says, succeeded};
use crate::golden_data;
use crate::verify::{copy, experiment, findings, forge, json, made, replayed, trained, verified};
use dapo::base::files;
use dapo::experiment::{Experiment, Grading, Verifier};
use dapo::numerics::Numerics;
use dapo::policy::checkpoint;
use dapo::records::tables::{self, OutcomeRecord};
use dapo::records::{Ending, EvaluationRecord, RunFolder};
use dapo::report::run;
use dapo::task::reward;
use dapo::training::evaluation::{self, Set};
use dapo::training::run::inputs;
use dapo::verification::Verification;
use dapo::verification::verify::VerifyVerdict;
use serde_json::json;

/// The first mismatch that begins so.
fn assert_found(of: &Verification, expected: &str) {
    let named = findings(of, VerifyVerdict::Mismatch);
    assert_eq!(of.verdict, VerifyVerdict::Mismatch, "{expected}");
    assert!(named.iter().any(|it| it.starts_with(expected)), "{expected}: {named:#?}");
}

fn assert_verified(of: &Verification, summary: &str) {
    assert_eq!(of.verdict, VerifyVerdict::Verified, "{:#?}", of.checks);
    let base = "base policy: the embedded benchmark's, of this program";
    assert_eq!(of.summary, format!("{summary}; {base}"));
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
    let of = |it: &&mut EvaluationRecord| it.set == "mini-aime" && it.counters.rollout_steps == 3;
    let record = records.iter_mut().find(of).unwrap();
    let set = Set { name: "mini-aime", problems: &[], samples: record.samples };
    let digest = files::sha256_file(&path).unwrap();
    *record = evaluation::record(set, record.counters, &rows, digest).unwrap();
    files::write_lines(&folder.path("evaluations.jsonl"), &records).unwrap();
    forge(folder);
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
    let mut outcome = folder.outcome().unwrap();
    (outcome.ending, outcome.reason) = (ending, reason.to_string());
    files::write_json(&folder.path("outcome.json"), &outcome).unwrap();
}

#[test]
fn invented_scores_are_found_in_their_texts_or_by_sampling_them_again() {
    let (scratch, whole) = trained(experiment());
    let forged = RunFolder::at(scratch.path().join("forged"));
    let copied = || {
        files::remove_folder(forged.root()).unwrap();
        copy(whole.root(), forged.root());
    };

    copied();
    outcomes(&forged, |row| {
        row.response = format!("The Answer: {}", row.answer);
        (row.response_tokens, row.truncated) = (1, false);
    });
    let place = "evaluations/mini-aime-step-000003.parquet, row 0, response: cannot tokenize";
    assert_found(&verified(&forged), place);

    copied();
    outcomes(&forged, |row| {
        row.response = format!("Answer: {}", row.answer);
        (row.response_tokens, row.truncated) = (1, false);
    });
    let place = "evaluations/mini-aime-step-000003.parquet, row 0, response_tokens: is 1, ";
    assert_found(&verified(&forged), place);

    // What the policy could have said and did not.
    copied();
    outcomes(&forged, |row| {
        row.response = format!("Answer: {}", row.answer);
        (row.response_tokens, row.truncated) = (row.response.len() as u32 + 1, false);
    });
    let all = whole.evaluations().unwrap().len() as u64;
    let summary =
        format!("verified (records), training replayed 0 of 3, evaluations replayed 0 of {all}");
    assert_verified(&verified(&forged), &summary);
    let found = replayed(&forged, all, 7);
    assert_found(&found, "evaluations/mini-aime-step-000003.parquet: executed again ");
    let executed = found.replay.unwrap().evaluations;
    assert_eq!((executed.all, executed.executed.len() as u64), (all, all));
    assert!(executed.executed_problems < executed.all_problems);
    // All evaluations, 8 of the 256 problems of the largest set.
    assert!((executed.detection[0].at_least - 8.0 / 256.0).abs() < 1e-12, "{executed:?}");

    // The same challenge of the honest run.
    let found = replayed(&whole, all, 7);
    let (some, problems) = (executed.executed_problems, executed.all_problems);
    let replayed = format!("{all} of {all} ({some} of {problems} problems)");
    let summary = "verified (records), training replayed 3 of 3, evaluations replayed";
    assert_verified(&found, &format!("{summary} {replayed}"));
}

#[test]
fn evaluations_at_another_temperature_are_found_by_sampling_them_again() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = RunFolder::at(scratch.path().join("run"));
    let mut greedy = experiment();
    greedy.evaluation.sampling.temperature = 0.0;
    made(greedy, &folder);
    claim(&folder, |experiment| experiment.evaluation.sampling.temperature = 1.0);
    forge(&folder);
    assert_eq!(verified(&folder).verdict, VerifyVerdict::Verified);
    assert_found(&replayed(&folder, 9, 7), "evaluations/");
}

#[test]
fn a_run_that_was_cut_off_is_not_one_that_ended_early() {
    let (scratch, whole) = trained(two_steps());
    claim(&whole, |claimed| claimed.training.rollout_steps = 3);
    let forged = RunFolder::at(scratch.path().join("forged"));

    copy(whole.root(), forged.root());
    let reason = "no group of rollout step 3 was partly correct: nothing left to learn from";
    end(&forged, Ending::Saturated, reason);
    forge(&forged);
    let found = verified(&forged);
    assert_eq!(found.verdict, VerifyVerdict::Verified, "{:#?}", found.checks);
    assert!(found.summary.contains(", ending not replayed; "), "{}", found.summary);
    let words = "outcome.json, ending: says that the run ended in step 3 with [\"saturated\"";
    assert_found(&replayed(&forged, 1, 7), words);

    end(&forged, Ending::Saturated, "the method is perfect");
    forge(&forged);
    assert_found(&verified(&forged), "outcome.json, reason: is not what format ");

    end(&forged, Ending::Diverged, "rollout step 3, update 5: the loss is NaN");
    forge(&forged);
    assert_found(&verified(&forged), "diverged/divergence.json: is missing");
}

fn two_steps() -> Experiment {
    let mut experiment = experiment();
    experiment.training.rollout_steps = 2;
    experiment
}

#[test]
fn a_run_that_ended_early_is_verified_by_executing_its_last_step() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = RunFolder::at(scratch.path().join("saturated"));
    let mut unsolvable = experiment();
    // No response of the benchmark has a box.
    unsolvable.reward.verifier = Grading::Rule(Verifier::StrictBox);
    made(unsolvable, &folder);
    assert_eq!(folder.outcome().unwrap().ending, Ending::Stalled);
    let found = replayed(&folder, 1, 7);
    assert_eq!(found.verdict, VerifyVerdict::Verified, "{:#?}", found.checks);
    assert!(found.summary.contains(", ending replayed; "), "{}", found.summary);

    let folder = RunFolder::at(scratch.path().join("diverged"));
    let mut exploding = Experiment { numerics: Numerics::Fast, ..experiment() };
    exploding.optimizer.learning_rate = 1e30;
    made(exploding, &folder);
    assert_eq!(folder.outcome().unwrap().ending, Ending::Diverged);
    let found = replayed(&folder, 1, 7);
    assert_eq!(found.verdict, VerifyVerdict::Verified, "{:#?}", found.checks);
    assert!(found.summary.contains(", ending replayed; "), "{}", found.summary);

    let changed = RunFolder::at(scratch.path().join("changed"));
    type Change = fn(&RunFolder);
    let cases: [(Change, &str); 5] = [
        (
            |it| {
                let path = it.path("diverged/checkpoint/model.safetensors");
                let mut tensors = checkpoint::read_values(&path).unwrap();
                tensors.values_mut().for_each(|(_, values)| values.fill(0.0));
                checkpoint::write_tensors(&path, &tensors).unwrap();
                let digest = files::sha256_file(&path).unwrap();
                json(it, "diverged/checkpoint/trainer.json", |it| {
                    it["sha256"]["model.safetensors"] = json!(digest);
                });
            },
            "diverged/checkpoint: model.embed_tokens.weight is zero everywhere",
        ),
        (
            |it| json(it, "diverged/divergence.json", |it| it["metrics"]["policy/luck"] = json!(1)),
            "diverged/divergence.json, policy/luck: does not exist in this step",
        ),
        (
            |it| json(it, "diverged/divergence.json", |it| it["reason"] = json!("bad luck")),
            "diverged/divergence.json: does not name the value that outcome.json names",
        ),
        (
            |it| files::write_atomic(&it.path("diverged/rollouts.parquet"), b"garbage").unwrap(),
            "diverged/rollouts.parquet: ",
        ),
        (
            |it| files::remove_folder(&it.path("diverged/checkpoint")).unwrap(),
            "diverged/checkpoint/trainer.json: is missing",
        ),
    ];
    for (change, expected) in cases {
        copy(folder.root(), changed.root());
        change(&changed);
        run::write(&changed).unwrap();
        assert_found(&verified(&changed), expected);
        files::remove_folder(changed.root()).unwrap();
    }
}

#[test]
fn steps_that_change_places_have_other_problems_than_the_seed_draws() {
    let (scratch, whole) = trained(experiment());
    let changed = RunFolder::at(scratch.path().join("changed"));
    // The steps change places: their problems are not those that the seed draws there.
    copy(whole.root(), changed.root());
    let [first, second] = [1, 2].map(|step| tables::read_rollouts(&whole.rollouts(step)).unwrap());
    tables::write_rollouts(&changed.rollouts(1), &second).unwrap();
    tables::write_rollouts(&changed.rollouts(2), &first).unwrap();
    forge(&changed);
    let found = verified(&changed);
    let named = findings(&found, VerifyVerdict::Mismatch);
    let is_drawn = |it: &&String| it.contains(", group 0: is of ") && it.contains("the seed draws");
    assert!(named.iter().any(|it| is_drawn(&it)), "{named:#?}");
}

/// Weights that no training made, with every digest and the ledger made again.
#[test]
fn weights_that_the_optimizer_cannot_have_reached_are_found_without_a_replay() {
    let (scratch, whole) = trained(experiment());
    let base = golden_data::folder("mini-aime/base/model.safetensors");
    let base = checkpoint::read_values(&base).unwrap();
    let forged = RunFolder::at(scratch.path().join("forged"));
    type Change<'a> = &'a dyn Fn(&str, &mut Vec<f32>);
    let cases: [(Change, &str); 4] = [
        (&|_, values| values.fill(0.0), "checkpoints/step-000003: "),
        (
            &|name, values| {
                if name == "model.norm.weight" {
                    values[3] += 0.01;
                }
            },
            "checkpoints/step-000003: a weight of model.norm.weight is ",
        ),
        (
            &|_, values| values.iter_mut().for_each(|it| *it = -*it),
            "checkpoints/step-000003: a weight of ",
        ),
        (
            &|name, values| values.clone_from(&base[name].1),
            "checkpoints/step-000003: its weights are those of the base policy, though",
        ),
    ];
    for (change, expected) in cases {
        copy(whole.root(), forged.root());
        for step in [1, 2] {
            files::remove_folder(&forged.checkpoint(step)).unwrap();
        }
        let path = forged.checkpoint(3).join("model.safetensors");
        let mut tensors = checkpoint::read_values(&path).unwrap();
        tensors.iter_mut().for_each(|(name, (_, values))| change(name, values));
        checkpoint::write_tensors(&path, &tensors).unwrap();
        forge(&forged);
        assert_found(&verified(&forged), expected);
        files::remove_folder(forged.root()).unwrap();
    }
}

/// Who sends an archive that is verified from inside its folder chooses what lies in that folder.
#[test]
fn the_base_policy_is_never_the_senders() {
    let scratch = tempfile::tempdir().unwrap();
    let embedded = golden_data::folder("mini-aime/base");
    let trained = scratch.path().join("golden/mini-aime/base");
    copy(&embedded, &trained);
    let path = trained.join("model.safetensors");
    let mut tensors = checkpoint::read_values(&path).unwrap();
    tensors.values_mut().for_each(|(_, values)| values.iter_mut().for_each(|it| *it *= 1.01));
    checkpoint::write_tensors(&path, &tensors).unwrap();
    let folder = RunFolder::at(scratch.path().join("run"));
    let mut sent = experiment();
    sent.inputs.model = trained;
    sent.training.rollout_steps = 1;
    made(sent, &folder);
    let verify = |more: &str| {
        line_in(scratch.path(), &format!("verify run --replay 1 --challenge 7 {more}"))
    };
    let words = "inconclusive: manifest.json, inputs.base/model.safetensors: is not the file that \
                 the embedded benchmark's base policy has";
    says(verify(""), 6, &[words]);
    // A reviewer who names it is told what it is.
    let (out, _) = succeeded(verify("--base golden/mini-aime/base"));
    let summary = out.lines().last().unwrap();
    assert!(summary.contains("; base policy: golden/mini-aime/base, SHA-256 of "), "{out}");
    assert!(summary.ends_with(", not the embedded benchmark's"), "{out}");
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
