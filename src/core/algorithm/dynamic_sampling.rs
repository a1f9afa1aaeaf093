//! Dynamic Sampling, §3.2: which groups train (Eq. 11), and the buffer that is refilled (Algorithm 1, lines 6–8).

use serde::{Deserialize, Serialize};

/// Dynamic Sampling, §3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum DynamicSampling {
    None {},
    /// Groups that are all correct or all wrong are dropped, and further prompts sampled until the batch is full.
    Resample {
        /// Cap on generation rounds for one rollout step; 0 is no cap.
        max_rounds: u32,
        at_cap: AtCap,
        surplus: Surplus,
        #[serde(default, skip_serializing_if = "FilterMetric::is_acc")]
        metric: FilterMetric,
    },
}

/// What must differ within a group, as verl's `algorithm.filter_groups.metric`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilterMetric {
    #[default]
    Acc,
    /// The reward without the length penalty.
    Reward,
}

impl FilterMetric {
    fn is_acc(&self) -> bool {
        *self == Self::Acc
    }
}

/// What Dynamic Sampling does when its cap is reached with the batch not full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtCap {
    /// Stop the run with an error that names the kept share (released code).
    Stop,
    /// Train on the groups there are; with none at all the run ends as saturated.
    Train,
}

/// What happens to useful groups that the batch has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Surplus {
    /// Thrown away, the batch keeps the first in data order (released code).
    Discard,
    /// Kept for later rollout steps, which train on the oldest first: off-policy by at least one step, and by more the
    /// more groups wait.
    Carry,
}

/// The constraint of DAPO Eq. 11: `0 < |{o_i | is_equivalent(a, o_i)}| < G`. Under GRPO without penalties only
/// such a group has a gradient. It looks at correctness, never at the shaped reward: a filter on the latter keeps solved
/// groups as soon as one response is punished for length.
pub fn is_useful(correct: usize, group_size: usize) -> bool {
    0 < correct && correct < group_size
}

/// Of groups in which all responses are correct or all wrong: what would keep those whose rewards differ.
pub fn kept_by_reward(differing: usize, groups: usize) -> String {
    if differing == 0 {
        return String::new();
    }
    format!(
        "; rewards differ in {differing} of {groups} groups, in which all responses count as correct or all as \
         wrong: a lower reward.verifier.threshold, or dapo.dynamic_sampling.metric = \"reward\", keeps them"
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefillNext {
    Train,
    SampleMore,
    CapReached,
}

/// The buffer of Algorithm 1 for one rollout step. `G` is one group.
#[derive(Debug, Clone)]
pub struct Buffer<G> {
    groups: Vec<G>,
    rounds: u32,
    sampled: usize,
    kept: usize,
}

impl<G> Buffer<G> {
    pub fn new(carried: Vec<G>) -> Self {
        Self { groups: carried, rounds: 0, sampled: 0, kept: 0 }
    }

    /// Adds one generation round: useful groups stay, in data order. Returns how many.
    pub fn add_round(&mut self, groups: Vec<G>, useful: impl Fn(&G) -> bool) -> usize {
        self.rounds += 1;
        self.sampled += groups.len();
        let before = self.groups.len();
        self.groups.extend(groups.into_iter().filter(|group| useful(group)));
        let kept = self.groups.len() - before;
        self.kept += kept;
        kept
    }

    /// Whether to train on `target` groups or to sample again. `max_rounds` counts the rounds of this step, the
    /// current one included; 0 is no cap (dapo_ray_trainer.py:277-290 of the released recipe).
    pub fn next(&self, target: usize, max_rounds: u32) -> RefillNext {
        if self.groups.len() >= target {
            RefillNext::Train
        } else if max_rounds > 0 && self.rounds >= max_rounds {
            RefillNext::CapReached
        } else {
            RefillNext::SampleMore
        }
    }

    /// The batch (the first `target` groups in data order, or all if fewer) and what the next step gets.
    pub fn take(mut self, target: usize, surplus: Surplus) -> (Vec<G>, Vec<G>) {
        let rest = self.groups.split_off(target.min(self.groups.len()));
        (self.groups, if surplus == Surplus::Carry { rest } else { Vec::new() })
    }

    pub fn len(&self) -> usize {
        self.groups.len()
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    pub fn cap_reached(&self, target: usize) -> CapReached {
        CapReached {
            rounds: self.rounds,
            kept: self.kept,
            sampled: self.sampled,
            buffered: self.groups.len(),
            target,
            differing: 0,
        }
    }
}

/// The cap on generation rounds was reached with the batch not full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "dynamic sampling reached its cap of {rounds} rounds with {buffered} of {target} groups: \
     {kept} of {sampled} sampled groups were kept{}; a larger dapo.dynamic_sampling.max_rounds (0: no cap) samples \
     on, and at_cap = \"train\" trains on the groups there are",
    kept_by_reward(*differing, *sampled)
)]
pub struct CapReached {
    pub rounds: u32,
    pub kept: usize,
    pub sampled: usize,
    pub buffered: usize,
    pub target: usize,
    pub differing: usize,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq};
    use proptest::proptest;

    #[test]
    fn only_groups_between_all_wrong_and_all_correct_are_useful() {
        let useful: Vec<usize> = (0..=4).filter(|correct| is_useful(*correct, 4)).collect();
        assert_eq!(useful, [1, 2, 3]);
        assert!(!is_useful(0, 1) && !is_useful(1, 1) && !is_useful(0, 0));
    }

    #[test]
    fn the_cap_counts_the_current_round() {
        let mut buffer = Buffer::new(vec![]);
        assert_eq!(buffer.next(2, 2), RefillNext::SampleMore);
        assert_eq!(buffer.add_round(vec![1, 2, 3], |group| *group == 2), 1);
        assert_eq!(buffer.next(2, 2), RefillNext::SampleMore);
        assert_eq!(buffer.next(2, 1), RefillNext::CapReached);
        assert_eq!(buffer.next(1, 1), RefillNext::Train);
        buffer.add_round(vec![4], |_| false);
        assert_eq!(buffer.next(2, 2), RefillNext::CapReached);
        assert_eq!(buffer.next(2, 0), RefillNext::SampleMore);
        let message = buffer.cap_reached(2).to_string();
        assert!(
            message.contains("1 of 2 groups") && message.contains("1 of 4 sampled"),
            "{message}"
        );
    }

    #[test]
    fn switched_off_solved_groups_stay_in_the_batch() {
        let correct = [4, 1, 0, 3];
        let batch = |useful: &dyn Fn(&usize) -> bool| {
            let mut buffer = Buffer::new(vec![]);
            buffer.add_round(correct.to_vec(), useful);
            buffer.take(2, Surplus::Discard).0
        };
        assert_eq!(batch(&|correct| is_useful(*correct, 4)), [1, 3]);
        assert_eq!(batch(&|_| true), [4, 1]);
    }

    #[test]
    fn surplus_is_discarded_or_comes_first_in_the_next_step() {
        let filled = || {
            let mut buffer = Buffer::new(vec![10, 11]);
            buffer.add_round(vec![1, 2, 3], |group| *group != 2);
            buffer
        };
        assert_eq!(filled().take(3, Surplus::Discard), (vec![10, 11, 1], vec![]));
        assert_eq!(filled().take(3, Surplus::Carry), (vec![10, 11, 1], vec![3]));
        assert_eq!(filled().take(9, Surplus::Carry), (vec![10, 11, 1, 3], vec![]));
        assert_eq!(Buffer::new(vec![1, 2]).next(2, 1), RefillNext::Train);
    }

    proptest! {
        #[test]
        fn no_useful_group_is_lost_or_reordered(
            rounds in proptest::collection::vec(proptest::collection::vec(0usize..=4, 0..6), 0..5),
            target in 0usize..12,
        ) {
            let mut buffer = Buffer::new(vec![]);
            let mut kept = 0;
            for round in &rounds {
                kept += buffer.add_round(round.clone(), |correct| is_useful(*correct, 4));
            }
            let expected: Vec<usize> =
                rounds.concat().into_iter().filter(|correct| is_useful(*correct, 4)).collect();
            prop_assert_eq!(kept, expected.len());
            let (mut batch, carried) = buffer.take(target, Surplus::Carry);
            prop_assert!(batch.len() == target.min(expected.len()));
            batch.extend(carried);
            prop_assert_eq!(batch, expected);
        }
    }
}
