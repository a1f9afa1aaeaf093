//! A policy as the native engine reads it: weights folded once (and rounded, where sums are exact), then
//! shared by all threads that use them.

use crate::numerics::native::{NativeSettings, cache::Slots, window::WindowShape};
use crate::numerics::{
    Arithmetic, BackwardSetting, Distribution, Folded, NativeAttention, NativeGradients,
    NativeOperations, NativeRows, NativeWeight, NumericsError, Parameters, Tally, Windows,
};
use crate::policy::model::cache;
use crate::policy::{Config, Decoder, Sequences};
use std::fmt::Debug;
use std::sync::Arc;

/// A policy in one of the engine's arithmetics.
pub trait NativeEngine: Debug + Send + Sync {
    /// Log-probs and entropies of the targets, without a backward pass.
    fn statistics(&self, sequences: &Sequences, temperature: f64) -> Statistics;

    /// Gradients without a pass, in units of the loss weight.
    fn no_gradients(&self, scale: UpdateScale) -> NativeGradients;

    /// Adds to `sums` the gradients of a loss of the targets' log-probs: `by_log_probs` gets these and
    /// returns the loss' derivatives.
    fn gradients(
        &self,
        sums: NativeGradients,
        sequences: &Sequences,
        temperature: f64,
        scale: UpdateScale,
        by_log_probs: &mut dyn FnMut(&[f64]) -> Vec<f64>,
    ) -> Result<NativeGradients, NumericsError>;

    /// Gradients of the parameters.
    fn of_parameters(&self, gradients: &NativeGradients, parameters: &Parameters) -> Parameters;

    /// A generation without rows.
    fn generation(self: Arc<Self>) -> Box<dyn NativeGeneration>;

    /// What rounding changed of the weights.
    fn tally(&self) -> Tally;
}

/// A generation: rows begin with a prompt, take one token at a time, and leave.
pub trait NativeGeneration {
    /// Reads prompts and adds rows: `prompt_of_row` numbers the prompts. Logits that follow each
    /// new row's prompt, `[new rows, vocab]`.
    fn join(&mut self, prompts: &[&[u32]], prompt_of_row: &[usize]) -> Vec<f64>;

    /// Feeds one token to each row, at its position in the row: logits `[rows, vocab]`.
    fn feed(&mut self, tokens: &[u32], positions: &[usize]) -> Vec<f64>;

    /// Removes rows: `leaves[row]` for each. The last rows take the places of those that leave
    /// before them, as [`cache::fill_holes`] says.
    fn leave(&mut self, leaves: &[bool]);
}

/// Weights and settings of one policy.
#[derive(Debug)]
pub struct NativePolicy<A> {
    settings: NativeSettings,
    shape: WindowShape,
    /// cos and sin of each position's pairs: `[positions, head_dim / 2, 2]`.
    rotation: Vec<f32>,
    decoder: Decoder<Arc<NativeWeight<A>>>,
    folded: Decoder<Folded>,
    hidden: usize,
    tally: Tally,
}

/// What the training forward says about each target.
#[derive(Debug, Default)]
pub struct Statistics {
    /// Log-prob of each target, in nats.
    pub log_probs: Vec<f64>,
    /// Entropy of the distribution that it was drawn from, in nats.
    pub entropy: Vec<f64>,
}

/// What an update needs beside its loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateScale {
    /// The largest weight that a token's log-prob has in the loss: gradients are held in units of
    /// the power of two at or above it.
    pub largest_weight: f64,
    /// Tokens of all passes whose gradients are added.
    pub tokens: usize,
}

impl UpdateScale {
    /// The power of two at or above the largest weight; 1 where there is none.
    fn unit(self) -> f64 {
        let mut unit = 1.0;
        if !(self.largest_weight > 0.0 && self.largest_weight.is_finite()) {
            return unit;
        }
        while unit < self.largest_weight {
            unit *= 2.0;
        }
        while unit * 0.5 >= self.largest_weight {
            unit *= 0.5;
        }
        unit
    }
}

/// Sizes that decide a policy's windows.
pub fn shape(config: &Config) -> WindowShape {
    let joined = (config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim;
    let widest = [joined, config.intermediate_size, config.hidden_size, config.vocab_size];
    WindowShape {
        hidden: config.hidden_size as usize,
        inner: config.intermediate_size as usize,
        head: config.head_dim as usize,
        group: (config.num_attention_heads / config.num_key_value_heads) as usize,
        positions: config.max_position_embeddings as usize,
        outputs: widest.into_iter().max().unwrap_or(0) as usize,
    }
}

/// The windows of a policy of this shape, for exact sums.
pub fn windows(config: &Config) -> Result<Windows, NumericsError> {
    match config.family.has_head_norms() {
        true => Err(NumericsError::HeadNorms),
        false => Windows::new(shape(config)),
    }
}

impl<A: Arithmetic> NativePolicy<A> {
    /// Folds and rounds a policy's parameters.
    pub fn new(
        config: &Config,
        parameters: &Parameters,
        rotation: Vec<f32>,
    ) -> Result<Self, NumericsError> {
        let (shape, epsilon) = (shape(config), config.rms_norm_eps);
        let windows = if A::EXACT { windows(config)? } else { Windows::UNUSED };
        let settings = NativeSettings { windows, heads: config.heads(), epsilon };
        let folded = Decoder::of(config);
        let (mut slot, mut tally) = (0, Tally::default());
        let decoder = folded.map(|folded| {
            let weight = NativeWeight::new(slot, folded, parameters, &windows);
            slot += 1;
            tally.add(weight.tally);
            Arc::new(weight)
        });
        let hidden = config.hidden_size as usize;
        Ok(Self { settings, shape, rotation, decoder, folded, hidden, tally })
    }

    fn forward(
        &self,
        sequences: &Sequences,
        recorded: bool,
    ) -> (NativeOperations<'_, A>, NativeRows, Vec<f64>) {
        let attention = NativeAttention::Sequences { spans: sequences.spans.clone(), keep: None };
        let operations = NativeOperations::new(self.settings, &self.rotation, attention);
        let mut operations = if recorded { operations.recorded() } else { operations };
        let hidden = self.decoder.run(&mut operations, &sequences.tokens, self.hidden);
        let last = operations.select(&hidden, &sequences.states, self.hidden);
        let logits = self.logits(&operations, &last);
        (operations, last, logits)
    }

    /// Logits `[rows, vocab]`. All of them are NaN when a weight or an activation was NaN or infinite
    /// before it was rounded: rounding hides an infinity, and no token may be drawn from such logits.
    fn logits(&self, operations: &NativeOperations<A>, last: &NativeRows) -> Vec<f64> {
        let mut logits = operations.logits(last, &self.decoder.lm_head);
        if self.tally.not_finite || operations.tally().not_finite {
            logits.fill(f64::NAN);
        }
        logits
    }

    /// Hidden states of whole sequences, the last of each, as logits; `keep` gets each layer's
    /// joined rows.
    fn prefill(&self, prompts: &[&[u32]], keep: &mut dyn FnMut(usize, &[f32])) -> Vec<f64> {
        let mut all = Sequences::default();
        prompts.iter().for_each(|prompt| all.push(prompt, 0, &[]));
        let last: Vec<usize> = all.spans.iter().map(|span| span.own.end - 1).collect();
        let attention = NativeAttention::Sequences { spans: all.spans, keep: Some(keep) };
        let mut operations = NativeOperations::new(self.settings, &self.rotation, attention);
        let hidden = self.decoder.run(&mut operations, &all.tokens, self.hidden);
        let last = operations.select(&hidden, &last, self.hidden);
        self.logits(&operations, &last)
    }

    /// One more token for each row: logits `[rows, vocab]`.
    fn step(&self, tokens: &[u32], positions: &[usize], rows: &mut [Vec<Slots<A>>]) -> Vec<f64> {
        let attention = NativeAttention::Step { rows, positions };
        let mut operations = NativeOperations::new(self.settings, &self.rotation, attention);
        let hidden = self.decoder.run(&mut operations, tokens, self.hidden);
        self.logits(&operations, &hidden)
    }
}

impl<A: Arithmetic> NativeEngine for NativePolicy<A> {
    fn statistics(&self, sequences: &Sequences, temperature: f64) -> Statistics {
        let (_, _, logits) = self.forward(sequences, false);
        let mut statistics = Statistics::default();
        let vocabulary = self.decoder.lm_head.outputs();
        for (logits, &target) in logits.chunks_exact(vocabulary).zip(&sequences.targets) {
            let distribution = Distribution::new(logits, temperature);
            let (log_prob, entropy) = match &distribution {
                Some(it) => (it.log_prob(logits[target as usize]), it.entropy(logits)),
                None => (f64::NAN, f64::NAN),
            };
            statistics.log_probs.push(log_prob);
            statistics.entropy.push(entropy);
        }
        statistics
    }

    fn no_gradients(&self, scale: UpdateScale) -> NativeGradients {
        NativeGradients::zeros(3 + 5 * self.decoder.layers.len(), scale.unit())
    }

    fn gradients(
        &self,
        sums: NativeGradients,
        sequences: &Sequences,
        temperature: f64,
        scale: UpdateScale,
        by_log_probs: &mut dyn FnMut(&[f64]) -> Vec<f64>,
    ) -> Result<NativeGradients, NumericsError> {
        let windows = self.settings.windows;
        let window = match A::EXACT {
            true => windows.gradient(self.shape, scale.tokens)?,
            false => windows.residual,
        };
        let (operations, last, logits) = self.forward(sequences, true);
        let vocabulary = self.decoder.lm_head.outputs();
        let all: Vec<Option<Distribution>> = logits
            .chunks_exact(vocabulary)
            .map(|logits| Distribution::new(logits, temperature))
            .collect();
        let mut log_probs = Vec::with_capacity(all.len());
        let rows = all.iter().zip(logits.chunks_exact(vocabulary)).zip(&sequences.targets);
        for ((distribution, logits), &target) in rows {
            let it = distribution.as_ref();
            log_probs.push(it.map_or(f64::NAN, |it| it.log_prob(logits[target as usize])));
        }
        let derivatives = by_log_probs(&log_probs);
        let mut by_logits = Vec::with_capacity(logits.len());
        for ((distribution, &target), derivative) in
            all.iter().zip(&sequences.targets).zip(derivatives)
        {
            let share = derivative / sums.unit;
            match distribution {
                Some(it) => {
                    let by_logit = it.derivative(target as usize);
                    by_logits.extend(by_logit.map(|by_logit| (share * by_logit) as f32));
                }
                None => by_logits.extend(std::iter::repeat_n(f32::NAN, vocabulary)),
            }
        }
        let setting = BackwardSetting { window, tokens_in_all: scale.tokens };
        Ok(operations.backward(&last, &self.decoder.lm_head, by_logits, setting, sums))
    }

    fn of_parameters(&self, gradients: &NativeGradients, parameters: &Parameters) -> Parameters {
        let mut all = Vec::new();
        self.folded.map(|folded| all.push(folded));
        gradients.of_parameters(all.into_iter().enumerate(), parameters)
    }

    fn generation(self: Arc<Self>) -> Box<dyn NativeGeneration> {
        Box::new(GenerationRows { policy: self, rows: Vec::new() })
    }

    fn tally(&self) -> Tally {
        self.tally
    }
}

/// Rows that are being generated: for each its layers.
struct GenerationRows<A> {
    policy: Arc<NativePolicy<A>>,
    rows: Vec<Vec<Slots<A>>>,
}

impl<A: Arithmetic> NativeGeneration for GenerationRows<A> {
    fn join(&mut self, prompts: &[&[u32]], prompt_of_row: &[usize]) -> Vec<f64> {
        let policy = &self.policy;
        let NativeSettings { heads, windows, .. } = policy.settings;
        let empty = vec![Slots::empty(heads, &windows); policy.decoder.layers.len()];
        let mut read = vec![empty; prompts.len()];
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

    fn feed(&mut self, tokens: &[u32], positions: &[usize]) -> Vec<f64> {
        self.policy.step(tokens, positions, &mut self.rows)
    }

    fn leave(&mut self, leaves: &[bool]) {
        cache::remove_rows(&mut self.rows, leaves);
    }
}

#[cfg(test)]
mod tests;
