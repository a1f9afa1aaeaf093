//! A policy as the native engine reads it: weights folded once (rounded where sums are exact), shared by all threads.

use crate::base::workers;
use crate::numerics::native::backward::part_of_sums;
use crate::numerics::native::product::{self, Reach};
use crate::numerics::native::{Keep, NativeSettings, cache::Slots, window::WindowShape};
use crate::numerics::{
    Arithmetic, BackwardSetting, Distribution, Folded, Left, NativeAttention, NativeGradients,
    NativeOperations, NativeRows, NativeWeight, NumericsError, Parameters, Tally, Windows,
};
use crate::policy::model::cache;
use crate::policy::{Config, Decoder, Sequences, Token};
use std::fmt::Debug;
use std::sync::Arc;

/// A policy in one of the engine's arithmetics.
pub trait NativeEngine: Debug + Send + Sync {
    /// Log-probs and entropies of the targets, without a backward pass.
    fn statistics(&self, sequences: &Sequences, temperature: f64) -> Statistics;

    /// Gradients without a pass, in units of the loss weight.
    fn no_gradients(&self, scale: UpdateScale) -> NativeGradients;

    /// Adds a loss's gradients to `sums`: `by_log_probs` gets the targets' log-probs and returns derivatives by them.
    fn gradients(
        &self,
        sums: NativeGradients,
        sequences: &Sequences,
        temperature: f64,
        scale: UpdateScale,
        by_log_probs: &mut dyn FnMut(&[f64]) -> Vec<f64>,
    ) -> Result<NativeGradients, NumericsError>;

    /// Whether all threads share each of its operations; they compute a pass or some rows each where it is small.
    fn is_large(&self) -> bool;

    fn of_parameters(&self, gradients: NativeGradients, parameters: &Parameters) -> Parameters;

    fn generation(self: Arc<Self>) -> Box<dyn NativeGeneration>;

    /// What rounding changed of the weights.
    fn tally(&self) -> Tally;
}

/// A generation: rows begin with a prompt, take one token at a time, and leave.
pub trait NativeGeneration {
    /// Reads prompts, adds rows (`prompt_of_row` numbers the prompts); what `draw` makes of the logits after each one.
    fn join(&mut self, prompts: &[&[u32]], prompt_of_row: &[usize], draw: DrawToken) -> Vec<Token>;

    /// Feeds one token to each row, at its position in the row. What `draw` makes of the logits.
    fn feed(&mut self, tokens: &[u32], positions: &[usize], draw: DrawToken) -> Vec<Token>;

    /// Removes rows: `leaves[row]` for each. Others take their places as [`cache::fill_holes`] says.
    fn leave(&mut self, leaves: &[bool]);
}

/// A token from the logits `[vocab]` of a row, by its place among the rows.
pub type DrawToken<'a> = &'a (dyn Fn(usize, &[f64]) -> Token + Sync);

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
    is_large: bool,
    /// Weights with gradients.
    slots: usize,
}

/// Parameters from which on threads share each operation.
pub const LARGE: usize = 1 << 23;

/// Parts of the logits that an update computes once.
const KEPT_PARTS: usize = 2;

/// Logits that are held at once while tokens are drawn, and about so many while an update is made.
const MOST_LOGITS: usize = 1 << 22;

#[derive(Debug, Default)]
pub struct Statistics {
    /// Log-prob of each target, in nats.
    pub log_probs: Vec<f64>,
    /// Entropy of the distribution that it was drawn from, in nats.
    pub entropy: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UpdateScale {
    /// A token's largest weight in the loss: gradients are held in units of the power of two at or above it.
    pub largest_weight: f64,
    /// Tokens of all passes whose gradients are added.
    pub tokens: usize,
}

impl UpdateScale {
    /// The power of two at or above the largest weight; 1 where there is none.
    fn unit(self) -> f64 {
        if !(self.largest_weight > 0.0 && self.largest_weight.is_finite()) {
            return 1.0;
        }
        let (share, exponent) = libm::frexp(self.largest_weight);
        libm::ldexp(1.0, exponent - i32::from(share == 0.5))
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

/// Parameters from which on LibTorch computes on the processor: more than the engine was tried with.
const MANY: usize = 1 << 30;

/// Whether the engine computes f32 policies of this shape on the processor. LibTorch does the others, one
/// pass at a time, and memory may not suffice for it.
pub fn computes(config: &Config) -> bool {
    let count = |(_, shape): (String, Vec<i64>)| shape.into_iter().product::<i64>() as usize;
    let parameters: usize = config.tensor_shapes().into_iter().map(count).sum();
    parameters < MANY
}

pub fn windows(config: &Config) -> Result<Windows, NumericsError> {
    if config.family.has_head_norms() {
        Err(NumericsError::HeadNorms)
    } else {
        Windows::new(shape(config))
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
        let count = parameters.values().map(Vec::len).sum::<usize>();
        let is_large = count >= LARGE;
        if is_large {
            workers::keep_memory(8 * count * size_of::<f32>());
        }
        let heads = config.heads();
        let settings = NativeSettings { windows, heads, epsilon, recomputes: is_large };
        let folded = Decoder::of(config);
        let (mut slot, mut tally) = (0, Tally::default());
        let embed_tokens = folded.embed_tokens.clone();
        let mut table: Option<NativeWeight<A>> = None;
        let mut weight = |folded: &Folded| {
            let weight = match &table {
                // Tied weights are one matrix, whose two gradients are added at the end.
                Some(table) if *folded == embed_tokens => table.with_slot(slot),
                _ => NativeWeight::new(slot, folded, parameters, &windows),
            };
            table.get_or_insert_with(|| weight.with_slot(slot));
            slot += 1;
            tally.add(weight.tally);
            Arc::new(weight)
        };
        let decoder = if is_large {
            workers::in_pool(|| folded.map(&mut weight))
        } else {
            folded.map(&mut weight)
        };
        let hidden = config.hidden_size as usize;
        Ok(Self {
            settings,
            shape,
            rotation,
            decoder,
            folded,
            hidden,
            tally,
            is_large,
            slots: slot,
        })
    }

    /// Runs work whose operations all threads share, where the policy is large enough for that.
    fn shared<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        if self.is_large() { workers::in_pool(work) } else { work() }
    }

    /// The states of `sequences` that predict a target, after the final norm.
    fn forward(
        &self,
        sequences: &Sequences,
        recorded: bool,
    ) -> (NativeOperations<'_, A>, NativeRows) {
        let attention = NativeAttention::Sequences { spans: sequences.spans.clone(), keep: None };
        let operations = NativeOperations::new(self.settings, &self.rotation, attention);
        let mut operations = if recorded { operations.recorded() } else { operations };
        let hidden = self.decoder.run(&mut operations, &sequences.tokens, self.hidden);
        let last = operations.select(&hidden, &sequences.states, self.hidden);
        (operations, last)
    }

    /// Rows whose logits are held at once: as many as one part of a sum over tokens, so that no sum is cut by it.
    fn logits_part(&self) -> usize {
        let rows = MOST_LOGITS / self.decoder.lm_head.outputs().max(1);
        if rows > part_of_sums::<A>() { usize::MAX } else { part_of_sums::<A>() }
    }

    /// One result for each row of hidden states, from its logits. All logits are NaN when a weight or an activation was
    /// NaN or infinite before rounding, which hides an infinity: no token may be drawn from them.
    fn each_logits<R: Send>(
        &self,
        last: &[f32],
        finite: bool,
        work: impl Fn(usize, &mut [A]) -> R + Sync,
    ) -> (Vec<A>, Vec<R>) {
        let (head, window) = (&self.decoder.lm_head, self.settings.windows.last);
        let mut logits = product::multiply(Left::Rows(last, window), &head.forward, Reach::All);
        if self.tally.not_finite || !finite {
            logits.fill(A::from(f32::NAN));
        }
        let results = self.each_row(&mut logits, work);
        (logits, results)
    }

    /// One result for each row of logits, `[rows, vocab]`.
    fn each_row<R: Send>(
        &self,
        logits: &mut [A],
        work: impl Fn(usize, &mut [A]) -> R + Sync,
    ) -> Vec<R> {
        let rows = logits.chunks_exact_mut(self.decoder.lm_head.outputs());
        let mut rows: Vec<(&mut [A], Option<R>)> = rows.map(|row| (row, None)).collect();
        workers::by_rows(&mut rows, 1, |first, rows| {
            for (at, (logits, result)) in rows.iter_mut().enumerate() {
                *result = Some(work(first + at, logits));
            }
        });
        rows.into_iter().map(|(_, result)| result.expect("each row was visited")).collect()
    }

    /// A token from each row's logits, a part of the rows at a time.
    fn draw(&self, (last, finite): (NativeRows, bool), draw: DrawToken) -> Vec<Token> {
        let part = (MOST_LOGITS / self.decoder.lm_head.outputs().max(1)).max(1);
        let mut tokens = Vec::new();
        for (at, last) in last.values.chunks(part * self.hidden).enumerate() {
            let one = |row: usize, logits: &mut [A]| {
                let logits: Vec<f64> = logits.iter().map(|logit| logit.to_f64()).collect();
                draw(at * part + row, &logits)
            };
            tokens.extend(self.each_logits(last, finite, one).1);
        }
        tokens
    }

    /// Each whole sequence's last hidden state, and whether all numbers were finite. `keep` gets each layer's rows.
    fn prefill(&self, prompts: &[&[u32]], keep: Keep) -> (NativeRows, bool) {
        let mut all = Sequences::default();
        prompts.iter().for_each(|prompt| all.push(prompt, 0, &[]));
        let last: Vec<usize> = all.spans.iter().map(|span| span.own.end - 1).collect();
        let attention = NativeAttention::Sequences { spans: all.spans, keep: Some(keep) };
        let mut operations = NativeOperations::new(self.settings, &self.rotation, attention);
        let hidden = self.decoder.run(&mut operations, &all.tokens, self.hidden);
        let last = operations.select(&hidden, &last, self.hidden);
        (last, !operations.tally().not_finite)
    }

    /// One more token for each row: its hidden states, and whether all numbers were finite.
    fn step(
        &self,
        tokens: &[u32],
        positions: &[usize],
        rows: &mut [Vec<Slots<A>>],
    ) -> (NativeRows, bool) {
        let attention = NativeAttention::Step { rows, positions };
        let mut operations = NativeOperations::new(self.settings, &self.rotation, attention);
        let hidden = self.decoder.run(&mut operations, tokens, self.hidden);
        (hidden, !operations.tally().not_finite)
    }
}

impl<A: Arithmetic> NativeEngine for NativePolicy<A> {
    fn statistics(&self, sequences: &Sequences, temperature: f64) -> Statistics {
        self.shared(|| {
            let (operations, last) = self.forward(sequences, false);
            let finite = !operations.tally().not_finite;
            let mut statistics = Statistics::default();
            let part = self.logits_part().min(sequences.targets.len().max(1));
            let parts = last.values.chunks(part * self.hidden);
            for (last, targets) in parts.zip(sequences.targets.chunks(part)) {
                let one = |row: usize, logits: &mut [A]| {
                    let distribution = Distribution::new(logits, temperature)?;
                    let target = logits[targets[row] as usize].to_f64();
                    Some((distribution.log_prob(target), distribution.entropy(logits)))
                };
                for pair in self.each_logits(last, finite, one).1 {
                    let (log_prob, entropy) = pair.unwrap_or((f64::NAN, f64::NAN));
                    statistics.log_probs.push(log_prob);
                    statistics.entropy.push(entropy);
                }
            }
            statistics
        })
    }

    fn is_large(&self) -> bool {
        self.is_large
    }

    fn no_gradients(&self, scale: UpdateScale) -> NativeGradients {
        NativeGradients::zeros(self.slots, scale.unit(), self.is_large && !A::EXACT)
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
        let window =
            if A::EXACT { windows.gradient(self.shape, scale.tokens)? } else { windows.residual };
        let targets = &sequences.targets;
        let part = self.logits_part().min(targets.len().max(1));
        let log_prob = |logits: &[A], target: u32| {
            let distribution = Distribution::new(logits, temperature);
            let target = logits[target as usize].to_f64();
            distribution.map_or(f64::NAN, |distribution| distribution.log_prob(target))
        };
        // The logits of the first parts stay for the backward pass, those of others are computed twice.
        let (operations, last, kept, log_probs) = self.shared(|| {
            let (operations, last) = self.forward(sequences, true);
            let finite = !operations.tally().not_finite;
            let (mut kept, mut log_probs) = (Vec::new(), Vec::new());
            let parts = last.values.chunks(part * self.hidden).zip(targets.chunks(part));
            for (rows, targets) in parts {
                let one = |row: usize, logits: &mut [A]| log_prob(logits, targets[row]);
                let (logits, values) = self.each_logits(rows, finite, one);
                if kept.len() < KEPT_PARTS {
                    kept.push(logits);
                }
                log_probs.extend(values);
            }
            (operations, last, kept, log_probs)
        });
        let shares: Vec<f64> =
            by_log_probs(&log_probs).into_iter().map(|derivative| derivative / sums.unit).collect();
        // A row of logits becomes that of their gradients.
        let differentiate = |logits: &mut [A], target: u32, share: f64| match Distribution::new(
            logits,
            temperature,
        ) {
            Some(it) => it.differentiate(target as usize, share, logits),
            None => logits.fill(A::from(f32::NAN)),
        };
        // Of responses without an advantage, mostly: zeros would be added to zeros.
        if !A::EXACT && shares.iter().all(|share| *share == 0.0) {
            return Ok(sums);
        }
        let setting = BackwardSetting { window, tokens_in_all: scale.tokens };
        let (head, finite) = (&self.decoder.lm_head, !operations.tally().not_finite);
        Ok(self.shared(|| {
            let rows = last.values.chunks(part * self.hidden);
            let mut kept = kept.into_iter();
            let all = rows.zip(targets.chunks(part)).zip(shares.chunks(part));
            let by_logits = all.map(|((rows, targets), shares)| {
                let one = |row: usize, logits: &mut [A]| {
                    differentiate(logits, targets[row], shares[row]);
                };
                let logits = match kept.next() {
                    Some(mut logits) => {
                        self.each_row(&mut logits, one);
                        logits
                    }
                    None => self.each_logits(rows, finite, one).0,
                };
                A::rounded(logits)
            });
            operations.backward(&last, head, by_logits, setting, sums)
        }))
    }

    fn of_parameters(&self, gradients: NativeGradients, parameters: &Parameters) -> Parameters {
        let (mut slot, mut all) = (0, Vec::new());
        self.folded.map(|folded| {
            all.push((slot, folded));
            slot += 1;
        });
        // A parameter may be in the table and the head, and in two weights of a layer.
        let (table, mut ends) = (all.remove(0), all.split_off(slot - 3));
        if ends[1].1 == table.1 {
            ends.swap(0, 1)
        } else {
            ends.insert(0, table)
        }
        let of_a_layer = all.len() / self.folded.layers.len().max(1);
        let layers = all.chunks(of_a_layer.max(1)).map(<[_]>::to_vec);
        let groups: Vec<_> = std::iter::once(ends).chain(layers).collect();
        self.shared(|| gradients.of_parameters(&groups, parameters))
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
    fn join(&mut self, prompts: &[&[u32]], prompt_of_row: &[usize], draw: DrawToken) -> Vec<Token> {
        let (policy, rows) = (&*self.policy, &mut self.rows);
        let NativeSettings { heads, windows, .. } = policy.settings;
        let empty = vec![Slots::empty(heads, &windows); policy.decoder.layers.len()];
        let mut read = vec![empty; prompts.len()];
        policy.shared(|| {
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
            let (last, finite) = policy.prefill(prompts, &mut keep);
            rows.extend(prompt_of_row.iter().map(|&prompt| read[prompt].clone()));
            policy.draw((last.of_rows(prompt_of_row, policy.hidden), finite), draw)
        })
    }

    fn feed(&mut self, tokens: &[u32], positions: &[usize], draw: DrawToken) -> Vec<Token> {
        let (policy, rows) = (&*self.policy, &mut self.rows);
        policy.shared(|| policy.draw(policy.step(tokens, positions, rows), draw))
    }

    fn leave(&mut self, leaves: &[bool]) {
        cache::remove_rows(&mut self.rows, leaves);
    }
}

#[cfg(test)]
mod tests;
