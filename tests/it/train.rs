//! Whole runs of the trainer on the embedded benchmark's base policy.

use crate::bad_input::tree;
use crate::binary::{Output, dapo, failed, line_in, says, succeeded};
use crate::repository;
use crate::transcript::play;
use dapo::algorithm::Kl;
use dapo::base::files;
use dapo::experiment::Experiment;
use dapo::policy::{Policy, checkpoint};
use dapo::records::{DivergenceRecord, Ending, NotFinite, RunFolder, tables};
use dapo::training::{StepOutcome, Trainer, TrainingError};
use dapo::training::{run::inputs, run::inputs::Inputs, step::Step};
use std::collections::BTreeMap;
use std::path::Path;

fn smoke_file() -> String {
    repository::root().join("experiments/smoke.toml").display().to_string()
}

/// The smoke experiment with short responses, changed.
pub fn smoke(change: impl FnOnce(&mut Experiment)) -> Inputs {
    let mut experiment = repository::experiment("smoke.toml", "rollout.max_response_tokens=64");
    change(&mut experiment);
    inputs::prepare(experiment).unwrap()
}

/// The same with every word's `KEY=VALUE`.
fn short(set: &str) -> Inputs {
    let set = format!("rollout.max_response_tokens=64 {set}");
    inputs::prepare(repository::experiment("smoke.toml", &set)).unwrap()
}

fn steps(inputs: &Inputs, count: usize) -> Result<(Vec<Step>, u64), TrainingError> {
    let model = || checkpoint::load_model(&inputs.experiment.inputs.model).unwrap();
    let reference = (inputs.experiment.dapo.kl != Kl::None {}).then(model);
    let (experiment, tokenizer) = (&inputs.experiment, &inputs.tokenizer);
    let policy = Policy::new(model(), &experiment.optimizer);
    let mut trainer =
        Trainer::new(experiment, tokenizer, &inputs.data.train, &inputs.grader, policy, reference);
    let mut steps = Vec::new();
    for _ in 0..count {
        match trainer.step(&mut |_| ())? {
            StepOutcome::Trained(step) => steps.push(*step),
            StepOutcome::Saturated { .. } => panic!("the base policy is not saturated"),
            StepOutcome::Diverged(divergence) => panic!("{:?}", divergence.not_finite),
        }
    }
    Ok((steps, trainer.counters().updates))
}

/// Every file of a run but those that may differ, with its digest.
fn digests(root: &Path) -> BTreeMap<String, String> {
    let mut digests = tree(root);
    let other = ["timings.jsonl", "sessions.jsonl", "environment.json"];
    digests.retain(|name, _| !other.contains(&name.as_str()) && !name.starts_with("report."));
    digests
}

/// The digests of a run of the smoke experiment.
fn trained(out: &Path, more: &[&str]) -> BTreeMap<String, String> {
    let train = ["train", &smoke_file(), "--out", out.to_str().unwrap()];
    succeeded(dapo(&[&train[..], more].concat()));
    digests(out)
}

#[test]
fn two_runs_of_one_arm_and_seed_are_byte_identical_and_another_seed_is_not() {
    let scratch = tempfile::tempdir().unwrap();
    let run = |name: &str, seed: &str, more: &[&str]| {
        trained(&scratch.path().join(name), &[&["--seed", seed], more].concat())
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
    let train = |seed| dapo(&["train", &smoke_file(), "--seed", seed, "--out", &out]);
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
    let run = |name: &str, numerics: &str| {
        let numerics = format!("numerics={numerics}");
        trained(&scratch.path().join(name), &["--no-plan", "--set", &numerics])
    };
    let (first, again, exact) = (run("a", "fast"), run("b", "fast"), run("c", "exact"));
    assert_eq!(first, again);
    let weights = first.keys().find(|name| name.ends_with("model.safetensors")).unwrap();
    assert_ne!(first[weights], exact[weights]);
}

fn resampling(prompts_per_round: u64, max_rounds: u32, at_cap: &str, surplus: &str) -> Inputs {
    short(&format!(
        "rollout.prompts_per_round={prompts_per_round} dapo.dynamic_sampling={{kind=\"resample\",\
         max_rounds={max_rounds},at_cap=\"{at_cap}\",surplus=\"{surplus}\"}}"
    ))
}

#[test]
fn dynamic_sampling_refills_until_the_batch_is_full_of_useful_groups() {
    let (steps, updates) = steps(&resampling(3, 0, "stop", "discard"), 2).unwrap();
    for step in &steps {
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
fn at_the_cap_the_step_may_train_on_what_there_is() {
    let (steps, _) = steps(&resampling(8, 1, "train", "discard"), 1).unwrap();
    assert!((1..8).contains(&steps[0].trained.len()), "{}", steps[0].trained.len());
}

#[test]
fn surplus_groups_are_carried_to_the_next_step_when_asked() {
    let carried = |surplus| {
        let (steps, _) = steps(&resampling(32, 0, "stop", surplus), 2).unwrap();
        // Groups that were carried over are not counted as generated again.
        let rounds = steps[1].metrics["rollout/rounds"];
        assert_eq!(steps[1].metrics["rollout/generated_rollouts"], rounds * 4.0 * 32.0);
        steps[1].carried
    };
    assert!(carried("carry") > 0);
    assert_eq!(carried("discard"), 0);
}

#[test]
fn without_dynamic_sampling_every_group_trains() {
    let (steps, _) = steps(&short(r#"dapo.dynamic_sampling={kind="none"}"#), 1).unwrap();
    let Step { groups, trained, metrics, .. } = &steps[0];
    assert_eq!((trained.len(), metrics["rollout/rounds"]), (8, 1.0));
    let is_useless = |(index, _): (&usize, _)| {
        let group = &groups[*index];
        group.correct() == 0 || group.correct() == group.rollouts.len()
    };
    assert!(trained.iter().any(is_useless));
}

/// A step's only update is made by the policy that sampled: no ratio has left 1, so that no bound acts.
#[test]
fn clip_higher_is_bit_identical_at_one_update_a_step_and_not_at_several() {
    for numerics in ["exact", "fast"] {
        let weights = |rollouts: u64, high: &str| {
            let inputs = short(&format!(
                "numerics={numerics} training.mini_batch_rollouts={rollouts} dapo.clip.high={high}"
            ));
            let (steps, updates) = steps(&inputs, 2).unwrap();
            assert_eq!(updates, 2 * 32 / rollouts);
            steps.iter().map(|step| step.components["weights"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(weights(32, "0.2"), weights(32, "0.28"));
        // So narrow a bound acts from the second update on.
        assert_eq!(weights(32, "1e-4"), weights(32, "0.28"));
        assert_ne!(weights(8, "1e-4"), weights(8, "0.28"));
    }
}

#[test]
fn a_kl_penalty_is_zero_before_the_first_update_and_grows() {
    let inputs = short(
        r#"dapo.kl={kind="penalty",estimator="k3",coefficient=0.1} optimizer.learning_rate=1e-3
           training.mini_batch_rollouts=32"#,
    );
    let (steps, updates) = steps(&inputs, 2).unwrap();
    assert_eq!(updates, 2);
    // The first update's policy is the reference, to the rounding of f32.
    assert!(steps[0].metrics["loss/kl_penalty"].abs() < 1e-6, "{:?}", steps[0].metrics);
    assert!(steps[1].metrics["loss/kl_penalty"] > 1e-5, "{:?}", steps[1].metrics);
}

#[test]
fn overlong_filtering_masks_truncated_rows_and_soft_punishment_lowers_their_reward() {
    let [plain, filtered, punished] = [
        r#"dapo.overlong.punishment={kind="none"}"#,
        r#"dapo.overlong.punishment={kind="none"} dapo.overlong.filter=true"#,
        r#"dapo.overlong.punishment={kind="soft",cache_tokens=8,factor=1.0,beyond="clamped"}"#,
    ]
    .map(|overlong| {
        let rest = r#"rollout.max_response_tokens=40 dapo.dynamic_sampling={kind="none"}"#;
        let experiment = repository::experiment("smoke.toml", &format!("{rest} {overlong}"));
        let inputs = inputs::prepare(experiment).unwrap();
        steps(&inputs, 1).unwrap().0.remove(0).metrics
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
fn the_samplers_log_probs_agree_with_the_training_forward() {
    for step in steps(&short(""), 2).unwrap().0 {
        // f32 through two different batch shapes: rounding, not disagreement.
        assert!(step.metrics["policy/mismatch_max"] < 1e-3, "{:?}", step.metrics);
        assert!(step.metrics["policy/mismatch_mean"] < 1e-5, "{:?}", step.metrics);
    }
}

/// The smoke experiment at a rate that no weights survive, run: its end, and its folder beside its file.
fn exploded(numerics: &str, rate: &str, rest: &str) -> (tempfile::TempDir, Output, RunFolder) {
    let scratch = tempfile::tempdir().unwrap();
    let text = format!(
        "name = \"explode\"\nextends = {:?}\nnumerics = {numerics:?}\n[optimizer]\n\
         learning_rate = {rate}\n{rest}",
        smoke_file()
    );
    files::write_atomic(&scratch.path().join("explode.toml"), text.as_bytes()).unwrap();
    let output = line_in(scratch.path(), "train explode.toml --no-plan --out run");
    let folder = RunFolder::at(scratch.path().join("run"));
    (scratch, output, folder)
}

/// Going on would come to the same.
fn is_not_trained_again(scratch: &Path, flag: &str) {
    let again = line_in(scratch, &format!("train explode.toml {flag} --out run"));
    failed(again, 5, "nothing was trained again");
}

#[test]
fn logits_that_are_not_finite_end_the_run_like_a_loss_and_name_prompt_and_token() {
    // One update a step: its loss is finite, and the next step samples from what it left.
    let rest = "[training]\nmini_batch_rollouts = 32\n";
    let (_scratch, output, folder) = exploded("fast", "1e30", rest);
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
    let (scratch, output, folder) = exploded("fast", "1e30", "");
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
    let evaluated = folder.evaluations().unwrap().into_iter();
    let evaluated = evaluated.map(|record| (record.set, record.counters.rollout_steps));
    let sets = ["dev", "mini-aime", "mini-aime-plus"];
    assert!(evaluated.eq(sets.map(|set| (set.to_string(), 0))));

    is_not_trained_again(scratch.path(), "--resume");
    is_not_trained_again(scratch.path(), "--threads=1");
}

#[test]
fn a_divergence_is_data_from_format_4_on_and_is_executed_again_by_verify() {
    let (scratch, output, folder) = exploded("fast", "1e30", "[records]\nformat = 4\n");
    failed(output, 5, "in rollout step 1, the loss of update 2 was NaN");
    let outcome = folder.outcome().unwrap();
    let loss = NotFinite::Loss { update: 2, value: "NaN".to_string() };
    assert_eq!((outcome.not_finite.as_ref(), outcome.reason.as_str()), (Some(&loss), ""));
    play(scratch.path(), include_str!("train/format_4.txt"));
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
        let (scratch, output, folder) = exploded(numerics, rate, "");
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
        let (code, _, talk) = line_in(scratch.path(), "verify run");
        assert_ne!(code, 4, "an honest run is no mismatch: {talk}");
        is_not_trained_again(scratch.path(), "--resume");
    }
}

#[test]
fn weights_that_are_finite_and_larger_than_their_window_go_on_and_are_warned_of() {
    let (scratch, output, folder) = exploded("exact", "1e3", "");
    let (_, talk) = succeeded(output);
    let metrics = folder.metrics().unwrap();
    let saturated = metrics.iter().map(|line| line.metrics["exact/weights_saturated_share"]);
    assert!(saturated.fold(0.0, f64::max) > 0.4, "{metrics:?}");
    assert!(talk.contains("larger than the window of exact"), "{talk}");
    succeeded(line_in(scratch.path(), "verify run"));
}

#[test]
fn a_policy_whose_answers_the_verifier_cannot_read_is_named_by_every_verb_that_meets_it() {
    play(tempfile::tempdir().unwrap().path(), include_str!("train/nothing_learned.txt"));
}
