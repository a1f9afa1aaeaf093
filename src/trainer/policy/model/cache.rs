//! The KV cache of a generation on LibTorch's tensors: rows join and leave.

use crate::policy::{KeysAndValues, Qwen2};
use tch::Tensor;

/// Spare slots, one to so many: a full cache moves to its beginning in place, and that seldom.
const SPARE_SHARE: usize = 8;

/// The newest position of every row lies in the same slot, whatever its number in the row: a step writes one slot for
/// all rows, without an index. A row that begins later begins at a later slot; the slots before it are masked.
#[derive(Debug)]
pub struct KvCache {
    /// `[layers, 2, rows, slots, kv_heads, head_dim]`: keys, then values. Slots beyond `filled`
    /// and rows beyond `starts` are zeros or what once was there: masked, but finite.
    all: Tensor,
    /// For each layer keys and values, both `[rows, slots, kv_heads, head_dim]`: views of `all`.
    layers: Vec<(Tensor, Tensor)>,
    /// `[rows, 1, 1, slots]`: −∞ before a row's start, else 0.
    mask: Tensor,
    /// First slot of each row in use; these are the first rows of `all`.
    starts: Vec<usize>,
    filled: usize,
    /// The longest prompt: so many slots are always filled, for one that joins.
    longest: usize,
}

impl KvCache {
    /// Empty, for at most `rows` rows at a time; the longest prompt has `longest` tokens, and `more` may follow it.
    pub fn new(model: &Qwen2, rows: usize, longest: usize, more: usize) -> Self {
        let room = more + (longest + more).div_ceil(SPARE_SHARE);
        let config = model.config();
        let options = (model.kind(), model.device());
        let shape = [
            config.num_hidden_layers,
            2,
            rows as i64,
            (longest + room) as i64,
            config.num_key_value_heads,
            config.head_dim,
        ];
        let mut cache = Self {
            all: Tensor::zeros(shape, options),
            layers: Vec::new(),
            mask: Tensor::empty([0], options),
            starts: Vec::new(),
            filled: longest,
            longest,
        };
        cache.see();
        cache
    }

    /// Adds rows whose prompts were just read: `keys_and_values` has for each layer those of all prompts, each padded to
    /// as many tokens as the longest, and `of_row` for each new row the number of its prompt.
    pub fn join(
        &mut self,
        keys_and_values: &[KeysAndValues],
        prompts: &[&[u32]],
        of_row: &[usize],
    ) {
        let length = prompts.iter().map(|prompt| prompt.len()).max().unwrap_or(0);
        assert!(self.starts.len() + of_row.len() <= self.all.size()[2] as usize);
        assert!(length <= self.filled, "a prompt ends where the other rows are");
        // A prompt stands at the right end of its slots; the slots before it are masked.
        let mut tokens = Vec::with_capacity(of_row.len() * length);
        for &prompt in of_row {
            let shift = length - prompts[prompt].len();
            tokens
                .extend((0..length).map(|at| (prompt * length + at.saturating_sub(shift)) as i64));
        }
        let tokens = Tensor::from_slice(&tokens).to_device(self.all.device());
        let (rows, first) = (of_row.len() as i64, self.starts.len() as i64);
        let place = |cache: &Tensor, read: &Tensor| {
            let (_, kv_heads, head_dim) = read.size3().expect("keys have three dimensions");
            let chosen = read.index_select(0, &tokens);
            cache
                .narrow(0, first, rows)
                .narrow(1, (self.filled - length) as i64, length as i64)
                .copy_(&chosen.view([rows, length as i64, kv_heads, head_dim]));
        };
        for (cache, read) in self.layers.iter().zip(keys_and_values) {
            place(&cache.0, &read.0);
            place(&cache.1, &read.1);
        }
        self.starts.extend(of_row.iter().map(|&prompt| self.filled - prompts[prompt].len()));
        self.see();
    }

    /// Removes rows: `leaves[row]` for each row in use. Others take their places as [`fill_holes`] says.
    pub fn leave(&mut self, leaves: &[bool]) {
        let filled = self.filled as i64;
        for (from, to) in fill_holes(leaves) {
            let row = |at: usize| self.all.select(2, at as i64).narrow(2, 0, filled);
            row(to).copy_(&row(from));
            self.mask.get(to as i64).copy_(&self.mask.get(from as i64));
        }
        remove_rows(&mut self.starts, leaves);
    }

    /// Opens the next slot for all rows. Returns the mask of a step, `[rows, 1, 1, slots]`.
    pub(crate) fn begin(&mut self) -> Tensor {
        if self.filled as i64 == self.all.size()[3] {
            self.make_room();
        }
        let rows = self.starts.len() as i64;
        self.mask.narrow(0, 0, rows).narrow(3, 0, self.filled as i64 + 1)
    }

    /// Writes a layer's open slot `[rows, kv_heads, head_dim]`; returns all, `[rows, slots, kv_heads, head_dim]`.
    pub(crate) fn append(&self, layer: usize, keys: &Tensor, values: &Tensor) -> KeysAndValues {
        let (rows, slot) = (self.starts.len() as i64, self.filled as i64);
        let write = |all: &Tensor, new: &Tensor| {
            let all = all.narrow(0, 0, rows);
            all.select(1, slot).copy_(new);
            all.narrow(1, 0, slot + 1)
        };
        let (all_keys, all_values) = &self.layers[layer];
        (write(all_keys, keys), write(all_values, values))
    }

    pub(crate) fn end(&mut self) {
        self.filled += 1;
    }

    /// The slots from the earliest start on become the first ones.
    fn make_room(&mut self) {
        let first = self.starts.iter().copied().min().unwrap_or(self.filled);
        let first = first.min(self.filled - self.longest);
        assert!(first > 0, "no row has more tokens than the cache was made for");
        // Layer by layer: no second cache is held.
        let (rows, used) = (self.starts.len() as i64, (self.filled - first) as i64);
        for (keys, values) in &self.layers {
            for slots in [keys, values] {
                let slots = slots.narrow(0, 0, rows);
                let kept = slots.narrow(1, first as i64, used).copy();
                slots.narrow(1, 0, used).copy_(&kept);
            }
        }
        self.filled -= first;
        self.starts.iter_mut().for_each(|start| *start -= first);
        self.see();
    }

    fn see(&mut self) {
        let layer = |index| {
            let layer = self.all.get(index);
            (layer.get(0), layer.get(1))
        };
        self.layers = (0..self.all.size()[0]).map(layer).collect();
        let (rows, slots) = (self.all.size()[2], self.all.size()[3]);
        let mut mask = vec![0f32; (rows * slots) as usize];
        for (row, &start) in self.starts.iter().enumerate() {
            mask[row * slots as usize..][..start].fill(f32::NEG_INFINITY);
        }
        self.mask = Tensor::from_slice(&mask)
            .view([rows, 1, 1, slots])
            .to_device(self.all.device())
            .to_kind(self.all.kind());
    }
}

/// Removes the rows that leave; others take their places as [`fill_holes`] says.
pub fn remove_rows<T>(rows: &mut Vec<T>, leaves: &[bool]) {
    for (from, to) in fill_holes(leaves) {
        rows.swap(from, to);
    }
    rows.truncate(leaves.iter().filter(|leaves| !**leaves).count());
}

/// Moves (from, to) after which the rows that stay are the first: each of the last rows that stay,
/// beginning with the last, goes to the first free place.
pub fn fill_holes(leaves: &[bool]) -> Vec<(usize, usize)> {
    let stay = leaves.iter().filter(|leaves| !**leaves).count();
    let holes = (0..stay).filter(|&row| leaves[row]);
    let movers = (stay..leaves.len()).rev().filter(|&row| !leaves[row]);
    movers.zip(holes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::prop_assert_eq;
    use proptest::proptest;

    proptest! {
        #[test]
        fn rows_that_stay_come_first_and_none_is_lost(
            leaves in proptest::collection::vec(proptest::bool::ANY, 0..20),
        ) {
            let mut rows: Vec<usize> = (0..leaves.len()).collect();
            let mut stay: Vec<usize> = rows.iter().copied().filter(|&row| !leaves[row]).collect();
            for (from, to) in fill_holes(&leaves) {
                rows[to] = rows[from];
            }
            rows.truncate(stay.len());
            rows.sort_unstable();
            stay.sort_unstable();
            prop_assert_eq!(rows, stay);
        }
    }
}
