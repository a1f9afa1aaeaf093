//! What frozen weights say about every response token of a rollout step: π_old, π_ref, and
//! how far the sampler's log-probs lie from the training forward's.

use crate::batch;
use crate::batch::Pass;
use crate::batch::Row;
use crate::model::qwen2::Qwen2;
use crate::records::Group;
use crate::records::ScoredRollout;
use crate::workers;
use std::collections::BTreeMap;

/// Log-probs and entropy in nats: one list for each row, one value for each response token.
#[derive(Debug, Clone, PartialEq)]
pub struct Frozen {
    /// log π of the sampled token.
    pub log_probs: Vec<Vec<f64>>,
    /// Entropy of the distribution that it was drawn from.
    pub entropy: Vec<Vec<f64>>,
}

/// The training forward without a graph over all rows, in row order.
pub fn read(model: &Qwen2, rows: &[Row], temperature: f64, micro_batch_rollouts: usize) -> Frozen {
    let all: Vec<usize> = (0..rows.len()).collect();
    let empty = vec![Vec::new(); rows.len()];
    let mut frozen = Frozen { log_probs: empty.clone(), entropy: empty };
    let micro_batches = batch::micro_batches(rows, &all, micro_batch_rollouts);
    let passes: Vec<Vec<usize>> =
        micro_batches.iter().flat_map(|members| batch::passes(rows, members)).collect();
    let read = workers::map(
        &passes,
        || model.share(),
        |model, members| {
            let pass = Pass::new(rows, members);
            let statistics = pass.token_statistics(model, temperature);
            (pass.by_row(&statistics.log_probs), pass.by_row(&statistics.entropy))
        },
    );
    for (members, (log_probs, entropy)) in passes.iter().zip(read) {
        for ((&row, log_probs), entropy) in members.iter().zip(log_probs).zip(entropy) {
            frozen.log_probs[row] = log_probs;
            frozen.entropy[row] = entropy;
        }
    }
    frozen
}

impl Frozen {
    /// Entropy, mean token probability, and how far the sampler's log-probs lie from these, as
    /// `policy/name` → value. `groups` are those that the rows were made of, in order.
    pub fn metrics(&self, groups: &[Group<ScoredRollout>]) -> BTreeMap<String, f64> {
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
            ("policy/mismatch_mean".to_string(), mismatch / tokens),
            ("policy/mismatch_max".to_string(), mismatch_max),
        ])
    }
}
