//! Algorithm 1, lines 5–9, as a pure function: graded groups in; the groups that train, their advantages and the rows
//! of the loss out. The trainer calls it with what it has sampled, the verifier with what a run recorded.

use crate::algorithm::dynamic_sampling::CapReached;
use crate::algorithm::{
    AtCap, Buffer, Dapo, DynamicSampling, Group, RefillNext, Rewarded, ScoredRollout, Surplus,
    overlong,
};

/// One rollout as the loss sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Index of its group in the rollout step's batch.
    pub group: usize,
    pub tokens: Vec<u32>,
    pub prompt_tokens: usize,
    /// Â_i of Eq. 9.
    pub advantage: f64,
    /// False when Overlong Filtering masks this response's loss.
    pub in_loss: bool,
}

impl Row {
    pub fn response_tokens(&self) -> usize {
        self.tokens.len() - self.prompt_tokens
    }

    /// Tokens with `response_mask` 1: all of the response, or none when it is filtered.
    pub fn loss_tokens(&self) -> u64 {
        if self.in_loss { self.response_tokens() as u64 } else { 0 }
    }
}

/// The groups of a rollout step while generation rounds come in.
#[derive(Debug)]
pub struct Selection<'a> {
    dapo: &'a Dapo,
    prompts_per_step: usize,
    carried: usize,
    groups: Vec<Group<ScoredRollout>>,
    buffer: Buffer<usize>,
}

impl<'a> Selection<'a> {
    pub fn new(dapo: &'a Dapo, prompts_per_step: u64, carried: Vec<Group<ScoredRollout>>) -> Self {
        let buffer = Buffer::new((0..carried.len()).collect());
        let prompts_per_step = prompts_per_step as usize;
        Self { dapo, prompts_per_step, carried: carried.len(), groups: carried, buffer }
    }

    /// Adds a generation round of graded and shaped groups (line 6). Returns whether another one is needed (lines 7–8),
    /// or fails at the cap on rounds with `at_cap = "stop"`.
    pub fn add_round(&mut self, round: Vec<Group<ScoredRollout>>) -> Result<bool, CapReached> {
        let added = self.groups.len()..self.groups.len() + round.len();
        self.groups.extend(round);
        let (rules, groups) = (self.dapo.rules(), &self.groups);
        let filter = self.dapo.dynamic_sampling != DynamicSampling::None {};
        self.buffer.add_round(added.collect(), |&index| {
            !filter || rules.is_useful(&groups[index], self.dapo)
        });
        let DynamicSampling::Resample { max_rounds, at_cap, .. } = self.dapo.dynamic_sampling
        else {
            return Ok(false);
        };
        match (self.buffer.next(self.prompts_per_step, max_rounds), at_cap) {
            (RefillNext::Train, _) | (RefillNext::CapReached, AtCap::Train) => Ok(false),
            (RefillNext::SampleMore, _) => Ok(true),
            (RefillNext::CapReached, AtCap::Stop) => {
                let is_dropped = |group: &&Group<ScoredRollout>| {
                    group.rewards_differ() && !rules.is_useful(group, self.dapo)
                };
                let differing = self.generated().iter().filter(is_dropped).count();
                Err(CapReached { differing, ..self.buffer.cap_reached(self.prompts_per_step) })
            }
        }
    }

    pub fn generated(&self) -> &[Group<ScoredRollout>] {
        &self.groups[self.carried..]
    }

    /// Every group so far, and how many of them were carried over.
    pub fn into_groups(self) -> (Vec<Group<ScoredRollout>>, usize) {
        (self.groups, self.carried)
    }

    /// Line 9: which groups train, with their advantages and rows.
    pub fn select(self) -> Selected {
        let surplus = match self.dapo.dynamic_sampling {
            DynamicSampling::None {} => Surplus::Discard,
            DynamicSampling::Resample { surplus, .. } => surplus,
        };
        let rounds = u64::from(self.buffer.rounds());
        let (batch, surplus) = self.buffer.take(self.prompts_per_step, surplus);
        let chosen: Vec<&Group<ScoredRollout>> = batch.iter().map(|&at| &self.groups[at]).collect();
        let (advantages, rows) = rows(&chosen, self.dapo);
        let Self { groups, carried, .. } = self;
        Selected { groups, carried, rounds, batch, surplus, advantages, rows }
    }
}

/// A rollout step before its updates.
#[derive(Debug, Clone)]
pub struct Selected {
    /// Every group, those carried over from the step before in front.
    pub groups: Vec<Group<ScoredRollout>>,
    /// How many of `groups` were carried over.
    pub carried: usize,
    pub rounds: u64,
    /// Indices into `groups` of those that train, in batch order.
    pub batch: Vec<usize>,
    /// Indices into `groups` of those that wait for the next step.
    pub surplus: Vec<usize>,
    /// Â of each rollout of each group of the batch.
    pub advantages: Vec<Vec<f64>>,
    /// The rollouts of the batch as the loss sees them, group by group.
    pub rows: Vec<Row>,
}

impl Selected {
    pub fn generated(&self) -> &[Group<ScoredRollout>] {
        &self.groups[self.carried..]
    }

    pub fn trained(&self) -> Vec<&Group<ScoredRollout>> {
        self.batch.iter().map(|&index| &self.groups[index]).collect()
    }

    pub fn waiting(&self) -> Vec<Group<ScoredRollout>> {
        self.surplus.iter().map(|&index| self.groups[index].clone()).collect()
    }
}

/// What the advantages of a group are made of, with `reward` as its rollouts' reward.
pub fn rewarded(
    group: &Group<ScoredRollout>,
    dapo: &Dapo,
    reward: impl Fn(&ScoredRollout) -> f64,
) -> Vec<Rewarded> {
    let outcome = |scored: &ScoredRollout| {
        let in_loss = overlong::enters_loss(scored.rollout.truncated(), dapo.overlong.filter);
        Rewarded { reward: reward(scored), tokens: scored.rollout.tokens.len() as u64, in_loss }
    };
    group.rollouts.iter().map(outcome).collect()
}

/// Â of each rollout of each group, and the rows of the loss, group by group.
pub fn rows(groups: &[&Group<ScoredRollout>], dapo: &Dapo) -> (Vec<Vec<f64>>, Vec<Row>) {
    let rewarded: Vec<Vec<Rewarded>> =
        groups.iter().map(|group| rewarded(group, dapo, ScoredRollout::reward)).collect();
    let advantages = dapo.rules().advantages(&rewarded, dapo);
    let mut rows = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        for (scored, &advantage) in group.rollouts.iter().zip(&advantages[index]) {
            rows.push(Row {
                group: index,
                tokens: [&group.prompt.tokens[..], &scored.rollout.tokens[..]].concat(),
                prompt_tokens: group.prompt.tokens.len(),
                advantage,
                in_loss: overlong::enters_loss(scored.rollout.truncated(), dapo.overlong.filter),
            });
        }
    }
    (advantages, rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::methods::{opo, reinforce_plus_plus_baseline};
    use crate::algorithm::{Finish, Method, Problem, Prompt, Rollout};

    #[test]
    fn a_filtered_response_keeps_its_length_in_the_baseline_and_none_in_the_loss() {
        let base: toml::Table = include_str!("../experiments/base.toml").parse().unwrap();
        let mut dapo: Dapo = base["dapo"].clone().try_into().unwrap();
        let scored = |(tokens, is_correct)| {
            let finish = if is_correct { Finish::Stop } else { Finish::Length };
            let rollout = Rollout::new(vec![3; tokens], vec![-0.5; tokens], finish, String::new());
            ScoredRollout::new(rollout, is_correct, if is_correct { 1.0 } else { -1.0 })
        };
        let group = |lengths: [(usize, bool); 4]| {
            let problem = Problem { id: "a".into(), question: "1+1?".into(), answer: "2".into() };
            let rollouts = lengths.map(scored).to_vec();
            Group { prompt: Prompt { problem, tokens: vec![1] }, attempt: 0, rollouts }
        };
        let cut = group([(140, false), (91, true), (140, false), (140, false)]);
        dapo.method = Some(Method::Opo(opo::Opo {}));
        for (filter, in_loss) in [(false, 4), (true, 1)] {
            dapo.overlong.filter = filter;
            let (advantages, made) = rows(&[&cut], &dapo);
            let expected = [-182.0, 840.0, -182.0, -182.0].map(|it| it / 511.0);
            let close = |(ours, it): (&f64, f64)| (ours - it).abs() < 1e-12;
            assert!(advantages[0].iter().zip(expected).all(close), "{advantages:?}");
            assert_eq!(made.iter().filter(|row| row.in_loss).count(), in_loss);
        }
        let method = reinforce_plus_plus_baseline::ReinforcePlusPlusBaseline {};
        dapo.method = Some(Method::ReinforcePlusPlusBaseline(method));
        let longer = group([(280, false), (91, true), (140, false), (7, false)]);
        let solved = group([(20, true), (30, true), (30, true), (40, true)]);
        let whitened = |cut: &_| rows(&[cut, &solved], &dapo).0;
        assert_eq!(whitened(&cut), whitened(&longer));
        assert!(dapo.rules().equal_rewards_train() && whitened(&cut)[1][0] != 0.0);
    }
}
