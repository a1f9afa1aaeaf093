//! Generation on LibTorch's tensors, for policies whose weights lie as they are stored. The device that computes tokens
//! draws them, a block of them before anybody looks whether a row has ended, so that it never waits; what a row draws
//! beyond its end is dropped.

use crate::policy::sampling::lane::{Drawing, LaneRow, Newest};
use crate::policy::sampling::tensor_sampler::{self, Drawn};
use crate::policy::{KvCache, Limits, Prepared, Qwen2, Sequences, Token};
use tch::{Kind, Tensor};

/// Tokens between two looks at rows whose weights lie as they are stored. On average a row computes half in vain.
pub const BLOCK: usize = 16;

pub struct Blocks<'a> {
    model: &'a Qwen2,
    prepared: Prepared,
    cache: KvCache,
}

impl<'a> Blocks<'a> {
    /// No rows yet; at most `rows` at a time, whose longest prompt has `longest` tokens, and `more` tokens behind it.
    pub fn new(model: &'a Qwen2, rows: usize, longest: usize, more: usize) -> Self {
        let cache = KvCache::new(model, rows, longest, more);
        Self { model, prepared: model.prepare_for_sampling(), cache }
    }
}

impl Drawing for Blocks<'_> {
    const MOST_PROMPT_TOKENS: usize = 1 << 15;

    fn begin(&mut self, prompts: &[&[u32]], rows: &mut [LaneRow], limits: &Limits) -> Vec<Token> {
        let Self { model, prepared, cache } = self;
        let device = model.device();
        let (tokens, last) = Sequences::of_prompts(prompts).padded();
        let (hidden, kept) = model.prefill(prepared, &tokens.to_device(device));
        let prompt_of_row: Vec<usize> = rows.iter().map(|row| row.prompt).collect();
        cache.join(&kept, prompts, &prompt_of_row);
        let logits = model.logits(&hidden.flatten(0, 1).index_select(0, &last.to_device(device)));
        let logits = logits.index_select(0, &indices(&prompt_of_row).to_device(device));
        let uniforms: Vec<f64> = rows.iter_mut().map(|row| row.stream.uniform()).collect();
        let uniforms = Tensor::from_slice(&uniforms).to_device(device);
        on_the_processor(&[draw(&logits, &uniforms, limits)])
    }

    fn go_on(&mut self, newest: Newest, rows: &mut [LaneRow], limits: &Limits) -> Vec<Token> {
        let Self { model, prepared, cache } = self;
        let (device, count) = (model.device(), rows.len());
        let mut uniforms = vec![0.0; BLOCK.min(newest.most) * count];
        for (at, row) in rows.iter_mut().enumerate() {
            uniforms.iter_mut().skip(at).step_by(count).for_each(|u| *u = row.stream.uniform());
        }
        let uniforms = Tensor::from_slice(&uniforms).to_device(device).view([-1, count as i64]);
        let ids: Vec<i64> = newest.tokens.into_iter().map(i64::from).collect();
        let mut tokens = Tensor::from_slice(&ids).to_device(device);
        let mut positions = indices(&newest.positions).to_device(device);
        // Rows that have ended go on to the end of the block.
        let last = model.config().max_position_embeddings - 1;
        let mut all = Vec::new();
        for at in 0..uniforms.size()[0] {
            let hidden = model.decode(prepared, &tokens, &positions, cache);
            let drawn = draw(&model.logits(&hidden), &uniforms.get(at), limits);
            positions = (positions + 1).clamp_max(last);
            tokens = drawn.tokens.shallow_clone();
            all.push(drawn);
        }
        on_the_processor(&all)
    }

    fn remove(&mut self, leaves: &[bool]) {
        self.cache.leave(leaves);
    }
}

/// A token for each row: logits `[rows, vocab]`, uniforms `[rows]`.
fn draw(logits: &Tensor, uniforms: &Tensor, limits: &Limits) -> Drawn {
    tensor_sampler::sample(logits, &limits.sampling, limits.entropy, uniforms)
}

fn indices(values: &[usize]) -> Tensor {
    Tensor::from_slice(&values.iter().map(|&value| value as i64).collect::<Vec<_>>())
}

/// All draws on the processor, one after another.
fn on_the_processor(drawn: &[Drawn]) -> Vec<Token> {
    let joined = |parts: Vec<&Tensor>| Tensor::cat(&parts, 0);
    let doubles = |tensor: Tensor| -> Vec<f64> {
        Vec::try_from(tensor.to_kind(Kind::Double)).expect("a dense tensor")
    };
    let ids = joined(drawn.iter().map(|drawn| &drawn.tokens).collect());
    let ids: Vec<i64> = Vec::try_from(ids).expect("dense ids");
    let log_probs = doubles(joined(drawn.iter().map(|drawn| &drawn.log_probs).collect()));
    let entropy: Option<Vec<&Tensor>> = drawn.iter().map(|drawn| drawn.entropy.as_ref()).collect();
    let entropy = entropy.map(|parts| doubles(joined(parts)));
    let token = |(at, (id, log_prob)): (usize, (i64, f64))| Token {
        id: id as u32,
        log_prob,
        entropy: entropy.as_ref().map(|entropy| entropy[at]),
    };
    ids.into_iter().zip(log_probs).enumerate().map(token).collect()
}
