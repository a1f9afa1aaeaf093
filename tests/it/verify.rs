//! `dapo verify` of runs: what a replay alone finds, what is inconclusive, and what holds up a reader.
//! The ways of tampering stand in `bad_input/tampered_runs.toml`.

use assert_cmd::Command;
use dapo::algorithm::{AtCap, DynamicSampling, Surplus};
use dapo::base::{files, workers};
use dapo::experiment::{Data, Experiment, MiniAimeVariant, WeightKind, extends};
use dapo::numerics::Numerics;
use dapo::policy::{Loaded, checkpoint};
use dapo::records::ledger::{self, Kind, LedgerEntry};
use dapo::records::tables;
use dapo::records::{EvaluationRecord, RolloutRow, RunFolder};
use dapo::report;
use dapo::task::data::{self, embedded::mini_aime};
use dapo::training::Unfinished;
use dapo::training::run::{self, inputs};
use dapo::verification::verify::replay::ReplayRequest;
use dapo::verification::verify::{self, Options, VerifyVerdict};
use dapo::verification::{Challenge, Verification};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::OnceLock;

/// Three short steps with refills and carried groups, and a checkpoint after each.
pub fn experiment() -> Experiment {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments/smoke.toml");
    let mut experiment = extends::load(&file).unwrap();
    experiment.rollout.max_response_tokens = 64;
    experiment.training.rollout_steps = 3;
    experiment.training.prompts_per_step = 4;
    experiment.training.mini_batch_rollouts = 8;
    experiment.checkpoints.keep_last = 3;
    experiment.dapo.dynamic_sampling =
        DynamicSampling::Resample { max_rounds: 6, at_cap: AtCap::Train, surplus: Surplus::Carry };
    experiment.evaluation.samples.insert("mini-aime".to_string(), 1);
    experiment
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

pub fn copy(from: &Path, to: &Path) {
    for name in files::list(from).unwrap() {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copy(&from, &to)
        } else {
            files::write_atomic(&to, &files::read(&from).unwrap()).unwrap()
        }
    }
}

pub fn verified(folder: &RunFolder) -> Verification {
    verify::verify(folder, &Options::default(), &mut |_| ()).unwrap()
}

pub fn replayed(folder: &RunFolder, steps: u64, seed: u64) -> Verification {
    let replay = Some(ReplayRequest { steps, problems: 8, challenge: Challenge::Seed(seed) });
    let options = Options { replay, ..Options::default() };
    verify::verify(folder, &options, &mut |_| ()).unwrap()
}

/// `place: what` of every finding of a verdict.
pub fn findings(of: &Verification, verdict: VerifyVerdict) -> Vec<String> {
    let all = of.checks.iter().flat_map(|check| &check.findings);
    let chosen = all.filter(|finding| finding.verdict == verdict);
    chosen.map(|finding| format!("{}: {}", finding.place, finding.what)).collect()
}

/// What a forger does after a change: every digest, the ledger and the report are made again.
/// What only the trainer knows stays as it was.
pub fn forge(folder: &RunFolder) {
    for step in folder.checkpoint_steps().unwrap() {
        let path = folder.checkpoint(step).join("trainer.json");
        let mut record: Value = files::read_json(&path).unwrap();
        let names: Vec<String> = record["sha256"].as_object().unwrap().keys().cloned().collect();
        for name in names {
            let digest = files::sha256_file(&folder.checkpoint(step).join(&name)).unwrap();
            record["sha256"][name] = json!(digest);
        }
        files::write_json(&path, &record).unwrap();
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
            let weights = weights.map(|(name, (_, values))| (name, values)).collect();
            let moments =
                ledger::moments(state.updates, &state.first_moments, &state.second_moments);
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
        "a re-ordered ledger" => {
            let mut lines = folder.ledger().unwrap();
            lines.swap(1, 2);
            files::write_lines(&folder.path(ledger::FILE), &lines).unwrap();
        }
        "a changed outcome" => {
            let path = folder.outcomes("mini-aime", 3);
            let mut rows = tables::read_outcomes(&path).unwrap();
            rows[0].is_correct = !rows[0].is_correct;
            tables::write_outcomes(&path, &rows).unwrap();
            evaluations(folder, |records| {
                let digest = files::sha256_file(&path).unwrap();
                let of = |it: &&mut EvaluationRecord| {
                    it.set == "mini-aime" && it.counters.rollout_steps == 3
                };
                records.iter_mut().find(of).unwrap().outcomes_sha256 = digest;
            });
        }
        "an evaluation left out" => evaluations(folder, |records| {
            let gone = records.remove(0);
            let step = gone.counters.rollout_steps;
            files::remove_file(&folder.outcomes(&gone.set, step)).unwrap();
        }),
        "a better score" => {
            evaluations(folder, |records| records.last_mut().unwrap().avg_at_k = 1.0);
        }
        "a run key of its inputs" => {
            let mut manifest = folder.manifest().unwrap();
            manifest.run_key = inputs::run_key(&folder.experiment().unwrap(), &manifest.inputs);
            files::write_json(&folder.path("manifest.json"), &manifest).unwrap();
        }
        _ => panic!("{what:?} is no way of tampering"),
    }
}

fn rollouts(folder: &RunFolder, step: u64, change: impl FnOnce(&mut Vec<RolloutRow>)) {
    let mut rows = tables::read_rollouts(&folder.rollouts(step)).unwrap();
    change(&mut rows);
    tables::write_rollouts(&folder.rollouts(step), &rows).unwrap();
}

fn evaluations(folder: &RunFolder, change: impl FnOnce(&mut Vec<EvaluationRecord>)) {
    let mut records = folder.evaluations().unwrap();
    change(&mut records);
    files::write_lines(&folder.path("evaluations.jsonl"), &records).unwrap();
}

pub fn json(folder: &RunFolder, name: &str, change: impl FnOnce(&mut Value)) {
    let mut value: Value = files::read_json(&folder.path(name)).unwrap();
    change(&mut value);
    files::write_json(&folder.path(name), &value).unwrap();
}

/// Flips the lowest bit of the last weight.
fn weight(folder: &RunFolder, step: u64) {
    let path = folder.checkpoint(step).join("model.safetensors");
    let mut bytes = files::read(&path).unwrap();
    let last = bytes.len() - 4;
    bytes[last] ^= 1;
    files::write_atomic(&path, &bytes).unwrap();
}

#[test]
fn removing_a_whole_checkpoint_is_no_tampering() {
    let (_scratch, folder) = trained(experiment());
    files::remove_folder(&folder.checkpoint(1)).unwrap();
    let found = verified(&folder);
    assert_eq!(findings(&found, VerifyVerdict::Mismatch), [""; 0], "{:#?}", found.checks);
}

#[test]
fn an_honest_run_is_verified_and_making_every_digest_again_changes_nothing() {
    let (_scratch, whole) = trained(experiment());
    let found = verified(&whole);
    assert_eq!(found.verdict, VerifyVerdict::Verified, "{:#?}", found.checks);
    let before = whole.digests().unwrap();
    forge(&whole);
    assert_eq!(whole.digests().unwrap(), before);
}

#[test]
fn a_replaced_checkpoint_whose_digests_and_ledger_were_made_again_is_caught_by_replay_alone() {
    let (scratch, whole) = trained(experiment());
    // Every step, executed again, has the bits of the run.
    let found = replayed(&whole, 9, 7);
    assert_eq!(found.verdict, VerifyVerdict::Verified, "{:#?}", found.checks);
    let replay = found.replay.unwrap();
    assert_eq!((replay.picked, replay.covered), (vec![1, 2, 3], vec![1, 2, 3]));
    assert!(replay.detection.iter().all(|it| it.at_least == 1.0 && it.uniform == 1.0));

    let forged = RunFolder::at(scratch.path().join("forged"));
    copy(whole.root(), forged.root());
    weight(&forged, 3);
    forge(&forged);
    let found = verified(&forged);
    assert_eq!(found.verdict, VerifyVerdict::Verified, "{:#?}", found.checks);
    let found = replayed(&forged, 3, 7);
    let named = findings(&found, VerifyVerdict::Mismatch);
    assert_eq!(found.verdict, VerifyVerdict::Mismatch, "{named:?}");
    let only = "step 3, component weights: executed again it differs in weights";
    assert_eq!(named, [only], "{found:#?}");

    // Rollouts that fit each other and were never sampled.
    let swapped = RunFolder::at(scratch.path().join("swapped"));
    copy(whole.root(), swapped.root());
    tamper(&swapped, "two rollouts swapped");
    forge(&swapped);
    assert_eq!(verified(&swapped).verdict, VerifyVerdict::Verified);
    let found = replayed(&swapped, 3, 7);
    let named = findings(&found, VerifyVerdict::Mismatch);
    assert!(named[0].starts_with("step 1, component tokens: "), "{named:?}");
    assert!(named[0].contains("first in row 0 (problem "), "{named:?}");

    // Exact arithmetic has no other machine: a difference is one, wherever the run was made.
    json(&forged, "environment.json", |value| value["facts"]["cpu"] = json!("another"));
    report::run::write(&forged).unwrap();
    assert_eq!(replayed(&forged, 3, 7).verdict, VerifyVerdict::Mismatch);

    exit_codes(&whole, &forged);
}

#[test]
fn a_replay_that_differs_on_another_machine_is_inconclusive_only_where_libtorch_computes() {
    let another = |weights: WeightKind, verdict: VerifyVerdict| {
        let scratch = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(scratch.path().join("run"));
        workers::set_count(1);
        let mut fast = Experiment { numerics: Numerics::Fast, ..experiment() };
        fast.execution.weights = Some(weights);
        let inputs = inputs::prepare(fast).unwrap();
        run::run(&inputs, &folder, Unfinished::Refuse, &|| false, &mut |_| ()).unwrap();
        weight(&folder, 3);
        forge(&folder);
        assert_eq!(replayed(&folder, 3, 7).verdict, VerifyVerdict::Mismatch);
        json(&folder, "environment.json", |value| value["facts"]["cpu"] = json!("another"));
        report::run::write(&folder).unwrap();
        let found = replayed(&folder, 3, 7);
        assert_eq!(found.verdict, verdict, "{found:#?}");
        findings(&found, verdict)
    };
    another(WeightKind::F32, VerifyVerdict::Mismatch);
    let named = another(WeightKind::Bf16, VerifyVerdict::Inconclusive);
    assert!(named[0].contains("the run was made elsewhere (cpu)"), "{named:?}");
}

/// The binary's exit code and what it prints, in so much time that a terabyte is not read.
fn verify_within_a_minute(folder: &RunFolder, more: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::cargo_bin("dapo").unwrap();
    command.arg("verify").arg(folder.root()).args(more);
    let output = command.timeout(std::time::Duration::from_secs(60)).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_folder_made_to_hold_up_its_reader_is_refused_at_once() {
    let (scratch, whole) = trained(experiment());
    let folder = RunFolder::at(scratch.path().join("changed"));
    for name in [
        "checkpoints/step-000003/model.safetensors",
        "checkpoints/step-000003/optimizer.safetensors",
        "checkpoints/step-000002/tokenizer.json",
        "rollouts/step-000001.parquet",
        "evaluations/dev-step-000000.parquet",
        "metrics.jsonl",
        "ledger.jsonl",
        "experiment.json",
    ] {
        let holes: &dyn Fn(&Path) = &|path| {
            let bytes = files::read(path).unwrap();
            #[expect(clippy::disallowed_types, reason = "no function of ours makes holes")]
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            // As it was, and then nothing up to a size that is not refused for itself.
            file.set_len(if bytes.len().is_multiple_of(2) { 1 << 40 } else { 1 << 37 }).unwrap();
        };
        let pipe: &dyn Fn(&Path) = &|path| {
            files::remove_file(path).unwrap();
            let mode = rustix::fs::Mode::RUSR;
            let kind = rustix::fs::FileType::Fifo;
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
        };
        for make in [holes, pipe] {
            copy(whole.root(), folder.root());
            make(&folder.path(name));
            let (code, out) =
                verify_within_a_minute(&folder, &["--replay", "1", "--challenge", "7"]);
            assert_eq!(code, Some(4), "{name}: {out}");
            assert!(out.contains(&format!("mismatch: {name}: ")), "{name}: {out}");
            files::remove_folder(folder.root()).unwrap();
        }
    }
}

#[test]
fn no_path_that_a_run_folder_names_is_opened() {
    let (_scratch, folder) = trained(experiment());
    let place = |folder: &RunFolder, model: &str| {
        json(folder, "experiment.json", |value| value["inputs"]["model"] = json!(model));
    };
    // An honest run of a base policy that lay elsewhere: the reviewer's own decides.
    place(&folder, "/nowhere/base");
    forge(&folder);
    let found = replayed(&folder, 1, 7);
    assert_eq!(found.verdict, VerifyVerdict::Verified, "{:#?}", found.checks);

    // The memory of the reading process, whose reading has no end.
    place(&folder, "/proc/self");
    let mut manifest = folder.manifest().unwrap();
    manifest.inputs.insert("base/pagemap".to_string(), "0".repeat(64));
    manifest.run_key = inputs::run_key(&folder.experiment().unwrap(), &manifest.inputs);
    files::write_json(&folder.path("manifest.json"), &manifest).unwrap();
    forge(&folder);
    let named = "inconclusive: manifest.json, inputs.base/pagemap: the embedded benchmark's base \
                 policy does not have it; --base FOLDER says where the run's base policy is";
    let (code, out) = verify_within_a_minute(&folder, &[]);
    assert_eq!(code, Some(6), "{out}");
    assert!(out.contains(named), "{out}");
    // A reviewer who names such a place reads no more of it than its sizes.
    let (code, out) = verify_within_a_minute(&folder, &["--base", "/proc/self"]);
    assert_eq!(code, Some(6), "{out}");
    assert!(out.contains("inputs.base/pagemap: /proc/self does not have it"), "{out}");
}

#[test]
fn problem_files_are_read_below_the_reviewers_folder_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let there = scratch.path().join("there");
    let mut sets = mini_aime::generate(MiniAimeVariant::Standard);
    sets.train.truncate(400);
    data::write(&there.join("sets/train.parquet"), &sets.train, false).unwrap();
    data::write(&there.join("sets/dev.parquet"), &sets.dev, false).unwrap();
    let mut test = Vec::new();
    for (name, problems) in &sets.tests {
        test.push(there.join(format!("{name}.parquet")));
        data::write(test.last().unwrap(), problems, false).unwrap();
    }
    let mut experiment = experiment();
    let (train, dev) = (there.join("sets/train.parquet"), there.join("sets/dev.parquet"));
    experiment.inputs.data = Data::Files { train, dev, test };
    let folder = RunFolder::at(scratch.path().join("run"));
    workers::set_count(1);
    let inputs = inputs::prepare(experiment).unwrap();
    run::run(&inputs, &folder, Unfinished::Refuse, &|| false, &mut |_| ()).unwrap();
    report::run::write(&folder).unwrap();

    let verify = |data: Option<&Path>| {
        let replay = Some(ReplayRequest { steps: 1, problems: 2, challenge: Challenge::Seed(7) });
        let data = data.map(Path::to_path_buf);
        verify::verify(&folder, &Options { data, replay, ..Options::default() }, &mut |_| ())
            .unwrap()
    };
    let found = verify(None);
    assert_eq!(found.verdict, VerifyVerdict::Inconclusive, "{:#?}", found.checks);
    let named = findings(&found, VerifyVerdict::Inconclusive);
    let first = "data: problems cannot be compared: train.parquet is not known here; --data FOLDER \
                 says where the problem files are";
    assert!(named.contains(&first.to_string()), "{named:#?}");
    assert!(named.contains(&"replay: the problems are not here (--data FOLDER)".to_string()));

    // Where they are now: the end of a recorded path that is here decides, and the digests.
    let here = scratch.path().join("here");
    copy(&there, &here);
    files::remove_folder(&there).unwrap();
    let found = verify(Some(&here));
    assert_eq!(found.verdict, VerifyVerdict::Verified, "{:#?}", found.checks);
    data::write(&here.join("sets/dev.parquet"), &sets.dev[1..], false).unwrap();
    let named = findings(&verify(Some(&here)), VerifyVerdict::Inconclusive);
    assert!(
        named[0].starts_with("manifest.json, inputs.data/dev: is not the digest"),
        "{named:#?}"
    );
}

/// What a user sees, by the exit code.
fn exit_codes(whole: &RunFolder, forged: &RunFolder) {
    let run = |folder: &RunFolder, more: &[&str]| {
        let mut command = Command::cargo_bin("dapo").unwrap();
        let output = command.arg("verify").arg(folder.root()).args(more).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    };
    let (code, out, talk) = run(whole, &["--replay", "1", "--challenge-from-ledger"]);
    assert_eq!(code, 0, "{out}{talk}");
    let summary = "\nverified (records), training replayed ";
    for words in ["weaker: a forger can retry", "k =  1: at least ", summary] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let (code, out, _) = run(forged, &["--base", "/nowhere", "--json"]);
    let found: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &found["verdict"]), (6, &json!("inconclusive")), "{out}");
    files::remove_file(&forged.rollouts(1)).unwrap();
    let (code, out, _) = run(forged, &[]);
    assert!(
        code == 4 && out.contains("mismatch: rollouts/step-000001.parquet: is missing"),
        "{out}"
    );
    let (code, _, talk) = run(forged, &["--replay", "1"]);
    assert!(code == 2 && talk.contains("--challenge SEED"), "{talk}");
    let nothing = RunFolder::at(forged.root().join("rollouts"));
    let (code, _, talk) = run(&nothing, &[]);
    assert!(code == 3 && talk.contains("is not a run folder"), "{talk}");
}
