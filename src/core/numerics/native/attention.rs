//! Causal attention of one sequence and one head of keys; its query heads are rows of one product, token by token.

use crate::numerics::native::elementwise;
use crate::numerics::native::product::{self, CausalRows, Reach};
use crate::numerics::vectorised::vectorised;
use crate::numerics::{Arithmetic, Heads, Left, Panels, Tally, Window, Windows};

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

    fn queries(self) -> usize {
        self.key * self.group() * self.heads.width
    }

    fn keys(self) -> usize {
        (self.heads.queries + self.key) * self.heads.width
    }

    fn values(self) -> usize {
        (self.heads.queries + self.heads.keys + self.key) * self.heads.width
    }

    /// `count` heads of each row `[tokens, stride]` from `first` on: `[tokens · count, width]`.
    fn take(self, rows: &[f32], stride: usize, first: usize, count: usize) -> Vec<f32> {
        let width = count * self.heads.width;
        let mut taken = Vec::with_capacity(rows.len() / stride * width);
        for row in rows.chunks_exact(stride) {
            taken.extend_from_slice(&row[first..first + width]);
        }
        taken
    }

    /// One head of the tokens before and of the sequence, as a right operand `[tokens, width]`.
    fn panels<A: Arithmetic>(
        self,
        [before, joined]: [&[f32]; 2],
        first: usize,
        window: Window,
    ) -> Panels<A> {
        let (stride, width) = (self.heads.joined_width(), self.heads.width);
        let rows = before.chunks_exact(stride).chain(joined.chunks_exact(stride));
        Panels::of_each(rows.map(move |row| &row[first..first + width]), width, window)
    }

    /// Adds heads as [`Head::take`] takes them to the rows.
    fn give(self, heads: &[f32], rows: &mut [f32], stride: usize, first: usize) {
        let width = heads.len() * stride / rows.len().max(1);
        vectorised(
            #[inline(always)]
            || {
                let each = rows.chunks_exact_mut(stride).zip(heads.chunks_exact(width.max(1)));
                for (row, heads) in each {
                    let places = row[first..first + width].iter_mut();
                    places.zip(heads).for_each(|(place, head)| *place += head);
                }
            },
        );
    }

    /// Attention weights `[length · group, tokens before and length]` of a sequence that goes on after
    /// the rows `before`: joined `[length, joined width]`, turned and rounded.
    pub fn shares<A: Arithmetic>(self, rows: [&[f32]; 2], windows: &Windows) -> Vec<f32> {
        let [before, joined] = rows;
        let (stride, group) = (self.heads.joined_width(), self.group());
        let tokens = CausalRows { each: group, before: before.len() / stride };
        let length = tokens.before + joined.len() / stride;
        let keys = self.panels::<A>(rows, self.keys(), windows.key).transposed_whole();
        let left = self.take(joined, stride, self.queries(), group);
        let left = Left::Rows(&left, windows.key);
        let mut shares = product::multiply_part(left, &keys, Reach::ColumnsTo(tokens));
        // Each token sees those up to itself.
        let seen = |row| tokens.before + row / group + 1;
        let scale = elementwise::scale(self.heads.width);
        elementwise::softmax_rows::<A>(&mut shares, length, seen, scale, windows.share);
        shares
    }

    /// Adds the group's part of mixed `[length, queries · width]`, not rounded. Returns the [`Head::shares`].
    pub fn attend<A: Arithmetic>(
        self,
        rows: [&[f32]; 2],
        mixed: &mut [f32],
        windows: &Windows,
    ) -> Vec<f32> {
        let Heads { width, queries, .. } = self.heads;
        let before_tokens = rows[0].len() / self.heads.joined_width();
        let tokens = CausalRows { each: self.group(), before: before_tokens };
        let shares = self.shares::<A>(rows, windows);
        let values = self.panels::<A>(rows, self.values(), windows.value);
        let left = Left::Rows(&shares, windows.share);
        let mixture = product::multiply_part(left, &values, Reach::TermsTo(tokens));
        self.give(&mixture, mixed, queries * width, self.queries());
        shares
    }

    /// The derivatives by joined and by the rows before of the group's heads, rounded into the window of
    /// gradients and added to `by_joined` and `by_before`; `by_mixed` is the gradient of all heads' mixtures.
    pub fn differentiate<A: Arithmetic>(
        self,
        by_mixed: &[f32],
        [before, joined]: [&[f32]; 2],
        shares: &[f32],
        [by_before, by_joined]: [&mut [f32]; 2],
        (windows, gradient): (&Windows, Window),
        tally: &mut Tally,
    ) {
        let Heads { width, queries, .. } = self.heads;
        let (stride, group) = (self.heads.joined_width(), self.group());
        let tokens = CausalRows { each: group, before: before.len() / stride };
        let length = tokens.before + joined.len() / stride;
        let mut rounded = |mut x: Vec<f32>| {
            elementwise::round::<A>(&mut x, gradient, tally);
            x
        };
        let by_mixture = self.take(by_mixed, queries * width, self.queries(), group);

        let left = Left::Columns(shares, windows.share);
        let right = Panels::<A>::of_rows(&by_mixture, width, gradient);
        let by_values = product::multiply_part(left, &right, Reach::TermsFrom(tokens));
        let by_values = rounded(by_values);

        let right = self.panels::<A>([before, joined], self.values(), windows.value);
        let right = right.transposed_whole();
        let left = Left::Rows(&by_mixture, gradient);
        // What rounding changed is counted in all of them.
        let reach = if A::EXACT { Reach::All } else { Reach::ColumnsTo(tokens) };
        let mut by_scores = rounded(product::multiply_part(left, &right, reach));
        let means = elementwise::dots::<A>(shares, &by_scores, length);
        let scale = elementwise::scale(width);
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

        let right = self.panels::<A>([before, joined], self.keys(), windows.key);
        let left = Left::Rows(&by_scores, gradient);
        let by_queries = rounded(product::multiply_part(left, &right, Reach::TermsTo(tokens)));
        self.give(&by_queries, by_joined, stride, self.queries());
        let right = self.take(joined, stride, self.queries(), group);
        let right = Panels::<A>::of_rows(&right, width, windows.key);
        let left = Left::Columns(&by_scores, gradient);
        let by_keys = rounded(product::multiply_part(left, &right, Reach::TermsFrom(tokens)));
        for (heads, first) in [(by_values, self.values()), (by_keys, self.keys())] {
            let (by_heads_before, own) = heads.split_at(tokens.before * width);
            self.give(by_heads_before, by_before, stride, first);
            self.give(own, by_joined, stride, first);
        }
    }
}
