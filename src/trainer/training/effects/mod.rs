//! Metrics of a rollout step before and after filtering: the paper's figures, and the effect of each technique.

pub mod techniques;

use crate::algorithm::objective::Sums;
use crate::algorithm::{Dapo, Group, ScoredRollout, Selected, WeightShift};
use crate::experiment::Experiment;
use crate::records::metrics::{self, DeterminedBy};
use crate::task::Embedded;
use crate::task::data::embedded;
use crate::training::{Rounding, Updated};
use std::collections::BTreeMap;

/// `stage/name` → value; without the mean of nothing and what is not finite.
pub type Metrics = BTreeMap<String, f64>;

/// Mean over all generated tokens of a step, of the sampler's distribution; from format 2 on.
pub const ROLLOUT_ENTROPY: &str = "policy/rollout_entropy";

/// Mean over all generated tokens of a step, by the sampler's log-probs; from format 2 on.
pub const ROLLOUT_PROBABILITY: &str = "policy/rollout_token_probability_mean";

/// Sums over a response's tokens in order, then over the responses. `entropy`: the sum, if known.
fn sampled(groups: &[&Group<ScoredRollout>], entropy: Option<f64>) -> Metrics {
    let (mut probability, mut tokens) = (0.0, 0.0);
    for scored in groups.iter().flat_map(|group| &group.rollouts) {
        let log_probs = &scored.rollout.rollout_log_probs;
        probability += log_probs.iter().map(|log_prob| libm::exp(*log_prob)).sum::<f64>();
        tokens += log_probs.len() as f64;
    }
    let entropy = entropy.map(|sum| (ROLLOUT_ENTROPY, sum / tokens));
    named("", entropy.into_iter().chain([(ROLLOUT_PROBABILITY, probability / tokens)]))
}

/// Functions of the rollouts. `entropy`: the sum over the new responses, if known.
pub fn of_rollouts(step: &Selected, experiment: &Experiment, entropy: Option<f64>) -> Metrics {
    let new: Vec<&Group<ScoredRollout>> = step.generated().iter().collect();
    let task = embedded::of(&experiment.inputs.data);
    let mut metrics = generated(&new, step.rounds, task.as_deref(), &experiment.dapo);
    if experiment.record_format() > 1 {
        metrics.extend(sampled(&new, entropy));
    }
    if experiment.record_format() > 2 {
        metrics.extend(spread(&new));
    }
    metrics.extend(techniques::metrics(step, experiment));
    let masked = step.rows.iter().filter(|row| !row.in_loss).count() as u64;
    metrics.extend(trained(&step.trained(), masked));
    // verl's Dynamic Sampling does not record all groups.
    if !experiment.records_every_group() {
        metrics.retain(|name, _| {
            metrics::of(name).is_none_or(|metric| metric.of != DeterminedBy::Generated)
        });
    }
    metrics
}

/// JSON has no infinity and no NaN: a line with one could not be read again.
fn named(prefix: &str, values: impl IntoIterator<Item = (&'static str, f64)>) -> Metrics {
    let finite = values.into_iter().filter(|(_, value)| value.is_finite());
    finite.map(|(name, value)| (format!("{prefix}{name}"), value)).collect()
}

pub const GENERATED_ROLLOUTS: &str = "rollout/generated_rollouts";

/// Groups that verl generated and did not train on, as it counts them.
const LEFT_OUT: [&str; 3] =
    ["engine/evicted_groups", "engine/discarded_surplus_groups", "engine/failed_groups"];

/// [`GENERATED_ROLLOUTS`] of a step whose records lack groups, from the trainer's own counts of these; else `None`.
pub fn generated_by_engine(step: &Metrics, experiment: &Experiment) -> Option<f64> {
    let trained = step.get("train/groups").filter(|_| !experiment.records_every_group())?;
    let left_out: f64 = LEFT_OUT.iter().filter_map(|name| step.get(*name)).sum();
    Some((trained + left_out) * experiment.rollout.group_size as f64)
}

/// Metrics before Dynamic Sampling. A generated `task` adds how responses were written.
fn generated(
    groups: &[&Group<ScoredRollout>],
    rounds: u64,
    task: Option<&dyn Embedded>,
    dapo: &Dapo,
) -> Metrics {
    let count = groups.len() as f64;
    let share = |of: &dyn Fn(&Group<ScoredRollout>) -> bool| {
        groups.iter().filter(|group| of(group)).count() as f64 / count
    };
    let size = |group: &Group<ScoredRollout>| group.rollouts.len();
    let rollouts: Vec<&ScoredRollout> = groups.iter().flat_map(|group| &group.rollouts).collect();
    let values = [
        ("rounds", rounds as f64),
        ("groups", count),
        ("groups_all_correct_share", share(&|group| group.correct() == size(group))),
        ("groups_all_wrong_share", share(&|group| group.correct() == 0)),
        ("groups_useful_share", share(&|group| dapo.rules().is_useful(group, dapo))),
        ("generated_rollouts", rollouts.len() as f64),
        ("generated_tokens", rollouts.iter().map(|r| r.rollout.tokens.len() as f64).sum()),
    ];
    let mut metrics = named("rollout/", described(groups).into_iter().chain(values));
    if let Some(task) = task
        && !rollouts.is_empty()
    {
        let mut responses: Vec<(&str, &str)> = Vec::with_capacity(rollouts.len());
        for group in groups {
            let question = group.prompt.problem.question.as_str();
            responses.extend(group.rollouts.iter().map(|it| (question, it.rollout.text.as_str())));
        }
        let measures = task.measures(&responses).into_iter();
        metrics.extend(measures.map(|(name, value)| (format!("rollout/{name}"), value)));
    }
    metrics
}

/// From format 3 on: spread of rewards and lengths before Dynamic Sampling, mean length of correct and wrong responses.
fn spread(groups: &[&Group<ScoredRollout>]) -> Metrics {
    let rollouts: Vec<&ScoredRollout> = groups.iter().flat_map(|group| &group.rollouts).collect();
    let rewards: Vec<f64> = rollouts.iter().map(|rollout| rollout.reward()).collect();
    let length = |rollout: &&ScoredRollout| rollout.rollout.tokens.len() as f64;
    let mut lengths: Vec<f64> = rollouts.iter().map(length).collect();
    lengths.sort_by(f64::total_cmp);
    // The smallest length that this share of responses does not exceed.
    let quantile = |share: f64| {
        let rank = (share * lengths.len() as f64).ceil() as usize;
        lengths.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let of = |correct: bool| -> Vec<f64> {
        rollouts.iter().filter(|rollout| rollout.is_correct == correct).map(length).collect()
    };
    let centre = mean(&rewards);
    let squares: Vec<f64> = rewards.iter().map(|it| (it - centre) * (it - centre)).collect();
    let values = [
        ("reward_std", mean(&squares).sqrt()),
        ("response_tokens_p10", quantile(0.1)),
        ("response_tokens_p50", quantile(0.5)),
        ("response_tokens_p90", quantile(0.9)),
        ("response_tokens_correct_mean", mean(&of(true))),
        ("response_tokens_wrong_mean", mean(&of(false))),
    ];
    named("rollout/", values)
}

/// Metrics after Dynamic Sampling. `masked` rollouts are in the batch but not in the loss.
fn trained(groups: &[&Group<ScoredRollout>], masked: u64) -> Metrics {
    let rollouts: usize = groups.iter().map(|group| group.rollouts.len()).sum();
    let values = [
        ("groups", groups.len() as f64),
        ("rollouts", rollouts as f64),
        ("masked_rollouts", masked as f64),
    ];
    named("train/", described(groups).into_iter().chain(values))
}

/// Prefix of another trainer's own measurements.
pub const OF_ENGINE: &str = "engine/";

/// Forward passes and updates, or a program's further numbers, alone determine it, and a run of this experiment can have it.
pub fn is_of_updates(name: &str, experiment: &Experiment) -> bool {
    metrics::of(name).is_some_and(|metric| {
        let in_no_table = [DeterminedBy::Updates, DeterminedBy::Verifier].contains(&metric.of);
        in_no_table && metric.is_recorded_by(experiment)
    })
}

#[derive(Debug, Clone, Default)]
pub struct Updates {
    sums: Sums,
    clipped: Vec<ClippedTokens>,
    norms: Vec<f64>,
    weight_shifts: Vec<WeightShift>,
    rounding: Option<Rounding>,
    /// Updates that were left out because a number was not finite.
    pub skipped: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct ClippedTokens {
    high: u64,
    low: u64,
    all: u64,
}

impl Updates {
    pub fn add(&mut self, update: &Updated) {
        self.sums.add(&update.sums);
        let Sums { clipped_high: high, clipped_low: low, tokens: all, .. } = update.sums;
        self.clipped.push(ClippedTokens { high, low, all });
        self.norms.push(update.gradient_norm);
        self.weight_shifts.extend(update.weight_shift);
        if let Some(rounding) = &update.rounding {
            self.rounding.get_or_insert_default().add(rounding);
        }
    }

    /// `loss/…`, `optimizer/…`, and `effect/…` of techniques that act in the loss.
    pub fn metrics(&self, max_norm: f64, learning_rate: f64) -> Metrics {
        let updates = self.norms.len() as f64;
        if self.norms.is_empty() {
            return named("optimizer/", [("learning_rate", learning_rate)]);
        }
        let largest = self.norms.iter().copied().fold(0.0, f64::max);
        let clipped = self.norms.iter().filter(|&&norm| norm > max_norm).count() as f64;
        let optimizer = [
            ("gradient_norm_mean", self.norms.iter().sum::<f64>() / updates),
            ("gradient_norm_max", largest),
            ("clipped_updates_share", clipped / updates),
            ("learning_rate", learning_rate),
        ];
        let value = ("value", self.sums.loss / updates);
        let mut metrics = named("loss/", self.sums.means().into_iter().chain([value]));
        metrics.extend(named("optimizer/", optimizer));
        metrics.extend(self.effects());
        metrics.extend(self.rounding.iter().flat_map(rounding_metrics));
        metrics
    }

    /// Quarters of the updates, the first nearest to π_old; from format 3 on. One without loss tokens is left out.
    pub fn clipped_by_quarter(&self) -> Metrics {
        let mut quarters = [ClippedTokens::default(); 4];
        for (index, update) in self.clipped.iter().enumerate() {
            let quarter = &mut quarters[4 * index / self.clipped.len()];
            quarter.high += update.high;
            quarter.low += update.low;
            quarter.all += update.all;
        }
        let mut metrics = Metrics::new();
        for (number, quarter) in (1..).zip(quarters).filter(|(_, quarter)| quarter.all > 0) {
            for (side, clipped) in [("high", quarter.high), ("low", quarter.low)] {
                let share = clipped as f64 / quarter.all as f64;
                metrics.insert(format!("loss/clip_fraction_{side}_quarter_{number}"), share);
            }
        }
        metrics
    }

    fn effects(&self) -> Metrics {
        let Sums { let_through, clipped_high, ref measures, .. } = self.sums;
        let (tokens, let_through) = (self.sums.tokens as f64, let_through as f64);
        let shifts = &self.weight_shifts;
        let mean =
            |of: fn(&WeightShift) -> f64| shifts.iter().map(of).sum::<f64>() / shifts.len() as f64;
        let largest =
            shifts.iter().map(|shift| shift.moved_share).fold(f64::NEG_INFINITY, f64::max);
        let values = [
            ("loss_tokens", tokens),
            ("clip_higher_let_through_tokens", let_through),
            ("clip_higher_clipped_above_tokens", clipped_high as f64),
            ("clip_higher_let_through_share", let_through / tokens),
            ("token_level_loss_moved_share_mean", mean(|shift| shift.moved_share)),
            ("token_level_loss_moved_share_max", largest),
            ("token_level_loss_longest_quarter_weight", mean(|shift| shift.longest_quarter)),
            ("token_level_loss_shortest_quarter_weight", mean(|shift| shift.shortest_quarter)),
        ];
        let measures = measures.iter().map(|(name, sum)| (*name, sum / tokens));
        named("effect/", measures.chain(values))
    }
}

fn rounding_metrics(rounding: &Rounding) -> Metrics {
    let mut metrics = Metrics::new();
    for (name, tally) in [
        ("weights", rounding.weights),
        ("activations", rounding.activations),
        ("gradients", rounding.gradients),
    ] {
        let share = |count: u64| count as f64 / tally.rounded.max(1) as f64;
        metrics.insert(format!("exact/{name}_saturated_share"), share(tally.saturated));
        metrics.insert(format!("exact/{name}_flushed_share"), share(tally.flushed));
    }
    metrics
}

fn described(groups: &[&Group<ScoredRollout>]) -> [(&'static str, f64); 8] {
    let rollouts: Vec<&ScoredRollout> = groups.iter().flat_map(|group| &group.rollouts).collect();
    let mean = |of: &dyn Fn(&ScoredRollout) -> f64| {
        rollouts.iter().map(|rollout| of(rollout)).sum::<f64>() / rollouts.len() as f64
    };
    let share = |of: &dyn Fn(&ScoredRollout) -> bool| mean(&|rollout| f64::from(of(rollout)));
    let lengths = rollouts.iter().map(|r| r.rollout.tokens.len() as f64);
    [
        ("reward_mean", mean(&ScoredRollout::reward)),
        ("correctness_mean", mean(&|r| r.correctness_reward)),
        ("accuracy", share(&|r| r.is_correct)),
        ("response_tokens_mean", mean(&|r| r.rollout.tokens.len() as f64)),
        ("response_tokens_max", lengths.fold(f64::NEG_INFINITY, f64::max)),
        ("truncated_share", share(&|r| r.rollout.truncated())),
        ("overlong_penalty_mean", mean(&|r| r.overlong_penalty)),
        ("punished_share", share(&|r| r.overlong_penalty < 0.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::{AtCap, DynamicSampling, FilterMetric, Surplus};
    use crate::algorithm::{Finish, Problem, Prompt, Rollout};
    use crate::experiment::{MiniAimeVariant, extends};
    use crate::task::data::embedded::mini_aime::MiniAime;

    pub fn experiment() -> Experiment {
        let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        extends::load(&folder.join("experiments/base.toml")).unwrap()
    }

    pub fn scored(text: &str, is_correct: bool, finish: Finish, penalty: f64) -> ScoredRollout {
        let tokens = vec![3; text.len()];
        let log_probs = vec![-0.5; text.len()];
        ScoredRollout {
            rollout: Rollout::new(tokens, log_probs, finish, text.to_string()),
            is_correct,
            prediction: None,
            correctness_reward: if is_correct { 1.0 } else { -1.0 },
            overlong_penalty: penalty,
        }
    }

    pub fn group(rollouts: Vec<ScoredRollout>) -> Group<ScoredRollout> {
        let problem = Problem { id: "a".into(), question: "1+1?".into(), answer: "2".into() };
        Group { prompt: Prompt { problem, tokens: vec![1] }, attempt: 0, rollouts }
    }

    #[test]
    fn a_steps_metrics_count_what_was_generated() {
        let solved = group(vec![
            scored("Answer: 2", true, Finish::Stop, 0.0),
            scored("1+1=2;Answer: 2", true, Finish::Stop, -0.5),
        ]);
        let mixed = group(vec![
            scored("1+1=2;1+1=2;1+1=", false, Finish::Length, -1.0),
            scored("1+1=02,2;Answer: 2", true, Finish::Stop, 0.0),
        ]);
        let failed = group(vec![
            scored("hm", false, Finish::Stop, 0.0),
            scored("Answer: 3", false, Finish::Stop, 0.0),
        ]);
        let task = MiniAime(MiniAimeVariant::Standard);
        let mut dapo = experiment().dapo;
        let metrics = generated(&[&solved, &mixed, &failed], 2, Some(&task), &dapo);
        for (name, value) in [
            ("rollout/groups", 3.0),
            ("rollout/rounds", 2.0),
            ("rollout/generated_rollouts", 6.0),
            ("rollout/groups_all_correct_share", 1.0 / 3.0),
            ("rollout/groups_all_wrong_share", 1.0 / 3.0),
            ("rollout/groups_useful_share", 1.0 / 3.0),
            ("rollout/accuracy", 0.5),
            ("rollout/correctness_mean", 0.0),
            ("rollout/reward_mean", -0.25),
            ("rollout/punished_share", 2.0 / 6.0),
            ("rollout/truncated_share", 1.0 / 6.0),
            ("rollout/response_tokens_max", 18.0),
            ("rollout/style_guess_share", 2.0 / 6.0),
            ("rollout/style_steps_share", 1.0 / 6.0),
            ("rollout/style_careful_share", 1.0 / 6.0),
            ("rollout/style_ramble_share", 1.0 / 6.0),
            ("rollout/style_other_share", 1.0 / 6.0),
        ] {
            assert!((metrics[name] - value).abs() < 1e-12, "{name}: {}", metrics[name]);
        }
        let mut partial = failed.clone();
        partial.rollouts[0].correctness_reward = -0.5;
        let (at_cap, surplus) = (AtCap::Train, Surplus::Discard);
        for (metric, share) in [(FilterMetric::Acc, 0.0), (FilterMetric::Reward, 1.0)] {
            dapo.dynamic_sampling =
                DynamicSampling::Resample { max_rounds: 4, at_cap, surplus, metric };
            let metrics = generated(&[&partial], 1, None, &dapo);
            assert_eq!(metrics["rollout/groups_useful_share"], share);
        }
        let after = trained(&[&mixed], 1);
        assert_eq!((after["train/accuracy"], after["train/masked_rollouts"]), (0.5, 1.0));
    }

    #[test]
    fn spread_has_quantiles_of_length_and_lengths_by_outcome() {
        let right = |tokens: usize| scored(&"1".repeat(tokens), true, Finish::Stop, 0.0);
        let wrong = |tokens: usize| scored(&"1".repeat(tokens), false, Finish::Stop, 0.0);
        let one = group(vec![right(1), right(2), right(3), wrong(10)]);
        let other = group(vec![wrong(20), wrong(4), wrong(5), wrong(6), wrong(7), right(8)]);
        let metrics = spread(&[&one, &other]);
        for (name, value) in [
            ("response_tokens_p10", 1.0),
            ("response_tokens_p50", 5.0),
            ("response_tokens_p90", 10.0),
            ("response_tokens_correct_mean", 3.5),
            ("response_tokens_wrong_mean", 52.0 / 6.0),
            // Four of ten are +1, the others −1.
            ("reward_std", 0.96f64.sqrt()),
        ] {
            let found = metrics[&format!("rollout/{name}")];
            assert!((found - value).abs() < 1e-12, "{name}: {found}");
        }
        let solved = spread(&[&group(vec![right(3)])]);
        assert_eq!(solved["rollout/reward_std"], 0.0);
        assert!(!solved.contains_key("rollout/response_tokens_wrong_mean"), "{solved:?}");
        assert_eq!(spread(&[]), Metrics::new());
    }

    #[test]
    fn clipped_tokens_are_those_of_each_quarter_of_the_updates() {
        let update = |high: u64, all: u64| ClippedTokens { high, low: 2 * high, all };
        let of = |clipped: Vec<ClippedTokens>| {
            let updates = Updates { clipped, ..Updates::default() };
            updates.clipped_by_quarter()
        };
        let eight = (0..8).map(|index| update(index, 10)).collect();
        let metrics = of(eight);
        // Updates 6 and 7 of 0 to 7.
        assert_eq!(metrics["loss/clip_fraction_high_quarter_4"], 13.0 / 20.0);
        assert_eq!(metrics["loss/clip_fraction_low_quarter_1"], 2.0 / 20.0);
        let kind = |name: &String| metrics::of(name).map(|metric| metric.of);
        assert!(
            metrics.keys().all(|name| kind(name) == Some(DeterminedBy::Updates)),
            "{metrics:?}"
        );
        assert_eq!(metrics.len(), 8);
        let two = of(vec![update(1, 4), update(0, 0)]);
        assert_eq!(two.keys().len(), 2, "{two:?}");
        assert_eq!(of(Vec::new()), Metrics::new());
    }

    #[test]
    fn what_is_not_finite_is_left_out() {
        let updates = Updates { norms: vec![f64::INFINITY, 1.0], ..Updates::default() };
        let metrics = updates.metrics(1.0, 0.1);
        assert!(!metrics.contains_key("optimizer/gradient_norm_max"));
        assert_eq!(metrics["optimizer/clipped_updates_share"], 0.5);
        assert!(metrics.values().all(|value| value.is_finite()), "{metrics:?}");
    }

    #[test]
    fn the_mean_of_nothing_is_left_out() {
        let task = MiniAime(MiniAimeVariant::Standard);
        let metrics = generated(&[], 0, Some(&task), &experiment().dapo);
        assert_eq!(metrics["rollout/generated_rollouts"], 0.0);
        assert!(!metrics.contains_key("rollout/reward_mean"));
        assert!(metrics.values().all(|value| value.is_finite()));
    }
}
