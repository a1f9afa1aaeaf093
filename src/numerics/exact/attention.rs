//! Causal attention of one sequence and one head of keys. The query heads that share the keys
//! stand below each other in one product.

use crate::numerics::exact::{elementwise, product};
use crate::numerics::vectorised::{dispatch, vectorised};
use crate::numerics::{Heads, Left, Panels, Tally, Window, Windows};

/// The heads of a token's joined row `[queries, keys, values]` that one head of keys concerns.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    pub heads: Heads,
    pub key: usize,
}

impl Head {
    /// Query heads that share the keys.
    pub fn group(self) -> usize {
        self.heads.queries / self.heads.keys
    }

    /// Where the query head `member` of the group begins in a joined row, or in a mixed one.
    fn query(self, member: usize) -> usize {
        (self.key * self.group() + member) * self.heads.width
    }

    fn keys(self) -> usize {
        (self.heads.queries + self.key) * self.heads.width
    }

    fn values(self) -> usize {
        (self.heads.queries + self.heads.keys + self.key) * self.heads.width
    }

    /// The numbers from `first` of each row `[length, stride]`: `[length, width]`.
    fn take(self, rows: &[f32], stride: usize, first: usize, taken: &mut Vec<f32>) {
        for row in rows.chunks_exact(stride) {
            taken.extend_from_slice(&row[first..first + self.heads.width]);
        }
    }

    /// The group's heads of `rows` `[length, stride]`, below each other:
    /// `[group · length, width]`.
    fn stack(self, rows: &[f32], stride: usize) -> Vec<f32> {
        let mut stacked = Vec::new();
        for member in 0..self.group() {
            self.take(rows, stride, self.query(member), &mut stacked);
        }
        stacked
    }

    /// Puts [`Head::stack`]'s heads back.
    fn unstack(self, stacked: &[f32], rows: &mut [f32], stride: usize) {
        let length = rows.len() / stride;
        let width = self.heads.width;
        for (member, heads) in stacked.chunks_exact(length * width).enumerate() {
            self.put(heads, rows, stride, self.query(member));
        }
    }

    fn put(self, heads: &[f32], rows: &mut [f32], stride: usize, first: usize) {
        let width = self.heads.width;
        for (row, head) in rows.chunks_exact_mut(stride).zip(heads.chunks_exact(width)) {
            row[first..first + width].copy_from_slice(head);
        }
    }

    /// joined `[length, joined width]`, turned and rounded → the group's part of mixed
    /// `[length, queries · width]`, not rounded. Returns the attention weights
    /// `[group · length, length]`.
    pub fn attend(self, joined: &[f32], mixed: &mut [f32], windows: &Windows) -> Vec<f32> {
        let (width, stride) = (self.heads.width, self.heads.joined_width());
        let length = joined.len() / stride;
        let queries = self.stack(joined, stride);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        self.take(joined, stride, self.keys(), &mut keys);
        self.take(joined, stride, self.values(), &mut values);
        let keys = Panels::of_columns(&keys, width, windows.key);
        let mut shares = product::multiply_rounded(Left::Rows(&queries, windows.key), &keys);
        let (scale, window) = (elementwise::scale(width), windows.share);
        // The causal part: row `at` of each head sees the tokens up to itself.
        let (scores, seen) = (&mut shares, |row| row % length + 1);
        dispatch(elementwise::Softmax { scores, length, seen, scale, window });
        let values = Panels::of_rows(&values, width, windows.value);
        let stacked = product::multiply_rounded(Left::Rows(&shares, windows.share), &values);
        self.unstack(&stacked, mixed, self.heads.queries * width);
        shares
    }

    /// The derivative by joined `[length, joined width]` of the group's heads, rounded into the
    /// window of gradients and written into `by_joined`; `by_mixed` is the gradient of all heads'
    /// mixtures.
    pub fn differentiate(
        self,
        by_mixed: &[f32],
        joined: &[f32],
        shares: &[f32],
        by_joined: &mut [f32],
        (windows, gradient): (&Windows, Window),
        tally: &mut Tally,
    ) {
        let (width, stride) = (self.heads.width, self.heads.joined_width());
        let length = joined.len() / stride;
        let mut rounded = |mut x: Vec<f32>| {
            elementwise::round(&mut x, gradient, tally);
            x
        };
        let by_stacked = self.stack(by_mixed, self.heads.queries * width);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        self.take(joined, stride, self.keys(), &mut keys);
        self.take(joined, stride, self.values(), &mut values);

        let shares_left = Left::Columns(shares, windows.share);
        let right = Panels::of_rows(&by_stacked, width, gradient);
        let by_values = rounded(product::multiply_rounded(shares_left, &right));
        self.put(&by_values, by_joined, stride, self.values());

        let right = Panels::of_columns(&values, width, windows.value);
        let left = Left::Rows(&by_stacked, gradient);
        let by_shares = rounded(product::multiply_rounded(left, &right));
        let means = elementwise::dots(shares, &by_shares, length);
        let scale = elementwise::scale(width);
        let mut by_scores = by_shares;
        vectorised(
            #[inline(always)]
            || {
                let rows = by_scores.chunks_exact_mut(length).zip(shares.chunks_exact(length));
                for ((row, shares), mean) in rows.zip(&means) {
                    let mean = *mean as f32;
                    for (g, share) in row.iter_mut().zip(shares) {
                        *g = share * (*g - mean) * scale;
                    }
                }
            },
        );
        let by_scores = rounded(by_scores);

        let right = Panels::of_rows(&keys, width, windows.key);
        let by_queries = product::multiply_rounded(Left::Rows(&by_scores, gradient), &right);
        self.unstack(&rounded(by_queries), by_joined, stride);
        let queries = self.stack(joined, stride);
        let right = Panels::of_rows(&queries, width, windows.key);
        let by_keys = product::multiply_rounded(Left::Columns(&by_scores, gradient), &right);
        self.put(&rounded(by_keys), by_joined, stride, self.keys());
    }
}
