//! `exact` arithmetic: the same bits on any machine, by construction.
//!
//! A sum of products is exact in f64, and so independent of its order, when every factor is a
//! multiple of 2^low of size at most 2^high and the widths (high − low) of both and ⌈log2⌉ of the
//! number of terms are at most 53 bits together. Every number that enters a product is first
//! rounded into such a [`window`]; all that is left is of four kinds:
//!
//! 1. separate additions, subtractions, multiplications, divisions, roots, comparisons and casts of
//!    one number at a time ([`elementwise`]);
//! 2. sums of products out of windows ([`product`], [`elementwise::dots`]), whose order is free;
//! 3. other sums in one fixed order that no batch, thread or machine decides (over a vocabulary,
//!    over the rows of a weight);
//! 4. e^x, log, sin and cos from one pinned implementation ([`crate::numerics::functions`]).
//!
//! So a row has the same bits alone and in any batch, with a cache and without, and a gradient has
//! the same bits however its tokens are cut into passes. Activations are f32 that lie in their
//! window; so are gradients, in units of the mini-batch's largest loss weight. Logits are unrounded
//! f64 sums.

pub mod attention;
pub mod backward;
pub mod cache;
pub mod elementwise;
pub mod orders;
pub mod product;
pub mod weights;
pub mod window;

use crate::numerics::exact::cache::CacheSlots;
use crate::numerics::{
    Backward, BackwardSetting, ExactGradients, ExactWeight, Head, HeadNorms, Heads, Left,
    Operations, Tally, Window, Windows, slices,
};
use std::rc::Rc;
use std::sync::Arc;

/// What every operation of a policy needs to know.
#[derive(Debug, Clone, Copy)]
pub struct ExactSettings {
    pub windows: Windows,
    pub heads: Heads,
    pub epsilon: f64,
}

pub type Keep<'a> = &'a mut dyn FnMut(usize, &[f32]);

/// Where attention looks.
pub enum ExactAttention<'a> {
    /// Whole sequences, one after another, of these lengths. `keep` gets each layer's joined rows
    /// (queries, keys, values; turned and rounded), for a cache.
    Sequences {
        lengths: Vec<usize>,
        keep: Option<Keep<'a>>,
    },
    Step {
        rows: &'a mut [Vec<CacheSlots>],
        positions: &'a [usize],
    },
}

/// Numbers of each token, `[tokens, width]`.
#[derive(Debug, Clone)]
pub struct WindowedRows {
    /// The numbers. Which window they lie in, the operation that made them says.
    pub values: Rc<Vec<f32>>,
    node: usize,
}

type Derivative = Box<dyn FnOnce(&[f32], &mut Backward)>;

/// The operations on f32 rows, recorded for a backward pass or not.
pub struct ExactOperations<'a> {
    settings: ExactSettings,
    /// cos and sin of each position's pairs: `[positions, width / 2, 2]`.
    rotation: &'a [f32],
    attention: ExactAttention<'a>,
    /// How each recorded node hands its gradient on.
    tape: Option<Vec<Derivative>>,
    tally: Tally,
}

impl<'a> ExactOperations<'a> {
    /// Operations without a record.
    pub fn new(
        settings: ExactSettings,
        rotation: &'a [f32],
        attention: ExactAttention<'a>,
    ) -> Self {
        Self { settings, rotation, attention, tape: None, tally: Tally::default() }
    }

    /// The same, recorded for [`ExactOperations::backward`].
    pub fn recorded(self) -> Self {
        Self { tape: Some(Vec::new()), ..self }
    }

    /// How much rounding changed so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn rounded(&mut self, mut values: Vec<f32>, window: Window) -> Vec<f32> {
        elementwise::round(&mut values, window, &mut self.tally);
        values
    }

    fn record(
        &mut self,
        values: impl Into<Rc<Vec<f32>>>,
        derivative: impl FnOnce() -> Derivative,
    ) -> WindowedRows {
        let node = self.tape.as_ref().map_or(0, Vec::len);
        if let Some(tape) = &mut self.tape {
            tape.push(derivative());
        }
        WindowedRows { values: values.into(), node }
    }

    /// Rows of x that are chosen by index, in the order of the indices.
    pub fn select(&mut self, x: &WindowedRows, chosen: &[usize], width: usize) -> WindowedRows {
        let values: Vec<f32> =
            chosen.iter().flat_map(|&row| &x.values[row * width..][..width]).copied().collect();
        let (node, length, chosen) = (x.node, x.values.len(), chosen.to_vec());
        self.record(values, || {
            Box::new(move |g, backward| {
                let mut by_x = vec![0.0; length];
                for (&row, g) in chosen.iter().zip(g.chunks_exact(width)) {
                    // Each row is chosen once, as every state of a response is.
                    by_x[row * width..][..width].copy_from_slice(g);
                }
                backward.give(node, by_x);
            })
        })
    }

    /// Logits `[rows, vocab]`: unrounded sums.
    pub fn logits(&self, last: &WindowedRows, head: &ExactWeight) -> Vec<f64> {
        product::multiply(Left::Rows(&last.values, self.settings.windows.last), &head.forward)
    }

    /// Gradients of the weights from those of the logits `[rows, vocab]`, which are in units of
    /// [`BackwardSetting::unit`] and not yet rounded.
    pub fn backward(
        self,
        last: &WindowedRows,
        head: &Arc<ExactWeight>,
        mut by_logits: Vec<f32>,
        setting: BackwardSetting,
    ) -> ExactGradients {
        let gradients = ExactGradients::zeros(setting.slots, setting.unit);
        let tape = self.tape.expect("a backward pass needs a recorded forward pass");
        let waiting = tape.iter().map(|_| None).collect();
        let windows = self.settings.windows;
        let mut backward = Backward { waiting, gradients, setting, windows };
        elementwise::round(&mut by_logits, setting.window, &mut backward.gradients.gradients);
        let by_last = backward.linear(&by_logits, &last.values, windows.last, head);
        backward.give(last.node, by_last);
        for (node, derivative) in tape.into_iter().enumerate().rev() {
            if let Some(gradient) = backward.waiting[node].take() {
                derivative(&gradient, &mut backward);
            }
        }
        backward.gradients.activations.add(self.tally);
        backward.gradients
    }
}

impl Operations for ExactOperations<'_> {
    type Tokens = [u32];
    type Rows = WindowedRows;
    type Weight = Arc<ExactWeight>;

    fn embedding(&mut self, table: &Arc<ExactWeight>, tokens: &[u32]) -> WindowedRows {
        let width = table.inputs;
        let values: Vec<f32> = tokens
            .iter()
            .flat_map(|&token| &table.values[token as usize * width..][..width])
            .copied()
            .collect();
        let values = self.rounded(values, self.settings.windows.residual);
        let (table, tokens) = (table.clone(), tokens.to_vec());
        self.record(values, || {
            Box::new(move |g, backward| {
                let sums = backward.gradients.matrix(&table);
                for (&token, g) in tokens.iter().zip(g.chunks_exact(width)) {
                    elementwise::add_rows(&mut sums[token as usize * width..][..width], g);
                }
            })
        })
    }

    fn rms_norm(&mut self, x: &WindowedRows, width: usize) -> WindowedRows {
        let factors =
            elementwise::inverse_root_mean_squares(&x.values, width, self.settings.epsilon);
        let values = elementwise::scale_rows(&x.values, &factors, width);
        let values = Rc::new(self.rounded(values, self.settings.windows.normed));
        let (node, y) = (x.node, values.clone());
        self.record(values, || {
            Box::new(move |g, backward| {
                let by_x = elementwise::norm_derivative(g, &y, &factors, width);
                backward.give(node, by_x);
            })
        })
    }

    fn attention(
        &mut self,
        layer: usize,
        x: WindowedRows,
        qkv: &Arc<ExactWeight>,
        norms: Option<&HeadNorms<Arc<ExactWeight>>>,
    ) -> WindowedRows {
        assert!(norms.is_none(), "a policy with norms of heads is refused before");
        let ExactSettings { windows, heads, .. } = self.settings;
        let mut joined =
            product::multiply_rounded(Left::Rows(&x.values, windows.normed), &qkv.forward);
        if let Some(bias) = &qkv.bias {
            elementwise::add_to_rows(&mut joined, bias);
        }
        let positions: Vec<usize> = match &self.attention {
            ExactAttention::Sequences { lengths, .. } => {
                lengths.iter().flat_map(|&n| 0..n).collect()
            }
            ExactAttention::Step { positions, .. } => positions.to_vec(),
        };
        let rotations: Vec<f32> = positions
            .iter()
            .flat_map(|&position| &self.rotation[position * heads.width..][..heads.width])
            .copied()
            .collect();
        let stride = heads.joined_width();
        turn(&mut joined, &rotations, heads, false);
        round_joined(&mut joined, heads, &windows, &mut self.tally);
        let mut mixed = vec![0.0; joined.len() / stride * heads.queries * heads.width];
        let mut shares = Vec::new();
        match &mut self.attention {
            ExactAttention::Step { rows, .. } => {
                let each = rows.iter_mut().zip(joined.chunks_exact(stride));
                for ((row, joined), mixed) in
                    each.zip(mixed.chunks_exact_mut(heads.queries * heads.width))
                {
                    let (queries, rest) = joined.split_at(heads.queries * heads.width);
                    let (keys, values) = rest.split_at(heads.keys * heads.width);
                    row[layer].push(heads, keys, values);
                    row[layer].attend(heads, queries, &windows, mixed);
                }
            }
            ExactAttention::Sequences { lengths, keep } => {
                let recorded = self.tape.is_some();
                for (joined, mixed) in sequences(&joined, &mut mixed, lengths, heads) {
                    for key in 0..heads.keys {
                        let made = Head { heads, key }.attend(joined, mixed, &windows);
                        shares.extend(recorded.then_some(made));
                    }
                }
                if let Some(keep) = keep {
                    keep(layer, &joined);
                }
            }
        }
        let mixed = self.rounded(mixed, windows.value);
        let lengths = match &self.attention {
            ExactAttention::Sequences { lengths, .. } if self.tape.is_some() => lengths.to_vec(),
            _ => Vec::new(),
        };
        let qkv = qkv.clone();
        self.record(mixed, || {
            Box::new(move |g, backward| {
                let mut by_joined = vec![0.0; joined.len()];
                let (windows, gradient) = (backward.windows, backward.setting.window);
                let tally = &mut backward.gradients.gradients;
                let mut shares = shares.iter();
                let mut start = 0;
                for length in lengths {
                    let rows = start * stride..(start + length) * stride;
                    let mixed = start * heads.queries * heads.width;
                    let g = &g[mixed..mixed + length * heads.queries * heads.width];
                    for key in 0..heads.keys {
                        let shares = shares.next().expect("shares of every head");
                        Head { heads, key }.differentiate(
                            g,
                            &joined[rows.clone()],
                            shares,
                            &mut by_joined[rows.clone()],
                            (&windows, gradient),
                            tally,
                        );
                    }
                    start += length;
                }
                turn(&mut by_joined, &rotations, heads, true);
                elementwise::round(&mut by_joined, gradient, tally);
                let by_x = backward.linear(&by_joined, &x.values, windows.normed, &qkv);
                backward.give(x.node, by_x);
            })
        })
    }

    fn attention_output(&mut self, x: WindowedRows, weight: &Arc<ExactWeight>) -> WindowedRows {
        self.linear(x, weight, self.settings.windows.value)
    }

    fn swiglu(
        &mut self,
        _layer: usize,
        x: WindowedRows,
        gate: &Arc<ExactWeight>,
        up: &Arc<ExactWeight>,
    ) -> WindowedRows {
        let windows = self.settings.windows;
        let product = |weight: &ExactWeight| {
            product::multiply_rounded(Left::Rows(&x.values, windows.normed), &weight.forward)
        };
        let (gates, ups) = (product(gate), product(up));
        let inner = elementwise::swiglu(&gates, &ups);
        let inner = self.rounded(inner, windows.inner);
        let (gate, up) = (gate.clone(), up.clone());
        self.record(inner, || {
            Box::new(move |g, backward| {
                let (mut by_gates, mut by_ups) = elementwise::swiglu_derivatives(g, &gates, &ups);
                let tally = &mut backward.gradients.gradients;
                elementwise::round(&mut by_gates, backward.setting.window, tally);
                elementwise::round(&mut by_ups, backward.setting.window, tally);
                for (g, weight) in [(by_gates, gate), (by_ups, up)] {
                    let by_x = backward.linear(&g, &x.values, windows.normed, &weight);
                    backward.give(x.node, by_x);
                }
            })
        })
    }

    fn swiglu_output(&mut self, x: WindowedRows, weight: &Arc<ExactWeight>) -> WindowedRows {
        self.linear(x, weight, self.settings.windows.inner)
    }

    fn add(&mut self, x: WindowedRows, more: WindowedRows) -> WindowedRows {
        let mut sum = more.values.to_vec();
        slices::add(&mut sum, &x.values);
        let sum = self.rounded(sum, self.settings.windows.residual);
        self.record(sum, || {
            Box::new(move |g, backward| {
                backward.give(x.node, g.to_vec());
                backward.give(more.node, g.to_vec());
            })
        })
    }

    fn scale(&mut self, x: WindowedRows, weight: &Arc<ExactWeight>) -> WindowedRows {
        let scaled = elementwise::scale_columns(&x.values, &weight.values);
        let scaled = self.rounded(scaled, self.settings.windows.last);
        let weight = weight.clone();
        self.record(scaled, || {
            Box::new(move |g, backward| {
                // A number of gradients' window times one of the normed rows': exact in f64.
                backward.scale(g, &x.values, &weight);
                backward.give(x.node, elementwise::scale_columns(g, &weight.values));
            })
        })
    }
}

impl ExactOperations<'_> {
    /// x · weightᵀ, x out of `window`.
    fn linear(
        &mut self,
        x: WindowedRows,
        weight: &Arc<ExactWeight>,
        window: Window,
    ) -> WindowedRows {
        let values = product::multiply_rounded(Left::Rows(&x.values, window), &weight.forward);
        let weight = weight.clone();
        self.record(values, || {
            Box::new(move |g, backward| {
                let by_x = backward.linear(g, &x.values, window, &weight);
                backward.give(x.node, by_x);
            })
        })
    }
}

/// The rows of each sequence, joined and mixed.
fn sequences<'r>(
    joined: &'r [f32],
    mixed: &'r mut [f32],
    lengths: &'r [usize],
    heads: Heads,
) -> impl Iterator<Item = (&'r [f32], &'r mut [f32])> {
    let (mut joined, mut mixed) = (joined, mixed);
    lengths.iter().map(move |length| {
        let (first, rest) = joined.split_at(length * heads.joined_width());
        joined = rest;
        let (mixed_first, rest) =
            std::mem::take(&mut mixed).split_at_mut(length * heads.queries * heads.width);
        mixed = rest;
        (first, mixed_first)
    })
}

/// Turns queries and keys of every row by its rotation.
fn turn(joined: &mut [f32], rotations: &[f32], heads: Heads, back: bool) {
    let turned = (heads.queries + heads.keys) * heads.width;
    let rows = joined.chunks_exact_mut(heads.joined_width());
    for (row, rotation) in rows.zip(rotations.chunks_exact(heads.width)) {
        elementwise::turn(&mut row[..turned], rotation, back);
    }
}

/// Rounds queries and keys into their window, values into theirs.
fn round_joined(joined: &mut [f32], heads: Heads, windows: &Windows, tally: &mut Tally) {
    let turned = (heads.queries + heads.keys) * heads.width;
    for row in joined.chunks_exact_mut(heads.joined_width()) {
        let (keys, values) = row.split_at_mut(turned);
        elementwise::round(keys, windows.key, tally);
        elementwise::round(values, windows.value, tally);
    }
}
