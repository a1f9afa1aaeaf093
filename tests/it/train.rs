//! Whole runs of the trainer on the embedded benchmark's base policy.

use crate::bad_input::tree;
use crate::binary::{Output, dapo, failed, says, succeeded};
use crate::repository;
use dapo::algorithm::{
    AtCap, Beyond, DynamicSampling, Kl, KlEstimator, Overlong, Punishment, Surplus,
};
use dapo::base::files;
use dapo::experiment::{Experiment, MiniBatchOrder, extends};
use dapo::numerics::Numerics;
use dapo::policy::{Policy, checkpoint};
use dapo::records::{DivergenceRecord, Ending, NotFinite, Outcome, RunFolder, tables};
use dapo::training::run::inputs::{self, Inputs};
use dapo::training::step::Step;
use dapo::training::{StepOutcome, Trainer, TrainingError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn experiment(name: &str) -> PathBuf {
    repository::root().join("experiments").join(name)
}

/// The smoke experiment with short responses, changed.
pub fn smoke(change: impl FnOnce(&mut Experiment)) -> Inputs {
    let mut experiment = extends::load(&experiment("smoke.toml")).unwrap();
    experiment.rollout.max_response_tokens = 64;
    change(&mut experiment);
    inputs::prepare(experiment).unwrap()
}

fn steps(inputs: &Inputs, count: usize) -> Result<(Vec<Step>, u64), TrainingError> {
    let model = || checkpoint::load_model(&inputs.experiment.inputs.model).unwrap();
    let reference = (inputs.experiment.dapo.kl != Kl::None {}).then(model);
    let (experiment, tokenizer) = (&inputs.experiment, &inputs.tokenizer);
    let policy = Policy::new(model(), &experiment.optimizer);
    let mut trainer =
        Trainer::new(experiment, tokenizer, &inputs.data.train, &inputs.grader, policy, reference);
    let mut made = Vec::new();
    for _ in 0..count {
        match trainer.step(&mut |_| ())? {
            StepOutcome::Trained(step) => made.push(*step),
            StepOutcome::Saturated { .. } => panic!("the base policy is not saturated"),
            StepOutcome::Diverged(divergence) => panic!("{:?}", divergence.not_finite),
        }
    }
    Ok((made, trainer.counters().updates))
}

/// Every file of a run but those that may differ, with its digest.
fn digests(root: &Path) -> BTreeMap<String, String> {
    let mut digests = tree(root);
    let other = ["timings.jsonl", "sessions.jsonl", "environment.json"];
    digests.retain(|name, _| !other.contains(&name.as_str()) && !name.starts_with("report."));
    digests
}

/// The digests of a run of an experiment file.
fn trained(out: &Path, file: &str, more: &[&str]) -> BTreeMap<String, String> {
    let train = ["train", file, "--out", out.to_str().unwrap()];
    succeeded(dapo(&[&train[..], more].concat()));
    digests(out)
}

#[test]
fn two_runs_of_one_arm_and_seed_are_byte_identical_and_another_seed_is_not() {
    let scratch = tempfile::tempdir().unwrap();
    let file = experiment("smoke.toml").display().to_string();
    let run = |name: &str, seed: &str, more: &[&str]| {
        trained(&scratch.path().join(name), &file, &[&["--seed", seed], more].concat())
    };
    // With and without a plan's probe: it leaves no trace in a number.
    let (first, again) = (run("a", "1", &[]), run("b", "1", &["--no-plan"]));
    let other = run("c", "2", &["--no-plan"]);
    assert!(first.len() > 10, "{first:?}");
    assert_eq!(first, again);
    for name in ["metrics.jsonl", "rollouts/step-000001.parquet", "outcome.json"] {
        assert_ne!(first[name], other[name], "{name}");
    }
    let weights = first.keys().find(|name| name.ends_with("model.safetensors")).unwrap();
    assert_ne!(first[weights], other[weights]);

    // A finished run is not run again, and its folder is not given to another run.
    let out = scratch.path().join("a").display().to_string();
    let train = |seed| dapo(&["train", &file, "--seed", seed, "--out", &out]);
    says(train("1"), 0, &["nothing was trained again"]);
    says(train("2"), 3, &["holds another run", "differs in execution.seed (1 there, 2 here)"]);
    assert_eq!(first, digests(&scratch.path().join("a")));

    // What was written reads back, and every noted digest holds.
    let folder = RunFolder::at(scratch.path().join("a"));
    let outcome = folder.outcome().unwrap();
    for (name, digest) in &outcome.digests {
        assert_eq!(files::sha256_file(&folder.path(name)).unwrap(), *digest, "{name}");
    }
    let rows = tables::read_rollouts(&folder.rollouts(1)).unwrap();
    assert!(rows.iter().any(|row| row.trained) && rows.iter().all(|row| !row.tokens.is_empty()));
    for name in ["report.html", "report.md", "report.json"] {
        assert!(folder.path(name).exists(), "{name}");
    }
}

#[test]
fn two_fast_runs_on_one_machine_are_byte_identical_and_exact_ones_have_other_bits() {
    let scratch = tempfile::tempdir().unwrap();
    let fast = scratch.path().join("fast.toml");
    let smoke = experiment("smoke.toml").display().to_string();
    let text = format!("name = \"smoke\"\nextends = {smoke:?}\nnumerics = \"fast\"\n");
    files::write_atomic(&fast, text.as_bytes()).unwrap();
    let run = |name: &str, file: &str| trained(&scratch.path().join(name), file, &["--no-plan"]);
    let fast = fast.display().to_string();
    let (first, again, exact) = (run("a", &fast), run("b", &fast), run("c", &smoke));
    assert_eq!(first, again);
    let weights = first.keys().find(|name| name.ends_with("model.safetensors")).unwrap();
    assert_ne!(first[weights], exact[weights]);
}

fn resampling(prompts_per_round: u64, max_rounds: u32, at_cap: AtCap, surplus: Surplus) -> Inputs {
    smoke(|experiment| {
        experiment.rollout.prompts_per_round = prompts_per_round;
        experiment.dapo.dynamic_sampling =
            DynamicSampling::Resample { max_rounds, at_cap, surplus };
    })
}

#[test]
fn dynamic_sampling_refills_until_the_batch_is_full_of_useful_groups() {
    let inputs = resampling(3, 0, AtCap::Stop, Surplus::Discard);
    let (made, updates) = steps(&inputs, 2).unwrap();
    for step in &made {
        assert_eq!(step.trained.len(), 8);
        assert!(step.metrics["rollout/rounds"] >= 3.0, "{:?}", step.metrics);
        for (index, advantages) in &step.trained {
            let group = &step.groups[*index];
            assert!(0 < group.correct() && group.correct() < group.rollouts.len());
            // One may be 0: a punished answer whose reward is the group's mean.
            assert!(advantages.iter().any(|advantage| *advantage != 0.0));
        }
    }
    assert_eq!(updates, 4);
}

#[test]
fn the_cap_stops_the_run_and_names_the_kept_share() {
    let error = steps(&resampling(2, 2, AtCap::Stop, Surplus::Discard), 1).unwrap_err();
    assert!(matches!(error, TrainingError::CapReached { step: 1, .. }), "{error}");
    assert!(error.to_string().contains("of 4 sampled groups"), "{error}");
}

#[test]
fn at_the_cap_the_step_may_train_on_what_there_is() {
    let (made, _) = steps(&resampling(8, 1, AtCap::Train, Surplus::Discard), 1).unwrap();
    assert!((1..8).contains(&made[0].trained.len()), "{}", made[0].trained.len());
}

#[test]
fn surplus_groups_are_carried_to_the_next_step_when_asked() {
    let carry = |surplus| {
        let (made, _) = steps(&resampling(32, 0, AtCap::Stop, surplus), 2).unwrap();
        // Groups that were carried over are not counted as generated again.
        let rounds = made[1].metrics["rollout/rounds"];
        assert_eq!(made[1].metrics["rollout/generated_rollouts"], rounds * 4.0 * 32.0);
        made[1].carried
    };
    assert!(carry(Surplus::Carry) > 0);
    assert_eq!(carry(Surplus::Discard), 0);
}

#[test]
fn without_dynamic_sampling_every_group_trains() {
    let inputs = smoke(|experiment| {
        experiment.dapo.dynamic_sampling = DynamicSampling::None {};
    });
    let (made, _) = steps(&inputs, 1).unwrap();
    assert_eq!(made[0].trained.len(), 8);
    assert_eq!(made[0].metrics["rollout/rounds"], 1.0);
    let useless = |index: &usize| {
        let group = &made[0].groups[*index];
        group.correct() == 0 || group.correct() == group.rollouts.len()
    };
    assert!(made[0].trained.iter().any(|(index, _)| useless(index)));
}

/// A step's only update is made by the policy that sampled: no ratio has left 1, so that no bound acts.
#[test]
fn clip_higher_is_bit_identical_at_one_update_a_step_and_not_at_several() {
    let weights = |numerics: Numerics, rollouts: u64, high: f64| {
        let inputs = smoke(|experiment| {
            experiment.numerics = numerics;
            experiment.training.mini_batch_rollouts = rollouts;
            experiment.dapo.clip.high = high;
        });
        let (made, updates) = steps(&inputs, 2).unwrap();
        assert_eq!(updates, 2 * 32 / rollouts);
        made.iter().map(|step| step.components["weights"].clone()).collect::<Vec<_>>()
    };
    for numerics in [Numerics::Exact, Numerics::Fast] {
        assert_eq!(weights(numerics, 32, 0.2), weights(numerics, 32, 0.28));
        // So narrow a bound acts from the second update on.
        assert_eq!(weights(numerics, 32, 1e-4), weights(numerics, 32, 0.28));
        assert_ne!(weights(numerics, 8, 1e-4), weights(numerics, 8, 0.28));
    }
}

#[test]
fn a_kl_penalty_is_zero_before_the_first_update_and_grows() {
    let inputs = smoke(|experiment| {
        experiment.dapo.kl = Kl::Penalty { estimator: KlEstimator::K3, coefficient: 0.1 };
        experiment.training.mini_batch_rollouts = 32;
        experiment.optimizer.learning_rate = 1e-3;
    });
    let (made, updates) = steps(&inputs, 2).unwrap();
    assert_eq!(updates, 2);
    // The first update's policy is the reference, to the rounding of f32.
    assert!(made[0].metrics["loss/kl_penalty"].abs() < 1e-6, "{:?}", made[0].metrics);
    assert!(made[1].metrics["loss/kl_penalty"] > 1e-5, "{:?}", made[1].metrics);
}

#[test]
fn overlong_filtering_masks_truncated_rows_and_soft_punishment_lowers_their_reward() {
    let metrics = |change: fn(&mut Overlong)| {
        let inputs = smoke(|experiment| {
            experiment.rollout.max_response_tokens = 40;
            experiment.dapo.overlong.punishment = Punishment::None {};
            experiment.dapo.dynamic_sampling = DynamicSampling::None {};
            change(&mut experiment.dapo.overlong);
        });
        steps(&inputs, 1).unwrap().0.remove(0).metrics
    };
    let (plain, filtered) = (metrics(|_| ()), metrics(|overlong| overlong.filter = true));
    let punished = metrics(|overlong| {
        overlong.punishment =
            Punishment::Soft { cache_tokens: 8, factor: 1.0, beyond: Beyond::Clamped };
    });
    let truncated = plain["train/truncated_share"] * plain["train/rollouts"];
    assert!(truncated >= 1.0, "{plain:?}");
    assert_eq!(plain["train/masked_rollouts"], 0.0);
    assert_eq!(filtered["train/masked_rollouts"], truncated);
    assert_eq!(filtered["rollout/reward_mean"], plain["rollout/reward_mean"]);
    assert!(punished["rollout/reward_mean"] < plain["rollout/reward_mean"]);
    assert_eq!(punished["rollout/accuracy"], plain["rollout/accuracy"]);
}

#[test]
fn length_bands_train_every_rollout_of_the_step_once() {
    let inputs = smoke(|experiment| {
        experiment.training.mini_batch_order = MiniBatchOrder::LengthBands;
    });
    let (made, updates) = steps(&inputs, 1).unwrap();
    assert_eq!((made[0].trained.len(), updates), (8, 2));
}

#[test]
fn the_samplers_log_probs_agree_with_the_training_forward() {
    let (made, _) = steps(&smoke(|_| ()), 2).unwrap();
    for step in made {
        // f32 through two different batch shapes: rounding, not disagreement.
        assert!(step.metrics["policy/mismatch_max"] < 1e-3, "{:?}", step.metrics);
        assert!(step.metrics["policy/mismatch_mean"] < 1e-5, "{:?}", step.metrics);
    }
}

/// The smoke experiment at a rate that no weights survive, run: its end, its file and its folder.
fn exploded(scratch: &Path, numerics: &str, rate: &str, rest: &str) -> (Output, String, RunFolder) {
    let (file, place) = (scratch.join("explode.toml"), scratch.join("run"));
    let text = format!(
        "name = \"explode\"\nextends = {:?}\nnumerics = {numerics:?}\n[optimizer]\n\
         learning_rate = {rate}\n{rest}",
        experiment("smoke.toml").display().to_string()
    );
    files::write_atomic(&file, text.as_bytes()).unwrap();
    let file = file.display().to_string();
    let output = dapo(&["train", &file, "--no-plan", "--out", place.to_str().unwrap()]);
    (output, file, RunFolder::at(place))
}

#[test]
fn logits_that_are_not_finite_end_the_run_like_a_loss_and_name_prompt_and_token() {
    let scratch = tempfile::tempdir().unwrap();
    // One update a step: its loss is finite, and the next step samples from what it left.
    let rest = "[training]\nmini_batch_rollouts = 32\n";
    let (output, _, folder) = exploded(scratch.path(), "fast", "1e30", rest);
    let reason = "rollout step 2, prompt 0: the logits of response token 0 are not finite";
    failed(output, 5, reason);
    let outcome = folder.outcome().unwrap();
    assert_eq!((outcome.ending, outcome.reason.as_str()), (Ending::Diverged, reason));
    // What is kept stands before the step: step 1's checkpoint, byte for byte.
    let kept = folder.path("diverged/checkpoint");
    for name in ["model.safetensors", "optimizer.safetensors", "trainer.json"] {
        let read = |root: &Path| files::read(&root.join(name)).unwrap();
        assert_eq!(read(&kept), read(&folder.checkpoint(1)), "{name}");
    }
}

#[test]
fn a_loss_that_is_not_finite_ends_the_run_with_code_5_and_keeps_what_led_to_it() {
    let scratch = tempfile::tempdir().unwrap();
    let (output, file, folder) = exploded(scratch.path(), "fast", "1e30", "");
    failed(output, 5, "rollout step 1, update 2: the loss is NaN");
    let record: DivergenceRecord =
        files::read_json(&folder.path("diverged/divergence.json")).unwrap();
    assert_eq!(record.step, 1);
    assert!(record.reason.contains("update 2"), "{}", record.reason);
    assert!(record.metrics.contains_key("rollout/accuracy"), "{:?}", record.metrics);
    let rows = tables::read_rollouts(&folder.path("diverged/rollouts.parquet")).unwrap();
    assert!(rows.iter().filter(|row| row.trained).count() >= 4);
    let kept = checkpoint::load(&folder.path("diverged/checkpoint")).unwrap();
    assert_eq!(kept.progress.counters.updates, 1);
    assert_eq!(folder.outcome().unwrap().ending, Ending::Diverged);
    // It counts with its last evaluations, so there are some of every set.
    let evaluated: Vec<(String, u64)> = folder
        .evaluations()
        .unwrap()
        .into_iter()
        .map(|record| (record.set, record.counters.rollout_steps))
        .collect();
    let sets = ["dev", "mini-aime", "mini-aime-plus"];
    assert_eq!(evaluated, sets.map(|set| (set.to_string(), 0)));

    // It stays on record; going on would come to the same.
    for flag in ["--resume", "--threads=1"] {
        let again = dapo(&["train", &file, flag, "--out", folder.root().to_str().unwrap()]);
        failed(again, 5, "nothing was trained again");
    }
}

#[test]
fn a_divergence_is_data_from_format_4_on_and_is_executed_again_by_verify() {
    let scratch = tempfile::tempdir().unwrap();
    let rest = "[records]\nformat = 4\n";
    let (output, _, folder) = exploded(scratch.path(), "fast", "1e30", rest);
    failed(output, 5, "in rollout step 1, the loss of update 2 was NaN");
    let outcome = folder.outcome().unwrap();
    let loss = NotFinite::Loss { update: 2, value: "NaN".to_string() };
    assert_eq!((outcome.not_finite.as_ref(), outcome.reason.as_str()), (Some(&loss), ""));
    let verify = ["verify", folder.root().to_str().unwrap()];
    let replayed = || dapo(&[&verify[..], &["--replay", "1", "--challenge", "7"]].concat());
    says(replayed(), 0, &["ending replayed"]);

    // Another value is in no ledger, and the step gives another one.
    let other = NotFinite::Loss { update: 1, value: "NaN".to_string() };
    let forged = Outcome { not_finite: Some(other), ..outcome.clone() };
    files::write_json(&folder.path("outcome.json"), &forged).unwrap();
    let other = "does not name the value that outcome.json names";
    says(replayed(), 4, &["component ending", other]);
    // So is a sentence in the place of the data.
    let worded = Outcome { reason: "the loss exploded".to_string(), ..outcome };
    files::write_json(&folder.path("outcome.json"), &worded).unwrap();
    says(dapo(&verify), 4, &["format 4 has no such field"]);
}

#[test]
fn an_update_that_would_break_the_weights_ends_the_run_with_code_5_under_any_arithmetic() {
    let base = repository::root().join("golden/mini-aime/base");
    let base = checkpoint::values(&checkpoint::load_model(&base).unwrap());
    for (numerics, rate, reason) in [
        // Windows would make their largest number of an infinity, and the run would go on.
        ("exact", "1e30", "the update would make products of the weights infinite"),
        ("exact", "1e39", "NaN or infinite"),
        ("fast", "1e39", "NaN or infinite"),
    ] {
        let scratch = tempfile::tempdir().unwrap();
        let (output, file, folder) = exploded(scratch.path(), numerics, rate, "");
        failed(output, 5, reason);
        let outcome = folder.outcome().unwrap();
        assert_eq!(outcome.ending, Ending::Diverged);
        assert!(outcome.reason.starts_with("rollout step 1, update 1: "), "{}", outcome.reason);
        assert!(outcome.reason.contains(reason), "{}", outcome.reason);

        // The policy before the update is kept, and no other one.
        assert_eq!(folder.checkpoint_steps().unwrap(), [0u64; 0]);
        let kept = checkpoint::load(&folder.path("diverged/checkpoint")).unwrap();
        assert!(checkpoint::values(&kept.model) == base);
        assert_eq!((kept.optimizer.updates, kept.progress.counters.updates), (0, 0));
        let place = folder.root().to_str().unwrap();
        let (code, _, talk) = dapo(&["verify", place]);
        assert_ne!(code, 4, "an honest run is no mismatch: {talk}");
        let again = dapo(&["train", &file, "--resume", "--out", place]);
        failed(again, 5, "nothing was trained again");
    }
}

#[test]
fn weights_that_are_finite_and_larger_than_their_window_go_on_and_are_warned_of() {
    let scratch = tempfile::tempdir().unwrap();
    let (output, _, folder) = exploded(scratch.path(), "exact", "1e3", "");
    let (_, talk) = succeeded(output);
    let metrics = folder.metrics().unwrap();
    let saturated = metrics.iter().map(|line| line.metrics["exact/weights_saturated_share"]);
    assert!(saturated.fold(0.0, f64::max) > 0.4, "{metrics:?}");
    assert!(talk.contains("larger than the window of exact"), "{talk}");
    succeeded(dapo(&["verify", folder.root().to_str().unwrap()]));
}
