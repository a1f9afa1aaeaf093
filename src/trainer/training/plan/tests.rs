use super::*;
use crate::algorithm::methods::{Method, rloo::Rloo, tis::Tis, tis::WeightLevel};
use crate::algorithm::{Beyond, DynamicSampling, Kl, KlEstimator, Punishment, Std};
use crate::experiment::{LogProbsOver, MiniAimeVariant, extends};
use crate::policy::{Config, Family};
use crate::task::{DataSets, data::embedded::mini_aime};
use crate::training::{Name, run::inputs};
use clap::ValueEnum as _;
use std::path::PathBuf;

fn experiment(name: &str) -> Experiment {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join("experiments");
    extends::load(&folder.join(name)).unwrap()
}

/// 17,000 problems to train on, 64 of dev, 30 of mini-aime, 256 of mini-aime-plus.
fn data() -> DataSets {
    mini_aime::generate(MiniAimeVariant::Standard)
}

fn counted(experiment: &Experiment) -> PlanWork {
    PlanWork::new(experiment, &data(), work::rounds_without_probe(experiment))
}

#[test]
fn the_work_of_grpo_and_of_dapo_is_that_counted_by_hand() {
    let grpo = counted(&experiment("base.toml"));
    assert_eq!((grpo.rollout_steps, grpo.updates_per_step, grpo.updates), (40, 4, 160));
    assert_eq!(grpo.generation_rounds, Range::exactly(40.0));
    assert_eq!(grpo.rollouts, Range::exactly(40.0 * 32.0 * 8.0));
    assert_eq!(grpo.trained_rollouts, 10_240);
    assert!((grpo.epochs_over_data.least - 1_280.0 / 17_000.0).abs() < 1e-12);
    // Steps 0, 5, …, 35 and 40; 64 problems × 4.
    assert_eq!((grpo.evaluations, grpo.dev_responses), (9 + 9 + 2, 9 * 256));
    assert_eq!(grpo.test_responses, 2 * 30 * 32 + 9 * 256 * 8);
    let dapo = counted(&experiment("dapo.toml"));
    let rounds = Range { least: 40.0, expected: None, most: Some(160.0) };
    assert_eq!((dapo.generation_rounds, dapo.updates), (rounds, 160));
    assert_eq!(dapo.rollouts.most, Some(160.0 * 256.0));
}

#[test]
fn the_papers_setting_is_16_updates_a_step() {
    let mut paper = experiment("dapo.toml");
    paper.training.prompts_per_step = 512;
    paper.training.mini_batch_rollouts = 512;
    paper.training.rollout_steps = 330;
    paper.rollout.group_size = 16;
    paper.rollout.prompts_per_round = 512;
    let work = counted(&paper);
    assert_eq!((work.updates_per_step, work.updates), (16, 5_280));
    assert_eq!(work.prompts_drawn.least, 168_960.0);
    assert!((work.epochs_over_data.least - 9.94).abs() < 0.01, "about ten epochs of 17 000");
}

#[test]
fn numbers_beyond_all_measure_saturate() {
    let mut huge = experiment("dapo.toml");
    huge.training.rollout_steps = u64::MAX;
    huge.training.prompts_per_step = u64::MAX;
    huge.training.epochs_per_step = u64::MAX;
    huge.rollout.group_size = u64::MAX;
    huge.evaluation.samples.values_mut().for_each(|samples| *samples = u64::MAX);
    let work = counted(&huge);
    assert_eq!((work.updates, work.dev_responses), (u64::MAX, u64::MAX));
    assert!(work.rollouts.least.is_finite());
    let mut nothing = experiment("base.toml");
    nothing.training.mini_batch_rollouts = 0;
    let none = DataSets::default();
    let work = PlanWork::new(&nothing, &none, work::rounds_without_probe(&nothing));
    assert!(work.epochs_over_data.least.is_finite() && work.test_responses == 0);
}

/// A probe of a policy whose responses have this mean length.
fn probe(mean: u64) -> TrialProbe {
    TrialProbe {
        groups: 64,
        response_tokens_mean: mean as f64,
        truncated_share: 0.1,
        accuracy: 0.125,
        unanswered: (16, 1024),
        useful_share: 0.5,
        differing_groups: 0,
        cut_at_tokens: None,
    }
}

fn short_prompts() -> PlanPrompts {
    PlanPrompts { mean_tokens: 13.0, longest_tokens: 13, unstopped_end_of_turn: None }
}

#[test]
fn dynamic_sampling_takes_as_many_times_the_rounds_as_groups_are_lost() {
    let with = |useful_share| {
        let probe = TrialProbe { useful_share, ..probe(40) };
        rounds_per_step(&experiment("dapo.toml"), Some(&probe)).expected
    };
    assert_eq!([with(1.0), with(0.5), with(0.01)], [Some(1.0), Some(2.0), Some(4.0)]);
    assert_eq!(with(0.0), None);
    let cut = TrialProbe { useful_share: 0.5, cut_at_tokens: Some(8), ..probe(40) };
    assert_eq!(rounds_per_step(&experiment("dapo.toml"), Some(&cut)).expected, None);
    let grpo = rounds_per_step(&experiment("base.toml"), Some(&probe(40)));
    assert_eq!(grpo, Range::exactly(1.0));
}

/// A policy of 135 million parameters.
fn smollm2() -> Config {
    Config {
        family: Family::Llama,
        vocab_size: 49_152,
        hidden_size: 576,
        intermediate_size: 1536,
        num_hidden_layers: 30,
        num_attention_heads: 9,
        num_key_value_heads: 3,
        head_dim: 64,
        max_position_embeddings: 8192,
        rope_theta: 1e5,
        rope_scaling: None,
        rms_norm_eps: 1e-5,
        tie_word_embeddings: true,
    }
}

#[test]
fn disk_grows_with_steps_and_lengths_and_holds_the_checkpoints_at_least() {
    let bytes = |steps: u64, probe: Option<TrialProbe>| {
        let mut planned = experiment("dapo.toml");
        planned.training.rollout_steps = steps;
        let (work, config) = (counted(&planned), smollm2());
        space::disk(&planned, &config, &work, probe.as_ref(), Path::new("."))
    };
    let [counted, short, long] = [None, Some(probe(40)), Some(probe(80))].map(|it| bytes(40, it));
    let longer = bytes(80, Some(probe(40)));
    assert_eq!(counted.checkpoint_bytes, 12.0 * 134_515_008.0);
    // Three checkpoints and the next one, a report, and lines and footers of 40 steps.
    assert!(counted.needed_bytes > 4.0 * counted.checkpoint_bytes + 5e5 + 40.0 * 16e3);
    assert!(counted.needed_bytes < short.needed_bytes && short.needed_bytes < long.needed_bytes);
    assert!(short.needed_bytes < longer.needed_bytes && short.most_bytes < longer.most_bytes);
    assert!(long.needed_bytes < long.most_bytes && long.most_bytes == counted.most_bytes);
}

/// The plan of an experiment with a memory-up probe in which nothing is wrong.
fn sound() -> (Experiment, RunPlan) {
    let experiment = experiment("dapo.toml");
    let inputs = inputs::prepare(experiment.clone()).unwrap();
    let mut plan = make(&inputs, Path::new("."), None).unwrap();
    assert_eq!(plan.warnings, []);
    plan.probe = Some(probe(40));
    plan.memory.needed_bytes = 1e9;
    plan.memory.available_bytes = Some(4e9);
    plan.disk.free_bytes = Some(1e12);
    (experiment, plan)
}

#[test]
fn rewards_that_differ_are_something_to_learn_from_unless_dynamic_sampling_drops_their_groups() {
    let (mut experiment, mut plan) = sound();
    let probe = plan.probe.as_mut().unwrap();
    (probe.useful_share, probe.differing_groups) = (0.0, 60);
    let [warning] = &warnings::of(&plan, &experiment)[..] else { panic!("one warning") };
    let words = "dynamic sampling drops all; rewards differ in 60 of 64 groups";
    assert!(warning.message.contains(words), "{warning}");
    experiment.dapo.dynamic_sampling = DynamicSampling::None {};
    experiment.rollout.prompts_per_round = experiment.training.prompts_per_step;
    let names: Vec<Name> = warnings::of(&plan, &experiment).iter().map(|it| it.name).collect();
    assert!(!names.contains(&Name::NothingToLearn), "{names:?}");
}

#[test]
fn responses_that_were_cut_say_nothing_of_accuracy() {
    let (experiment, mut plan) = sound();
    let probe = plan.probe.as_mut().unwrap();
    (probe.useful_share, probe.accuracy, probe.cut_at_tokens) = (0.0, 0.0, Some(8));
    let names: Vec<Name> = warnings::of(&plan, &experiment).iter().map(|it| it.name).collect();
    assert_eq!(names, [Name::ProbeCut]);
}

#[test]
fn every_warning_fires_on_its_cause_and_not_without() {
    let (experiment, plan) = sound();
    assert_eq!(warnings::of(&plan, &experiment), []);
    type Change = fn(&mut RunPlan, &mut Experiment);
    let cases: [(Name, Severity, Change); 21] = [
        (Name::DataRepeats, Severity::Warning, |plan, _| plan.work.epochs_over_data.least = 2.5),
        (Name::DataSmallerThanRound, Severity::Warning, |plan, _| plan.work.problems = 31),
        (Name::WarmUpLong, Severity::Warning, |_, experiment| {
            experiment.optimizer.warm_up.rollout_steps = 21;
        }),
        (Name::NothingToLearn, Severity::Warning, |plan, experiment| {
            plan.probe.as_mut().unwrap().useful_share = 0.0;
            experiment.dapo.dynamic_sampling = DynamicSampling::None {};
        }),
        (Name::TruncationHigh, Severity::Warning, |plan, _| {
            plan.probe.as_mut().unwrap().truncated_share = 0.6;
        }),
        (Name::StopTokenMissing, Severity::Warning, |plan, _| {
            plan.probe.as_mut().unwrap().truncated_share = 1.0;
        }),
        (Name::EndOfTurnUnstopped, Severity::Warning, |plan, _| {
            plan.prompts.unstopped_end_of_turn = Some("<|im_end|> (151645)".into());
        }),
        (Name::EvaluationHeavy, Severity::Warning, |plan, _| plan.work.test_responses = 50_000),
        (Name::MemoryShort, Severity::Warning, |plan, _| {
            plan.memory.available_bytes = Some(0.9e9);
        }),
        (Name::MemoryShort, Severity::Error, |plan, _| plan.memory.available_bytes = Some(0.5e9)),
        (Name::DiskShort, Severity::Warning, |plan, _| {
            plan.disk.most_bytes = 2e12;
        }),
        (Name::DiskShort, Severity::Error, |plan, _| {
            (plan.disk.needed_bytes, plan.disk.most_bytes) = (2e12, 3e12);
        }),
        (Name::AnswerMissing, Severity::Warning, |plan, _| {
            plan.probe.as_mut().unwrap().unanswered = (512, 1024);
        }),
        (Name::ProbeCut, Severity::Warning, |plan, _| {
            plan.probe.as_mut().unwrap().cut_at_tokens = Some(3);
        }),
        (Name::KeysUnread, Severity::Warning, |_, experiment| {
            experiment.dapo.method = Some(Method::Rloo(Rloo {}));
            experiment.dapo.advantage.std = Std::None;
        }),
        (Name::KeysUnread, Severity::Warning, |_, experiment| {
            let beyond = Beyond::Unclamped;
            experiment.dapo.overlong.punishment =
                Punishment::Soft { cache_tokens: 28, factor: 1.0, beyond };
        }),
        (Name::KlWithoutGradient, Severity::Warning, |_, experiment| {
            experiment.dapo.kl = Kl::Penalty { estimator: KlEstimator::K1, coefficient: 0.1 };
        }),
        (Name::TruncatedSampling, Severity::Warning, |_, experiment| {
            experiment.rollout.sampling.top_k = 9;
        }),
        (Name::TruncatedSampling, Severity::Warning, |_, experiment| {
            experiment.rollout.sampling.top_p = 0.9;
            experiment.rollout.sampling.log_probs = Some(LogProbsOver::KeptTokens);
        }),
        (Name::TruncatedSampling, Severity::Warning, |_, experiment| {
            experiment.rollout.sampling.top_p = 0.9;
            experiment.rollout.sampling.log_probs = Some(LogProbsOver::KeptTokens);
            let level = WeightLevel::SequenceMean;
            experiment.dapo.method = Some(Method::Tis(Tis { level, cap: 2.0 }));
        }),
        (Name::GreedySamples, Severity::Warning, |_, experiment| {
            experiment.evaluation.sampling.temperature = 0.0;
            experiment.evaluation.samples.retain(|set, _| set == "mini-aime");
        }),
    ];
    for (name, severity, change) in cases {
        let (mut experiment, mut plan) = (experiment.clone(), plan.clone());
        change(&mut plan, &mut experiment);
        let found = warnings::of(&plan, &experiment);
        let [warning] = &found[..] else { panic!("{name:?}: {found:?}") };
        assert_eq!((warning.name, warning.severity), (name, severity));
        let word = if severity == Severity::Error { "error" } else { "warning" };
        assert!(warning.to_string().starts_with(&format!("{word}[{}]: ", name.text())));
    }
    let fired = |name: Name| cases.iter().any(|(fired, ..)| *fired == name);
    // Those are of the problems and the program that grades, not of the plan.
    let others = [
        Name::AnswerUnreadable,
        Name::RewardNumbers,
        Name::RewardArguments,
        Name::RewardFiles,
        Name::RewardPackages,
        Name::ColumnsUnseen,
        Name::SystemDiffers,
        Name::RowsUncounted,
        Name::DropoutIgnored,
    ];
    let has_case = |name: &Name| fired(*name) || others.contains(name);
    assert!(Name::value_variants().iter().all(has_case), "a name has no case");
}

/// SmolLM2-135M with passes of 2,560 tokens, as its experiment has them: 4.0 GB were measured.
#[test]
fn a_large_policy_needs_what_its_shape_says_in_the_phase_that_needs_most() {
    let mut experiment = experiment("smollm2/dapo.toml");
    let config = smollm2();
    let mut needed = |pass_tokens| {
        experiment.execution.pass_tokens = pass_tokens;
        let memory = space::memory(&experiment, &config, &short_prompts(), 1 << 28, 256);
        assert!(memory.phases.is_empty());
        let process = memory.parts["process"];
        (memory.needed_bytes - process, memory.parts)
    };
    let (bytes, parts) = needed(Some(2560));
    let weights = 4.0 * 134_515_008.0;
    for (name, times) in [("weights", 1.0), ("matrices", 1.0), ("gradients", 1.0), ("moments", 2.0)]
    {
        assert_eq!(parts[name], times * weights, "{name}");
    }
    assert!((3.5e9..5e9).contains(&bytes), "{bytes}");
    // The optimizer's work and a pass are not at the same time.
    assert_eq!((parts["optimizer"] > 0.0, parts["activations"] > 0.0), (false, true));
    let (fewer, parts) = needed(Some(128));
    assert_eq!((parts["optimizer"] > 0.0, parts["activations"] > 0.0), (true, false));
    // A pass has no more tokens than its mini-batch.
    assert!(fewer < bytes && bytes == needed(Some(1 << 20)).0, "{fewer} {bytes}");
}

#[test]
fn the_cache_holds_the_larger_of_a_round_and_an_evaluation_up_to_a_batch() {
    let mut experiment = experiment("base.toml");
    let mut rows = |batch, samples: &[u64; 3]| {
        experiment.execution.generation_batch_rollouts = batch;
        let sets = ["dev", "mini-aime", "mini-aime-plus"].map(str::to_string);
        experiment.evaluation.samples = sets.into_iter().zip(*samples).collect();
        work::generated_rows(&experiment, &data())
    };
    // A round is 32 × 8; the sets have 64, 30 and 256 problems.
    assert_eq!(rows(1 << 20, &[1, 1, 1]), 256);
    assert_eq!(rows(1 << 20, &[4, 32, 2]), 960);
    assert_eq!(rows(512, &[4, 32, 2]), 512);
    assert_eq!(rows(64, &[1, 1, 1]), 64);
    let needed = |rows| space::memory(&experiment, &smollm2(), &short_prompts(), 1 << 28, rows);
    let (few, many) = (needed(256), needed(960));
    assert_eq!(few.parts["process"], f64::from(1 << 28));
    assert_eq!(many.parts["kv_cache"] / few.parts["kv_cache"], 960.0 / 256.0);
}

#[test]
fn a_smaller_pass_is_advised_where_it_is_stated_and_smaller_micro_batches_elsewhere() {
    let (mut experiment, mut plan) = sound();
    plan.memory.available_bytes = Some(0.9e9);
    let mut advised = |pass_tokens| {
        experiment.execution.pass_tokens = pass_tokens;
        warnings::of(&plan, &experiment)[0].message.clone()
    };
    let stated = advised(Some(2560));
    assert!(stated.contains("smaller execution.pass_tokens or"), "{stated}");
    let absent = advised(None);
    assert!(absent.contains("smaller execution.micro_batch_rollouts or"), "{absent}");
}

#[test]
fn names_are_stable() {
    let names: Vec<String> = Name::value_variants().iter().map(|name| name.text()).collect();
    insta::assert_debug_snapshot!(names);
}
