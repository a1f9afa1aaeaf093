use super::*;
use crate::algorithm::{AtCap, Beyond, DynamicSampling, FilterMetric, Finish, Selection, Surplus};
use crate::training::effects::tests;
use proptest::prelude::{Strategy, prop_assert, prop_assert_eq};
use proptest::proptest;

const LIMIT: u64 = 20;
const SOFT: Punishment = Punishment::Soft { cache_tokens: 8, factor: 1.0, beyond: Beyond::Clamped };

/// GRPO with groups of four, L_max = 20, two groups a step.
fn experiment() -> Experiment {
    let mut experiment = tests::experiment();
    experiment.rollout.max_response_tokens = LIMIT;
    experiment.training.prompts_per_step = 2;
    experiment
}

/// A group of (tokens, correct); a response of L_max is truncated.
fn group(rollouts: &[(usize, bool)]) -> Group<ScoredRollout> {
    let rollout = |&(tokens, is_correct): &(usize, bool)| {
        let finish = if tokens as u64 == LIMIT { Finish::Length } else { Finish::Stop };
        tests::scored(&"1".repeat(tokens), is_correct, finish, 0.0)
    };
    tests::group(rollouts.iter().map(rollout).collect())
}

/// The step that the pure functions make of groups, as Algorithm 1 does, in one round.
fn of(groups: &[Group<ScoredRollout>], experiment: &Experiment) -> Metrics {
    let dapo = &experiment.dapo;
    let mut groups = groups.to_vec();
    for group in &mut groups {
        dapo.rules().shape(group, LIMIT, dapo);
    }
    let mut selection = Selection::new(dapo, experiment.training.prompts_per_step, Vec::new());
    selection.add_round(groups).unwrap();
    metrics(&selection.select(), experiment)
}

fn mixed() -> Group<ScoredRollout> {
    group(&[(4, true), (16, true), (20, false), (6, false)])
}

fn solved() -> Group<ScoredRollout> {
    group(&[(4, true), (5, true), (18, true), (6, true)])
}

fn failed() -> Group<ScoredRollout> {
    group(&[(4, false), (5, false), (20, false), (6, false)])
}

fn check(metrics: &Metrics, expected: &[(&str, f64)]) {
    for (name, value) in expected {
        let found = metrics.get(&format!("effect/{name}"));
        assert!(found.is_some_and(|found| (found - value).abs() < 1e-12), "{name}: {found:?}");
    }
    assert!(metrics.values().all(|value| value.is_finite()));
}

#[test]
fn punished_responses_are_counted_with_their_penalty_and_their_depth_in_the_cache() {
    let mut experiment = experiment();
    experiment.dapo.overlong.punishment = SOFT;
    // Beyond 12 tokens: 16 → −0.5 and 20 → −1 in the mixed group, 18 → −0.75 in the solved one.
    check(
        &of(&[mixed(), solved()], &experiment),
        &[
            ("soft_punishment_punished_rollouts", 3.0),
            ("soft_punishment_punished_share", 3.0 / 8.0),
            ("soft_punishment_penalty_sum", -2.25),
            ("soft_punishment_penalty_mean", -0.75),
            ("soft_punishment_due_rollouts", 3.0),
            ("soft_punishment_cache_tokens_mean", 6.0),
            ("soft_punishment_beyond_limit_rollouts", 0.0),
            ("soft_punishment_moved_advantages", 8.0),
        ],
    );
    // Switched off: the same rollouts, no penalty, and no advantage moves.
    experiment.dapo.overlong.punishment = Punishment::None {};
    let off = of(&[mixed(), solved()], &experiment);
    check(
        &off,
        &[
            ("soft_punishment_punished_rollouts", 0.0),
            ("soft_punishment_penalty_sum", 0.0),
            ("soft_punishment_moved_advantages", 0.0),
        ],
    );
    assert!(!off.contains_key("effect/soft_punishment_penalty_mean"));
}

#[test]
fn a_penalty_that_is_the_same_for_a_whole_group_moves_no_advantage() {
    let mut experiment = experiment();
    experiment.dapo.overlong.punishment = SOFT;
    let alike = group(&[(16, true), (16, false), (16, false), (16, false)]);
    let metrics = of(&[alike.clone(), alike], &experiment);
    check(
        &metrics,
        &[("soft_punishment_punished_rollouts", 8.0), ("soft_punishment_moved_advantages", 0.0)],
    );
}

#[test]
fn dropped_groups_are_counted_by_kind_and_surplus_is_not_dropped() {
    let mut experiment = experiment();
    let groups = [mixed(), solved(), failed(), failed(), mixed(), mixed()];
    for (surplus, discarded, carried) in [(Surplus::Discard, 1.0, 0.0), (Surplus::Carry, 0.0, 1.0)]
    {
        let at_cap = AtCap::Train;
        experiment.dapo.dynamic_sampling =
            DynamicSampling::Resample { max_rounds: 4, at_cap, surplus, metric: FilterMetric::Acc };
        check(
            &of(&groups, &experiment),
            &[
                ("dynamic_sampling_dropped_all_correct_groups", 1.0),
                ("dynamic_sampling_dropped_all_wrong_groups", 2.0),
                ("dynamic_sampling_dropped_share", 0.5),
                ("dynamic_sampling_refill_rounds", 0.0),
                ("dynamic_sampling_discarded_surplus_groups", discarded),
                ("dynamic_sampling_carried_surplus_groups", carried),
                ("dynamic_sampling_trained_useless_groups", 0.0),
                ("dynamic_sampling_batch_filled_share", 1.0),
            ],
        );
    }
    // By the reward, a group of wrong responses trains where its rewards differ.
    let mut partial = failed();
    partial.rollouts[0].correctness_reward = 0.25;
    experiment.dapo.dynamic_sampling = DynamicSampling::Resample {
        max_rounds: 1,
        at_cap: AtCap::Train,
        surplus: Surplus::Discard,
        metric: FilterMetric::Reward,
    };
    check(
        &of(&[partial, failed(), solved()], &experiment),
        &[
            ("dynamic_sampling_dropped_all_correct_groups", 1.0),
            ("dynamic_sampling_dropped_all_wrong_groups", 1.0),
            ("dynamic_sampling_trained_useless_groups", 0.0),
            ("dynamic_sampling_batch_filled_share", 0.5),
        ],
    );
    // Switched off, useless groups train and none is dropped.
    experiment.dapo.dynamic_sampling = DynamicSampling::None {};
    check(
        &of(&groups[..2], &experiment),
        &[
            ("dynamic_sampling_dropped_all_correct_groups", 0.0),
            ("dynamic_sampling_dropped_all_wrong_groups", 0.0),
            ("dynamic_sampling_trained_useless_groups", 1.0),
        ],
    );
}

#[test]
fn masked_rollouts_are_those_whose_tokens_left_the_loss() {
    let mut experiment = experiment();
    experiment.dapo.overlong.filter = true;
    check(
        &of(&[mixed(), failed()], &experiment),
        &[
            ("overlong_filtering_truncated_rollouts", 2.0),
            ("overlong_filtering_masked_rollouts", 2.0),
            ("overlong_filtering_masked_tokens", 40.0),
        ],
    );
    experiment.dapo.overlong.filter = false;
    check(
        &of(&[mixed(), failed()], &experiment),
        &[
            ("overlong_filtering_truncated_rollouts", 2.0),
            ("overlong_filtering_masked_rollouts", 0.0),
            ("overlong_filtering_masked_tokens", 0.0),
        ],
    );
}

fn groups() -> impl Strategy<Value = Vec<Group<ScoredRollout>>> {
    let rollout = (0..=LIMIT as usize, proptest::bool::ANY);
    let rollouts = proptest::collection::vec(rollout, 4);
    proptest::collection::vec(rollouts.prop_map(|rollouts| group(&rollouts)), 1..6)
}

proptest! {
    #[test]
    fn with_every_technique_off_none_of_them_acts(groups in groups()) {
        let mut experiment = experiment();
        experiment.training.prompts_per_step = groups.len() as u64;
        let metrics = of(&groups, &experiment);
        for name in [
            "soft_punishment_punished_rollouts",
            "soft_punishment_moved_advantages",
            "dynamic_sampling_dropped_all_correct_groups",
            "dynamic_sampling_dropped_all_wrong_groups",
            "overlong_filtering_masked_rollouts",
        ] {
            prop_assert_eq!(metrics[&format!("effect/{name}")], 0.0, "{}", name);
        }
    }

    #[test]
    fn every_generated_group_trains_waits_is_surplus_or_was_dropped(groups in groups()) {
        let mut experiment = experiment();
        let (at_cap, surplus) =
            (AtCap::Train, Surplus::Discard);
        experiment.dapo.dynamic_sampling =
            DynamicSampling::Resample { max_rounds: 1, at_cap, surplus, metric: FilterMetric::Acc };
        experiment.dapo.overlong.punishment = SOFT;
        experiment.dapo.overlong.filter = true;
        let metrics = of(&groups, &experiment);
        let get = |name: &str| metrics[&format!("effect/{name}")];
        let batch = get("dynamic_sampling_batch_filled_share") * 2.0;
        let gone = get("dynamic_sampling_dropped_all_correct_groups")
            + get("dynamic_sampling_dropped_all_wrong_groups")
            + get("dynamic_sampling_discarded_surplus_groups");
        prop_assert_eq!((batch + gone).round() as usize, groups.len());
        prop_assert_eq!(get("dynamic_sampling_trained_useless_groups"), 0.0);
        // Every response beyond L_max − L_cache is punished, and every truncated one masked.
        prop_assert_eq!(
            get("soft_punishment_punished_rollouts"),
            get("soft_punishment_due_rollouts")
        );
        prop_assert_eq!(
            get("overlong_filtering_masked_rollouts"),
            get("overlong_filtering_truncated_rollouts")
        );
        prop_assert!(metrics.values().all(|value| value.is_finite()));
    }
}
