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
use crate::policy::{Config, Decoder, Sequences};
use std::fmt::Debug;
use std::sync::Arc;

/// A policy in one of the engine's arithmetics.
pub trait NativeEngine: Debug + Send + Sync {
    /// Log-prob of each target and entropy of the distribution that it was drawn from, in nats, without a backward pass.
    fn statistics(&self, sequences: &Sequences, temperature: f64) -> [Vec<f64>; 2];

    /// Adds a loss's gradients to `sums`, or to none yet in units of the loss weight: `by_log_probs` gets the targets'
    /// log-probs and returns derivatives by them.
    fn gradients(
        &self,
        sums: Option<NativeGradients>,
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
pub trait NativeGeneration: Send {
    /// Reads prompts, adds rows (`prompt_of_row` numbers the prompts); what `draw` makes of the logits after each one.
    fn join(&mut self, prompts: &[&[u32]], prompt_of_row: &[usize], draw: DrawToken) -> Vec<Token>;

    /// Feeds one token to each row, at its position in the row. What `draw` makes of the logits.
    fn feed(&mut self, tokens: &[u32], positions: &[usize], draw: DrawToken) -> Vec<Token>;

    /// Removes rows: `leaves[row]` for each. Others take their places as [`cache::fill_holes`] says.
    fn leave(&mut self, leaves: &[bool]);
}

/// A token that was drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Token {
    pub id: u32,
    /// Its log-prob in nats.
    pub log_prob: f64,
    /// Entropy of the distribution that it was drawn from, in nats, where it was asked for.
    pub entropy: Option<f64>,
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
    tally: Tally,
    is_large: bool,
    slots: usize,
}

/// Parameters from which on threads share each operation.
pub const LARGE: usize = 1 << 23;

/// Parts of the logits that an update computes once.
const KEPT_PARTS: usize = 2;

/// Logits that are held at once while tokens are drawn, and about so many while an update is made.
const MOST_LOGITS: usize = 1 << 22;

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
const MANY: u64 = 1 << 30;

/// Whether the engine computes f32 policies of this shape on the processor. LibTorch does the others, one
/// pass at a time, and memory may not suffice for it.
pub fn computes(config: &Config) -> bool {
    config.parameters() < MANY
}

pub fn windows(config: &Config) -> Result<Windows, NumericsError> {
    if config.family.has_head_norms() {
        return Err(NumericsError::HeadNorms);
    }
    Windows::new(shape(config))
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
        let (heads, hidden) = (config.heads(), config.hidden_size as usize);
        let settings = NativeSettings { windows, heads, hidden, epsilon, recomputes: is_large };
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
        Ok(Self { settings, shape, rotation, decoder, folded, tally, is_large, slots: slot })
    }

    /// Runs work whose operations all threads share, where the policy is large enough for that.
    fn shared<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        if self.is_large() { workers::in_pool(work) } else { work() }
    }

    /// The states of `sequences` that predict a target, after the final norm. `keep` gets each layer's rows.
    fn forward<'a>(
        &'a self,
        sequences: &Sequences,
        keep: Option<Keep<'a>>,
        is_recorded: bool,
    ) -> (NativeOperations<'a, A>, NativeRows) {
        let attention = NativeAttention::Sequences { spans: sequences.spans.clone(), keep };
        let (settings, rotation) = (self.settings, &self.rotation);
        let mut operations = NativeOperations::new(settings, rotation, attention, is_recorded);
        let hidden = self.decoder.run(&mut operations, &sequences.tokens);
        let last = operations.select(&hidden, &sequences.states);
        (operations, last)
    }

    /// Rows whose logits are held at once: as many as one part of a sum over tokens, so that no sum is cut by it.
    fn logits_part(&self, targets: &[u32]) -> usize {
        let rows = MOST_LOGITS / self.decoder.lm_head.outputs().max(1);
        let all = targets.len().max(1);
        if rows > part_of_sums::<A>() { all } else { part_of_sums::<A>().min(all) }
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
    fn draw(&self, last: &NativeRows, finite: bool, draw: DrawToken) -> Vec<Token> {
        let part = (MOST_LOGITS / self.decoder.lm_head.outputs().max(1)).max(1);
        let mut tokens = Vec::new();
        for (at, last) in last.values.chunks(part * self.settings.hidden).enumerate() {
            let one = |row: usize, logits: &mut [A]| {
                let logits: Vec<f64> = logits.iter().map(|logit| logit.to_f64()).collect();
                draw(at * part + row, &logits)
            };
            tokens.extend(self.each_logits(last, finite, one).1);
        }
        tokens
    }
}

impl<A: Arithmetic> NativeEngine for NativePolicy<A> {
    fn statistics(&self, sequences: &Sequences, temperature: f64) -> [Vec<f64>; 2] {
        self.shared(|| {
            let (operations, last) = self.forward(sequences, None, false);
            let finite = operations.is_finite();
            let mut pairs = Vec::new();
            let part = self.logits_part(&sequences.targets);
            let parts = last.values.chunks(part * self.settings.hidden);
            for (last, targets) in parts.zip(sequences.targets.chunks(part)) {
                let one = |row: usize, logits: &mut [A]| {
                    let distribution = Distribution::new(logits, temperature)?;
                    let target = logits[targets[row] as usize].to_f64();
                    Some((distribution.log_prob(target), distribution.entropy(logits)))
                };
                pairs.extend(self.each_logits(last, finite, one).1);
            }
            let pairs = pairs.into_iter().map(|pair| pair.unwrap_or((f64::NAN, f64::NAN)));
            let (log_probs, entropy) = pairs.unzip();
            [log_probs, entropy]
        })
    }

    fn is_large(&self) -> bool {
        self.is_large
    }

    fn gradients(
        &self,
        sums: Option<NativeGradients>,
        sequences: &Sequences,
        temperature: f64,
        scale: UpdateScale,
        by_log_probs: &mut dyn FnMut(&[f64]) -> Vec<f64>,
    ) -> Result<NativeGradients, NumericsError> {
        let is_narrow = self.is_large && !A::EXACT;
        let zeros = || NativeGradients::zeros(self.slots, scale.unit(), is_narrow);
        let sums = sums.unwrap_or_else(zeros);
        let windows = self.settings.windows;
        let window =
            if A::EXACT { windows.gradient(self.shape, scale.tokens)? } else { windows.residual };
        let targets = &sequences.targets;
        let part = self.logits_part(targets);
        // The logits of the first parts stay for the backward pass, those of others are computed twice.
        let is_recorded = !sequences.without_gradient;
        let (operations, last, kept, log_probs) = self.shared(|| {
            let (operations, last) = self.forward(sequences, None, is_recorded);
            let finite = operations.is_finite();
            let (mut kept, mut log_probs) = (Vec::new(), Vec::new());
            let parts = last.values.chunks(part * self.settings.hidden).zip(targets.chunks(part));
            for (rows, targets) in parts {
                let one = |row: usize, logits: &mut [A]| {
                    let distribution = Distribution::new(logits, temperature);
                    let target = logits[targets[row] as usize].to_f64();
                    distribution.map_or(f64::NAN, |distribution| distribution.log_prob(target))
                };
                let (logits, values) = self.each_logits(rows, finite, one);
                if is_recorded && kept.len() < KEPT_PARTS {
                    kept.push(logits);
                }
                log_probs.extend(values);
            }
            (operations, last, kept, log_probs)
        });
        let derivatives = by_log_probs(&log_probs);
        let shares: Vec<f64> =
            derivatives.iter().map(|derivative| derivative / sums.unit).collect();
        // Of responses without an advantage, mostly: zeros would be added to zeros.
        if !A::EXACT && shares.iter().all(|share| *share == 0.0) {
            return Ok(sums);
        }
        if !is_recorded {
            let again = Sequences { without_gradient: false, ..sequences.clone() };
            let mut known = |_: &[f64]| derivatives.clone();
            return self.gradients(Some(sums), &again, temperature, scale, &mut known);
        }
        let setting = BackwardSetting { window, tokens_in_all: scale.tokens };
        let (head, finite) = (&self.decoder.lm_head, operations.is_finite());
        Ok(self.shared(|| {
            let rows = last.values.chunks(part * self.settings.hidden);
            let mut kept = kept.into_iter();
            let all = rows.zip(targets.chunks(part)).zip(shares.chunks(part));
            let by_logits = all.map(|((rows, targets), shares)| {
                // A row of logits becomes that of their gradients.
                let one = |row: usize, logits: &mut [A]| {
                    let target = targets[row] as usize;
                    match Distribution::new(logits, temperature) {
                        Some(distribution) => {
                            distribution.differentiate(target, shares[row], logits);
                        }
                        None => logits.fill(A::from(f32::NAN)),
                    }
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
        let mut all = Vec::new();
        self.folded.map(|folded| all.push((all.len(), folded)));
        // A parameter may be in the table and the head, and in two weights of a layer.
        let (table, mut ends) = (all.remove(0), all.split_off(all.len() - 2));
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
        let NativeSettings { heads, windows, hidden, .. } = policy.settings;
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
            let prompts = Sequences::of_prompts(prompts);
            let (operations, last) = policy.forward(&prompts, Some(&mut keep), false);
            let finite = operations.is_finite();
            drop(operations);
            rows.extend(prompt_of_row.iter().map(|&prompt| read[prompt].clone()));
            policy.draw(&last.of_rows(prompt_of_row, hidden), finite, draw)
        })
    }

    fn feed(&mut self, tokens: &[u32], positions: &[usize], draw: DrawToken) -> Vec<Token> {
        let (policy, rows) = (&*self.policy, &mut self.rows);
        policy.shared(|| {
            let attention = NativeAttention::Step { rows, positions };
            let (settings, rotation) = (policy.settings, &policy.rotation);
            let mut operations = NativeOperations::new(settings, rotation, attention, false);
            let last = policy.decoder.run(&mut operations, tokens);
            policy.draw(&last, operations.is_finite(), draw)
        })
    }

    fn leave(&mut self, leaves: &[bool]) {
        cache::remove_rows(&mut self.rows, leaves);
    }
}

#[cfg(test)]
mod tests;
