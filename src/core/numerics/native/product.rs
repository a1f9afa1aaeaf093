//! Matrix products of f32 numbers, in f64 of numbers out of windows (every sum is exact) or in f32. A sum adds up parts
//! of 144 terms, and a part its terms one after another, each product and addition rounded once. So no other row or
//! column, thread or instruction set changes a bit of it; an exact sum does not depend on the order either.

use crate::base::workers;
use crate::numerics::native::{orders, window};
use crate::numerics::vectorised::{self, dispatch, vectorised};
use crate::numerics::{Arithmetic, SlotSums, Sums, Window};
use pulp::{Simd, WithSimd};
use std::ops::Range;
use std::slice;

/// The right operand `[terms, columns]`, in panels of [`Arithmetic::PANEL`] columns.
#[derive(Debug, Clone)]
pub struct Panels<A> {
    /// Each `[terms, PANEL]`, zeros beyond the last column.
    panels: Vec<Vec<A>>,
    pub terms: usize,
    pub columns: usize,
    window: Window,
}

impl<A: Arithmetic> Panels<A> {
    /// Of a matrix `[terms, columns]`.
    pub fn of_rows(x: &[f32], columns: usize, window: Window) -> Self {
        Self::of_each(x.chunks_exact(columns), columns, window)
    }

    /// Of rows that may lie apart, `columns` numbers each.
    pub fn of_each<'x>(
        rows: impl Iterator<Item = &'x [f32]> + Clone + Sync,
        columns: usize,
        window: Window,
    ) -> Self {
        Self::packed(rows.clone().count(), columns, window, |at, panel| {
            let first = at * A::PANEL;
            let width = A::PANEL.min(columns - first);
            for (values, x) in panel.chunks_exact_mut(A::PANEL).zip(rows.clone()) {
                put(values, &x[first..first + width]);
            }
        })
    }

    /// Of the transpose of a matrix `[columns, terms]`, such as the weight of a linear layer.
    pub fn of_columns(x: &[f32], terms: usize, window: Window) -> Self {
        Self::packed(terms, x.len() / terms, window, |at, panel| {
            let x = &x[at * A::PANEL * terms..];
            for (column, x) in x.chunks_exact(terms).take(A::PANEL).enumerate() {
                let values = panel.iter_mut().skip(column).step_by(A::PANEL);
                values.zip(x).for_each(|(value, x)| *value = A::from(*x));
            }
        })
    }

    /// Panels of one matrix after another's, side by side; all but the last are full.
    pub fn side_by_side(parts: Vec<Self>, terms: usize, window: Window) -> Self {
        let mut all = Self::zeros(terms, 0, window);
        for part in parts {
            all.columns += part.columns;
            all.panels.extend(part.panels);
        }
        all
    }

    /// Panels that `pack` fills, each by its number.
    fn packed(
        terms: usize,
        columns: usize,
        window: Window,
        pack: impl Fn(usize, &mut [A]) + Sync,
    ) -> Self {
        let mut panels = Self::zeros(terms, columns, window);
        workers::by_rows(&mut panels.panels, 1, |first, panels| {
            panels.iter_mut().enumerate().for_each(|(at, panel)| pack(first + at, panel));
        });
        panels
    }

    pub fn transposed_whole(&self) -> Self {
        self.transposed(0..self.panels.len())
    }

    /// The transpose of some panels: their columns are its terms.
    fn transposed(&self, panels: Range<usize>) -> Self {
        let first = panels.start * A::PANEL;
        let terms = (panels.end * A::PANEL).min(self.columns) - first;
        Self::packed(terms, self.terms, self.window, |at, panel| {
            let from = at * A::PANEL;
            let width = A::PANEL.min(self.terms - from);
            let rows = panel.chunks_mut(A::PANEL * A::PANEL);
            let all = rows.zip(&self.panels[panels.clone()]);
            let part = from * A::PANEL..(from + width) * A::PANEL;
            let mut all = all.map(|(rows, source)| (rows, &source[part.clone()]));
            vectorised(
                #[inline(always)]
                || all.by_ref().for_each(|(rows, source)| transpose(source, rows)),
            );
        })
    }

    /// A column, `[terms]`.
    pub fn column(&self, at: usize) -> impl Iterator<Item = A> {
        self.panels[at / A::PANEL].iter().skip(at % A::PANEL).step_by(A::PANEL).copied()
    }

    /// Zeros `[terms, columns]`; either may be 0, to be appended to.
    pub fn zeros(terms: usize, columns: usize, window: Window) -> Self {
        let panel = |_| vec![A::default(); terms * A::PANEL];
        let panels = (0..columns.div_ceil(A::PANEL)).map(panel).collect();
        Self { panels, terms, columns, window }
    }

    /// Appends a column, `[terms]`.
    pub fn push_column(&mut self, x: &[f32]) {
        let at = self.columns % A::PANEL;
        if at == 0 {
            self.panels.push(vec![A::default(); self.terms * A::PANEL]);
        }
        let panel = self.panels.last_mut().expect("a panel with room");
        let places = panel.iter_mut().skip(at).step_by(A::PANEL);
        places.zip(x).for_each(|(place, x)| *place = A::from(*x));
        self.columns += 1;
    }

    pub fn push_term(&mut self, x: &[f32]) {
        for (panel, x) in self.panels.iter_mut().zip(x.chunks(A::PANEL)) {
            let end = panel.len();
            panel.resize(end + A::PANEL, A::default());
            put(&mut panel[end..], x);
        }
        self.terms += 1;
    }

    fn reordered(&self, order: &[usize]) -> Self {
        let reordered = |panel: &Vec<A>| -> Vec<A> {
            let row = |&term: &usize| &panel[term * A::PANEL..(term + 1) * A::PANEL];
            order.iter().flat_map(row).copied().collect()
        };
        Self { panels: self.panels.iter().map(reordered).collect(), ..*self }
    }
}

/// The transpose of a square of PANEL numbers, or of the part of it that the operands hold:
/// source `[columns, PANEL]`, rows `[rows, PANEL]`. In small squares, which registers hold.
#[inline(always)]
fn transpose<A: Arithmetic>(source: &[A], rows: &mut [A]) {
    const SIDE: usize = 8;
    let (count, columns) = (rows.len() / A::PANEL, source.len() / A::PANEL);
    for row in (0..count).step_by(SIDE) {
        for column in (0..columns).step_by(SIDE) {
            let (height, width) = (SIDE.min(count - row), SIDE.min(columns - column));
            let mut square = [[A::default(); SIDE]; SIDE];
            for (at, values) in square.iter_mut().enumerate().take(width) {
                values.copy_from_slice(&source[(column + at) * A::PANEL + row..][..SIDE]);
            }
            for at in 0..height {
                let turned: [A; SIDE] = std::array::from_fn(|column| square[column][at]);
                let places = &mut rows[(row + at) * A::PANEL + column..];
                match places.first_chunk_mut::<SIDE>() {
                    Some(places) => *places = turned,
                    None => places[..width].copy_from_slice(&turned[..width]),
                }
            }
        }
    }
}

fn put<A: Arithmetic>(places: &mut [A], x: &[f32]) {
    places.iter_mut().zip(x).for_each(|(place, x)| *place = A::from(*x));
}

/// The left operand, `[rows, terms]`.
#[derive(Debug, Clone, Copy)]
pub enum Left<'a> {
    /// As it stands: `[rows, terms]`.
    Rows(&'a [f32], Window),
    /// Transposed: `[terms, rows]`.
    Columns(&'a [f32], Window),
}

impl Left<'_> {
    fn values(&self) -> &[f32] {
        let (Left::Rows(values, _) | Left::Columns(values, _)) = self;
        values
    }

    fn window(&self) -> Window {
        let (Left::Rows(_, window) | Left::Columns(_, window)) = self;
        *window
    }

    /// The operand `[rows, terms]` with its terms in another order.
    fn reordered(&self, terms: usize, order: &[usize]) -> Vec<f32> {
        let values = self.values();
        let rows = values.len() / terms;
        let value = |row: usize, term: usize| match self {
            Left::Rows(..) => values[row * terms + term],
            Left::Columns(..) => values[term * rows + row],
        };
        (0..rows).flat_map(|row| order.iter().map(move |&term| value(row, term))).collect()
    }
}

/// What a caller asks for of a product. Rows stand for tokens, `each` to a token, after `before` tokens without rows.
#[derive(Debug, Clone, Copy)]
pub enum Reach {
    All,
    /// The columns of the tokens up to the row's own; the others have their sums or 0.
    ColumnsTo(CausalRows),
    /// The terms of the tokens up to the row's own; the others are 0 on the left.
    TermsTo(CausalRows),
    /// A row is a token and a term a row of one, from the same token on; those before it are 0 on the left.
    TermsFrom(CausalRows),
}

/// See [`Reach`].
#[derive(Debug, Clone, Copy)]
pub struct CausalRows {
    pub each: usize,
    pub before: usize,
}

impl Reach {
    /// The terms and the number of columns that the rows from `first` up to `last` need.
    fn of(self, first: usize, last: usize, terms: usize, columns: usize) -> (Range<usize>, usize) {
        let seen = |CausalRows { each, before }: CausalRows| before + last / each + 1;
        match self {
            Self::All => (0..terms, columns),
            Self::ColumnsTo(tokens) => (0..terms, seen(tokens).min(columns)),
            Self::TermsTo(tokens) => (0..seen(tokens).min(terms), columns),
            Self::TermsFrom(CausalRows { each, before }) => {
                (first.saturating_sub(before) * each..terms, columns)
            }
        }
    }
}

/// Terms added one after another: fewer are more accurate and slower. Widths of models are often multiples of it.
const PART: usize = 144;

/// Panels whose transpose is packed at once: whole parts of terms.
const BLOCK: usize = 36;

/// Products that are not worth a second thread.
const SHORT: usize = 1 << 20;

/// Fewer rows to a thread have all threads share the columns.
const FEW_ROWS: usize = 8;

/// More rows to a thread have the threads share the rows: each reads the whole right operand, which is then the
/// smaller cost (measured with weights of 135 million parameters).
const MANY_ROWS: usize = 16;

/// The product `[rows, columns]`, or what `reach` asks for of it. Panics when sums are to be exact and the windows
/// leave too few bits for as many terms.
pub fn multiply<A: Arithmetic>(left: Left, right: &Panels<A>, reach: Reach) -> Vec<A> {
    check(left, right);
    plain(left, right, reach)
}

/// [`multiply`], each sum rounded to f32.
pub fn multiply_part<A: Arithmetic>(left: Left, right: &Panels<A>, reach: Reach) -> Vec<f32> {
    A::rounded(multiply(left, right, reach))
}

/// [`multiply`] of all, each sum rounded to f32.
pub fn multiply_rounded<A: Arithmetic>(left: Left, right: &Panels<A>) -> Vec<f32> {
    multiply_part(left, right, Reach::All)
}

/// As [`multiply_rounded`] with the transpose of `right`: rows `[rows, right's columns]` →
/// `[rows, right's terms]`. It is packed a block of terms at a time, so that weights are kept once.
pub fn multiply_transposed<A: Arithmetic>(
    rows: &[f32],
    window: Window,
    right: &Panels<A>,
) -> Vec<f32> {
    let left = Left::Rows(rows, window);
    check_bits(left, right, right.columns);
    if A::EXACT && orders::checked() {
        check_orders(left, &right.transposed(0..right.panels.len()));
    }
    let values = A::widened(rows);
    let mut sums = vec![A::default(); rows.len() / right.columns.max(1) * right.terms];
    for from in (0..right.panels.len()).step_by(BLOCK) {
        let block = right.transposed(from..(from + BLOCK).min(right.panels.len()));
        let at = LeftPlace { stride: right.columns, offset: from * A::PANEL, by_column: false };
        let is_first = from == 0;
        add_product(&mut sums, |rows| Sums::Own(rows), is_first, (&values, at), &block, Reach::All);
    }
    A::rounded(sums)
}

/// Adds the product to `sums` `[rows, columns]`: exact as long as `terms_in_all`, the terms of all
/// products that are added, leave enough bits. Sums in f32 take the terms one after another.
pub fn multiply_onto<A: Arithmetic>(
    sums: &mut SlotSums,
    left: Left,
    right: &Panels<A>,
    terms_in_all: usize,
) {
    check_bits(left, right, terms_in_all.max(right.terms));
    check(left, right);
    match sums {
        SlotSums::Wide(sums) => with_left(left, right, |left| {
            add_product(sums, A::sums_in_f64, false, left, right, Reach::All);
        }),
        SlotSums::Narrow(sums) if sums.is_empty() => {
            *sums = A::rounded(plain(left, right, Reach::All));
        }
        SlotSums::Narrow(sums) => {
            let sums = A::of_f32s(sums).expect("sums of the policy's arithmetic");
            with_left(left, right, |left| {
                add_product(sums, |rows| Sums::Own(rows), false, left, right, Reach::All)
            });
        }
    }
}

fn plain<A: Arithmetic>(left: Left, right: &Panels<A>, reach: Reach) -> Vec<A> {
    let rows = left.values().len().checked_div(right.terms).unwrap_or(0);
    let mut sums = vec![A::default(); rows * right.columns];
    with_left(left, right, |left| {
        add_product(&mut sums, |rows| Sums::Own(rows), true, left, right, reach)
    });
    sums
}

fn with_left<A: Arithmetic>(left: Left, right: &Panels<A>, work: impl FnOnce((&[A], LeftPlace))) {
    let values = A::widened(left.values());
    let rows = values.len().checked_div(right.terms).unwrap_or(0);
    let by_column = matches!(left, Left::Columns(..));
    let stride = if by_column { rows } else { right.terms };
    work((&values, LeftPlace { stride, offset: 0, by_column }));
}

/// Where the left operand's terms lie: term t of row r at `r · stride + offset + t`, or at `(offset + t) · stride + r`.
#[derive(Clone, Copy)]
struct LeftPlace {
    stride: usize,
    offset: usize,
    by_column: bool,
}

/// Adds the terms of a product to sums `[rows, columns]`, one after another. Sums that are zeros are not
/// read: the first access to new memory is then a write, which costs half as much.
fn add_product<A: Arithmetic, T: Send>(
    sums: &mut [T],
    of_rows: fn(Vec<&mut [T]>) -> Sums<A>,
    are_zeros: bool,
    (left, place): (&[A], LeftPlace),
    right: &Panels<A>,
    reach: Reach,
) {
    let (columns, terms, threads) = (right.columns, right.terms, workers::of_pool());
    if columns == 0 || terms == 0 || sums.is_empty() {
        return;
    }
    let rows = sums.len() / columns;
    let all = |first, reach, panels, sums: Vec<&mut [T]>| {
        let columns = sums[0].len();
        let sums = of_rows(sums);
        dispatch(Product { left, place, panels, terms, columns, reach, first, sums, are_zeros });
    };
    if threads == 1 || rows * columns * terms < SHORT {
        return all(0, reach, &right.panels, sums.chunks_exact_mut(columns).collect());
    }
    let is_few = rows < threads * FEW_ROWS;
    if is_few || matches!(reach, Reach::All) && rows <= threads * MANY_ROWS {
        // All rows and some columns to a thread, so that the right operand is read once.
        let share = right.panels.len().div_ceil(threads);
        let panels = right.panels.chunks(share);
        let mut parts: Vec<_> =
            panels.map(|panels| (panels, Vec::<&mut [T]>::with_capacity(rows))).collect();
        for mut row in sums.chunks_exact_mut(columns) {
            for (panels, rows) in &mut parts {
                let width = (panels.len() * A::PANEL).min(row.len());
                rows.push(row.split_off_mut(..width).expect("columns of the panels"));
            }
        }
        return workers::by_rows(&mut parts, 1, |_, parts| {
            for (panels, rows) in parts {
                all(0, Reach::All, *panels, std::mem::take(rows));
            }
        });
    }
    // One part to a thread: the first rows of each wait for the right operand.
    let share = rows.div_ceil(threads).next_multiple_of(FEW_ROWS);
    let mut parts: Vec<&mut [T]> = sums.chunks_mut(share * columns).collect();
    workers::by_rows(&mut parts, 1, |first, parts| {
        for (at, sums) in parts.iter_mut().enumerate() {
            let rows = sums.chunks_exact_mut(columns).collect();
            all((first + at) * share, reach, &right.panels, rows);
        }
    });
}

fn check_bits<A: Arithmetic>(left: Left, right: &Panels<A>, terms: usize) {
    let bits = window::bits(left.window(), right.window, terms);
    assert!(
        !A::EXACT || bits <= window::SIGNIFICANT_BITS,
        "a sum of {terms} products of {} and {} bits needs {bits}",
        left.window().width(),
        right.window.width()
    );
}

fn check<A: Arithmetic>(left: Left, right: &Panels<A>) {
    check_bits(left, right, right.terms);
    if A::EXACT && orders::checked() {
        check_orders(left, right);
    }
}

/// Computes the product again with the terms reversed and shuffled: the same bits, or a panic.
fn check_orders<A: Arithmetic>(left: Left, right: &Panels<A>) {
    let wide = |left: Left, right: &Panels<A>| -> Vec<f64> {
        plain(left, right, Reach::All).into_iter().map(A::to_f64).collect()
    };
    orders::compare_others(right.terms, &wide(left, right), |order| {
        let values = left.reordered(right.terms, order);
        wide(Left::Rows(&values, left.window()), &right.reordered(order))
    });
}

/// Terms that are added to the sums of some rows, from row `first` on, and some panels.
struct Product<'a, A> {
    left: &'a [A],
    place: LeftPlace,
    panels: &'a [Vec<A>],
    terms: usize,
    /// Of the panels, and of each row of `sums`.
    columns: usize,
    reach: Reach,
    first: usize,
    sums: Sums<'a, A>,
    are_zeros: bool,
}

impl<A: Arithmetic> WithSimd for Product<'_, A> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // Sums of as many rows and registers as stay in registers, with those that they read.
        match A::vectors_of_a_panel::<S>() {
            2 => self.all::<S, 8, 2>(simd),
            4 => self.all::<S, 6, 2>(simd),
            8 => self.all::<S, 6, 4>(simd),
            _ => self.all::<S, 1, 8>(simd),
        }
    }
}

/// Columns of a panel in the narrowest arithmetic.
const MOST_PANEL: usize = 32;

/// Numbers of a right operand that the second cache does not hold with all else. From there on the left operand is packed and the
/// next panel fetched ahead: policies of a million parameters lose by both, one of 135 million gains a quarter and more.
const WIDE: usize = 1 << 17;

/// Terms of a row of the left operand whose bounds are checked together.
const TERMS: usize = 8;

/// Bytes that memory is read by.
const LINE: usize = 64;

/// Numbers of the left operand that a core's second cache holds beside a panel.
const ROWS_AT_ONCE: usize = 1 << 16;

impl<A: Arithmetic> Product<'_, A> {
    #[inline(always)]
    fn all<S: Simd, const ROWS: usize, const VECTORS: usize>(mut self, simd: S) {
        let rows = self.sums.rows();
        let at_once = (ROWS_AT_ONCE / self.terms).next_multiple_of(ROWS);
        let is_wide = self.terms * self.columns >= WIDE;
        let is_packed = is_wide && !self.place.by_column;
        let mut packed = Vec::new();
        for from in (0..rows).step_by(at_once) {
            let to = (from + at_once).min(rows);
            let heights = || Heights::<ROWS> { from, to };
            if is_packed {
                packed.resize((to - from) * self.terms, A::default());
                for (row, height) in heights() {
                    let packed = &mut packed[(row - from) * self.terms..];
                    match height {
                        4 => self.pack::<4>(row, packed),
                        3 => self.pack::<3>(row, packed),
                        2 => self.pack::<2>(row, packed),
                        1 => self.pack::<1>(row, packed),
                        _ => self.pack::<ROWS>(row, packed),
                    }
                }
            }
            let tiles = A::vectors_of_a_panel::<S>() / VECTORS;
            let tiles = if is_wide { heights().count() * tiles } else { 1 };
            for at in 0..self.panels.len() {
                let next = self.panels.get(at + 1).filter(|_| is_wide);
                let next = next.map_or(&[][..], Vec::as_slice);
                let share = if is_wide { next.len().div_ceil(tiles).max(1) } else { 1 };
                let mut shares = next.chunks(share);
                for vector in (0..A::vectors_of_a_panel::<S>()).step_by(VECTORS) {
                    for (row, height) in heights() {
                        let ahead = shares.next().unwrap_or_default();
                        let left = packed.get((row - from) * self.terms..).unwrap_or_default();
                        let place = TilePlace { row, at, vector, ahead };
                        match height {
                            4 => self.tile::<S, 4, VECTORS>(simd, place, left),
                            3 => self.tile::<S, 3, VECTORS>(simd, place, left),
                            2 => self.tile::<S, 2, VECTORS>(simd, place, left),
                            1 => self.tile::<S, 1, VECTORS>(simd, place, left),
                            _ => self.tile::<S, ROWS, VECTORS>(simd, place, left),
                        }
                    }
                }
            }
        }
    }

    /// Puts the left numbers of some rows to the front, term by term.
    #[inline(always)]
    fn pack<const HEIGHT: usize>(&self, row: usize, packed: &mut [A]) {
        let (LeftPlace { stride, offset, .. }, first) = (self.place, self.first + row);
        for at in 0..HEIGHT {
            let values = &self.left[(first + at) * stride + offset..][..self.terms];
            let places = packed.as_chunks_mut::<HEIGHT>().0.iter_mut();
            places.zip(values).for_each(|(places, value)| places[at] = *value);
        }
    }

    /// Adds the terms to the sums of ROWS rows and VECTORS registers of a panel. `packed` begins with the left numbers of
    /// the rows, or is empty where they are read as they lie.
    #[inline(always)]
    fn tile<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &mut self,
        simd: S,
        TilePlace { row, at, vector, ahead }: TilePlace<A>,
        packed: &[A],
    ) {
        let (terms, columns, of_a_panel) = (self.terms, self.columns, A::vectors_of_a_panel::<S>());
        let first = self.first + row;
        let (reached, needed) = self.reach.of(first, first + ROWS - 1, terms, columns);
        let (panel, lanes) = (A::vectors::<S>(&self.panels[at]).0, A::PANEL / of_a_panel);
        let column = at * A::PANEL + vector * lanes;
        if column >= needed {
            return;
        }
        let width = (VECTORS * lanes).min(columns - column);
        let places = column..column + width;
        let zeros = [[A::splat(simd, A::default()); VECTORS]; ROWS];
        let mut all = zeros;
        let (mut numbers, is_whole) = ([A::default(); MOST_PANEL], width == VECTORS * lanes);
        let mut is_first = true;
        if let (Sums::Own(sums), false) = (&self.sums, self.are_zeros) {
            let mut before = zeros;
            for (before, sums) in before.iter_mut().zip(&sums[row..]) {
                numbers[..width].copy_from_slice(&sums[places.clone()]);
                before.copy_from_slice(&A::vectors::<S>(&numbers).0[..VECTORS]);
            }
            (all, is_first) = (before, false);
        }
        let mut from = reached.start;
        let is_ahead = !ahead.is_empty();
        let mut ahead = Ahead::of(ahead, reached.len());
        while from < reached.end {
            let to = reached.end.min((from / PART + 1) * PART);
            let right = &panel[from * of_a_panel..to * of_a_panel];
            let mut sums = zeros;
            let LeftPlace { stride, offset, by_column } = self.place;
            if by_column {
                let left = self.left[(offset + from) * stride + first..].chunks(stride);
                for (left, right) in left.zip(right.chunks_exact(of_a_panel)) {
                    if let Some(left) = left.first_chunk::<ROWS>() {
                        let right = &right[vector..vector + VECTORS];
                        add::<S, A, ROWS, VECTORS>(simd, |row| left[row], right, &mut sums);
                    }
                }
            } else if packed.is_empty() {
                // Not `array::from_fn`, whose closures are calls here: a seventh of a product.
                let mut left = [(&[][..], &[][..]); ROWS];
                for (row, left) in left.iter_mut().enumerate() {
                    let values = &self.left[(first + row) * stride + offset..][from..to];
                    *left = values.as_chunks::<TERMS>();
                }
                let mut right = right.chunks_exact(of_a_panel * TERMS);
                for at in 0..(to - from) / TERMS {
                    let right = right.next().unwrap_or_default().chunks_exact(of_a_panel);
                    for (term, right) in right.enumerate().take(TERMS) {
                        let right = &right[vector..vector + VECTORS];
                        let number = |row: usize| left[row].0[at][term];
                        add::<S, A, ROWS, VECTORS>(simd, number, right, &mut sums);
                    }
                }
                for (term, right) in right.remainder().chunks_exact(of_a_panel).enumerate() {
                    let right = &right[vector..vector + VECTORS];
                    add::<S, A, ROWS, VECTORS>(simd, |row| left[row].1[term], right, &mut sums);
                }
            } else {
                let right =
                    right.chunks_exact(of_a_panel).map(|row| &row[vector..vector + VECTORS]);
                let left = packed[from * ROWS..to * ROWS].as_chunks::<ROWS>().0;
                let terms = left.iter().zip(right);
                if is_ahead {
                    for (left, right) in terms {
                        ahead.advance();
                        add::<S, A, ROWS, VECTORS>(simd, |row| left[row], right, &mut sums);
                    }
                } else {
                    for (left, right) in terms {
                        add::<S, A, ROWS, VECTORS>(simd, |row| left[row], right, &mut sums);
                    }
                }
            }
            // A product with 1 and an addition is an addition.
            let one = A::splat(simd, A::from(1.0));
            for (all, sums) in all.iter_mut().zip(&sums) {
                for (all, sum) in all.iter_mut().zip(sums) {
                    *all = if is_first { *sum } else { A::multiply_add(simd, *sum, one, *all) };
                }
            }
            (from, is_first) = (to, false);
        }
        // A copy whose places are counted leaves the sums in registers while terms are added.
        let done = all;
        match &mut self.sums {
            Sums::Own(rows) if is_whole => {
                for (row, sums) in rows[row..].iter_mut().zip(&done) {
                    let after = A::vectors_mut::<S>(&mut row[places.clone()]).0;
                    after[..VECTORS].copy_from_slice(sums);
                }
            }
            Sums::Own(rows) => {
                for (row, sums) in rows[row..].iter_mut().zip(&done) {
                    A::vectors_mut::<S>(&mut numbers).0[..VECTORS].copy_from_slice(sums);
                    row[places.clone()].copy_from_slice(&numbers[..width]);
                }
            }
            Sums::Wide(rows) => {
                for (row, sums) in rows[row..].iter_mut().zip(&done) {
                    A::vectors_mut::<S>(&mut numbers).0[..VECTORS].copy_from_slice(sums);
                    let more = row[places.clone()].iter_mut().zip(&numbers);
                    more.for_each(|(sum, more)| *sum += more.to_f64());
                }
            }
        }
    }
}

/// Where a tile begins: its row, its panel, the first register of the panel's.
struct TilePlace<'a, A> {
    row: usize,
    at: usize,
    vector: usize,
    /// Of the next panel, which is asked for while this tile is computed.
    ahead: &'a [A],
}

/// Numbers that are fetched into the second cache while others are multiplied: without it the first tile of a panel waits
/// for memory, which takes half as long as the sums of 32 rows.
struct Ahead<'a, A> {
    lines: slice::Chunks<'a, A>,
    /// Terms to a line.
    every: usize,
    wait: usize,
}

impl<'a, A> Ahead<'a, A> {
    #[inline(always)]
    fn of(numbers: &'a [A], terms: usize) -> Self {
        let lines = numbers.chunks(LINE / size_of::<A>());
        let every = if numbers.is_empty() { 1 } else { (terms / lines.len()).max(1) };
        Self { lines, every, wait: 0 }
    }

    #[inline(always)]
    fn advance(&mut self) {
        if self.wait == 0 {
            if let Some(line) = self.lines.next() {
                vectorised::prefetch(&line[0]);
            }
            self.wait = self.every;
        }
        self.wait -= 1;
    }
}

/// Rows in tiles: from which row on, and how many. As many as there are registers for, then fewer, but
/// not one or two where that can be helped: they wait for each other's sums.
struct Heights<const ROWS: usize> {
    from: usize,
    to: usize,
}

impl<const ROWS: usize> Iterator for Heights<ROWS> {
    type Item = (usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, usize)> {
        let left = self.to - self.from;
        let height = match left {
            0 => return None,
            _ if left >= ROWS + 3 || left == ROWS => ROWS,
            5 => 3.min(ROWS),
            4.. => 4.min(ROWS),
            few => few.min(ROWS),
        };
        self.from += height;
        Some((self.from - height, height))
    }
}

/// Adds one term to the sums of ROWS rows and VECTORS registers.
#[inline(always)]
fn add<S: Simd, A: Arithmetic, const ROWS: usize, const VECTORS: usize>(
    simd: S,
    left: impl Fn(usize) -> A,
    right: &[A::Vector<S>],
    sums: &mut [[A::Vector<S>; VECTORS]; ROWS],
) {
    for (row, sums) in sums.iter_mut().enumerate() {
        let number = A::splat(simd, left(row));
        for (sum, vector) in sums.iter_mut().zip(right) {
            *sum = A::multiply_add(simd, number, *vector, *sum);
        }
    }
}
