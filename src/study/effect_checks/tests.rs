use super::*;
use crate::algorithm::methods::{Method, tis::Tis, tis::WeightLevel};
use crate::algorithm::{Beyond, DynamicSampling, Kl, KlEstimator, Punishment};
use crate::experiment::{LogProbsOver, extends};
use crate::records::Counters;
use std::collections::BTreeMap;
use std::path::Path;

fn load(name: &str) -> Experiment {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    extends::load(&folder.join(name)).unwrap()
}

/// A run of two steps in which no technique shows, changed.
fn steps(change: &[(&str, f64)]) -> Vec<StepMetrics> {
    let idle = [
        ("effect/clip_higher_clipped_above_tokens", 0.0),
        ("effect/clip_higher_let_through_tokens", 0.0),
        ("effect/dynamic_sampling_dropped_all_correct_groups", 0.0),
        ("effect/dynamic_sampling_dropped_all_wrong_groups", 0.0),
        ("effect/dynamic_sampling_refill_rounds", 0.0),
        ("effect/dynamic_sampling_trained_useless_groups", 0.0),
        ("effect/overlong_filtering_masked_rollouts", 0.0),
        ("effect/overlong_filtering_masked_tokens", 0.0),
        ("effect/overlong_filtering_truncated_rollouts", 0.0),
        ("effect/soft_punishment_moved_advantages", 0.0),
        ("effect/soft_punishment_penalty_sum", 0.0),
        ("effect/soft_punishment_punished_rollouts", 0.0),
        ("effect/dynamic_sampling_batch_filled_share", 1.0),
        ("effect/loss_tokens", 5000.0),
        ("effect/soft_punishment_due_rollouts", 0.0),
        ("effect/token_level_loss_moved_share_mean", 1e-17),
        ("effect/token_level_loss_moved_share_max", 1e-16),
        ("effect/token_level_loss_longest_quarter_weight", 1.0),
        ("effect/token_level_loss_shortest_quarter_weight", 1.0),
        ("loss/ratio_max", 1.1),
        ("optimizer/learning_rate", 1e-4),
        ("rollout/generated_rollouts", 256.0),
        ("rollout/groups", 32.0),
        ("rollout/response_tokens_max", 90.0),
        ("train/rollouts", 256.0),
    ];
    let metrics: BTreeMap<String, f64> =
        idle.iter().chain(change).map(|(name, value)| (name.to_string(), *value)).collect();
    let step = |step| StepMetrics { step, counters: Counters::default(), metrics: metrics.clone() };
    vec![step(1), step(2)]
}

/// Each technique: its name, an arm that has it alone, and what a run records when it acts.
type Case = (&'static str, &'static str, &'static [(&'static str, f64)]);
const CASES: [Case; 5] = [
    (
        "Clip-Higher",
        "arms/clip-higher.toml",
        &[
            ("effect/clip_higher_let_through_tokens", 10.0),
            ("effect/clip_higher_clipped_above_tokens", 4.0),
        ],
    ),
    (
        "Dynamic Sampling",
        "arms/dynamic-sampling.toml",
        &[("effect/dynamic_sampling_dropped_all_wrong_groups", 3.0)],
    ),
    (
        "Token-level loss",
        "arms/token-level-loss.toml",
        &[
            ("effect/token_level_loss_moved_share_mean", 0.2),
            ("effect/token_level_loss_moved_share_max", 0.3),
            ("effect/token_level_loss_longest_quarter_weight", 1.9),
        ],
    ),
    (
        "Overlong Filtering",
        "arms/overlong-filtering.toml",
        &[
            ("effect/overlong_filtering_masked_rollouts", 6.0),
            ("effect/overlong_filtering_truncated_rollouts", 6.0),
            ("effect/overlong_filtering_masked_tokens", 960.0),
        ],
    ),
    (
        "Soft Overlong Punishment",
        "arms/soft-overlong-punishment.toml",
        &[
            ("effect/soft_punishment_punished_rollouts", 8.0),
            ("effect/soft_punishment_due_rollouts", 8.0),
            ("effect/soft_punishment_penalty_sum", -4.0),
            ("effect/soft_punishment_moved_advantages", 20.0),
        ],
    ),
];

fn of<'a>(effects: &'a Effects, technique: &str) -> &'a EffectFinding {
    effects.findings.iter().find(|finding| finding.technique == technique).unwrap()
}

#[test]
fn numbers_that_outgrow_the_windows_of_exact_arithmetic_are_a_warning() {
    let grpo = load("base.toml");
    let warned = |share: f64| {
        let effects = check(&grpo, &steps(&[("exact/weights_saturated_share", share)]));
        effects.named_warnings.iter().any(|warning| warning.name == "exact-saturation")
    };
    assert!(!warned(0.0) && !warned(1e-4));
    assert!(warned(0.02));
}

#[test]
fn each_technique_that_is_on_and_acts_is_said_to_act_and_the_others_to_be_off() {
    for (technique, arm, acts) in CASES {
        let effects = check(&load(arm), &steps(acts));
        assert_eq!(effects.warnings(), Vec::<String>::new(), "{arm}");
        for finding in &effects.findings {
            let is_own = finding.technique == technique;
            let expected = if is_own { EffectVerdict::Acted } else { EffectVerdict::Off };
            assert_eq!(finding.verdict, expected, "{arm}: {finding:?}");
            assert_eq!(finding.enabled, is_own);
        }
    }
}

#[test]
fn each_technique_that_is_on_and_does_nothing_is_a_warning() {
    for (technique, arm, _) in CASES {
        let effects = check(&load(arm), &steps(&[]));
        assert_eq!(of(&effects, technique).verdict, EffectVerdict::EnabledButDidNothing, "{arm}");
        let warnings = effects.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with(&format!("{technique} is on and did nothing: ")));
    }
}

#[test]
fn each_technique_that_is_off_and_acts_is_a_warning() {
    for (technique, _, acts) in CASES {
        let effects = check(&load("base.toml"), &steps(acts));
        assert_eq!(of(&effects, technique).verdict, EffectVerdict::DisabledButActed);
        let warnings = effects.warnings();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with(&format!("{technique} is off and acted: ")));
    }
}

#[test]
fn a_penalty_that_is_printed_and_never_reaches_an_advantage_is_a_warning() {
    // What the released code did with the reward loop on: enabled, and trained without it.
    let arm = load("arms/soft-overlong-punishment.toml");
    let skipped = steps(&[("effect/soft_punishment_due_rollouts", 8.0)]);
    let warning = check(&arm, &skipped).warnings().remove(0);
    assert!(warning.contains("0 of 512 responses (0.00 %) were punished; 16 were longer"));
    let unused = steps(&[
        ("effect/soft_punishment_punished_rollouts", 8.0),
        ("effect/soft_punishment_penalty_sum", -4.0),
    ]);
    let warning = check(&arm, &unused).warnings().remove(0);
    assert!(warning.contains("by 0.500 on average"), "{warning}");
    assert!(warning.ends_with("0 of 512 trained advantages moved"), "{warning}");
    // Off, a penalty is a warning even where no advantage moved.
    let off = check(&load("base.toml"), &unused);
    assert_eq!(of(&off, "Soft Overlong Punishment").verdict, EffectVerdict::DisabledButActed);
}

#[test]
fn the_evidence_says_why_a_technique_could_not_act() {
    let mut one_update = load("arms/clip-higher.toml");
    one_update.training.mini_batch_rollouts =
        one_update.training.prompts_per_step * one_update.rollout.group_size;
    let warning = check(&one_update, &steps(&[])).warnings().remove(0);
    assert!(warning.contains("one update"), "{warning}");
    let warning = check(&load("arms/clip-higher.toml"), &steps(&[])).warnings().remove(0);
    assert!(warning.ends_with("the largest ratio was 1.100"), "{warning}");

    let mut alone = load("arms/token-level-loss.toml");
    alone.dapo.token_mean_unit = TokenMeanUnit::MicroBatch;
    let warnings = check(&alone, &steps(&[])).warnings();
    assert!(warnings[0].contains("one response"), "{warnings:?}");
    assert!(warnings[1].starts_with("micro-batch-token-mean: "), "{warnings:?}");

    let mut sums = load("base.toml");
    sums.dapo.aggregation = Aggregation::ResponseSum;
    let effects = check(&sums, &steps(CASES[2].2));
    let finding = &effects.findings[2];
    assert_eq!((finding.verdict, effects.warnings()), (EffectVerdict::Explained, Vec::new()));
    let why = "\"response-sum\" weighs all tokens alike too";
    assert!(finding.evidence.contains(why), "{finding:?}");
}

#[test]
fn a_clip_range_that_the_method_does_not_read_did_nothing() {
    for name in ["cispo", "dppo-tv", "gmpo", "gspo", "kl-cov", "sapo", "vespo"] {
        let symmetric = load(&format!("methods/{name}.toml"));
        let mut higher = symmetric.clone();
        higher.dapo.clip.high = 0.28;
        for (experiment, verdict) in
            [(symmetric, EffectVerdict::Off), (higher, EffectVerdict::EnabledButDidNothing)]
        {
            let effects = check(&experiment, &steps(CASES[0].2));
            let finding = of(&effects, "Clip-Higher");
            assert_eq!((finding.verdict, finding.dose), (verdict, Some(0.0)), "{name}");
            assert!(finding.evidence.ends_with("does not read dapo.clip"), "{finding:?}");
        }
    }
    let mut mis = load("methods/mis.toml");
    mis.dapo.clip.high = 0.28;
    let effects = check(&mis, &steps(CASES[0].2));
    assert_eq!(of(&effects, "Clip-Higher").verdict, EffectVerdict::Acted);
}

#[test]
fn carried_groups_are_those_that_wait_at_the_end_and_grow_old_beyond_a_batch() {
    let experiment = load("arms/dynamic-sampling.toml");
    let carried = |waiting: f64| {
        let mut metrics = steps(&[(findings::CARRIED, 3.0)]);
        metrics[1].metrics.insert(findings::CARRIED.to_string(), waiting);
        check(&experiment, &metrics)
    };
    let few = carried(22.0);
    let evidence = &of(&few, "Dynamic Sampling").evidence;
    assert!(evidence.contains("; 22 useful groups beyond the batch still wait"), "{evidence}");
    assert_eq!(few.named_warnings, []);
    let many = carried(experiment.training.prompts_per_step as f64 + 1.0);
    assert_eq!(many.named_warnings[0].name, "carried-groups-grow-old");
    assert!(!of(&carried(0.0), "Dynamic Sampling").evidence.contains("wait"));
    let one = carried(1.0);
    let evidence = &of(&one, "Dynamic Sampling").evidence;
    assert!(evidence.contains("; 1 useful group beyond the batch still waits"), "{evidence}");
}

#[test]
fn a_step_at_learning_rate_zero_and_length_bands_are_named() {
    let mut experiment = load("arms/token-level-loss.toml");
    experiment.training.mini_batch_order = MiniBatchOrder::LengthBands;
    let mut metrics = steps(CASES[2].2);
    metrics[0].metrics.insert("optimizer/learning_rate".to_string(), 0.0);
    let effects = check(&experiment, &metrics);
    let names: Vec<&str> = effects.named_warnings.iter().map(|warning| warning.name).collect();
    assert_eq!(names, ["learning-rate-zero", "length-band-mini-batches"]);
    assert!(effects.warnings()[0].contains("rollout step 1 ran at learning rate 0"));
}

#[test]
fn truncated_sampling_is_named_unless_the_method_weighs_it_away() {
    let said = |arm: &str, log_probs, level| {
        let mut experiment = load(arm);
        experiment.rollout.sampling.top_p = 0.9;
        experiment.rollout.sampling.log_probs = log_probs;
        if let Some(level) = level {
            experiment.dapo.method = Some(Method::Tis(Tis { level, cap: 2.0 }));
        }
        let named = check(&experiment, &steps(&[])).named_warnings;
        let named = named.into_iter().find(|warning| warning.name == "truncated-sampling");
        named.map(|warning| warning.sentence).unwrap_or_default()
    };
    let kept = Some(LogProbsOver::KeptTokens);
    assert!(said("methods/tis.toml", None, None).contains("the ratio is over all of it"));
    for arm in ["base.toml", "methods/gspo.toml", "methods/vespo.toml"] {
        assert!(said(arm, kept, None).contains("alone read rollout.sampling.log_probs"), "{arm}");
    }
    assert!(said("base.toml", kept, Some(WeightLevel::SequenceMean)).contains("geometric mean"));
    for level in [WeightLevel::Token, WeightLevel::Sequence] {
        assert_eq!(said("base.toml", kept, Some(level)), "");
    }
    assert_eq!(said("methods/mis.toml", kept, None), "");
}

#[test]
fn a_useless_group_in_a_dynamically_sampled_batch_is_named() {
    let acts = [
        ("effect/dynamic_sampling_dropped_all_wrong_groups", 3.0),
        ("effect/dynamic_sampling_trained_useless_groups", 1.0),
    ];
    let effects = check(&load("arms/dynamic-sampling.toml"), &steps(&acts));
    assert_eq!(effects.named_warnings[0].name, "useless-groups-trained");
    // Without the technique such groups train by design.
    let grpo = check(&load("base.toml"), &steps(&acts[1..]));
    assert_eq!(grpo.warnings(), Vec::<String>::new());
    let trained = "; 2 groups of equal correctness were trained on";
    let said = |experiment: &Experiment| {
        let evidence =
            of(&check(experiment, &steps(&acts[1..])), "Dynamic Sampling").evidence.clone();
        evidence.split_once(trained).unwrap().1.to_string()
    };
    assert!(of(&grpo, "Dynamic Sampling").evidence.contains(trained));
    for name in ["base", "methods/rloo", "methods/gspo"] {
        assert_eq!(said(&load(&format!("{name}.toml"))), " and had no gradient", "{name}");
    }
    let mut penalty = load("base.toml");
    let estimator = KlEstimator::K3;
    penalty.dapo.kl = Kl::Penalty { estimator, coefficient: 0.04 };
    let lengths = load("arms/soft-overlong-punishment.toml");
    let whitened = load("methods/reinforce-plus-plus-baseline.toml");
    for experiment in [penalty, lengths, whitened, load("methods/kl-cov.toml")] {
        assert_eq!(said(&experiment), "", "{}", experiment.name);
    }
}

#[test]
fn an_arm_is_named_by_the_method_that_it_is() {
    for (arm, name) in [("luspo", "LUSPO"), ("gspo", "GSPO"), ("rloo", "RLOO")] {
        let effects = check(&load(&format!("methods/{arm}.toml")), &steps(&[]));
        assert_eq!(effects.findings.last().unwrap().technique, name);
    }
}

#[test]
fn a_batch_that_was_not_full_is_in_the_evidence() {
    let acts = [
        ("effect/dynamic_sampling_dropped_all_correct_groups", 10.0),
        ("effect/dynamic_sampling_discarded_surplus_groups", 2.0),
        ("effect/dynamic_sampling_batch_filled_share", 0.75),
    ];
    let effects = check(&load("arms/dynamic-sampling.toml"), &steps(&acts));
    let evidence = &of(&effects, "Dynamic Sampling").evidence;
    assert!(evidence.contains("20 of 64 sampled groups (31.25 %) were dropped"), "{evidence}");
    assert!(evidence.contains("4 useful groups beyond the batch discarded"), "{evidence}");
    assert!(evidence.contains("2 of 2 steps trained on a batch that was not full (least 75.00 %)"));
}

#[test]
fn a_run_without_records_is_not_judged() {
    let old = vec![StepMetrics {
        step: 1,
        counters: Counters::default(),
        metrics: [("rollout/reward_mean".to_string(), 0.1)].into(),
    }];
    for metrics in [vec![], old] {
        let effects = check(&load("dapo.toml"), &metrics);
        assert!(effects.findings.iter().all(|f| f.verdict == EffectVerdict::NotRecorded));
        assert_eq!(effects.warnings(), Vec::<String>::new());
    }
}

#[test]
fn a_share_that_is_small_does_not_read_as_nothing() {
    let acts = [("effect/clip_higher_let_through_tokens", 1.0), ("effect/loss_tokens", 40_000.0)];
    let effects = check(&load("arms/clip-higher.toml"), &steps(&acts));
    let evidence = &of(&effects, "Clip-Higher").evidence;
    assert!(evidence.starts_with("2 of 80,000 loss tokens (0.0025 %)"), "{evidence}");
}

#[test]
fn a_factor_of_zero_is_a_punishment_that_does_nothing() {
    let mut experiment = load("arms/soft-overlong-punishment.toml");
    let beyond = Beyond::Clamped;
    experiment.dapo.overlong.punishment =
        Punishment::Soft { cache_tokens: 32, factor: 0.0, beyond };
    experiment.dapo.dynamic_sampling = DynamicSampling::None {};
    let effects = check(&experiment, &steps(&[("effect/soft_punishment_due_rollouts", 9.0)]));
    let finding = of(&effects, "Soft Overlong Punishment");
    assert_eq!(finding.verdict, EffectVerdict::EnabledButDidNothing);
}
