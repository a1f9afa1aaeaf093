//! The arithmetic of a decode step on plain f32 slices, for the CPU.
//!
//! A decode step has few tokens, and calling its small operations costs more than computing them.
//! Here each is one loop over all rows, compiled for several instruction sets; the best is chosen at
//! run time. No product and sum are fused and every sum has a fixed order, so a row gets the same
//! bits whatever the instruction set, the threads and the other rows of the batch. (LibTorch makes
//! the products between these loops, and they round by the number of rows.)

use crate::numerics::functions::exp;
use crate::numerics::vectorised::{dispatch, vectorised};
use pulp::{Simd, WithSimd};

/// Numbers that are summed side by side, and slots of a block of keys. A register of any
/// instruction set holds this many or a divisor of it.
pub const LANES: usize = 16;

/// Folds each of [`LANES`] lanes of x by itself. Loops over arrays of lanes would be compiled to
/// scalar code; the vectors of `simd` are not.
#[inline(always)]
fn fold_lanes<S: Simd>(
    simd: S,
    x: &[[f32; LANES]],
    start: f32,
    step: impl Fn(S, S::f32s, S::f32s) -> S::f32s,
) -> [f32; LANES] {
    let mut lanes = [0f32; LANES];
    let (folded, _) = S::as_mut_simd_f32s(&mut lanes);
    let (vectors, _) = S::as_simd_f32s(x.as_flattened());
    for (at, folded) in folded.iter_mut().enumerate() {
        let mut value = simd.splat_f32s(start);
        // A row that is shorter than the lanes has no vectors.
        for vector in vectors.get(at..).unwrap_or_default().iter().step_by(LANES / S::F32_LANES) {
            value = step(simd, value, *vector);
        }
        *folded = value;
    }
    lanes
}

#[inline(always)]
fn sum_of_squares<S: Simd>(simd: S, x: &[f32]) -> f32 {
    let (blocks, rest) = x.as_chunks::<LANES>();
    let lanes =
        fold_lanes(simd, blocks, 0.0, |simd, sum, x| simd.add_f32s(sum, simd.mul_f32s(x, x)));
    sum(&lanes) + rest.iter().map(|x| x * x).sum::<f32>()
}

/// Neighbouring halves are added until one number is left.
#[inline(always)]
fn sum(lanes: &[f32; LANES]) -> f32 {
    let mut sums = *lanes;
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            sums[lane] += sums[lane + width];
        }
        width /= 2;
    }
    sums[0]
}

/// [`crate::numerics::fast::rms_norm`] of rows `[rows, width]`, written into `normed` of the same size.
pub fn rms_norm(x: &[f32], width: usize, epsilon: f64, normed: &mut Vec<f32>) {
    normed.resize(x.len(), 0.0);
    dispatch(Norm { x, width, epsilon: epsilon as f32, normed });
}

struct Norm<'a> {
    x: &'a [f32],
    width: usize,
    epsilon: f32,
    normed: &'a mut [f32],
}

impl WithSimd for Norm<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { x, width, epsilon, normed } = self;
        for (x, normed) in x.chunks_exact(width).zip(normed.chunks_exact_mut(width)) {
            let scale = 1.0 / (sum_of_squares(simd, x) / width as f32 + epsilon).sqrt();
            for (normed, x) in normed.iter_mut().zip(x) {
                *normed = x * scale;
            }
        }
    }
}

/// Adds `more` to `x`, element by element.
pub fn add(x: &mut [f32], more: &[f32]) {
    vectorised(
        #[inline(always)]
        || x.iter_mut().zip(more).for_each(|(x, more)| *x += more),
    );
}

/// SwiGLU of rows `[rows, 2 · width]`, gates then ups: `silu(gate) · up`, `[rows, width]`, written
/// into `inner`.
pub fn swiglu(gates_and_ups: &[f32], width: usize, inner: &mut Vec<f32>) {
    inner.resize(gates_and_ups.len() / 2, 0.0);
    vectorised(
        #[inline(always)]
        || {
            let rows = gates_and_ups.chunks_exact(2 * width);
            for (row, inner) in rows.zip(inner.chunks_exact_mut(width)) {
                let (gates, ups) = row.split_at(width);
                for ((inner, gate), up) in inner.iter_mut().zip(gates).zip(ups) {
                    *inner = gate / (1.0 + exp(-gate)) * up;
                }
            }
        },
    );
}

/// The heads of an attention layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Query heads, a multiple of `keys`.
    pub queries: usize,
    pub keys: usize,
    /// Numbers in each head, even.
    pub width: usize,
}

impl Heads {
    /// Numbers that a token has: queries, keys, values.
    pub fn joined_width(self) -> usize {
        (self.queries + 2 * self.keys) * self.width
    }

    /// Numbers of one head's keys or values in a block of [`LANES`] slots.
    pub fn panel(self) -> usize {
        LANES * self.width
    }
}

/// Keys and values of one row in one layer, in blocks of 16 slots. A block has a panel for
/// each head. Slots that are not filled are zeros.
#[derive(Debug, Clone, Default)]
pub struct Slots<T = f32> {
    /// `[blocks, heads, width, LANES]`: a score is computed for all slots of a block at once.
    pub keys: Vec<T>,
    /// `[blocks, heads, LANES, width]`: a mixture, for many numbers of a head at once.
    pub values: Vec<T>,
    pub filled: usize,
}

impl<T: Copy + Default + From<f32>> Slots<T> {
    /// Appends one slot: keys and values `[heads.keys, heads.width]`.
    #[inline(always)]
    pub fn push(&mut self, heads: Heads, keys: &[f32], values: &[f32]) {
        let (panel, at) = (heads.panel(), self.filled % LANES);
        if at == 0 {
            self.keys.resize(self.keys.len() + heads.keys * panel, T::default());
            self.values.resize(self.values.len() + heads.keys * panel, T::default());
        }
        let block = self.filled / LANES * heads.keys * panel;
        for (head, values) in values.chunks_exact(heads.width).enumerate() {
            let start = block + head * panel + at * heads.width;
            let places = &mut self.values[start..start + heads.width];
            places.iter_mut().zip(values).for_each(|(place, value)| *place = T::from(*value));
        }
        // The panels of a block follow each other, and so do their columns.
        let columns = self.keys[block..].chunks_exact_mut(LANES);
        columns.zip(keys).for_each(|(column, key)| column[at] = T::from(*key));
        self.filled += 1;
    }
}

impl Slots<f32> {
    /// Attention of one query over all slots: queries `[heads.queries, heads.width]`; `mixed`, of
    /// the same shape, must be zeros. `scores` is scratch.
    #[inline(always)]
    fn attend<S: Simd>(
        &self,
        simd: S,
        heads: Heads,
        queries: &[f32],
        scores: &mut Vec<f32>,
        mixed: &mut [f32],
    ) {
        let blocks = self.filled.div_ceil(LANES);
        let group = heads.queries / heads.keys;
        scores.clear();
        scores.resize(heads.queries * blocks * LANES, 0.0);
        for (at, panel) in self.keys.chunks_exact(heads.panel()).enumerate() {
            let (block, key_head) = (at / heads.keys, at % heads.keys);
            for head in key_head * group..(key_head + 1) * group {
                let query = &queries[head * heads.width..(head + 1) * heads.width];
                let place = (head * blocks + block) * LANES;
                add_weighted(simd, query, panel, &mut scores[place..place + LANES]);
            }
        }
        let scale = 1.0 / (heads.width as f32).sqrt();
        for scores in scores.chunks_exact_mut(blocks * LANES) {
            softmax(simd, scores, self.filled, scale);
        }
        for (at, panel) in self.values.chunks_exact(heads.panel()).enumerate() {
            let (block, key_head) = (at / heads.keys, at % heads.keys);
            for head in key_head * group..(key_head + 1) * group {
                let place = (head * blocks + block) * LANES;
                let weights = &scores[place..place + LANES];
                let mixed = &mut mixed[head * heads.width..(head + 1) * heads.width];
                add_weighted(simd, weights, panel, mixed);
            }
        }
    }
}

/// Softmax of the first `filled` scores times `scale`; later scores become about 0.
#[inline(always)]
fn softmax<S: Simd>(simd: S, scores: &mut [f32], filled: usize, scale: f32) {
    scores[filled..].fill(f32::NEG_INFINITY);
    let lowest = f32::NEG_INFINITY;
    let most =
        fold_lanes(simd, scores.as_chunks().0, lowest, |simd, most, x| simd.max_f32s(most, x));
    let most = most.iter().fold(lowest, |most, &score| most.max(score));
    for score in scores.iter_mut() {
        // A NaN that the maximum lost is one here.
        *score = exp((*score - most) * scale);
    }
    let sums = fold_lanes(simd, scores.as_chunks().0, 0.0, |simd, sum, x| simd.add_f32s(sum, x));
    let share = 1.0 / sum(&sums);
    for weight in scores.iter_mut() {
        *weight *= share;
    }
}

/// Adds the rows of a panel, each with its weight: weights `[rows]`, panel `[rows, width]`, sums
/// `[width]`.
#[inline(always)]
fn add_weighted<S: Simd>(simd: S, weights: &[f32], panel: &[f32], sums: &mut [f32]) {
    let width = sums.len();
    let (vectors, rest) = S::as_mut_simd_f32s(sums);
    let first = width - rest.len();
    if rest.is_empty() {
        let (panel, _) = S::as_simd_f32s(panel);
        let stride = vectors.len();
        for (at, sums) in vectors.iter_mut().enumerate() {
            let mut sum = *sums;
            for (weight, row) in weights.iter().zip(panel.chunks_exact(stride)) {
                sum = simd.add_f32s(sum, simd.mul_f32s(simd.splat_f32s(*weight), row[at]));
            }
            *sums = sum;
        }
        return;
    }
    // A width that is no whole number of registers: slower, the same sums.
    for (weight, row) in weights.iter().zip(panel.chunks_exact(width)) {
        let (head, tail) = row.split_at(first);
        let (head, _) = S::as_simd_f32s(head);
        for (sum, x) in vectors.iter_mut().zip(head) {
            *sum = simd.add_f32s(*sum, simd.mul_f32s(simd.splat_f32s(*weight), *x));
        }
        rest.iter_mut().zip(tail).for_each(|(sum, x)| *sum += weight * x);
    }
}

/// Turns pairs of neighbours, as [`crate::numerics::fast::rotary`]: x `[heads, width]`, rotation
/// `[width / 2, 2]`.
#[inline(always)]
fn rotate(x: &mut [f32], rotation: &[f32]) {
    let (turns, _) = rotation.as_chunks::<2>();
    for head in x.chunks_exact_mut(rotation.len()) {
        for ([a, b], [cos, sin]) in head.as_chunks_mut::<2>().0.iter_mut().zip(turns) {
            (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
        }
    }
}

/// The attention of a decode step, for each row: turns the new token's query and key, appends
/// its key and value to the row's slots, and attends over all of them.
///
/// joined `[rows, heads.joined_width()]` (queries, keys, values), rotation `[rows, width / 2, 2]`
/// → `mixed` `[rows, heads.queries · width]`.
pub fn attend<'a>(
    heads: Heads,
    joined: &mut [f32],
    rotation: &[f32],
    rows: impl Iterator<Item = &'a mut Slots>,
    mixed: &mut Vec<f32>,
) {
    let queries = heads.queries * heads.width;
    mixed.clear();
    mixed.resize(joined.len() / heads.joined_width() * queries, 0.0);
    dispatch(SliceAttention { heads, joined, rotation, rows, mixed });
}

struct SliceAttention<'a, R> {
    heads: Heads,
    joined: &'a mut [f32],
    rotation: &'a [f32],
    rows: R,
    mixed: &'a mut [f32],
}

impl<'s, R: Iterator<Item = &'s mut Slots>> WithSimd for SliceAttention<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { heads, joined, rotation, rows, mixed } = self;
        let (queries, keys) = (heads.queries * heads.width, heads.keys * heads.width);
        let joined = joined.chunks_exact_mut(heads.joined_width());
        let mixed = mixed.chunks_exact_mut(queries);
        let rotations = rotation.chunks_exact(heads.width);
        let mut scores = Vec::new();
        for (((slots, joined), rotation), mixed) in rows.zip(joined).zip(rotations).zip(mixed) {
            let (turned, values) = joined.split_at_mut(queries + keys);
            rotate(turned, rotation);
            let (queries, keys) = turned.split_at(queries);
            slots.push(heads, keys, values);
            slots.attend(simd, heads, queries, &mut scores, mixed);
        }
    }
}

#[cfg(test)]
mod tests;
