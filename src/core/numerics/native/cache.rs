//! Keys and values of one row in one layer, for decode steps.

use crate::numerics::native::{elementwise, product};
use crate::numerics::{Arithmetic, Left, Panels, Windows};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// Query heads, a multiple of `keys`.
    pub queries: usize,
    pub keys: usize,
    /// Numbers in each head, even.
    pub width: usize,
}

impl Heads {
    pub fn joined_width(self) -> usize {
        (self.queries + 2 * self.keys) * self.width
    }
}

/// Keys `[width, slots]` and values `[slots, width]` of each head of keys.
#[derive(Debug, Clone)]
pub struct Slots<A> {
    heads: Vec<(Panels<A>, Panels<A>)>,
}

impl<A: Arithmetic> Slots<A> {
    pub fn empty(heads: Heads, windows: &Windows) -> Self {
        let keys = Panels::zeros(heads.width, 0, windows.key);
        let values = Panels::zeros(0, heads.width, windows.value);
        Self { heads: vec![(keys, values); heads.keys] }
    }

    /// Appends one slot: keys and values `[heads.keys, heads.width]`, turned and rounded.
    pub fn push(&mut self, heads: Heads, keys: &[f32], values: &[f32]) {
        let each = keys.chunks_exact(heads.width).zip(values.chunks_exact(heads.width));
        for ((all_keys, all_values), (key, value)) in self.heads.iter_mut().zip(each) {
            all_keys.push_column(key);
            all_values.push_term(value);
        }
    }

    /// Attention of one turned and rounded query over all slots, the last row of [`crate::numerics::Head::attend`]:
    /// queries `[heads.queries, heads.width]` → `mixed` of the same shape, not rounded.
    pub fn attend(&self, heads: Heads, queries: &[f32], windows: &Windows, mixed: &mut [f32]) {
        let scale = elementwise::scale(heads.width);
        let group = queries.len() / heads.keys;
        let groups = queries.chunks_exact(group).zip(mixed.chunks_exact_mut(group));
        for ((keys, values), (queries, mixed)) in self.heads.iter().zip(groups) {
            let mut shares = product::multiply_rounded(Left::Rows(queries, windows.key), keys);
            let length = keys.columns;
            elementwise::softmax_rows::<A>(&mut shares, length, |_| length, scale, windows.share);
            let mixture = product::multiply_rounded(Left::Rows(&shares, windows.share), values);
            mixed.copy_from_slice(&mixture);
        }
    }
}
