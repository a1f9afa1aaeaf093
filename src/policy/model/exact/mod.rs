//! A policy as exact arithmetic reads it: weights folded and rounded once, then shared by all
//! threads that use them.

use crate::numerics::exact::{self, ExactSettings, window::WindowShape};
use crate::numerics::{
    BackwardSetting, Distribution, ExactAttention, ExactGradients, ExactOperations, ExactWeight,
    Folded, NumericsError, Parameters, Tally, WindowedRows, Windows,
};
use crate::policy::{Config, Decoder, Sequences};
use std::sync::Arc;

/// Weights and settings of one policy.
#[derive(Debug)]
pub struct ExactPolicy {
    /// Windows, heads, ε.
    pub settings: ExactSettings,
    pub shape: WindowShape,
    /// cos and sin of each position's pairs: `[positions, head_dim / 2, 2]`.
    pub rotation: Arc<Vec<f32>>,
    pub decoder: Decoder<Arc<ExactWeight>>,
    folded: Decoder<Folded>,
    hidden: usize,
    pub tally: Tally,
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

impl ExactPolicy {
    /// Sizes that decide a policy's windows.
    pub fn shape(config: &Config) -> WindowShape {
        let joined =
            (config.num_attention_heads + 2 * config.num_key_value_heads) * config.head_dim;
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

    /// The windows of a policy of this shape.
    pub fn windows(config: &Config) -> Result<Windows, NumericsError> {
        match config.family.has_head_norms() {
            true => Err(NumericsError::HeadNorms),
            false => Windows::new(Self::shape(config)),
        }
    }

    /// Folds and rounds a policy's parameters.
    pub fn new(
        config: &Config,
        parameters: &Parameters,
        rotation: Arc<Vec<f32>>,
    ) -> Result<Self, NumericsError> {
        let shape = Self::shape(config);
        let (windows, epsilon) = (Self::windows(config)?, config.rms_norm_eps);
        let settings = ExactSettings { windows, heads: config.heads(), epsilon };
        let folded = Decoder::of(config);
        let (mut slot, mut tally) = (0, Tally::default());
        let decoder = folded.map(|folded| {
            let weight = ExactWeight::new(slot, folded, parameters, &windows);
            slot += 1;
            tally.add(weight.tally);
            Arc::new(weight)
        });
        let hidden = config.hidden_size as usize;
        Ok(Self { settings, shape, rotation, decoder, folded, hidden, tally })
    }

    /// Log-probs and entropies of the targets, without a backward pass.
    pub fn statistics(&self, sequences: &Sequences, temperature: f64) -> Statistics {
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

    /// Gradients of a loss of the targets' log-probs: `by_log_probs` gets these and returns the
    /// loss' derivatives, and whatever else it found.
    pub fn gradients<R>(
        &self,
        sequences: &Sequences,
        temperature: f64,
        scale: UpdateScale,
        by_log_probs: impl FnOnce(&[f64]) -> (Vec<f64>, R),
    ) -> Result<(ExactGradients, R), NumericsError> {
        let window = self.settings.windows.gradient(self.shape, scale.tokens)?;
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
        let (derivatives, found) = by_log_probs(&log_probs);
        let unit = scale.unit();
        let mut by_logits = Vec::with_capacity(logits.len());
        for ((distribution, &target), derivative) in
            all.iter().zip(&sequences.targets).zip(derivatives)
        {
            let share = derivative / unit;
            match distribution {
                Some(it) => {
                    let by_logit = it.derivative(target as usize);
                    by_logits.extend(by_logit.map(|by_logit| (share * by_logit) as f32));
                }
                None => by_logits.extend(std::iter::repeat_n(f32::NAN, vocabulary)),
            }
        }
        let slots = 3 + 5 * self.decoder.layers.len();
        let setting = BackwardSetting { window, unit, tokens_in_all: scale.tokens, slots };
        let gradients = operations.backward(&last, &self.decoder.lm_head, by_logits, setting);
        Ok((gradients, found))
    }

    fn forward(
        &self,
        sequences: &Sequences,
        recorded: bool,
    ) -> (ExactOperations<'_>, WindowedRows, Vec<f64>) {
        // The lengths live as long as the record, which does not read them again.
        let attention =
            ExactAttention::Sequences { lengths: sequences.lengths.clone(), keep: None };
        let operations = ExactOperations::new(self.settings, &self.rotation, attention);
        let mut operations = if recorded { operations.recorded() } else { operations };
        let hidden = self.decoder.run(&mut operations, &sequences.tokens, self.hidden);
        let last = operations.select(&hidden, &sequences.states, self.hidden);
        let logits = self.logits(&operations, &last);
        (operations, last, logits)
    }

    /// Logits `[rows, vocab]`. All of them are NaN when a weight or an activation was NaN or infinite
    /// before it was rounded: rounding hides an infinity, and no token may be drawn from such logits.
    fn logits(&self, operations: &ExactOperations, last: &WindowedRows) -> Vec<f64> {
        let mut logits = operations.logits(last, &self.decoder.lm_head);
        if self.tally.not_finite || operations.tally().not_finite {
            logits.fill(f64::NAN);
        }
        logits
    }

    /// Hidden states of whole sequences, the last of each, as logits; `keep` gets each layer's
    /// joined rows.
    pub fn prefill(&self, prompts: &[&[u32]], keep: &mut dyn FnMut(usize, &[f32])) -> Vec<f64> {
        let lengths: Vec<usize> = prompts.iter().map(|prompt| prompt.len()).collect();
        let mut end = 0;
        let mut last_of = |length: &usize| {
            end += length;
            end - 1
        };
        let last: Vec<usize> = lengths.iter().map(&mut last_of).collect();
        let attention = ExactAttention::Sequences { lengths, keep: Some(keep) };
        let mut operations = ExactOperations::new(self.settings, &self.rotation, attention);
        let hidden = self.decoder.run(&mut operations, &prompts.concat(), self.hidden);
        let last = operations.select(&hidden, &last, self.hidden);
        self.logits(&operations, &last)
    }

    /// One more token for each row: logits `[rows, vocab]`.
    pub fn step(
        &self,
        tokens: &[u32],
        positions: &[usize],
        rows: &mut [Vec<exact::cache::CacheSlots>],
    ) -> Vec<f64> {
        let attention = ExactAttention::Step { rows, positions };
        let mut operations = ExactOperations::new(self.settings, &self.rotation, attention);
        let hidden = self.decoder.run(&mut operations, tokens, self.hidden);
        self.logits(&operations, &hidden)
    }

    /// Gradients of the parameters.
    pub fn of_parameters(&self, gradients: &ExactGradients, parameters: &Parameters) -> Parameters {
        let mut all = Vec::new();
        self.folded.map(|folded| all.push(folded));
        gradients.of_parameters(all.into_iter().enumerate(), parameters)
    }
}

#[cfg(test)]
mod tests;
