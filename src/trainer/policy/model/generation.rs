//! Generation on LibTorch's tensors: rows begin with a prompt, take a block of tokens at a time, and leave.

use crate::policy::model::cache::{KvCache, ReadPrompts};
use crate::policy::{Prepared, Qwen2};
use tch::{Kind, Tensor};

struct TensorRows<'a> {
    model: &'a Qwen2,
    prepared: Prepared,
    cache: KvCache,
}

#[derive(Debug)]
pub struct Drawn {
    /// Token ids `[rows]`.
    pub tokens: Tensor,
    /// Their log-probs in nats, `[rows]`.
    pub log_probs: Tensor,
    /// Entropy of each row's distribution in nats, `[rows]`, where it was asked for.
    pub entropy: Option<Tensor>,
}

#[derive(Debug, Clone, Copy)]
pub struct Token {
    pub id: u32,
    /// Its log-prob in nats.
    pub log_prob: f64,
    /// Entropy of the distribution that it was drawn from, in nats, where it was asked for.
    pub entropy: Option<f64>,
}

/// How a token is drawn for each row: logits `[rows, vocab]`, uniforms `[rows]`.
type DrawRule<'a> = dyn Fn(&Tensor, &Tensor) -> Drawn + 'a;

/// Rows of a policy whose weights lie as they are stored. The device that computes tokens draws
/// them: nothing comes to the processor before a block of them is done.
pub struct Blocks<'a>(TensorRows<'a>);

impl<'a> Blocks<'a> {
    /// No rows yet; at most `rows` at a time, whose longest prompt has `longest` tokens, and `more` tokens behind it.
    pub fn new(model: &'a Qwen2, rows: usize, longest: usize, more: usize) -> Self {
        let cache = KvCache::new(model, rows, longest, more);
        Self(TensorRows { model, prepared: model.prepare_for_sampling(), cache })
    }

    /// Reads prompts, adds rows (`prompt_of_row` numbers the prompts) and draws the first token of each new row.
    pub fn join(
        &mut self,
        prompts: &[&[u32]],
        prompt_of_row: &[usize],
        uniforms: &[f64],
        draw: &DrawRule,
    ) -> Vec<Token> {
        let Self(fast) = self;
        let device = fast.model.device();
        let (hidden, length) = fast.read(prompts, prompt_of_row);
        let last = ends(prompts, length).to_device(device);
        let logits = fast.model.logits(&hidden.flatten(0, 1).index_select(0, &last));
        let logits = logits.index_select(0, &indices(prompt_of_row).to_device(device));
        let uniforms = Tensor::from_slice(uniforms).to_device(device);
        on_the_processor(&[draw(&logits, &uniforms)])
    }

    /// A block of tokens for every row, from its newest token and position: uniforms `[count, rows]` → `[count, rows]`.
    pub fn run(
        &mut self,
        tokens: &[u32],
        positions: &[usize],
        uniforms: &[f64],
        draw: &DrawRule,
    ) -> Vec<Token> {
        let Self(TensorRows { model, prepared, cache }) = self;
        let device = model.device();
        let (mut tokens, mut positions) =
            (ids(tokens).to_device(device), indices(positions).to_device(device));
        let uniforms = Tensor::from_slice(uniforms).to_device(device);
        let uniforms = uniforms.view([-1, tokens.size()[0]]);
        // Rows that have ended go on to the end of the block.
        let last = model.config().max_position_embeddings - 1;
        let mut all = Vec::new();
        for at in 0..uniforms.size()[0] {
            let hidden = model.decode(prepared, &tokens, &positions, cache);
            let drawn = draw(&model.logits(&hidden), &uniforms.get(at));
            positions = (positions + 1).clamp_max(last);
            tokens = drawn.tokens.shallow_clone();
            all.push(drawn);
        }
        on_the_processor(&all)
    }

    /// As [`crate::policy::NativeGeneration::leave`].
    pub fn leave(&mut self, leaves: &[bool]) {
        self.0.cache.leave(leaves);
    }
}

fn ids(tokens: &[u32]) -> Tensor {
    Tensor::from_slice(&tokens.iter().map(|&token| i64::from(token)).collect::<Vec<_>>())
}

fn indices(values: &[usize]) -> Tensor {
    Tensor::from_slice(&values.iter().map(|&value| value as i64).collect::<Vec<_>>())
}

/// All draws on the processor, one after another.
fn on_the_processor(drawn: &[Drawn]) -> Vec<Token> {
    let joined = |of: &dyn Fn(&Drawn) -> Option<&Tensor>| {
        let parts: Vec<&Tensor> = drawn.iter().filter_map(of).collect();
        (!parts.is_empty()).then(|| Tensor::cat(&parts, 0))
    };
    let doubles = |tensor: Tensor| -> Vec<f64> {
        Vec::try_from(tensor.to_kind(Kind::Double)).expect("a dense tensor")
    };
    let ids =
        joined(&|drawn| Some(&drawn.tokens)).map(|ids| Vec::try_from(ids).expect("dense ids"));
    let ids: Vec<i64> = ids.unwrap_or_default();
    let log_probs = joined(&|drawn| Some(&drawn.log_probs)).map_or(Vec::new(), doubles);
    let entropy = joined(&|drawn| drawn.entropy.as_ref()).map(doubles);
    let token = |(at, (id, log_prob))| Token {
        id: id as u32,
        log_prob,
        entropy: entropy.as_ref().map(|entropy: &Vec<f64>| entropy[at]),
    };
    ids.into_iter().zip(log_probs).enumerate().map(token).collect()
}

/// Where each prompt's last token lies among padded prompts of one length.
fn ends(prompts: &[&[u32]], length: usize) -> Tensor {
    let end = |(row, prompt): (usize, &&[u32])| (row * length + prompt.len() - 1) as i64;
    Tensor::from_slice(&prompts.iter().enumerate().map(end).collect::<Vec<_>>())
}

impl TensorRows<'_> {
    /// Reads prompts and adds their rows: hidden states `[prompts, length, hidden]`, and the longest prompt's length.
    fn read(&mut self, prompts: &[&[u32]], prompt_of_row: &[usize]) -> (Tensor, usize) {
        let lengths: Vec<usize> = prompts.iter().map(|prompt| prompt.len()).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let mut tokens = vec![0i64; prompts.len() * longest];
        for (row, prompt) in prompts.iter().enumerate() {
            for (at, &token) in prompt.iter().enumerate() {
                tokens[row * longest + at] = i64::from(token);
            }
        }
        let tokens = Tensor::from_slice(&tokens).view([prompts.len() as i64, longest as i64]);
        let (hidden, kept) =
            self.model.prefill(&self.prepared, &tokens.to_device(self.model.device()));
        let (length, of_row) = (longest, prompt_of_row);
        self.cache.join(ReadPrompts { keys_and_values: &kept, length, lengths: &lengths, of_row });
        (hidden, longest)
    }
}
