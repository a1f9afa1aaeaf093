//! What frozen weights say of a rollout step's response tokens: π_old, π_ref, and the sampler's distance from them.

use crate::algorithm::{Group, Row, ScoredRollout};
use crate::base::workers;
use crate::numerics::{NumericsError, halving};
use crate::policy::Qwen2;
use crate::policy::batch::{self, Cut, Pass};
use std::collections::BTreeMap;

/// The largest and the mean distance of the sampler's log-probs from the training forward's.
const MISMATCH: [&str; 2] = ["policy/mismatch_max", "policy/mismatch_mean"];

/// Log-probs and entropy in nats: one list for each row, one value for each response token.
#[derive(Debug, Clone, PartialEq)]
pub struct Frozen {
    pub log_probs: Vec<Vec<f64>>,
    pub entropy: Vec<Vec<f64>>,
    /// Passes that memory did not hold and that were made in halves.
    pub passes_halved: u64,
}

/// The training forward without a graph over all rows, in row order.
pub fn read(
    model: &Qwen2,
    rows: &[Row],
    temperature: f64,
    cut: Cut,
) -> Result<Frozen, NumericsError> {
    read_members(model, rows, &(0..rows.len()).collect::<Vec<_>>(), temperature, cut)
}

/// As [`read`] over the rows of `members`; the lists of the others are empty.
pub fn read_members(
    model: &Qwen2,
    rows: &[Row],
    members: &[usize],
    temperature: f64,
    cut: Cut,
) -> Result<Frozen, NumericsError> {
    let empty = vec![Vec::new(); rows.len()];
    let mut frozen = Frozen { log_probs: empty.clone(), entropy: empty, passes_halved: 0 };
    let micro_batches = batch::micro_batches(rows, members, cut.micro_batch_rollouts);
    let cut = |members: &Vec<usize>| batch::passes(rows, members, cut.pass_tokens);
    let passes: Vec<Vec<usize>> = micro_batches.iter().flat_map(cut).collect();
    let read = |model: &Qwen2, members: &[usize]| {
        let pass = Pass::new(rows, members, false);
        model.statistics(&pass.sequences, temperature).map(|values| pass.by_row(&values))
    };
    if !model.is_native() {
        let take = |members: &[usize], read| frozen.put(members, read);
        let work = |members: &[usize]| Ok(read(model, members));
        frozen.passes_halved = workers::together(|| halving::each(passes, work, take))?;
        return Ok(frozen);
    }
    let values = model.map(&passes, |model, members| read(model, members));
    for (members, values) in passes.iter().zip(values) {
        frozen.put(members, values);
    }
    Ok(frozen)
}

type OfRows = [Vec<Vec<f64>>; 2];

impl Frozen {
    /// As [`read`], with the sampler's numbers for `fresh` groups: the same bits if a native policy sampled them.
    pub fn sampled(
        model: &Qwen2,
        rows: &[Row],
        groups: &[&Group<ScoredRollout>],
        fresh: &[bool],
        temperature: f64,
        cut: Cut,
    ) -> Result<Self, NumericsError> {
        let old: Vec<usize> = (0..rows.len()).filter(|&row| !fresh[rows[row].group]).collect();
        let mut frozen = read_members(model, rows, &old, temperature, cut)?;
        let rollouts = groups.iter().flat_map(|group| &group.rollouts).enumerate();
        for (row, scored) in rollouts.filter(|(row, _)| fresh[rows[*row].group]) {
            frozen.log_probs[row] = scored.rollout.rollout_log_probs.clone();
            frozen.entropy[row] = scored.rollout.rollout_entropy.clone();
        }
        Ok(frozen)
    }

    fn put(&mut self, members: &[usize], [log_probs, entropy]: OfRows) {
        for ((&row, log_probs), entropy) in members.iter().zip(log_probs).zip(entropy) {
            self.log_probs[row] = log_probs;
            self.entropy[row] = entropy;
        }
    }

    /// Entropy, mean token probability, and how far the sampler's log-probs lie from these, as
    /// `policy/name` → value. `groups` are those that the rows were made of, in order.
    pub fn metrics(&self, groups: &[&Group<ScoredRollout>]) -> BTreeMap<String, f64> {
        let rollouts = groups.iter().flat_map(|group| &group.rollouts);
        let sampler = rollouts.flat_map(|scored| &scored.rollout.rollout_log_probs);
        let trainer = self.log_probs.iter().flatten().copied();
        let (mut mismatch, mut mismatch_max, mut probability, mut tokens) = (0.0, 0.0f64, 0.0, 0.0);
        for (sampled, trained) in sampler.zip(trainer) {
            let distance = (sampled - trained).abs();
            mismatch += distance;
            mismatch_max = mismatch_max.max(distance);
            probability += libm::exp(trained);
            tokens += 1.0;
        }
        let entropy: f64 = self.entropy.iter().flatten().sum();
        if tokens == 0.0 {
            return BTreeMap::new();
        }
        BTreeMap::from([
            ("policy/entropy".to_string(), entropy / tokens),
            ("policy/token_probability_mean".to_string(), probability / tokens),
            (MISMATCH[1].to_string(), mismatch / tokens),
            (MISMATCH[0].to_string(), mismatch_max),
        ])
    }

    /// Adds how far the first update's training forward, on these weights, lay from these log-probs: sum and maximum.
    pub fn compared(&self, metrics: &mut BTreeMap<String, f64>, sum: f64, most: f64) {
        let tokens: usize = self.log_probs.iter().map(Vec::len).sum();
        let [largest, mean] = MISMATCH;
        metrics.entry(largest.to_string()).and_modify(|value| *value = value.max(most));
        metrics.entry(mean.to_string()).and_modify(|value| *value += sum / tokens as f64);
    }
}
