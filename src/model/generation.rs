//! A policy that generates: rows begin with a prompt, take one token at a time, and leave.

use crate::model::cache::KvCache;
use crate::model::cache::fill_holes;
use crate::model::exact::ExactPolicy;
use crate::model::prepared::Prepared;
use crate::model::qwen2::Qwen2;
use crate::numerics::exact::cache::Slots;
use std::sync::Arc;
use tch::Device;
use tch::Kind;
use tch::Tensor;

/// The rows of a generation, by the policy's arithmetic.
pub enum Generation<'a> {
    /// See [`crate::numerics::fast`].
    Fast(Box<Fast<'a>>),
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

/// How a token is drawn for each row: logits `[rows, vocab]`, uniforms `[rows]` → token ids and
/// log-probs, both `[rows]`.
type Draw<'a> = dyn Fn(&Tensor, &Tensor) -> (Tensor, Tensor) + 'a;

/// Rows of a policy whose weights lie as they are stored. Tokens are drawn where they are computed:
/// nothing comes to the processor before a block of them is done.
pub struct Blocks<'a> {
    model: &'a Qwen2,
    prepared: Prepared,
    cache: KvCache,
    device: Device,
}

impl<'a> Blocks<'a> {
    /// No rows yet; at most `rows` at a time, whose longest prompt has `longest` tokens, and `more`
    /// tokens behind it.
    pub fn new(model: &'a Qwen2, rows: usize, longest: usize, more: usize) -> Self {
        let cache = KvCache::preallocated(model, rows, longest, more);
        Self { model, prepared: model.prepare_for_sampling(), cache, device: model.device() }
    }

    /// Reads prompts, adds rows and draws each one's first token: `prompt_of_row` numbers the
    /// prompts. (Token, log-prob) of each new row.
    pub fn join(
        &mut self,
        prompts: &[&[u32]],
        prompt_of_row: &[usize],
        uniforms: &[f64],
        draw: &Draw,
    ) -> Vec<(u32, f64)> {
        let (hidden, length) =
            read(self.model, &self.prepared, &mut self.cache, prompts, prompt_of_row);
        let hidden =
            hidden.flatten(0, 1).index_select(0, &ends(prompts, length).to_device(self.device));
        let logits = self.model.logits(&hidden);
        let rows: Vec<i64> = prompt_of_row.iter().map(|&prompt| prompt as i64).collect();
        let logits = logits.index_select(0, &Tensor::from_slice(&rows).to_device(self.device));
        let uniforms = Tensor::from_slice(uniforms).to_device(self.device);
        let (tokens, log_probs) = draw(&logits, &uniforms);
        pairs(&tokens, &log_probs)
    }

    /// A block of tokens for every row: the newest token of each row and its position in the row;
    /// uniforms `[count, rows]` → (token, log-prob), `[count, rows]`.
    pub fn run(
        &mut self,
        tokens: &[u32],
        positions: &[usize],
        uniforms: &[f64],
        draw: &Draw,
    ) -> Vec<(u32, f64)> {
        let upload = |values: Vec<i64>| Tensor::from_slice(&values).to_device(self.device);
        let mut tokens = upload(tokens.iter().map(|&token| i64::from(token)).collect());
        let mut positions = upload(positions.iter().map(|&position| position as i64).collect());
        let uniforms = Tensor::from_slice(uniforms).to_device(self.device);
        let uniforms = uniforms.view([-1, tokens.size()[0]]);
        // Rows that have ended go on to the end of the block.
        let last = self.model.config().max_position_embeddings - 1;
        let (mut all_tokens, mut all_log_probs) = (Vec::new(), Vec::new());
        for at in 0..uniforms.size()[0] {
            let hidden = self.model.decode(&self.prepared, &tokens, &positions, &mut self.cache);
            let (drawn, log_probs) = draw(&self.model.logits(&hidden), &uniforms.get(at));
            positions = (positions + 1).clamp_max(last);
            tokens = drawn.shallow_clone();
            all_tokens.push(drawn);
            all_log_probs.push(log_probs);
        }
        pairs(&Tensor::cat(&all_tokens, 0), &Tensor::cat(&all_log_probs, 0))
    }

    /// As [`Generation::leave`].
    pub fn leave(&mut self, leaves: &[bool]) {
        self.cache.leave(leaves);
    }
}

/// Both tensors on the processor, side by side.
fn pairs(tokens: &Tensor, log_probs: &Tensor) -> Vec<(u32, f64)> {
    let tokens: Vec<i64> = Vec::try_from(tokens).expect("dense ids");
    let log_probs: Vec<f64> =
        Vec::try_from(log_probs.to_kind(Kind::Double)).expect("a dense tensor");
    tokens.into_iter().map(|token| token as u32).zip(log_probs).collect()
}

/// Reads prompts and adds their rows to a cache: hidden states `[prompts, length, hidden]`, and the
/// longest prompt's length.
fn read(
    model: &Qwen2,
    prepared: &Prepared,
    cache: &mut KvCache,
    prompts: &[&[u32]],
    prompt_of_row: &[usize],
) -> (Tensor, usize) {
    let lengths: Vec<usize> = prompts.iter().map(|prompt| prompt.len()).collect();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let mut tokens = vec![0i64; prompts.len() * longest];
    for (row, prompt) in prompts.iter().enumerate() {
        for (at, &token) in prompt.iter().enumerate() {
            tokens[row * longest + at] = i64::from(token);
        }
    }
    let tokens = Tensor::from_slice(&tokens).view([prompts.len() as i64, longest as i64]);
    let (hidden, kept) = model.prefill(prepared, &tokens.to_device(model.device()));
    cache.join(&kept, longest, &lengths, prompt_of_row);
    (hidden, longest)
}

/// Where each prompt's last token lies among padded prompts of one length.
fn ends(prompts: &[&[u32]], length: usize) -> Tensor {
    let end = |(row, prompt): (usize, &&[u32])| (row * length + prompt.len() - 1) as i64;
    Tensor::from_slice(&prompts.iter().enumerate().map(end).collect::<Vec<_>>())
}

impl<'a> Generation<'a> {
    /// No rows yet; at most `rows` at a time, whose longest prompt has `longest` tokens.
    pub fn new(model: &'a Qwen2, rows: usize, longest: usize) -> Self {
        match model.exact() {
            Some(policy) => Self::Exact(ExactRows { policy, rows: Vec::new() }),
            None => {
                let (prepared, cache) =
                    (model.prepare_for_sampling(), KvCache::new(model, rows, longest));
                Self::Fast(Box::new(Fast { model, prepared, cache }))
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
        let (hidden, length) =
            read(self.model, &self.prepared, &mut self.cache, prompts, prompt_of_row);
        let rows: Vec<i64> = prompt_of_row.iter().map(|&prompt| prompt as i64).collect();
        let last = ends(prompts, length).index_select(0, &Tensor::from_slice(&rows));
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
