//! Loops over rows of f32: separate additions, products, divisions and roots, each rounded by
//! itself; sums of products of numbers out of windows, which are exact in f64.

use crate::base::workers;
use crate::numerics::vectorised::vectorised;
use crate::numerics::{Arithmetic, Heads, Tally, Window, functions::exp, native::orders};

/// Numbers that are not worth a second thread.
const FEW: usize = 1 << 14;

/// [`workers::by_rows`] for loops of little work a number, compiled for the process's instructions.
#[inline(always)]
fn by_rows<T: Send>(x: &mut [T], width: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    let part = |first: usize, x: &mut [T]| {
        vectorised(
            #[inline(always)]
            || work(first, x),
        )
    };
    if x.len() < FEW { part(0, x) } else { workers::by_rows(x, width, part) }
}

/// Numbers that the first cache holds.
const BLOCK: usize = 1 << 11;

/// A copy of x, `[rows, width]`, that `work` changes, a part at a time by its first row: one thread's while the part
/// is in the first cache.
#[inline(always)]
fn changed(x: &[f32], width: usize, work: impl Fn(usize, &mut [f32]) + Sync) -> Vec<f32> {
    if workers::of_pool() > 1 && x.len() >= FEW {
        let mut all = x.to_vec();
        by_rows(&mut all, width, work);
        return all;
    }
    let mut all = Vec::with_capacity(x.len());
    for part in x.chunks((BLOCK / width).max(1) * width) {
        let from = all.len();
        all.extend_from_slice(part);
        let part = &mut all[from..];
        vectorised(
            #[inline(always)]
            || work(from / width, part),
        );
    }
    all
}

/// Rounds every number into the window, where sums are to be exact.
pub fn round<A: Arithmetic>(x: &mut [f32], window: Window, tally: &mut Tally) {
    if !A::EXACT {
        return;
    }
    let (mut saturated, mut flushed, mut largest) = (0u64, 0u64, 0u32);
    let rounder = window.rounder();
    vectorised(
        #[inline(always)]
        || {
            // Counts of few numbers at a time fit the registers of f32.
            for x in x.chunks_mut(1 << 12) {
                let (mut above, mut below, mut most) = (0u32, 0u32, 0u32);
                for x in x {
                    let rounded = rounder.round(*x);
                    // Additions that are checked are not compiled to vectors.
                    above = above.wrapping_add(u32::from(x.abs() > rounder.bound));
                    below = below.wrapping_add(u32::from((rounded == 0.0) & (*x != 0.0)));
                    // Bits without the sign are in the order of sizes, NaN above all.
                    most = most.max(x.abs().to_bits());
                    *x = rounded;
                }
                saturated += u64::from(above);
                flushed += u64::from(below);
                largest = largest.max(most);
            }
        },
    );
    let not_finite = largest >= f32::INFINITY.to_bits();
    tally.add(Tally { rounded: x.len() as u64, saturated, flushed, not_finite });
}

/// Σ a · b in f64 of each row of a and b, `[rows, width]` → `[rows]`. Eight sums stand side by side and are added in
/// one order, so that the bits are the same whatever the registers; of numbers out of windows they are in any order.
pub fn dots<A: Arithmetic>(a: &[f32], b: &[f32], width: usize) -> Vec<f64> {
    let mut sums = vec![0.0; a.len() / width];
    let part = |first: usize, sums: &mut [f64]| {
        let rows =
            a[first * width..].chunks_exact(width).zip(b[first * width..].chunks_exact(width));
        let mut each = sums.iter_mut().zip(rows);
        vectorised(
            #[inline(always)]
            || each.by_ref().for_each(|(sum, (a, b))| *sum = dot(a, b)),
        );
    };
    if a.len() < FEW {
        part(0, &mut sums)
    } else {
        workers::by_rows(&mut sums, 1, part)
    }
    if A::EXACT && orders::checked() {
        orders::compare_others(width, &sums, |order| {
            let rows = a.chunks_exact(width).zip(b.chunks_exact(width));
            let product = |(a, b): (&[f32], &[f32]), at: usize| f64::from(a[at]) * f64::from(b[at]);
            let sum = |row| order.iter().fold(0.0, |sum, &at| sum + product(row, at));
            rows.map(sum).collect()
        });
    }
    sums
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f64 {
    const SUMS: usize = 8;
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<SUMS>(), b.as_chunks::<SUMS>());
    let mut sums = [0f64; SUMS];
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += f64::from(*a) * f64::from(*b);
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
    sums.iter().sum::<f64>() + rest
}

/// Adds every row of x `[rows, width]` to `sums` `[width]`.
pub fn add_rows(sums: &mut [f64], x: &[f32]) {
    let width = sums.len();
    each_row(sums, x.len() / width, |sums, row| {
        let row = &x[row * width..][..width];
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
    });
}

fn each_row(sums: &mut [f64], rows: usize, add: impl Fn(&mut [f64], usize)) {
    let before = orders::checked().then(|| sums.to_vec());
    (0..rows).for_each(|row| add(sums, row));
    if let Some(before) = before {
        orders::compare_others(rows, sums, |order| {
            let mut other = before.clone();
            order.iter().for_each(|&row| add(&mut other, row));
            other
        });
    }
}

/// 1 / √(mean(x²) + epsilon) of each row of x `[rows, width]`.
pub fn inverse_root_mean_squares<A: Arithmetic>(x: &[f32], width: usize, epsilon: f64) -> Vec<f32> {
    let inverse = |squares: f64| (1.0 / (squares / width as f64 + epsilon).sqrt()) as f32;
    dots::<A>(x, x, width).into_iter().map(inverse).collect()
}

pub fn scale_rows(x: &[f32], factors: &[f32], width: usize) -> Vec<f32> {
    changed(
        x,
        width,
        #[inline(always)]
        |first, scaled| {
            for (row, factor) in scaled.chunks_exact_mut(width).zip(&factors[first..]) {
                row.iter_mut().for_each(|x| *x *= factor);
            }
        },
    )
}

/// The derivative of y = x / √(mean(x²) + epsilon): `(g − y · mean(g · y)) · factor`, row by row.
pub fn norm_derivative<A: Arithmetic>(
    mut g: Vec<f32>,
    y: &[f32],
    factors: &[f32],
    width: usize,
) -> Vec<f32> {
    let means = dots::<A>(&g, y, width);
    by_rows(
        &mut g,
        width,
        #[inline(always)]
        |first, g| {
            let rows = g.chunks_exact_mut(width).zip(y[first * width..].chunks_exact(width));
            let factors = means[first..].iter().zip(&factors[first..]);
            for ((row, y), (mean, factor)) in rows.zip(factors) {
                let mean = (mean / width as f64) as f32;
                for (g, y) in row.iter_mut().zip(y) {
                    *g = (*g - y * mean) * factor;
                }
            }
        },
    );
    g
}

/// Every row of x `[rows, width]` times `weights` `[width]`, number by number.
pub fn scale_columns(x: &[f32], weights: &[f32]) -> Vec<f32> {
    changed(
        x,
        weights.len(),
        #[inline(always)]
        |_, scaled| {
            for row in scaled.chunks_exact_mut(weights.len()) {
                row.iter_mut().zip(weights).for_each(|(x, weight)| *x *= weight);
            }
        },
    )
}

/// Adds `bias` `[width]` to every row.
pub fn add_to_rows(x: &mut [f32], bias: &[f32]) {
    for row in x.chunks_exact_mut(bias.len()) {
        row.iter_mut().zip(bias).for_each(|(x, bias)| *x += bias);
    }
}

pub fn swiglu(gate: &[f32], up: &[f32]) -> Vec<f32> {
    changed(
        gate,
        1,
        #[inline(always)]
        |first, inner| {
            for (gate, up) in inner.iter_mut().zip(&up[first..]) {
                *gate = *gate / (1.0 + exp(-*gate)) * up;
            }
        },
    )
}

/// Puts the derivatives of [`swiglu`] by gate and by up where these lie.
pub fn differentiate_swiglu(g: &[f32], gate: &mut [f32], up: &mut [f32]) {
    let part = g.len().div_ceil(workers::of_pool()).max(FEW);
    let mut parts: Vec<_> =
        g.chunks(part).zip(gate.chunks_mut(part).zip(up.chunks_mut(part))).collect();
    workers::by_rows(&mut parts, 1, |_, parts| {
        for (g, (gate, up)) in parts {
            vectorised(
                #[inline(always)]
                || {
                    for ((gate, up), g) in gate.iter_mut().zip(up.iter_mut()).zip(*g) {
                        let share = 1.0 / (1.0 + exp(-*gate));
                        let silu = *gate * share;
                        *gate = g * *up * (share + silu * (1.0 - share));
                        *up = g * silu;
                    }
                },
            );
        }
    });
}

/// Turns the pairs of neighbours of each head of queries and keys in joined rows: rotation (cos, sin) of
/// each row and pair, `[rows, width / 2, 2]`; `back` turns the other way.
pub fn turn(joined: &mut [f32], rotations: &[f32], heads: Heads, back: bool) {
    let sign = if back { -1.0 } else { 1.0 };
    let (stride, width) = (heads.joined_width(), heads.width);
    let turned = (heads.queries + heads.keys) * width;
    by_rows(
        joined,
        stride,
        #[inline(always)]
        |first, joined| {
            let rotations = rotations[first * width..].chunks_exact(width);
            for (row, rotation) in joined.chunks_exact_mut(stride).zip(rotations) {
                let (turns, _) = rotation.as_chunks::<2>();
                for head in row[..turned].chunks_exact_mut(width) {
                    for ([a, b], [cos, sin]) in head.as_chunks_mut::<2>().0.iter_mut().zip(turns) {
                        let sin = sign * sin;
                        (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
                    }
                }
            }
        },
    );
}

/// 1 / √width, the scale of attention's scores.
pub fn scale(width: usize) -> f32 {
    (1.0 / (width as f64).sqrt()) as f32
}

/// Softmax of the first `seen(row)` scores of each row of `scores` `[rows, length]`; 0 beyond them.
pub fn softmax_rows<A: Arithmetic>(
    scores: &mut [f32],
    length: usize,
    seen: impl Fn(usize) -> usize,
    scale: f32,
    window: Window,
) {
    let mut rows = scores.chunks_exact_mut(length).enumerate();
    vectorised(
        #[inline(always)]
        || {
            for (row, scores) in rows.by_ref() {
                let (seen, beyond) = scores.split_at_mut(seen(row));
                softmax::<A>(seen, scale, window);
                beyond.fill(0.0);
            }
        },
    );
}

/// Numbers of a row that stand side by side in its maximum and its sum.
const LANES: usize = 16;

/// Softmax of scores times `scale`. Neither later scores nor other rows can change a bit. Where sums
/// are exact, the exponentials and the shares are numbers of the window.
#[inline(always)]
fn softmax<A: Arithmetic>(scores: &mut [f32], scale: f32, window: Window) {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (blocks, rest) = scores.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for block in blocks {
        lanes.iter_mut().zip(block).for_each(|(lane, score)| *lane = larger(*lane, *score));
    }
    let most = lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |most, &x| larger(most, x));
    if !A::EXACT {
        // A NaN that the maximum lost is one here.
        scores.iter_mut().for_each(|score| *score = exp((*score - most) * scale));
        let share = 1.0 / sum_of_lanes(scores);
        scores.iter_mut().for_each(|score| *score *= share);
        return;
    }
    let rounder = window.rounder();
    for score in scores.iter_mut() {
        *score = rounder.round(exp((*score - most) * scale));
    }
    // The exponentials are whole multiples of the window's spacing: integers add up in any order.
    let (mut steps, per_step) = (0u64, 1.0 / window.spacing());
    for scores in scores.chunks(1 << 10) {
        let step = |score: &f32| (*score * per_step) as i32 as u32;
        steps += u64::from(scores.iter().map(step).fold(0, u32::wrapping_add));
    }
    let share = (1.0 / (steps as f64 * f64::from(window.spacing()))) as f32;
    for score in scores.iter_mut() {
        *score = rounder.round(*score * share);
    }
}

/// Σ x in one order, whatever the registers: sums side by side, then these, then the rest.
#[inline(always)]
fn sum_of_lanes(x: &[f32]) -> f32 {
    let (blocks, rest) = x.as_chunks::<LANES>();
    let mut lanes = [0f32; LANES];
    for block in blocks {
        lanes.iter_mut().zip(block).for_each(|(lane, x)| *lane += x);
    }
    lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

pub fn add(x: &mut [f32], more: &[f32]) {
    by_rows(
        x,
        1,
        #[inline(always)]
        |first, x| x.iter_mut().zip(&more[first..]).for_each(|(x, more)| *x += more),
    );
}

/// Adds a · b of every row, `[rows, width]` both, to `sums` `[width]`.
pub fn add_products(sums: &mut [f64], a: &[f32], b: &[f32]) {
    let width = sums.len();
    each_row(sums, a.len() / width, |sums, row| {
        let rows = a[row * width..][..width].iter().zip(&b[row * width..][..width]);
        for (sum, (a, b)) in sums.iter_mut().zip(rows) {
            *sum += f64::from(*a) * f64::from(*b);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window::below(4, 18);

    #[test]
    fn what_is_not_finite_is_noticed_at_every_place_of_every_width_and_nothing_else_is() {
        for width in 1..=67 {
            let numbers: Vec<f32> = (0..width).map(|at| (at as f32 - 30.0) * 0.7).collect();
            for at in 0..width {
                for value in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
                    let mut numbers = numbers.clone();
                    numbers[at] = value;
                    let expected: Vec<f32> =
                        numbers.iter().map(|&x| WINDOW.rounder().round(x)).collect();
                    let mut tally = Tally::default();
                    round::<f64>(&mut numbers, WINDOW, &mut tally);
                    assert_eq!(tally.not_finite, !value.is_finite(), "{value} at {at} of {width}");
                    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
                    assert_eq!(bits(&numbers), bits(&expected));
                    let mut all = Tally::default();
                    all.add(tally);
                    all.add(Tally::default());
                    assert_eq!(all, tally, "it stays noticed");
                }
            }
        }
    }
}
