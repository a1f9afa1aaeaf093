//! The engine for policies on the processor: forward, backward and decode steps over slices, in one of two arithmetics
//! ([`Arithmetic`]). Every operation has one fixed order, so a row has the same bits alone and in any batch, with a
//! cache and without, on any machine. In both arithmetics all is made of
//!
//! 1. separate additions, subtractions, products, divisions, roots, comparisons and casts of one number
//!    ([`elementwise`]);
//! 2. sums of products ([`product`]);
//! 3. other sums in one fixed order that no batch, thread or machine decides (over a vocabulary, a weight's rows);
//! 4. e^x, log, sin and cos from one pinned implementation ([`crate::numerics::functions`]).
//!
//! In f32 ("fast") a gradient depends on how its tokens are cut into passes. In f64 out of windows ("exact") it does
//! not: a sum of products is exact in f64, and so independent of its order, when every factor is a multiple of 2^low of
//! size at most 2^high and the widths (high − low) of both and ⌈log2⌉ of the number of terms are at most 53 bits
//! together. Every number that enters a product is first rounded into such a [`window`]. Activations are f32 that lie
//! in their window; so are gradients, in units of the mini-batch's largest loss weight. Logits are unrounded f64 sums.

pub mod attention;
pub mod backward;
pub mod cache;
pub mod elementwise;
pub mod orders;
pub mod product;
pub mod weights;
pub mod window;

use crate::base::workers;
use crate::numerics::native::{backward::Backward, cache::Slots};
use crate::numerics::{
    Arithmetic, BackwardSetting, Head, Heads, Left, NativeGradients, NativeWeight, Operations,
    Tally, Window, Windows,
};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug, Clone, Copy)]
pub struct NativeSettings {
    pub windows: Windows,
    pub heads: Heads,
    /// Numbers of a state.
    pub hidden: usize,
    pub epsilon: f64,
    /// Whether the backward pass computes again what is cheap (attention weights, what SwiGLU gave): the same numbers.
    pub recomputes: bool,
}

pub type Keep<'a> = &'a mut (dyn FnMut(usize, &[f32]) + Send);

pub enum NativeAttention<'a, A> {
    /// Sequences, one after another. `keep` gets each layer's joined rows (queries, keys, values; turned and rounded).
    Sequences {
        spans: Vec<Span>,
        keep: Option<Keep<'a>>,
    },
    Step {
        rows: &'a mut [Vec<Slots<A>>],
        positions: &'a [usize],
    },
}

/// Tokens of a sequence, and of an earlier one that it goes on after: as if it stood behind a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Span {
    pub own: Range<usize>,
    pub before: Range<usize>,
}

impl Span {
    /// The span in tokens that begin with this one.
    fn from(&self, first: usize) -> Self {
        let moved =
            |it: &Range<usize>| if it.is_empty() { 0..0 } else { it.start - first..it.end - first };
        Self { own: moved(&self.own), before: moved(&self.before) }
    }

    /// The span in rows of so many numbers a token.
    fn of_rows(&self, width: usize) -> Self {
        let scaled = |it: &Range<usize>| it.start * width..it.end * width;
        Self { own: scaled(&self.own), before: scaled(&self.before) }
    }
}

/// Numbers of each token, `[tokens, width]`.
#[derive(Clone)]
pub struct NativeRows {
    /// The numbers. Which window they lie in, the operation that made them says.
    pub values: Arc<Vec<f32>>,
    node: usize,
    /// Computes the numbers again, where they are not to be kept for the backward pass.
    again: Option<RowsAgain>,
}

impl NativeRows {
    /// Chosen rows of `width` numbers, in the order of the indices, without a record.
    pub fn of_rows(&self, chosen: &[usize], width: usize) -> Self {
        let mut values = Vec::with_capacity(chosen.len() * width);
        for row in chosen {
            values.extend_from_slice(&self.values[row * width..][..width]);
        }
        Self { values: Arc::new(values), node: 0, again: None }
    }
}

type RowsAgain = Arc<dyn Fn() -> Vec<f32> + Send + Sync>;
type Derivative<A> = Box<dyn FnOnce(Arc<Vec<f32>>, &mut Backward<A>) + Send>;

/// The operations on f32 rows, recorded for [`NativeOperations::backward`] or not.
pub struct NativeOperations<'a, A> {
    settings: NativeSettings,
    /// cos and sin of each position's pairs: `[positions, width / 2, 2]`.
    rotation: &'a [f32],
    rotations: Option<Arc<Vec<f32>>>,
    attention: NativeAttention<'a, A>,
    tape: Option<Vec<Derivative<A>>>,
    tally: Tally,
}

impl<'a, A: Arithmetic> NativeOperations<'a, A> {
    pub fn new(
        settings: NativeSettings,
        rotation: &'a [f32],
        attention: NativeAttention<'a, A>,
        is_recorded: bool,
    ) -> Self {
        let tape = is_recorded.then(Vec::new);
        let (rotations, tally) = (None, Tally::default());
        Self { settings, rotation, rotations, attention, tape, tally }
    }

    /// Whether all numbers were finite before they were rounded, so far.
    pub fn is_finite(&self) -> bool {
        !self.tally.not_finite
    }

    fn rounded(&mut self, mut values: Vec<f32>, window: Window) -> Vec<f32> {
        elementwise::round::<A>(&mut values, window, &mut self.tally);
        values
    }

    fn record(
        &mut self,
        values: impl Into<Arc<Vec<f32>>>,
        derivative: impl FnOnce() -> Derivative<A>,
    ) -> NativeRows {
        let node = self.tape.as_ref().map_or(0, Vec::len);
        if let Some(tape) = &mut self.tape {
            tape.push(derivative());
        }
        NativeRows { values: values.into(), node, again: None }
    }

    /// States of x that are chosen by index, in the order of the indices.
    pub fn select(&mut self, x: &NativeRows, chosen: &[usize]) -> NativeRows {
        let width = self.settings.hidden;
        let values = x.of_rows(chosen, width).values;
        let (node, length, chosen) = (x.node, x.values.len(), chosen.to_vec());
        self.record(values, || {
            Box::new(move |g, backward| {
                let mut by_x = vec![0.0; length];
                for (&row, g) in chosen.iter().zip(g.chunks_exact(width)) {
                    elementwise::add(&mut by_x[row * width..][..width], g);
                }
                backward.give(node, by_x);
            })
        })
    }

    /// Adds to gradients of the weights what follows from those of the logits. `by_logits` gives those of
    /// the rows of `last` in parts, one after another, in the gradients' unit and not yet rounded.
    pub fn backward(
        self,
        last: &NativeRows,
        head: &Arc<NativeWeight<A>>,
        by_logits: impl Iterator<Item = Vec<f32>>,
        setting: BackwardSetting,
        gradients: NativeGradients,
    ) -> NativeGradients {
        let tape = self.tape.expect("a backward pass needs a recorded forward pass");
        let waiting = tape.iter().map(|_| None).collect();
        let mut backward = Backward::<A> { waiting, gradients, setting, sums: PhantomData };
        let (mut by_last, mut rest) = (Vec::new(), &last.values[..]);
        for mut by_logits in by_logits {
            let tally = &mut backward.gradients.gradients;
            elementwise::round::<A>(&mut by_logits, setting.window, tally);
            let (rows, after) = rest.split_at(by_logits.len() / head.outputs() * head.inputs());
            let of_head = [(&by_logits[..], &**head)];
            let [by_rows] = backward.linear(of_head, rows, self.settings.windows.last);
            by_last.extend(by_rows);
            rest = after;
        }
        backward.give(last.node, by_last);
        for (node, derivative) in tape.into_iter().enumerate().rev() {
            if let Some(gradient) = backward.waiting[node].take() {
                derivative(gradient, &mut backward);
            }
        }
        backward.gradients.activations.add(self.tally);
        backward.gradients
    }
}

impl<A: Arithmetic> Operations for NativeOperations<'_, A> {
    type Tokens = [u32];
    type Rows = NativeRows;
    type Weight = Arc<NativeWeight<A>>;

    fn embedding(&mut self, table: &Arc<NativeWeight<A>>, tokens: &[u32]) -> NativeRows {
        let width = table.inputs();
        // A token's number of the vocabulary lies in a line of its own: later ones copy the first.
        let (mut rows, mut seen) = (Vec::with_capacity(tokens.len() * width), BTreeMap::new());
        for token in tokens {
            let from: usize = *seen.entry(token).or_insert(rows.len());
            if from == rows.len() {
                rows.extend(table.forward.column(*token as usize));
            } else {
                rows.extend_from_within(from..from + width);
            }
        }
        let values = self.rounded(A::rounded(rows), self.settings.windows.residual);
        let tokens = tokens.to_vec();
        self.record(values, || {
            Box::new(move |g, backward| {
                for (&token, g) in tokens.iter().zip(g.chunks_exact(width)) {
                    elementwise::add_rows(backward.gradients.embedding(token, width), g);
                }
            })
        })
    }

    fn rms_norm(&mut self, x: &NativeRows) -> NativeRows {
        let NativeSettings { hidden: width, epsilon, .. } = self.settings;
        let factors = elementwise::inverse_root_mean_squares::<A>(&x.values, width, epsilon);
        let values = elementwise::scale_rows(&x.values, &factors, width);
        let values = Arc::new(self.rounded(values, self.settings.windows.normed));
        let (node, y) = (x.node, values.clone());
        self.record(values, || {
            Box::new(move |g, backward| {
                let g = Arc::unwrap_or_clone(g);
                backward.give(node, elementwise::norm_derivative::<A>(g, &y, &factors, width));
            })
        })
    }

    fn attention(
        &mut self,
        layer: usize,
        x: NativeRows,
        qkv: &Arc<NativeWeight<A>>,
        norms: Option<&[Arc<NativeWeight<A>>; 2]>,
    ) -> NativeRows {
        let NativeSettings { windows, heads, recomputes, epsilon, .. } = self.settings;
        let mut joined =
            product::multiply_rounded(Left::Rows(&x.values, windows.normed), &qkv.forward);
        if let Some(bias) = &qkv.bias {
            elementwise::add_to_rows(&mut joined, bias);
        }
        let normed: Vec<NormedHeads<A>> = norms.map_or(Vec::new(), |[queries, keys]| {
            assert!(!A::EXACT, "norms of heads have no window and are refused before");
            let all = [(queries, 0, heads.queries), (keys, heads.queries, heads.keys)];
            all.map(|all| NormedHeads::of(all, &mut joined, heads, epsilon)).into()
        });
        let rotations = self.rotations();
        let stride = heads.joined_width();
        elementwise::turn(&mut joined, &rotations, heads, false);
        self.round_joined(&mut joined);
        let mut mixed = vec![0.0; joined.len() / stride * heads.queries * heads.width];
        let mut shares = Vec::new();
        match &mut self.attention {
            NativeAttention::Step { rows, .. } => {
                let width = heads.queries * heads.width;
                let joined = joined.chunks_exact(stride);
                let each = rows.iter_mut().zip(joined).zip(mixed.chunks_exact_mut(width));
                workers::by_rows(&mut each.collect::<Vec<_>>(), 1, |_, part| {
                    for ((row, joined), mixed) in part {
                        let (queries, rest) = joined.split_at(width);
                        let (keys, values) = rest.split_at(heads.keys * heads.width);
                        row[layer].push(heads, keys, values);
                        row[layer].attend(heads, queries, &windows, mixed);
                    }
                });
            }
            NativeAttention::Sequences { spans, keep } => {
                let keeps = self.tape.is_some() && !recomputes;
                let (width, mut rest) = (heads.queries * heads.width, &mut mixed[..]);
                let mut parts = Vec::new();
                for span in spans.iter() {
                    let (mixed, after) = rest.split_at_mut(span.own.len() * width);
                    parts.push((span.of_rows(stride), mixed, Vec::new()));
                    rest = after;
                }
                workers::by_rows(&mut parts, 1, |_, parts| {
                    for (Span { own, before }, mixed, shares) in parts {
                        let (before, own) = (&joined[before.clone()], &joined[own.clone()]);
                        for key in 0..heads.keys {
                            let head = Head { heads, key };
                            let head_shares = head.attend::<A>([before, own], mixed, &windows);
                            shares.extend(keeps.then_some(head_shares));
                        }
                    }
                });
                shares = parts.into_iter().map(|(_, _, shares)| shares).collect();
                if let Some(keep) = keep {
                    keep(layer, &joined);
                }
            }
        }
        let mixed = self.rounded(mixed, windows.value);
        let spans = match &self.attention {
            NativeAttention::Sequences { spans, .. } if self.tape.is_some() => spans.clone(),
            _ => Vec::new(),
        };
        let qkv = qkv.clone();
        self.record(mixed, || {
            Box::new(move |g, backward| {
                let gradient = backward.setting.window;
                let width = heads.queries * heads.width;
                let mut by_joined = vec![0.0; joined.len()];
                // What goes on after a prompt adds to its gradient, one after another.
                let (mut parts, mut rest, mut first) = (Vec::new(), &mut by_joined[..], 0);
                for spans in spans.chunk_by(|_, next| !next.before.is_empty()) {
                    let tokens = spans.iter().map(|span| span.own.len()).sum::<usize>();
                    let (by_joined, after) = rest.split_at_mut(tokens * stride);
                    parts.push((first, spans, by_joined, Tally::default()));
                    (rest, first) = (after, first + spans.len());
                }
                workers::by_rows(&mut parts, 1, |_, parts| {
                    for (first, spans, by_joined, tally) in parts {
                        let start = spans[0].own.start;
                        for (at, span) in spans.iter().enumerate() {
                            let g = &g[span.of_rows(width).own];
                            let Span { own, before } = span.of_rows(stride);
                            let joined = [&joined[before], &joined[own]];
                            let Span { own, before } = span.from(start).of_rows(stride);
                            let (earlier, by_own) = by_joined.split_at_mut(own.start);
                            let (by_before, by_own) =
                                (&mut earlier[before], &mut by_own[..own.len()]);
                            for key in 0..heads.keys {
                                let head = Head { heads, key };
                                let again;
                                let shares = match shares.get(*first + at) {
                                    Some(shares) if !recomputes => &shares[key],
                                    _ => {
                                        again = head.shares::<A>(joined, &windows);
                                        &again
                                    }
                                };
                                head.differentiate::<A>(
                                    g,
                                    joined,
                                    shares,
                                    [&mut *by_before, &mut *by_own],
                                    (&windows, gradient),
                                    tally,
                                );
                            }
                        }
                    }
                });
                let tally = &mut backward.gradients.gradients;
                parts.iter().for_each(|(.., part)| tally.add(*part));
                elementwise::turn(&mut by_joined, &rotations, heads, true);
                elementwise::round::<A>(&mut by_joined, gradient, tally);
                for norms in normed {
                    norms.differentiate(&mut by_joined, heads, backward);
                }
                let of_joined = [(&by_joined[..], &*qkv)];
                let [by_x] = backward.linear(of_joined, &x.values, windows.normed);
                backward.give(x.node, by_x);
            })
        })
    }

    fn attention_output(&mut self, x: NativeRows, weight: &Arc<NativeWeight<A>>) -> NativeRows {
        self.linear(x, weight, self.settings.windows.value)
    }

    fn swiglu(
        &mut self,
        x: NativeRows,
        gate: &Arc<NativeWeight<A>>,
        up: &Arc<NativeWeight<A>>,
    ) -> NativeRows {
        let NativeSettings { windows, recomputes, .. } = self.settings;
        let product = |weight: &NativeWeight<A>| {
            product::multiply_rounded(Left::Rows(&x.values, windows.normed), &weight.forward)
        };
        let both = Arc::new([product(gate), product(up)]);
        let inner = elementwise::swiglu(&both[0], &both[1]);
        let inner = self.rounded(inner, windows.inner);
        let (gate, up, again) = (gate.clone(), up.clone(), both.clone());
        let inner = self.record(inner, || {
            Box::new(move |g, backward| {
                let mut both = Arc::unwrap_or_clone(both);
                let [by_gates, by_ups] = &mut both;
                elementwise::differentiate_swiglu(&g, by_gates, by_ups);
                let tally = &mut backward.gradients.gradients;
                elementwise::round::<A>(by_gates, backward.setting.window, tally);
                elementwise::round::<A>(by_ups, backward.setting.window, tally);
                let [gates, ups] = &both;
                let all = [(&gates[..], &*gate), (&ups[..], &*up)];
                for by_x in backward.linear(all, &x.values, windows.normed) {
                    backward.give(x.node, by_x);
                }
            })
        });
        let again: RowsAgain = Arc::new(move || {
            let mut inner = elementwise::swiglu(&again[0], &again[1]);
            elementwise::round::<A>(&mut inner, windows.inner, &mut Tally::default());
            inner
        });
        NativeRows { again: recomputes.then_some(again), ..inner }
    }

    fn swiglu_output(&mut self, x: NativeRows, weight: &Arc<NativeWeight<A>>) -> NativeRows {
        self.linear(x, weight, self.settings.windows.inner)
    }

    fn add(&mut self, x: NativeRows, more: NativeRows) -> NativeRows {
        let (nodes, mut sum) = ([x.node, more.node], Arc::unwrap_or_clone(more.values));
        elementwise::add(&mut sum, &x.values);
        let sum = self.rounded(sum, self.settings.windows.residual);
        self.record(sum, || {
            Box::new(move |g, backward| {
                backward.give(nodes[0], g.clone());
                backward.give(nodes[1], g);
            })
        })
    }

    fn scale(&mut self, x: NativeRows, weight: &Arc<NativeWeight<A>>) -> NativeRows {
        let scaled = elementwise::scale_columns(&x.values, &weight.vector);
        let scaled = self.rounded(scaled, self.settings.windows.last);
        let weight = weight.clone();
        self.record(scaled, || {
            Box::new(move |g, backward| {
                // A number of gradients' window times one of the normed rows': exact in f64.
                backward.scale(&g, &x.values, &weight);
                backward.give(x.node, elementwise::scale_columns(&g, &weight.vector));
            })
        })
    }
}

impl<A: Arithmetic> NativeOperations<'_, A> {
    /// cos and sin of the tokens' pairs, the same in every layer: `[tokens, width / 2, 2]`.
    fn rotations(&mut self) -> Arc<Vec<f32>> {
        let (rotation, width) = (self.rotation, self.settings.heads.width);
        let of = |position: usize| &rotation[position * width..][..width];
        let attention = &self.attention;
        let of_all = || match attention {
            NativeAttention::Sequences { spans, .. } => {
                let all = |Span { own, before }: &Span| before.len()..before.len() + own.len();
                spans.iter().flat_map(all).map(of).collect::<Vec<_>>().concat()
            }
            NativeAttention::Step { positions, .. } => {
                positions.iter().map(|position| of(*position)).collect::<Vec<_>>().concat()
            }
        };
        self.rotations.get_or_insert_with(|| Arc::new(of_all())).clone()
    }

    fn round_joined(&mut self, joined: &mut [f32]) {
        let NativeSettings { windows, heads, .. } = self.settings;
        let turned = (heads.queries + heads.keys) * heads.width;
        for row in joined.chunks_exact_mut(heads.joined_width()) {
            let (keys, values) = row.split_at_mut(turned);
            elementwise::round::<A>(keys, windows.key, &mut self.tally);
            elementwise::round::<A>(values, windows.value, &mut self.tally);
        }
    }

    /// x · weightᵀ, x out of `window`.
    fn linear(
        &mut self,
        x: NativeRows,
        weight: &Arc<NativeWeight<A>>,
        window: Window,
    ) -> NativeRows {
        let values = product::multiply_rounded(Left::Rows(&x.values, window), &weight.forward);
        let weight = weight.clone();
        self.record(values, || {
            let (node, again) = (x.node, x.again);
            let kept = again.is_none().then_some(x.values);
            Box::new(move |g, backward| {
                let values = kept.or_else(|| again.map(|again| Arc::new(again())));
                let values = values.expect("rows that are kept or computed again");
                let [by_x] = backward.linear([(&g[..], &*weight)], &values, window);
                backward.give(node, by_x);
            })
        })
    }
}

/// Heads of queries, or of keys, in joined rows, each of which was normed.
struct NormedHeads<A> {
    weight: Arc<NativeWeight<A>>,
    places: Range<usize>,
    /// Before the product with the weight, `[tokens · heads, width]`.
    values: Vec<f32>,
    factors: Vec<f32>,
}

impl<A: Arithmetic> NormedHeads<A> {
    /// Norms `count` heads of each row from head `first` on.
    fn of(
        (weight, first, count): (&Arc<NativeWeight<A>>, usize, usize),
        joined: &mut [f32],
        heads: Heads,
        epsilon: f64,
    ) -> Self {
        let (width, weight) = (heads.width, weight.clone());
        let places = first * width..(first + count) * width;
        let (mut values, mut factors) = (Vec::new(), Vec::new());
        change_heads(joined, heads, &places, |all| {
            factors = elementwise::inverse_root_mean_squares::<A>(&all, width, epsilon);
            values = elementwise::scale_rows(&all, &factors, width);
            elementwise::scale_columns(&values, &weight.vector)
        });
        Self { weight, places, values, factors }
    }

    /// Gradients of what was normed instead of those of the normed heads.
    fn differentiate(self, by_joined: &mut [f32], heads: Heads, backward: &mut Backward<A>) {
        let Self { weight, places, values, factors } = self;
        change_heads(by_joined, heads, &places, |all| {
            backward.scale(&all, &values, &weight);
            let all = elementwise::scale_columns(&all, &weight.vector);
            elementwise::norm_derivative::<A>(all, &values, &factors, heads.width)
        });
    }
}

/// Gives the heads at these places of each joined row, `[tokens · heads, width]`, what `change` makes of them.
fn change_heads(
    joined: &mut [f32],
    heads: Heads,
    places: &Range<usize>,
    change: impl FnOnce(Vec<f32>) -> Vec<f32>,
) {
    let rows = joined.chunks_exact(heads.joined_width()).flat_map(|row| &row[places.clone()]);
    let changed = change(rows.copied().collect());
    let rows = joined.chunks_exact_mut(heads.joined_width());
    rows.zip(changed.chunks_exact(places.len()))
        .for_each(|(row, changed)| row[places.clone()].copy_from_slice(changed));
}
