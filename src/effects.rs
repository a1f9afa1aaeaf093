//! What a rollout step looked like, before and after filtering, as named metrics: the numbers
//! behind the paper's figures, and what each technique did.

use crate::dapo::dynamic_sampling;
use crate::data::mini_aime::solution;
use crate::data::mini_aime::solution::Style;
use crate::records::Group;
use crate::records::ScoredRollout;
use std::collections::BTreeMap;

/// `stage/name` → value. A value that does not exist (the mean of nothing) is left out.
pub type Metrics = BTreeMap<String, f64>;

/// Metrics of everything that was generated in a step, before Dynamic Sampling.
///
/// `styles` adds the shares of the embedded benchmark's solution styles.
pub fn generated(groups: &[&Group<ScoredRollout>], rounds: u64, styles: bool) -> Metrics {
    let mut metrics = described("rollout", groups);
    let count = groups.len() as f64;
    let share = |of: &dyn Fn(&Group<ScoredRollout>) -> bool| {
        groups.iter().filter(|group| of(group)).count() as f64 / count
    };
    let size = |group: &Group<ScoredRollout>| group.rollouts.len();
    let mut put = |name: &str, value: f64| {
        metrics.insert(format!("rollout/{name}"), value);
    };
    put("rounds", rounds as f64);
    put("groups", count);
    if !groups.is_empty() {
        put("groups_all_correct_share", share(&|group| group.correct() == size(group)));
        put("groups_all_wrong_share", share(&|group| group.correct() == 0));
        put(
            "groups_useful_share",
            share(&|group| dynamic_sampling::is_useful(group.correct(), size(group))),
        );
    }
    let rollouts: Vec<&ScoredRollout> = groups.iter().flat_map(|group| &group.rollouts).collect();
    put("generated_rollouts", rollouts.len() as f64);
    put("generated_tokens", rollouts.iter().map(|r| r.rollout.tokens.len() as f64).sum());
    if styles && !rollouts.is_empty() {
        for (name, share) in style_shares(&rollouts) {
            put(&format!("style_{name}_share"), share);
        }
    }
    metrics
}

/// Metrics of the batch that the step trains on, after Dynamic Sampling. `masked` rollouts
/// are in the batch but not in the loss (Overlong Filtering).
pub fn trained(groups: &[&Group<ScoredRollout>], masked: u64) -> Metrics {
    let mut metrics = described("train", groups);
    let rollouts: usize = groups.iter().map(|group| group.rollouts.len()).sum();
    metrics.insert("train/groups".to_string(), groups.len() as f64);
    metrics.insert("train/rollouts".to_string(), rollouts as f64);
    metrics.insert("train/masked_rollouts".to_string(), masked as f64);
    metrics
}

/// Reward, accuracy and length of rollouts, under `stage/`.
fn described(stage: &str, groups: &[&Group<ScoredRollout>]) -> Metrics {
    let rollouts: Vec<&ScoredRollout> = groups.iter().flat_map(|group| &group.rollouts).collect();
    let mut metrics = Metrics::new();
    if rollouts.is_empty() {
        return metrics;
    }
    let mean = |of: &dyn Fn(&ScoredRollout) -> f64| {
        rollouts.iter().map(|rollout| of(rollout)).sum::<f64>() / rollouts.len() as f64
    };
    let share = |of: &dyn Fn(&ScoredRollout) -> bool| mean(&|rollout| f64::from(of(rollout)));
    let longest = rollouts.iter().map(|r| r.rollout.tokens.len()).max().unwrap_or(0);
    for (name, value) in [
        ("reward_mean", mean(&ScoredRollout::reward)),
        ("correctness_mean", mean(&|r| r.correctness_reward)),
        ("accuracy", share(&|r| r.is_correct)),
        ("response_tokens_mean", mean(&|r| r.rollout.tokens.len() as f64)),
        ("response_tokens_max", longest as f64),
        ("truncated_share", share(&|r| r.rollout.truncated())),
        ("overlong_penalty_mean", mean(&|r| r.overlong_penalty)),
        ("punished_share", share(&|r| r.overlong_penalty < 0.0)),
    ] {
        metrics.insert(format!("{stage}/{name}"), value);
    }
    metrics
}

fn style_shares(rollouts: &[&ScoredRollout]) -> BTreeMap<&'static str, f64> {
    let mut shares: BTreeMap<&'static str, f64> =
        Style::ALL.iter().map(|style| (style.name(), 0.0)).collect();
    shares.insert("other", 0.0);
    for rollout in rollouts {
        let name = solution::style_of(&rollout.rollout.text).map_or("other", Style::name);
        *shares.entry(name).or_default() += 1.0 / rollouts.len() as f64;
    }
    shares
}
