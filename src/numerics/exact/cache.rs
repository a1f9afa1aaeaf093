//! Keys and values of one row in one layer, for decode steps.

use crate::numerics::slices::{self, LANES};
use crate::numerics::{Heads, Windows, exact::elementwise, exact::orders, vectorised::dispatch};
use pulp::{Simd, WithSimd};

/// Numbers out of windows, held as f64.
pub type CacheSlots = slices::Slots<f64>;

impl CacheSlots {
    /// Attention of one turned and rounded query over all slots: queries
    /// `[heads.queries, heads.width]` → `mixed` of the same shape, not rounded.
    pub fn attend(&self, heads: Heads, queries: &[f32], windows: &Windows, mixed: &mut [f32]) {
        dispatch(CacheAttention { slots: self, heads, queries, windows, mixed });
        if orders::checked() {
            self.check_orders(heads, queries, windows, mixed);
        }
    }

    /// The same by plain loops from the last term to the first.
    fn check_orders(&self, heads: Heads, queries: &[f32], windows: &Windows, mixed: &[f32]) {
        let group = heads.queries / heads.keys;
        for (head, mixed) in mixed.chunks_exact(heads.width).enumerate() {
            let query = &queries[head * heads.width..][..heads.width];
            let place = |slot: usize| ((slot / LANES) * heads.keys + head / group) * heads.panel();
            let score = |slot: usize| {
                let key = |at: usize| self.keys[place(slot) + at * LANES + slot % LANES];
                (0..heads.width).rev().fold(0.0, |sum, at| sum + f64::from(query[at]) * key(at))
                    as f32
            };
            let mut shares: Vec<f32> = (0..self.filled).map(score).collect();
            let (length, scale, window) =
                (self.filled, elementwise::scale(heads.width), windows.share);
            let scores = &mut shares;
            dispatch(elementwise::Softmax { scores, length, seen: |_| length, scale, window });
            for (at, mixed) in mixed.iter().enumerate() {
                let value =
                    |slot: usize| self.values[place(slot) + (slot % LANES) * heads.width + at];
                let slots = (0..self.filled).rev();
                let sum = slots.fold(0.0, |sum, slot| sum + f64::from(shares[slot]) * value(slot));
                orders::compare(&[f64::from(*mixed)], &[f64::from(sum as f32)]);
            }
        }
    }
}

struct CacheAttention<'a> {
    slots: &'a CacheSlots,
    heads: Heads,
    queries: &'a [f32],
    windows: &'a Windows,
    mixed: &'a mut [f32],
}

impl WithSimd for CacheAttention<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { slots, heads, queries, windows, mixed } = self;
        let (group, panel) = (heads.queries / heads.keys, heads.panel());
        let scale = elementwise::scale(heads.width);
        let blocks = slots.filled.div_ceil(LANES);
        let mut sums = vec![0f64; blocks * LANES];
        let mut shares = vec![0f32; blocks * LANES];
        let mut mixture = vec![0f64; heads.width];
        let rows = queries.chunks_exact(heads.width).zip(mixed.chunks_exact_mut(heads.width));
        for (head, (query, mixed)) in rows.enumerate() {
            let start = |block: usize| (block * heads.keys + head / group) * panel;
            sums.fill(0.0);
            for (block, sums) in sums.chunks_exact_mut(LANES).enumerate() {
                add_weighted(simd, query, &slots.keys[start(block)..][..panel], sums);
            }
            for (share, sum) in shares.iter_mut().zip(&sums) {
                *share = *sum as f32;
            }
            elementwise::softmax(simd, &mut shares[..slots.filled], scale, windows.share);
            shares[slots.filled..].fill(0.0);
            mixture.fill(0.0);
            for (block, shares) in shares.chunks_exact(LANES).enumerate() {
                let panel = &slots.values[start(block)..][..panel];
                add_weighted(simd, shares, panel, &mut mixture);
            }
            mixed.iter_mut().zip(&mixture).for_each(|(mixed, sum)| *mixed = *sum as f32);
        }
    }
}

/// Adds the rows of a panel, each with its weight: weights `[rows]`, panel `[rows, width]`, sums
/// `[width]`.
#[inline(always)]
fn add_weighted<S: Simd>(simd: S, weights: &[f32], panel: &[f64], sums: &mut [f64]) {
    let width = sums.len();
    let (vectors, rest) = S::as_mut_simd_f64s(sums);
    if rest.is_empty() {
        let (panel, _) = S::as_simd_f64s(panel);
        let stride = vectors.len();
        let (fours, others) = vectors.as_chunks_mut::<4>();
        let after = fours.len() * 4;
        for (at, sums) in fours.iter_mut().enumerate() {
            add_vectors(simd, weights, &panel[at * 4..], stride, sums);
        }
        let (twos, others) = others.as_chunks_mut::<2>();
        let last = after + twos.len() * 2;
        for (at, sums) in twos.iter_mut().enumerate() {
            add_vectors(simd, weights, &panel[after + at * 2..], stride, sums);
        }
        for (at, sum) in others.iter_mut().enumerate() {
            let mut sums = [*sum];
            add_vectors(simd, weights, &panel[last + at..], stride, &mut sums);
            [*sum] = sums;
        }
        return;
    }
    // A width that is no whole number of registers: slower, the same sums.
    for (weight, row) in weights.iter().zip(panel.chunks_exact(width)) {
        let weight = f64::from(*weight);
        let (head, tail) = row.split_at(width - rest.len());
        let (head, _) = S::as_simd_f64s(head);
        let splat = simd.splat_f64s(weight);
        for (sum, x) in vectors.iter_mut().zip(head) {
            *sum = simd.mul_add_f64s(splat, *x, *sum);
        }
        rest.iter_mut().zip(tail).for_each(|(sum, x)| *sum += weight * x);
    }
}

/// [`add_weighted`] of N vectors, which stay in registers; a row has `stride` vectors.
#[inline(always)]
fn add_vectors<S: Simd, const N: usize>(
    simd: S,
    weights: &[f32],
    panel: &[S::f64s],
    stride: usize,
    sums: &mut [S::f64s; N],
) {
    let mut local = *sums;
    for (weight, row) in weights.iter().zip(panel.chunks(stride)) {
        let splat = simd.splat_f64s(f64::from(*weight));
        for (sum, x) in local.iter_mut().zip(&row[..N]) {
            *sum = simd.mul_add_f64s(splat, *x, *sum);
        }
    }
    *sums = local;
}
