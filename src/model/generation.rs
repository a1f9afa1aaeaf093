//! A policy that generates: rows begin with a prompt, take one token at a time, and leave.

use crate::model::cache::KvCache;
use crate::model::cache::fill_holes;
use crate::model::exact::ExactPolicy;
use crate::model::qwen2::Prepared;
use crate::model::qwen2::Qwen2;
use crate::numerics::exact::cache::Slots;
use std::sync::Arc;
use tch::Kind;
use tch::Tensor;

/// The rows of a generation, by the policy's arithmetic.
pub enum Generation<'a> {
    /// See [`crate::numerics::fast`].
    Fast(Fast<'a>),
    /// See [`crate::numerics::exact`].
    Exact(ExactRows),
}

/// Rows under fast arithmetic.
pub struct Fast<'a> {
    model: &'a Qwen2,
    prepared: Prepared,
    cache: KvCache,
}

/// Rows under exact arithmetic: for each its layers.
pub struct ExactRows {
    policy: Arc<ExactPolicy>,
    rows: Vec<Vec<Slots>>,
}

impl<'a> Generation<'a> {
    /// No rows yet; at most `rows` at a time, whose longest prompt has `longest` tokens.
    pub fn new(model: &'a Qwen2, rows: usize, longest: usize) -> Self {
        match model.exact() {
            Some(policy) => Self::Exact(ExactRows { policy, rows: Vec::new() }),
            None => {
                let (prepared, cache) =
                    (model.prepare_for_sampling(), KvCache::new(model, rows, longest));
                Self::Fast(Fast { model, prepared, cache })
            }
        }
    }

    /// Reads prompts and adds rows: `prompt_of_row` numbers the prompts. Logits that follow each
    /// new row's prompt, `[new rows, vocab]`.
    pub fn join(&mut self, prompts: &[&[u32]], prompt_of_row: &[usize]) -> Vec<f64> {
        match self {
            Self::Fast(fast) => fast.join(prompts, prompt_of_row),
            Self::Exact(exact) => exact.join(prompts, prompt_of_row),
        }
    }

    /// Feeds one token to each row, at its position in the row: logits `[rows, vocab]`.
    pub fn feed(&mut self, tokens: &[u32], positions: &[usize]) -> Vec<f64> {
        match self {
            Self::Fast(fast) => fast.feed(tokens, positions),
            Self::Exact(exact) => exact.policy.step(tokens, positions, &mut exact.rows),
        }
    }

    /// Removes rows: `leaves[row]` for each. The last rows take the places of those that leave
    /// before them, as [`fill_holes`] says.
    pub fn leave(&mut self, leaves: &[bool]) {
        match self {
            Self::Fast(fast) => fast.cache.leave(leaves),
            Self::Exact(exact) => {
                for (from, to) in fill_holes(leaves) {
                    exact.rows.swap(from, to);
                }
                exact.rows.truncate(leaves.iter().filter(|leaves| !**leaves).count());
            }
        }
    }
}

impl Fast<'_> {
    fn join(&mut self, prompts: &[&[u32]], prompt_of_row: &[usize]) -> Vec<f64> {
        let lengths: Vec<usize> = prompts.iter().map(|prompt| prompt.len()).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut tokens = vec![0i64; prompts.len() * longest];
        for (row, prompt) in prompts.iter().enumerate() {
            for (at, &token) in prompt.iter().enumerate() {
                tokens[row * longest + at] = i64::from(token);
            }
        }
        let tokens = Tensor::from_slice(&tokens).view([prompts.len() as i64, longest as i64]);
        let (hidden, kept) = self.model.prefill(&self.prepared, &tokens);
        self.cache.join(&kept, longest, &lengths, prompt_of_row);
        let last =
            prompt_of_row.iter().map(|&prompt| (prompt * longest + lengths[prompt] - 1) as i64);
        let last = Tensor::from_slice(&last.collect::<Vec<_>>());
        self.logits(&hidden.flatten(0, 1).index_select(0, &last))
    }

    fn feed(&mut self, tokens: &[u32], positions: &[usize]) -> Vec<f64> {
        let tokens: Vec<i64> = tokens.iter().map(|&token| i64::from(token)).collect();
        let positions: Vec<i64> = positions.iter().map(|&position| position as i64).collect();
        let (tokens, positions) = (Tensor::from_slice(&tokens), Tensor::from_slice(&positions));
        let hidden = self.model.decode(&self.prepared, &tokens, &positions, &mut self.cache);
        self.logits(&hidden)
    }

    fn logits(&self, hidden: &Tensor) -> Vec<f64> {
        let logits = self.model.logits(hidden).to_kind(Kind::Double).flatten(0, -1);
        Vec::try_from(logits).expect("logits are a dense tensor")
    }
}

impl ExactRows {
    fn join(&mut self, prompts: &[&[u32]], prompt_of_row: &[usize]) -> Vec<f64> {
        let policy = &self.policy;
        let heads = policy.settings.heads;
        let layers = policy.decoder.layers.len();
        let mut read: Vec<Vec<Slots>> =
            prompts.iter().map(|_| vec![Slots::default(); layers]).collect();
        let mut keep = |layer: usize, joined: &[f32]| {
            let mut rows = joined.chunks_exact(heads.joined_width());
            for (slots, prompt) in read.iter_mut().zip(prompts) {
                for row in rows.by_ref().take(prompt.len()) {
                    let (_, rest) = row.split_at(heads.queries * heads.width);
                    let (keys, values) = rest.split_at(heads.keys * heads.width);
                    slots[layer].push(heads, keys, values);
                }
            }
        };
        let logits = policy.prefill(prompts, &mut keep);
        self.rows.extend(prompt_of_row.iter().map(|&prompt| read[prompt].clone()));
        let vocabulary = policy.decoder.lm_head.outputs();
        let of_prompt = |&prompt: &usize| &logits[prompt * vocabulary..][..vocabulary];
        prompt_of_row.iter().flat_map(of_prompt).copied().collect()
    }
}
