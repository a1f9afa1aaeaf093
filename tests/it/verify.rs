//! `dapo verify` of runs: what a replay alone finds, what is inconclusive, and what holds up a reader.
//! The ways of tampering stand in `bad_input/tampered_runs.toml`.

use crate::repository::{self, FEW_PROBLEMS};
use dapo::algorithm::Problem;
use dapo::base::{files, workers};
use dapo::experiment::{Data, Experiment, MiniAimeVariant, WeightKind};
use dapo::numerics::Numerics;
use dapo::policy::{Loaded, checkpoint};
use dapo::records::{
    RolloutRow, RunFolder, Tensors, ledger, ledger::Kind, ledger::LedgerEntry, tables,
};
use dapo::report;
use dapo::task::data::{self, embedded::mini_aime};
use dapo::training::run::{self, RunEvent, inputs, inputs::Inputs};
use dapo::training::{RunEnded, TrainingError, Unfinished};
use dapo::verification::verify::{self, Options, VerifyVerdict};
use dapo::verification::{Verification, verify::replay::ReplayRequest};
use serde_json::{Value, json};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Three short steps with refills and carried groups, and a checkpoint after each.
pub fn experiment() -> Experiment {
    repository::experiment(
        "smoke.toml",
        r#"rollout.max_response_tokens=64 training.rollout_steps=3 training.prompts_per_step=4
           training.mini_batch_rollouts=8 checkpoints.keep_last=3 evaluation.samples.mini-aime=1
           dapo.dynamic_sampling={kind="resample",max_rounds=6,at_cap="train",surplus="carry"}"#,
    )
}

/// A run of an experiment with its report, in a folder of its own.
pub fn trained(experiment: Experiment) -> (tempfile::TempDir, RunFolder) {
    let scratch = tempfile::tempdir().unwrap();
    let folder = RunFolder::at(scratch.path().join("trained"));
    made(experiment, &folder);
    (scratch, folder)
}

/// A run of an experiment with its report.
pub fn made(experiment: Experiment, folder: &RunFolder) {
    // As the binary does: under fast arithmetic threads can change bits.
    workers::set_count(1);
    let inputs = inputs::prepare(experiment).unwrap();
    run::run(&inputs, folder, Unfinished::Refuse, &|| false, &mut |_| ()).unwrap();
    report::run::write(folder).unwrap();
}

/// A session of a run that is asked to stop after so many rollout steps in all.
pub fn session(
    inputs: &Inputs,
    folder: &RunFolder,
    unfinished: Unfinished,
    steps: u64,
) -> Result<RunEnded, TrainingError> {
    let done = Cell::new(0);
    run::run(inputs, folder, unfinished, &|| done.get() >= steps, &mut |event| {
        if let RunEvent::Step(metrics, _) = event {
            done.set(metrics.step);
        }
    })
}

#[expect(clippy::disallowed_methods, reason = "a copy need not be on the disk")]
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for name in files::list(from).unwrap() {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            std::fs::copy(&from, &to).unwrap();
        }
    }
}

/// A run on generated data, or on the few problems of these tests.
pub fn verified(folder: &RunFolder) -> Verification {
    let options = Options { data: Some(FEW_PROBLEMS.into()), ..Options::default() };
    verify::verify(folder, &options, &mut |_| ()).unwrap()
}

pub fn replayed(folder: &RunFolder, steps: u64, seed: u64) -> Verification {
    replayed_with(
        folder,
        Some(FEW_PROBLEMS.into()),
        ReplayRequest { steps, problems: 8, challenge: seed },
    )
}

fn replayed_with(run: &RunFolder, data: Option<PathBuf>, asked: ReplayRequest) -> Verification {
    let options = Options { data, replay: Some(asked), ..Options::default() };
    verify::verify(run, &options, &mut |_| ()).unwrap()
}

/// The verification, which has this verdict.
#[track_caller]
pub fn expect(verification: Verification, verdict: VerifyVerdict) -> Verification {
    assert_eq!(verification.verdict, verdict, "{verification:#?}");
    verification
}

/// `place: what` of every finding of a verdict.
pub fn findings(of: &Verification, verdict: VerifyVerdict) -> Vec<String> {
    let all = of.checks.iter().flat_map(|check| &check.findings);
    let chosen = all.filter(|finding| finding.verdict == verdict);
    chosen.map(|finding| format!("{}: {}", finding.place, finding.what)).collect()
}

/// A copy of a run beside it, forged.
pub fn forged(whole: &RunFolder, name: &str, change: impl FnOnce(&RunFolder)) -> RunFolder {
    let folder = RunFolder::at(whole.root().with_file_name(name));
    copy(whole.root(), folder.root());
    change(&folder);
    forge(&folder);
    folder
}

/// What a forger does after a change: every digest, the ledger and the report are made again.
/// What only the trainer knows stays as it was.
pub fn forge(folder: &RunFolder) {
    for step in folder.checkpoint_steps().unwrap() {
        digest_again(&folder.checkpoint(step));
    }
    let metrics = folder.metrics().unwrap();
    let genesis = ledger::genesis(&folder.manifest().unwrap(), &folder.experiment().unwrap());
    let mut chain = vec![genesis];
    for (line, old) in metrics.iter().zip(folder.ledger().unwrap().into_iter().skip(1)) {
        let mut components = old.components;
        components
            .extend(ledger::rollouts(&tables::read_rollouts(&folder.rollouts(line.step)).unwrap()));
        components.insert("metrics".to_string(), ledger::metrics(line));
        if let Ok(Loaded { model, optimizer: state, .. }) =
            checkpoint::load(&folder.checkpoint(line.step))
        {
            let weights = checkpoint::values(&model).into_iter();
            let weights: Tensors = weights.map(|(name, (_, values))| (name, values)).collect();
            let moments = [&state.first_moments, &state.second_moments];
            let moments = ledger::moments(state.updates, moments);
            components.insert("weights".to_string(), ledger::tensors(&weights));
            components.insert("moments".to_string(), moments);
        }
        let head = chain.last().unwrap().head.clone();
        chain.push(LedgerEntry::after(&head, Kind::RolloutStep, line.step, components));
    }
    let mut outcome = folder.outcome().unwrap();
    let end = ledger::end(&folder.evaluations().unwrap(), &outcome);
    let head = chain.last().unwrap().head.clone();
    chain.push(LedgerEntry::after(&head, Kind::End, metrics.len() as u64, end));
    files::write_lines(&folder.path(ledger::FILE), &chain).unwrap();
    outcome.digests = folder.digests().unwrap();
    files::write_json(&folder.path("outcome.json"), &outcome).unwrap();
    report::run::write(folder).unwrap();
}

fn digest_again(checkpoint: &Path) {
    let mut record: Value = files::read_json(&checkpoint.join("trainer.json")).unwrap();
    for (name, digest) in record["sha256"].as_object_mut().unwrap() {
        *digest = json!(files::sha256_file(&checkpoint.join(name)).unwrap());
    }
    files::write_json(&checkpoint.join("trainer.json"), &record).unwrap();
}

/// A finished run with its report, which is made once.
pub fn finished_once() -> &'static Path {
    static MADE: OnceLock<(tempfile::TempDir, RunFolder)> = OnceLock::new();
    MADE.get_or_init(|| trained(experiment())).1.root()
}

/// What can be done to a run that no edit of its text files does.
pub fn tamper(folder: &RunFolder, what: &str) {
    match what {
        "two rollouts swapped" => rollouts(folder, 1, |rows| {
            // Two samples may be the same text: swapping those changes nothing.
            let differs = |row: &RolloutRow| row.tokens != rows[0].tokens;
            let other = rows.iter().position(differs).unwrap();
            let (a, b) = (rows[0].clone(), rows[other].clone());
            assert_eq!(a.group, b.group);
            rows[0] = RolloutRow { sample: a.sample, ..b.clone() };
            rows[other] = RolloutRow { sample: b.sample, ..a };
        }),
        // A wrong response becomes a correct one in every column but the text.
        "a changed reward" => rollouts(folder, 2, |rows| {
            let row = rows.iter_mut().find(|row| !row.is_correct).unwrap();
            (row.is_correct, row.correctness_reward) = (true, 1.0);
            row.reward = 1.0 + row.overlong_penalty;
        }),
        "a changed response" => {
            rollouts(folder, 1, |rows| rows[0].response = "Answer: 1".to_string());
        }
        "a changed advantage" => rollouts(folder, 1, |rows| {
            rows.iter_mut().find(|row| row.trained).unwrap().advantage += 1e-9;
        }),
        "a group kept that has no gradient" => rollouts(folder, 1, |rows| {
            let group = rows.iter().find(|row| !row.trained).unwrap().group;
            rows.iter_mut().filter(|row| row.group == group).for_each(|row| row.trained = true);
        }),
        "an easier problem" => rollouts(folder, 1, |rows| {
            rows.iter_mut().take(4).for_each(|row| row.answer = "0".into());
        }),
        "a changed outcome" => {
            let path = folder.outcomes("mini-aime", 3);
            let mut rows = tables::read_outcomes(&path).unwrap();
            rows[0].is_correct = !rows[0].is_correct;
            tables::write_outcomes(&path, &rows).unwrap();
            let mut records = folder.evaluations().unwrap();
            let mut last = records.iter_mut().filter(|row| row.counters.rollout_steps == 3);
            let record = last.find(|row| row.set == "mini-aime").unwrap();
            record.outcomes_sha256 = files::sha256_file(&path).unwrap();
            files::write_lines(&folder.path("evaluations.jsonl"), &records).unwrap();
        }
        "a run key of its inputs" => {
            let mut manifest = folder.manifest().unwrap();
            manifest.run_key = inputs::run_key(&folder.experiment().unwrap(), &manifest.inputs);
            files::write_json(&folder.path("manifest.json"), &manifest).unwrap();
        }
        "a diverged policy of zeros" => {
            let checkpoint = folder.path("diverged/checkpoint");
            tensors(&checkpoint.join("model.safetensors"), |_, values| values.fill(0.0));
            digest_again(&checkpoint);
        }
        _ => panic!("{what:?} is no way of tampering"),
    }
}

pub fn rollouts(folder: &RunFolder, step: u64, change: impl FnOnce(&mut Vec<RolloutRow>)) {
    let mut rows = tables::read_rollouts(&folder.rollouts(step)).unwrap();
    change(&mut rows);
    tables::write_rollouts(&folder.rollouts(step), &rows).unwrap();
}

/// Changes the tensors of a file.
pub fn tensors(path: &Path, change: impl Fn(&str, &mut Vec<f32>)) {
    let mut tensors = checkpoint::read_values(path).unwrap();
    tensors.iter_mut().for_each(|(name, (_, values))| change(name, values));
    checkpoint::write_tensors(path, &tensors).unwrap();
}

/// Flips the lowest bit of the last value of a file of tensors.
pub fn flip(path: &Path) {
    let mut bytes = files::read(path).unwrap();
    let last = bytes.len() - 4;
    bytes[last] ^= 1;
    files::write_atomic(path, &bytes).unwrap();
}

pub fn weight(folder: &RunFolder, step: u64) {
    flip(&folder.checkpoint(step).join("model.safetensors"));
}

/// Says that a run was made on another processor.
fn move_elsewhere(folder: &RunFolder) {
    let mut environment = folder.environment().unwrap();
    environment.facts.insert("cpu".to_string(), "another".to_string());
    files::write_json(&folder.path("environment.json"), &environment).unwrap();
    report::run::write(folder).unwrap();
}

#[test]
fn a_replaced_checkpoint_whose_digests_and_ledger_were_made_again_is_caught_by_replay_alone() {
    let (_scratch, whole) = trained(experiment());
    // Every step, executed again, has the bits of the run.
    let replay = expect(replayed(&whole, 9, 7), VerifyVerdict::Verified).replay.unwrap();
    assert_eq!((replay.picked, replay.covered), (vec![1, 2, 3], vec![1, 2, 3]));
    assert!(replay.detection.iter().all(|row| row.at_least == 1.0 && row.uniform == 1.0));

    // Making every digest again changes nothing by itself.
    let untouched = forged(&whole, "untouched", |_| ());
    assert_eq!(untouched.digests().unwrap(), whole.digests().unwrap());

    let replaced = forged(&whole, "replaced", |folder| weight(folder, 3));
    expect(verified(&replaced), VerifyVerdict::Verified);
    let replay = expect(replayed(&replaced, 3, 7), VerifyVerdict::Mismatch);
    let only = "step 3, component weights: executed again it differs in weights";
    assert_eq!(findings(&replay, VerifyVerdict::Mismatch), [only], "{replay:#?}");

    // Rollouts that fit each other and were never sampled.
    let swapped = forged(&whole, "swapped", |folder| tamper(folder, "two rollouts swapped"));
    expect(verified(&swapped), VerifyVerdict::Verified);
    let named = findings(&replayed(&swapped, 3, 7), VerifyVerdict::Mismatch);
    assert!(named[0].starts_with("step 1, component tokens: "), "{named:?}");
    assert!(named[0].contains("first in row 0 (problem "), "{named:?}");

    // Exact arithmetic has no other machine: a difference is one, wherever the run was made.
    move_elsewhere(&replaced);
    expect(replayed(&replaced, 3, 7), VerifyVerdict::Mismatch);
}

#[test]
fn a_replay_that_differs_on_another_machine_is_inconclusive_only_where_libtorch_computes() {
    let elsewhere = |weights: WeightKind, verdict: VerifyVerdict| {
        let mut fast = Experiment { numerics: Numerics::Fast, ..experiment() };
        fast.execution.weights = Some(weights);
        let (_scratch, folder) = trained(fast);
        weight(&folder, 3);
        forge(&folder);
        expect(replayed(&folder, 3, 7), VerifyVerdict::Mismatch);
        move_elsewhere(&folder);
        findings(&expect(replayed(&folder, 3, 7), verdict), verdict)
    };
    elsewhere(WeightKind::F32, VerifyVerdict::Mismatch);
    let named = elsewhere(WeightKind::Bf16, VerifyVerdict::Inconclusive);
    assert!(named[0].contains("the run was made elsewhere (cpu)"), "{named:?}");
}

#[test]
fn problem_files_are_read_below_the_reviewers_folder_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let there = scratch.path().join("there");
    let mut sets = mini_aime::generate(MiniAimeVariant::Standard);
    sets.train.truncate(400);
    let write = |name: &str, problems: &[Problem]| {
        let path = there.join(format!("{name}.parquet"));
        data::write(&path, problems, false).unwrap();
        path
    };
    let (train, dev) = (write("sets/train", &sets.train), write("sets/dev", &sets.dev));
    let test = sets.tests.iter().map(|(name, problems)| write(name, problems)).collect();
    let mut experiment = experiment();
    experiment.inputs.data = Data::Files { train, dev, test };
    let (_run, folder) = trained(experiment);
    let verify = |data: Option<PathBuf>| {
        let request = ReplayRequest { steps: 1, problems: 2, challenge: 7 };
        replayed_with(&folder, data, request)
    };
    let verification = expect(verify(None), VerifyVerdict::Inconclusive);
    let named = findings(&verification, VerifyVerdict::Inconclusive);
    for expected in [
        "data: problems cannot be compared: train.parquet is not known here; --data FOLDER says \
         where the problem files are",
        "replay: the problems are not here (--data FOLDER)",
    ] {
        assert!(named.contains(&expected.to_string()), "{named:#?}");
    }

    // Where they are now: the end of a recorded path that is here decides, and the digests.
    let here = scratch.path().join("here");
    copy(&there, &here);
    files::remove_folder(&there).unwrap();
    expect(verify(Some(here.clone())), VerifyVerdict::Verified);
    data::write(&here.join("sets/dev.parquet"), &sets.dev[1..], false).unwrap();
    let named = findings(&verify(Some(here)), VerifyVerdict::Inconclusive);
    let other = "manifest.json, inputs.data/dev: is not the digest";
    assert!(named[0].starts_with(other), "{named:#?}");
}
