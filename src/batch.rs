//! Groups with advantages → rows → mini-batches → padded micro-batches, and the training
//! forward over one micro-batch.

use crate::config::MiniBatchOrder;
use crate::config::Training;
use crate::dapo::length_bands::length_bands;
use crate::dapo::overlong;
use crate::model::qwen2::Qwen2;
use crate::numerics;
use crate::records::Group;
use crate::records::ScoredRollout;
use crate::rng::Stream;
use tch::Kind;
use tch::Tensor;

/// One rollout as the loss sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Index of its group in the rollout step's batch.
    pub group: usize,
    /// Prompt and response token ids.
    pub tokens: Vec<u32>,
    /// How many of them are the prompt.
    pub prompt_tokens: usize,
    /// Â_i of Eq. 9.
    pub advantage: f64,
    /// False when Overlong Filtering masks this response's loss.
    pub in_loss: bool,
}

impl Row {
    /// Length of the response.
    pub fn response_tokens(&self) -> usize {
        self.tokens.len() - self.prompt_tokens
    }

    /// Tokens with `response_mask` 1: all of the response, or none when it is filtered.
    pub fn loss_tokens(&self) -> u64 {
        if self.in_loss { self.response_tokens() as u64 } else { 0 }
    }
}

/// The rows of a rollout step, group by group, in the order of `groups`. `advantages[g][i]`
/// belongs to rollout i of group g.
pub fn rows(
    groups: &[Group<ScoredRollout>],
    advantages: &[Vec<f64>],
    overlong_filter: bool,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        for (scored, &advantage) in group.rollouts.iter().zip(&advantages[index]) {
            rows.push(Row {
                group: index,
                tokens: [&group.prompt.tokens[..], &scored.rollout.tokens[..]].concat(),
                prompt_tokens: group.prompt.tokens.len(),
                advantage,
                in_loss: overlong::enters_loss(scored.rollout.truncated(), overlong_filter),
            });
        }
    }
    rows
}

/// Row indices of each mini-batch. Groups stay whole under `shuffled-groups`; the last
/// mini-batch is smaller when the step trains on fewer groups than planned.
pub fn mini_batches(rows: &[Row], training: &Training, mut order: Stream) -> Vec<Vec<usize>> {
    let ordered: Vec<usize> = match training.mini_batch_order {
        MiniBatchOrder::ShuffledGroups => {
            let groups = rows.iter().map(|row| row.group + 1).max().unwrap_or(0);
            let mut members: Vec<Vec<usize>> = vec![Vec::new(); groups];
            for (index, row) in rows.iter().enumerate() {
                members[row.group].push(index);
            }
            order.shuffle(&mut members);
            members.concat()
        }
        MiniBatchOrder::LengthBands => {
            let lengths: Vec<u64> = rows.iter().map(|row| row.tokens.len() as u64).collect();
            length_bands(&lengths, 1)
        }
    };
    ordered.chunks(training.mini_batch_rollouts as usize).map(<[usize]>::to_vec).collect()
}

/// Cuts rows into micro-batches of at most `size`, longest first, so that rows of one
/// micro-batch are padded little. Only where and how the sum is computed depends on it.
pub fn micro_batches(rows: &[Row], members: &[usize], size: usize) -> Vec<Vec<usize>> {
    let mut sorted = members.to_vec();
    sorted.sort_by_key(|&row| (std::cmp::Reverse(rows[row].tokens.len()), row));
    sorted.chunks(size.max(1)).map(<[usize]>::to_vec).collect()
}

/// Padded tensors of one micro-batch.
#[derive(Debug)]
pub struct MicroBatch {
    /// Prompt and response without the last token, right-padded: `[batch, length]`.
    tokens: Tensor,
    /// Sampled tokens: `[batch, response]`.
    targets: Tensor,
    /// Where in `tokens` the state that predicts each target lies: `[batch, response]`.
    states: Tensor,
    /// True on response tokens, filtered or not: `[batch, response]`.
    pub response_mask: Tensor,
    /// True on response tokens that enter the loss: `[batch, response]`.
    pub loss_mask: Tensor,
    /// Â_i: `[batch, 1]`.
    pub advantages: Tensor,
}

impl MicroBatch {
    /// Packs the chosen rows.
    pub fn new(rows: &[Row], members: &[usize]) -> Self {
        let chosen = || members.iter().map(|&member| &rows[member]);
        let batch = members.len();
        let length = chosen().map(|row| row.tokens.len().saturating_sub(1)).max().unwrap_or(0);
        let width = chosen().map(Row::response_tokens).max().unwrap_or(0);
        let mut tokens = vec![0i64; batch * length];
        let mut targets = vec![0i64; batch * width];
        let mut states = vec![0i64; batch * width];
        let mut response_mask = vec![false; batch * width];
        let mut loss_mask = vec![false; batch * width];
        for (at, row) in chosen().enumerate() {
            for (place, &token) in row.tokens[..row.tokens.len() - 1].iter().enumerate() {
                tokens[at * length + place] = i64::from(token);
            }
            for (place, &token) in row.tokens[row.prompt_tokens..].iter().enumerate() {
                let slot = at * width + place;
                targets[slot] = i64::from(token);
                states[slot] = (row.prompt_tokens + place - 1) as i64;
                response_mask[slot] = true;
                loss_mask[slot] = row.in_loss;
            }
        }
        let advantages: Vec<f64> = chosen().map(|row| row.advantage).collect();
        let shape = [batch as i64, width as i64];
        Self {
            tokens: Tensor::from_slice(&tokens).view([batch as i64, length as i64]),
            targets: Tensor::from_slice(&targets).view(shape),
            states: Tensor::from_slice(&states).view(shape),
            response_mask: Tensor::from_slice(&response_mask).view(shape),
            loss_mask: Tensor::from_slice(&loss_mask).view(shape),
            advantages: Tensor::from_slice(&advantages)
                .to_kind(Kind::Float)
                .view([batch as i64, 1]),
        }
    }

    /// Values for each response token, one list a row, as a padded tensor `[batch, response]`.
    pub fn pad(&self, values: &[&[f32]]) -> Tensor {
        let (batch, width) = self.targets.size2().expect("targets have two dimensions");
        let mut padded = vec![0f32; (batch * width) as usize];
        for (at, row) in values.iter().enumerate() {
            padded[at * width as usize..][..row.len()].copy_from_slice(row);
        }
        Tensor::from_slice(&padded).view([batch, width])
    }

    /// The training forward: log π_θ of each response token at `temperature`, in nats:
    /// `[batch, response]`, with its graph.
    pub fn log_probs(&self, model: &Qwen2, temperature: f64) -> Tensor {
        numerics::log_probs(&self.logits(model), &self.targets, temperature)
    }

    /// As [`MicroBatch::log_probs`], with the entropy of the distribution that each token was
    /// drawn from.
    pub fn token_statistics(&self, model: &Qwen2, temperature: f64) -> TokenStatistics {
        let logits = self.logits(model);
        TokenStatistics {
            log_probs: numerics::log_probs(&logits, &self.targets, temperature),
            entropy: numerics::entropy(&logits, temperature),
        }
    }

    /// Logits that predict each response token: `[batch, response, vocab]`.
    fn logits(&self, model: &Qwen2) -> Tensor {
        let hidden = model.forward(&self.tokens); // [batch, length, hidden]
        let width = hidden.size()[2];
        let (batch, response) = self.states.size2().expect("states have two dimensions");
        let index = self.states.unsqueeze(-1).expand([batch, response, width], true);
        model.logits(&hidden.gather(1, &index, false))
    }
}

/// What the training forward says about each response token.
#[derive(Debug)]
pub struct TokenStatistics {
    /// log π_θ(o_t | q, o_<t): `[batch, response]`.
    pub log_probs: Tensor,
    /// Entropy of the distribution that o_t was drawn from: `[batch, response]`.
    pub entropy: Tensor,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Purpose;
    use crate::rng::stream;

    fn row(group: usize, prompt: usize, response: usize) -> Row {
        Row {
            group,
            tokens: (0..(prompt + response) as u32).collect(),
            prompt_tokens: prompt,
            advantage: 1.0,
            in_loss: true,
        }
    }

    fn training(mini_batch_rollouts: u64, mini_batch_order: MiniBatchOrder) -> Training {
        Training {
            rollout_steps: 1,
            prompts_per_step: 4,
            mini_batch_rollouts,
            epochs_per_step: 1,
            mini_batch_order,
        }
    }

    #[test]
    fn shuffled_groups_stay_whole_and_every_row_trains_once() {
        let rows: Vec<Row> = (0..12).map(|i| row(i / 3, 2, 1 + i)).collect();
        let order = stream(1, Purpose::MiniBatchOrder, &[]);
        let batches = mini_batches(&rows, &training(6, MiniBatchOrder::ShuffledGroups), order);
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [6, 6]);
        for batch in &batches {
            for trio in batch.chunks(3) {
                assert!(trio.iter().all(|&i| rows[i].group == rows[trio[0]].group));
            }
        }
        let mut all = batches.concat();
        all.sort_unstable();
        assert_eq!(all, (0..12).collect::<Vec<_>>());
    }

    #[test]
    fn length_bands_put_similar_lengths_together() {
        let rows: Vec<Row> = (0..16).map(|i| row(i / 4, 2, 1 + (i * 7) % 16)).collect();
        let order = stream(1, Purpose::MiniBatchOrder, &[]);
        let batches = mini_batches(&rows, &training(4, MiniBatchOrder::LengthBands), order);
        let spread = |batch: &Vec<usize>| {
            let lengths: Vec<usize> = batch.iter().map(|&i| rows[i].tokens.len()).collect();
            lengths.iter().max().unwrap() - lengths.iter().min().unwrap()
        };
        // Sixteen lengths 1…16 in four bands of every second length: at most 7 apart.
        assert!(batches.iter().all(|batch| spread(batch) <= 7), "{batches:?}");
    }

    #[test]
    fn the_stop_token_is_a_target_and_the_first_target_is_predicted_by_the_last_prompt_token() {
        let rows = [row(0, 3, 2), row(0, 2, 4)];
        let micro = MicroBatch::new(&rows, &[0, 1]);
        let values = |tensor: &Tensor| Vec::<i64>::try_from(tensor.flatten(0, -1)).unwrap();
        assert_eq!(values(&micro.targets), [3, 4, 0, 0, 2, 3, 4, 5]);
        assert_eq!(values(&micro.states), [2, 3, 0, 0, 1, 2, 3, 4]);
        assert_eq!(values(&micro.response_mask.to_kind(Kind::Int64)), [1, 1, 0, 0, 1, 1, 1, 1]);
        // The last token predicts nothing and is not fed.
        assert_eq!(micro.tokens.size(), [2, 5]);
    }

    #[test]
    fn a_filtered_row_keeps_its_response_but_leaves_the_loss() {
        let rows = [Row { in_loss: false, ..row(0, 3, 2) }];
        let micro = MicroBatch::new(&rows, &[0]);
        assert_eq!(rows[0].loss_tokens(), 0);
        assert_eq!(micro.loss_mask.sum(Kind::Int64).int64_value(&[]), 0);
        assert_eq!(micro.response_mask.sum(Kind::Int64).int64_value(&[]), 2);
    }
}
