use super::*;
use crate::algorithm::AtCap;
use crate::experiment::extends;
use crate::training::run::inputs;
use crate::training::{Name, Rates, Share};
use proptest::prelude::prop_assert;
use proptest::proptest;
use std::path::PathBuf;

fn experiment(name: &str) -> Experiment {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("experiments");
    extends::load(&folder.join(name)).unwrap()
}

fn sizes() -> Sizes {
    let tests = vec![("mini-aime".to_string(), 30), ("mini-aime-plus".to_string(), 256)];
    Sizes { train: 17_000, dev: 64, tests }
}

fn counted(experiment: &Experiment) -> Work {
    Work::new(experiment, &sizes(), work::rounds_without_forecast(experiment))
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
    let none = Sizes { train: 0, dev: 0, tests: Vec::new() };
    let work = Work::new(&nothing, &none, work::rounds_without_forecast(&nothing));
    assert!(work.epochs_over_data.least.is_finite() && work.test_responses == 0);
}

fn lengths(mean: u64) -> Measured {
    let training = Lengths::new((1..2 * mean).collect()).unwrap();
    Measured {
        probe: probe(),
        correct: vec![1; 64],
        training_correct: None,
        evaluation: training.clone(),
        evaluation_correct: None,
        training,
    }
}

fn probe() -> Probe {
    let decode = cost::DecodeRate { iteration_seconds: 1e-3, token_seconds: 1e-5 };
    let pass =
        cost::PassRate { micro_batch_seconds: 1e-3, token_seconds: 1e-5, padding_share: 1.0 };
    Probe {
        seconds: 1.0,
        processor_share: Some(1.0),
        groups: 64,
        response_tokens_mean: 40.0,
        response_tokens_percentiles: [1, 40, 79],
        correct_response_tokens_mean: None,
        truncated_share: 0.1,
        accuracy: 0.125,
        evaluation_response_tokens_mean: 40.0,
        generated_tokens_per_second: 1e4,
        cut_at_tokens: None,
        peak_memory_bytes: Some(1 << 29),
        rates: Rates {
            generation: decode,
            evaluation: decode,
            old_log_probs: pass,
            update: pass,
            optimizer_seconds: 0.01,
            checkpoint_seconds: 0.05,
            ..Rates::default()
        },
    }
}

proptest! {
    #[test]
    fn more_steps_rollouts_and_longer_responses_never_take_less_time(
        steps in 1u64..200,
        more_steps in 0u64..50,
        prompts in 1u64..64,
        more_prompts in 0u64..16,
        // Responses of twice the mean are below L_max.
        mean in 2u64..60,
        longer in 0u64..40,
        every in 0u64..12,
    ) {
        let total = |steps: u64, prompts: u64, mean: u64| {
            let mut planned = experiment("base.toml");
            planned.training.rollout_steps = steps;
            planned.training.prompts_per_step = prompts;
            planned.rollout.prompts_per_round = prompts;
            planned.training.mini_batch_rollouts = 8;
            planned.evaluation.every_steps = every;
            let work = counted(&planned);
            let made = estimates(&planned, &sizes(), &work, None, &lengths(mean), 13.0);
            (made.point.seconds["total"], made.bound.seconds["total"], made.point.rollouts)
        };
        let (point, bound, rollouts) = total(steps, prompts, mean);
        let larger = total(steps + more_steps, prompts + more_prompts, mean + longer);
        prop_assert!(larger.0 >= point * (1.0 - 1e-9), "{point} {larger:?}");
        prop_assert!(larger.1 >= bound * (1.0 - 1e-9) && larger.2 >= rollouts);
        prop_assert!(bound >= point);
    }
}

/// The plan of an experiment with a made-up probe in which nothing is wrong.
fn sound() -> (Experiment, Plan) {
    let experiment = experiment("dapo.toml");
    let inputs = inputs::prepare(experiment.clone()).unwrap();
    let mut plan = make(&inputs, Path::new("."), false).unwrap();
    assert_eq!(plan.warnings, []);
    let measured = lengths(40);
    plan.forecast = Some(Forecast::new(&[1, 2, 0, 3].repeat(16), 8, refill(&experiment)));
    let (sizes, forecast) = (sizes(), plan.forecast.as_ref());
    plan.estimates = Some(estimates(&experiment, &sizes, &plan.work, forecast, &measured, 13.0));
    plan.probe = Some(measured.probe);
    plan.memory.needed_bytes = 1e9;
    plan.memory.available_bytes = Some(4e9);
    plan.disk.free_bytes = Some(1e12);
    (experiment, plan)
}

#[test]
fn every_warning_fires_on_its_cause_and_not_without() {
    let (experiment, plan) = sound();
    assert_eq!(warnings::of(&plan, &experiment), []);
    type Change = fn(&mut Plan, &mut Experiment);
    let cases: [(Name, Severity, Change); 16] = [
        (Name::DataRepeats, Severity::Warning, |plan, _| plan.work.epochs_over_data.least = 2.5),
        (Name::DataSmallerThanRound, Severity::Warning, |plan, _| plan.work.problems = 31),
        (Name::WarmUpLong, Severity::Warning, |_, experiment| {
            experiment.optimizer.warm_up.rollout_steps = 21;
        }),
        (Name::NothingToLearn, Severity::Warning, |plan, experiment| {
            plan.forecast = Some(Forecast::new(&[0, 8, 8, 0], 8, None));
            experiment.dapo.dynamic_sampling = DynamicSampling::None {};
        }),
        (Name::RefillCap, Severity::Warning, |plan, experiment| {
            plan.forecast = Some(Forecast::new(&[0, 0, 0, 0, 1], 8, refill(experiment)));
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
        (Name::EvaluationHeavy, Severity::Warning, |plan, _| {
            let seconds = &mut plan.estimates.as_mut().unwrap().point.seconds;
            seconds.insert("evaluation".into(), 0.6 * seconds["total"]);
        }),
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
        (Name::ProbeCut, Severity::Warning, |plan, _| {
            plan.probe.as_mut().unwrap().cut_at_tokens = Some(3);
        }),
        (Name::MachineBusy, Severity::Warning, |plan, _| {
            plan.probe.as_mut().unwrap().processor_share = Some(0.5);
        }),
        (Name::RefillCap, Severity::Warning, |plan, experiment| {
            experiment.dapo.dynamic_sampling = DynamicSampling::Resample {
                max_rounds: 1,
                at_cap: AtCap::Stop,
                surplus: Surplus::Discard,
            };
            plan.forecast = Some(Forecast::new(&[0, 1, 2, 0], 8, refill(experiment)));
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
    assert!(Name::ALL.iter().all(|(name, _)| fired(*name)), "a name has no case");
}

#[test]
fn names_are_stable() {
    let names: Vec<String> = Name::ALL.iter().map(|(name, _)| name.text()).collect();
    insta::assert_debug_snapshot!(names);
}

#[test]
fn a_plan_survives_being_written() {
    let (_, plan) = sound();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let record = Record { plan, actual: None };
    files::write_json(&path, &record).unwrap();
    assert_eq!(files::read_json::<Record>(&path).unwrap(), record);
}

#[test]
fn an_observed_share_lies_in_its_interval() {
    for (hits, trials) in [(0, 1), (1, 1), (3, 7), (64, 64)] {
        let share = Share::wilson(hits, trials);
        assert!(share.low <= share.value && share.value <= share.high, "{share:?}");
    }
}
