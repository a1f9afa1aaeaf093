//! Matrix products of f32 numbers, in f64 of numbers out of windows (every sum is exact) or in f32.
//! A sum adds its terms one after another, each product and addition rounded once. So no other row or
//! column, thread or instruction set changes a bit of it; an exact sum does not depend on the order
//! either.

use crate::numerics::native::{orders, window};
use crate::numerics::{Arithmetic, Window, vectorised::dispatch};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// The right operand `[terms, columns]`, in panels of [`Arithmetic::PANEL`] columns.
#[derive(Debug, Clone)]
pub struct Panels<A> {
    /// Each `[terms, PANEL]`, zeros beyond the last column.
    panels: Vec<Vec<A>>,
    terms: usize,
    columns: usize,
    window: Window,
}

impl<A: Arithmetic> Panels<A> {
    /// Of a matrix `[terms, columns]`.
    pub fn of_rows(x: &[f32], columns: usize, window: Window) -> Self {
        let mut panels = Self::zeros(x.len() / columns, columns, window);
        for (at, panel) in panels.panels.iter_mut().enumerate() {
            let first = at * A::PANEL;
            let width = A::PANEL.min(columns - first);
            for (values, x) in panel.chunks_exact_mut(A::PANEL).zip(x.chunks_exact(columns)) {
                put(values, &x[first..first + width]);
            }
        }
        panels
    }

    /// Of the transpose of a matrix `[columns, terms]`, such as the weight of a linear layer.
    pub fn of_columns(x: &[f32], terms: usize, window: Window) -> Self {
        let mut panels = Self::zeros(terms, x.len() / terms, window);
        for (panel, x) in panels.panels.iter_mut().zip(x.chunks(A::PANEL * terms)) {
            for (column, x) in x.chunks_exact(terms).enumerate() {
                let values = panel.iter_mut().skip(column).step_by(A::PANEL);
                values.zip(x).for_each(|(value, x)| *value = A::from(*x));
            }
        }
        panels
    }

    /// Zeros `[terms, columns]`; either may be 0, to be appended to.
    pub fn zeros(terms: usize, columns: usize, window: Window) -> Self {
        let panel = vec![A::default(); terms * A::PANEL];
        Self { panels: vec![panel; columns.div_ceil(A::PANEL)], terms, columns, window }
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

    /// Appends a term, `[columns]`.
    pub fn push_term(&mut self, x: &[f32]) {
        for (panel, x) in self.panels.iter_mut().zip(x.chunks(A::PANEL)) {
            let end = panel.len();
            panel.resize(end + A::PANEL, A::default());
            put(&mut panel[end..], x);
        }
        self.terms += 1;
    }

    /// The same matrix with its terms in another order.
    fn reordered(&self, order: &[usize]) -> Self {
        let reordered = |panel: &Vec<A>| -> Vec<A> {
            let row = |&term: &usize| &panel[term * A::PANEL..(term + 1) * A::PANEL];
            order.iter().flat_map(row).copied().collect()
        };
        Self { panels: self.panels.iter().map(reordered).collect(), ..*self }
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

/// What of a product a caller asks for. Rows stand for tokens, `each` to a token, of which `before` come
/// first without rows.
#[derive(Debug, Clone, Copy)]
pub enum Reach {
    All,
    /// The columns of the tokens up to the row's own; the others have their sums or 0.
    ColumnsTo(CausalRows),
    /// The terms of the tokens up to the row's own; the others are 0 on the left.
    TermsTo(CausalRows),
    /// A row is a token and a term a row of one, from the same token on; those before it are 0 on the
    /// left.
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

/// The product `[rows, columns]`.
///
/// # Panics
/// When sums are to be exact and the windows leave too few bits for as many terms.
pub fn multiply<A: Arithmetic>(left: Left, right: &Panels<A>) -> Vec<f64> {
    check(left, right);
    plain(left, right)
}

fn plain<A: Arithmetic>(left: Left, right: &Panels<A>) -> Vec<f64> {
    let mut product = Vec::with_capacity(rows(left, right) * right.columns);
    each_row(left, right, Reach::All, |row| product.extend(row.iter().map(|sum| sum.to_f64())));
    product
}

/// [`multiply`], each sum rounded to f32.
pub fn multiply_rounded<A: Arithmetic>(left: Left, right: &Panels<A>) -> Vec<f32> {
    multiply_part(left, right, Reach::All)
}

/// As [`multiply_rounded`], of a part of the sums.
pub fn multiply_part<A: Arithmetic>(left: Left, right: &Panels<A>, reach: Reach) -> Vec<f32> {
    check(left, right);
    let mut product = Vec::with_capacity(rows(left, right) * right.columns);
    each_row(left, right, reach, |row| product.extend(row.iter().map(|sum| sum.to_f32())));
    product
}

/// Adds the product to `sums` `[rows, columns]`: exact as long as `terms_in_all`, the terms of all
/// products that are added, leave enough bits.
pub fn multiply_onto<A: Arithmetic>(
    sums: &mut [f64],
    left: Left,
    right: &Panels<A>,
    terms_in_all: usize,
) {
    check_bits(left, right, terms_in_all.max(right.terms));
    check(left, right);
    let mut places = sums.chunks_exact_mut(right.columns.max(1));
    each_row(left, right, Reach::All, |row| {
        let place = places.next().expect("a sum for every number of the product");
        place.iter_mut().zip(row).for_each(|(place, sum)| *place += sum.to_f64());
    });
}

/// Calls `take` with every row of the product, in order.
fn each_row<A: Arithmetic>(
    left: Left,
    right: &Panels<A>,
    reach: Reach,
    mut take: impl FnMut(&[A]),
) {
    let values = A::widened(left.values());
    let by_column = matches!(left, Left::Columns(..));
    dispatch(Product { left: &values, by_column, right, reach, take: &mut take });
}

fn rows<A: Arithmetic>(left: Left, right: &Panels<A>) -> usize {
    left.values().len().checked_div(right.terms).unwrap_or(0)
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
    orders::compare_others(right.terms, &plain(left, right), |order| {
        let values = left.reordered(right.terms, order);
        plain(Left::Rows(&values, left.window()), &right.reordered(order))
    });
}

struct Product<'a, A> {
    left: &'a [A],
    /// Whether `left` is `[terms, rows]`.
    by_column: bool,
    right: &'a Panels<A>,
    reach: Reach,
    take: &'a mut dyn FnMut(&[A]),
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

impl<A: Arithmetic> Product<'_, A> {
    #[inline(always)]
    fn all<S: Simd, const ROWS: usize, const VECTORS: usize>(mut self, simd: S) {
        let terms = self.right.terms;
        if terms == 0 {
            return;
        }
        let rows = self.left.len() / terms;
        let wide = self.right.columns.div_ceil(A::PANEL) * A::PANEL;
        let mut product = vec![A::default(); ROWS.max(4) * wide];
        let mut done = 0;
        while done + ROWS <= rows {
            done += self.some::<S, ROWS, VECTORS>(simd, done, &mut product);
        }
        while done < rows {
            done += match rows - done {
                4.. => self.some::<S, 4, VECTORS>(simd, done, &mut product),
                3 => self.some::<S, 3, VECTORS>(simd, done, &mut product),
                2 => self.some::<S, 2, VECTORS>(simd, done, &mut product),
                _ => self.some::<S, 1, VECTORS>(simd, done, &mut product),
            };
        }
    }

    /// ROWS rows of the product, from `first` on. Returns their number.
    #[inline(always)]
    fn some<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &mut self,
        simd: S,
        first: usize,
        product: &mut [A],
    ) -> usize {
        let Panels { panels, terms, columns, .. } = self.right;
        let (of_a_panel, rows) = (A::vectors_of_a_panel::<S>(), self.left.len() / terms);
        let wide = columns.div_ceil(A::PANEL) * A::PANEL;
        let (reached, needed) = self.reach.of(first, first + ROWS - 1, *terms, *columns);
        for (at, panel) in panels.iter().take(needed.div_ceil(A::PANEL)).enumerate() {
            let (panel, _) = A::vectors::<S>(panel);
            for part in (0..of_a_panel).step_by(VECTORS) {
                let right = panel[reached.start * of_a_panel..reached.end * of_a_panel]
                    .chunks_exact(of_a_panel)
                    .map(|row| &row[part..part + VECTORS]);
                let mut sums = [[A::splat(simd, A::default()); VECTORS]; ROWS];
                if self.by_column {
                    let left = &self.left[reached.start * rows + first..];
                    for (left, right) in left.chunks(rows).zip(right) {
                        let left = &left[..ROWS];
                        add::<S, A, ROWS, VECTORS>(simd, |row| left[row], right, &mut sums);
                    }
                } else {
                    let count = reached.len();
                    let row = |row| &self.left[(first + row) * terms + reached.start..][..count];
                    let left: [&[A]; ROWS] = std::array::from_fn(row);
                    for (term, right) in right.take(count).enumerate() {
                        add::<S, A, ROWS, VECTORS>(simd, |row| left[row][term], right, &mut sums);
                    }
                }
                for (row, sums) in sums.iter().enumerate() {
                    let places = &mut product[row * wide + at * A::PANEL..][..A::PANEL];
                    let (places, _) = A::vectors_mut::<S>(places);
                    places[part..part + VECTORS].copy_from_slice(sums);
                }
            }
        }
        for row in product.chunks_exact(wide).take(ROWS) {
            (self.take)(&row[..*columns]);
        }
        ROWS
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
