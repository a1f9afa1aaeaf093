//! Matrix products whose every sum is exact: f32 operands out of windows, multiplied and added
//! in f64. The order of a sum, fused multiplication, threads and the instruction set cannot
//! change a bit, so the kernel is free to choose them for speed.

use crate::numerics::{Window, exact::orders, exact::window, vectorised::dispatch};
use pulp::{Simd, WithSimd};

/// Columns of a panel: whole registers of every instruction set.
const PANEL: usize = 16;

/// The right operand `[terms, columns]`, in panels of 16 columns.
#[derive(Debug, Clone)]
pub struct Panels {
    /// `[panels, terms, PANEL]`, zeros beyond the last column.
    data: Vec<f64>,
    terms: usize,
    columns: usize,
    window: Window,
}

impl Panels {
    /// Of a matrix `[terms, columns]`.
    pub fn of_rows(x: &[f32], columns: usize, window: Window) -> Self {
        let terms = x.len() / columns;
        let mut panels = Self::zeros(terms, columns, window);
        for (at, panel) in panels.data.chunks_exact_mut(terms * PANEL).enumerate() {
            let first = at * PANEL;
            let width = PANEL.min(columns - first);
            for (values, x) in panel.chunks_exact_mut(PANEL).zip(x.chunks_exact(columns)) {
                let pairs = values.iter_mut().zip(&x[first..first + width]);
                pairs.for_each(|(value, x)| *value = f64::from(*x));
            }
        }
        panels
    }

    /// Of the transpose of a matrix `[columns, terms]`, such as the weight of a linear layer.
    pub fn of_columns(x: &[f32], terms: usize, window: Window) -> Self {
        let columns = x.len() / terms;
        let mut panels = Self::zeros(terms, columns, window);
        for (panel, x) in panels.data.chunks_exact_mut(terms * PANEL).zip(x.chunks(PANEL * terms)) {
            for (column, x) in x.chunks_exact(terms).enumerate() {
                let values = panel.iter_mut().skip(column).step_by(PANEL);
                values.zip(x).for_each(|(value, x)| *value = f64::from(*x));
            }
        }
        panels
    }

    fn zeros(terms: usize, columns: usize, window: Window) -> Self {
        let data = vec![0.0; columns.div_ceil(PANEL) * terms * PANEL];
        Self { data, terms, columns, window }
    }

    /// Columns of the product.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The same matrix with its terms in another order.
    fn reordered(&self, order: &[usize]) -> Self {
        let mut data = Vec::with_capacity(self.data.len());
        for panel in self.data.chunks_exact((self.terms * PANEL).max(1)) {
            for &term in order {
                data.extend_from_slice(&panel[term * PANEL..(term + 1) * PANEL]);
            }
        }
        Self { data, ..*self }
    }
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

    /// `blocks` of `height` rows, each `[terms, height]`, zeros below the last row.
    fn packed(&self, terms: usize, height: usize) -> Vec<f64> {
        let values = self.values();
        let rows = values.len() / terms;
        let mut packed = vec![0.0; rows.div_ceil(height) * height * terms];
        for (block, packed) in packed.chunks_exact_mut(height * terms).enumerate() {
            let first = block * height;
            let count = height.min(rows - first);
            match self {
                Left::Rows(..) => {
                    for row in 0..count {
                        let x = &values[(first + row) * terms..][..terms];
                        let places = packed.iter_mut().skip(row).step_by(height);
                        places.zip(x).for_each(|(place, x)| *place = f64::from(*x));
                    }
                }
                Left::Columns(..) => {
                    for (places, x) in packed.chunks_exact_mut(height).zip(values.chunks(rows)) {
                        let pairs = places.iter_mut().zip(&x[first..first + count]);
                        pairs.for_each(|(place, x)| *place = f64::from(*x));
                    }
                }
            }
        }
        packed
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

/// The product `[rows, columns]`, every sum exact.
///
/// # Panics
/// When the windows leave too few bits for as many terms.
pub fn multiply(left: Left, right: &Panels) -> Vec<f64> {
    check(left, right);
    plain(left, right)
}

fn plain(left: Left, right: &Panels) -> Vec<f64> {
    let mut product = vec![0.0; rows(left, right) * right.columns];
    let put = |at: usize, values: &[f64]| product[at..at + values.len()].copy_from_slice(values);
    dispatch(Product { left, right, put });
    product
}

/// [`multiply`], each sum rounded to f32.
pub fn multiply_rounded(left: Left, right: &Panels) -> Vec<f32> {
    check(left, right);
    let mut product = vec![0.0; rows(left, right) * right.columns];
    let put = |at: usize, values: &[f64]| {
        for (place, value) in product[at..at + values.len()].iter_mut().zip(values) {
            *place = *value as f32;
        }
    };
    dispatch(Product { left, right, put });
    product
}

/// Adds the product to `sums` `[rows, columns]`: exact as long as `terms_in_all`, the terms of all
/// products that are added, leave enough bits.
pub fn multiply_onto(sums: &mut [f64], left: Left, right: &Panels, terms_in_all: usize) {
    check_bits(left, right, terms_in_all.max(right.terms));
    check(left, right);
    let put = |at: usize, values: &[f64]| {
        for (sum, value) in sums[at..at + values.len()].iter_mut().zip(values) {
            *sum += value;
        }
    };
    dispatch(Product { left, right, put });
}

fn rows(left: Left, right: &Panels) -> usize {
    left.values().len().checked_div(right.terms).unwrap_or(0)
}

fn check_bits(left: Left, right: &Panels, terms: usize) {
    let bits = window::bits(left.window(), right.window, terms);
    assert!(
        bits <= window::SIGNIFICANT_BITS,
        "a sum of {terms} products of {} and {} bits needs {bits}",
        left.window().width(),
        right.window.width()
    );
}

fn check(left: Left, right: &Panels) {
    check_bits(left, right, right.terms);
    if orders::checked() {
        check_orders(left, right);
    }
}

/// Computes the product again with the terms reversed and shuffled: the same bits, or a panic.
fn check_orders(left: Left, right: &Panels) {
    orders::compare_others(right.terms, &plain(left, right), |order| {
        let values = left.reordered(right.terms, order);
        plain(Left::Rows(&values, left.window()), &right.reordered(order))
    });
}

struct Product<'a, F> {
    left: Left<'a>,
    right: &'a Panels,
    /// Takes neighbours of the product, with the index of the first.
    put: F,
}

impl<F: FnMut(usize, &[f64])> WithSimd for Product<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // As many sums as the registers hold: height × PANEL.
        match S::F64_LANES {
            8 => self.tiles::<S, 8, 2>(simd),
            4 => self.tiles::<S, 3, 4>(simd),
            2 => self.tiles::<S, 1, 8>(simd),
            _ => self.tiles::<S, 1, 16>(simd),
        }
    }
}

impl<F: FnMut(usize, &[f64])> Product<'_, F> {
    #[inline(always)]
    fn tiles<S: Simd, const HEIGHT: usize, const VECTORS: usize>(mut self, simd: S) {
        let (terms, columns) = (self.right.terms, self.right.columns);
        if terms == 0 {
            return;
        }
        let rows = self.left.values().len() / terms;
        let packed = self.left.packed(terms, HEIGHT);
        for (at, panel) in self.right.data.chunks_exact(terms * PANEL).enumerate() {
            let width = PANEL.min(columns - at * PANEL);
            for (block, packed) in packed.chunks_exact(HEIGHT * terms).enumerate() {
                let sums = tile::<S, HEIGHT, VECTORS>(simd, packed, panel);
                let first = block * HEIGHT;
                for (row, sums) in sums.iter().enumerate().take(rows - first) {
                    let mut values = [0f64; PANEL];
                    let (vectors, _) = S::as_mut_simd_f64s(&mut values);
                    vectors.copy_from_slice(sums);
                    (self.put)((first + row) * columns + at * PANEL, &values[..width]);
                }
            }
        }
    }
}

/// The sums of `HEIGHT` rows and one panel.
#[inline(always)]
fn tile<S: Simd, const HEIGHT: usize, const VECTORS: usize>(
    simd: S,
    packed: &[f64],
    panel: &[f64],
) -> [[S::f64s; VECTORS]; HEIGHT] {
    let mut sums = [[simd.splat_f64s(0.0); VECTORS]; HEIGHT];
    let (panel, _) = S::as_simd_f64s(panel).0.as_chunks::<VECTORS>();
    let (packed, _) = packed.as_chunks::<HEIGHT>();
    for (rows, columns) in packed.iter().zip(panel) {
        for (sums, row) in sums.iter_mut().zip(rows) {
            let row = simd.splat_f64s(*row);
            for (sum, column) in sums.iter_mut().zip(columns) {
                *sum = simd.mul_add_f64s(row, *column, *sum);
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window::below(0, 18);

    fn matrix(rows: usize, columns: usize, seed: usize) -> Vec<f32> {
        let value = |at: usize| WINDOW.round(((at * 7919 + seed) as f64 * 0.618).sin() as f32);
        (0..rows * columns).map(value).collect()
    }

    fn transposed(x: &[f32], columns: usize) -> Vec<f32> {
        (0..columns).flat_map(|column| x.iter().skip(column).step_by(columns)).copied().collect()
    }

    #[test]
    fn every_shape_and_layout_gives_the_sums_of_a_plain_loop() {
        for (rows, terms, columns) in [(1, 1, 1), (7, 5, 3), (8, 16, 16), (9, 130, 33), (25, 3, 50)]
        {
            let (a, b) = (matrix(rows, terms, 1), matrix(terms, columns, 2));
            let expected: Vec<f64> = (0..rows * columns)
                .map(|at| {
                    let products = (0..terms).map(|term| {
                        let (row, column) = (at / columns, at % columns);
                        f64::from(a[row * terms + term]) * f64::from(b[term * columns + column])
                    });
                    products.sum()
                })
                .collect();
            let (at, bt) = (transposed(&a, terms), transposed(&b, columns));
            let panels = Panels::of_rows(&b, columns, WINDOW);
            assert_eq!(multiply(Left::Rows(&a, WINDOW), &panels), expected);
            assert_eq!(multiply(Left::Columns(&at, WINDOW), &panels), expected);
            let panels = Panels::of_columns(&bt, terms, WINDOW);
            assert_eq!(multiply(Left::Rows(&a, WINDOW), &panels), expected);
            let mut twice = expected.clone();
            multiply_onto(&mut twice, Left::Rows(&a, WINDOW), &panels, 2 * terms);
            assert!(twice.iter().zip(&expected).all(|(twice, once)| *twice == 2.0 * once));
            check_orders(Left::Rows(&a, WINDOW), &panels);
            check_orders(Left::Columns(&at, WINDOW), &panels);
        }
    }

    #[test]
    #[should_panic(expected = "needs 54")]
    fn too_wide_windows_are_refused() {
        let (a, b) = (vec![0.0; 4], vec![0.0; 4]);
        let wide = Window::below(0, 26);
        multiply(Left::Rows(&a, wide), &Panels::of_rows(&b, 1, wide));
    }
}
