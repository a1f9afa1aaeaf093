//! Every loop that is compiled for several instruction sets gives the same bits under each of them.

use super::*;
use crate::base::workers;
use crate::numerics::native::product::{self, Reach};
use crate::numerics::native::{cache, elementwise, window::WindowShape};
use crate::numerics::{Arithmetic, Head, Heads, Left, Panels, Tally, Window, Windows};
use proptest::{prelude::ProptestConfig, proptest};
use std::cell::Cell;

thread_local! {
    /// In place of the process's own, for the loops of this thread.
    static FORCED: Cell<Option<Arch>> = const { Cell::new(None) };
}

pub(super) fn forced() -> Option<Arch> {
    FORCED.get()
}

const WIDTHS: std::ops::RangeInclusive<usize> = 1..=67;

/// Holds the bits of `work` under every instruction set of this machine to those of scalar loops.
fn assert_one_result<R: IntoIterator<Item = u64>>(width: usize, work: impl Fn() -> R) {
    let mut scalar: Option<Vec<u64>> = None;
    for instructions in Instructions::ALL {
        let Some(arch) = instructions.arch() else { continue };
        FORCED.set(Some(arch));
        assert_eq!(chosen(), instructions);
        let bits: Vec<u64> = work().into_iter().collect();
        FORCED.set(None);
        let expected = scalar.get_or_insert_with(|| bits.clone());
        assert!(!expected.is_empty());
        assert_eq!(&bits, expected, "width {width}, {} and scalar", instructions.name());
    }
}

fn bits(values: &[f32]) -> Vec<u64> {
    values.iter().map(|value| u64::from(value.to_bits())).collect()
}

fn bits_of_sums(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Numbers between −4 and 4 without a pattern, with zeros among them.
fn noise(count: usize, seed: u64) -> Vec<f32> {
    let number = |at: usize| {
        let draw = (at as u64 + 1).wrapping_mul(seed | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let draw = (draw ^ (draw >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        if draw.is_multiple_of(19) { 0.0 } else { (draw >> 40) as f32 / (1 << 21) as f32 - 4.0 }
    };
    (0..count).map(number).collect()
}

fn rounded(count: usize, seed: u64, window: Window) -> Vec<f32> {
    noise(count, seed).into_iter().map(|x| window.rounder().round(x)).collect()
}

fn windows(width: usize) -> Windows {
    let shape =
        WindowShape { hidden: 67, inner: 67, head: width, group: 2, positions: 64, outputs: 67 };
    Windows::new(shape).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn loops_over_rows(seed: u64) {
        let window = Window::below(2, 20);
        for width in WIDTHS {
            let count = 5 * width;
            let (x, y) = (rounded(count, seed, window), rounded(count, seed ^ 1, window));
            let (wide, column) = (noise(count, seed ^ 2), noise(width, seed ^ 3));
            let factors = noise(5, seed ^ 4);
            assert_one_result(width, || {
                let (mut x, mut tally) = (wide.clone(), Tally::default());
                elementwise::round::<f64>(&mut x, Window::below(1, 12), &mut tally);
                let counts = [tally.rounded, tally.saturated, tally.flushed];
                [bits(&x), counts.to_vec()].concat()
            });
            assert_one_result(width, || bits_of_sums(&elementwise::dots::<f64>(&x, &y, width)));
            assert_one_result(width, || bits_of_sums(&elementwise::dots::<f32>(&wide, &y, width)));
            assert_one_result(width, || {
                bits(&elementwise::inverse_root_mean_squares::<f32>(&wide, width, 1e-6))
            });
            assert_one_result(width, || bits(&elementwise::scale_rows(&wide, &factors, width)));
            assert_one_result(width, || {
                bits(&elementwise::norm_derivative::<f32>(wide.clone(), &y, &factors, width))
            });
            assert_one_result(width, || bits(&elementwise::scale_columns(&wide, &column)));
            assert_one_result(width, || {
                let mut sums = wide.clone();
                elementwise::add(&mut sums, &y);
                bits(&sums)
            });
            assert_one_result(width, || bits(&elementwise::swiglu(&wide, &y)));
            assert_one_result(width, || {
                let mut both = [x.clone(), y.clone()];
                let [gate, up] = &mut both;
                elementwise::differentiate_swiglu(&wide, gate, up);
                bits(&both.concat())
            });
        }
    }

    #[test]
    fn products(seed: u64) {
        products_in::<f64>(seed);
        products_in::<f32>(seed);
    }

    #[test]
    fn attention(seed: u64) {
        attention_in::<f64>(seed);
        attention_in::<f32>(seed);
    }
}

fn products_in<A: Arithmetic>(seed: u64) {
    let window = Window::below(2, 18);
    let (rows, terms) = (1 + seed as usize % 19, 1 + seed as usize % 67);
    for width in WIDTHS {
        let left = rounded(rows * terms, seed, window);
        let right = rounded(terms * width, seed ^ 1, window);
        for left in [Left::Rows(&left, window), Left::Columns(&left, window)] {
            for right in [
                Panels::<A>::of_rows(&right, width, window),
                Panels::<A>::of_columns(&right, terms, window),
            ] {
                assert_one_result(width, || {
                    let sums = product::multiply(left, &right, Reach::All);
                    bits_of_sums(&sums.into_iter().map(A::to_f64).collect::<Vec<f64>>())
                });
                assert_one_result(width, || bits(&product::multiply_rounded(left, &right)));
            }
        }
    }
}

/// A product with a transpose that is packed by blocks, and products that threads share.
#[test]
fn products_in_blocks_and_parts() {
    let window = Window::below(2, 18);
    for (rows, terms, width) in [(1, 5, 3), (3, 1100, 70), (7, 33, 2100), (130, 64, 300)] {
        let (left, right) = (rounded(rows * width, 1, window), rounded(terms * width, 2, window));
        let panels = Panels::<f32>::of_rows(&right, width, window);
        let straight = Panels::<f32>::of_columns(&right, width, window);
        let left_rows = Left::Rows(&left, window);
        let expected = bits(&product::multiply_rounded(left_rows, &straight));
        assert_one_result(width, || {
            let blocks = bits(&product::multiply_transposed(&left, window, &panels));
            assert_eq!(blocks, expected);
            for threads in [1, 2, 3] {
                workers::set_count(threads);
                let shared = workers::in_pool(|| {
                    let transposed = product::multiply_transposed(&left, window, &panels);
                    [transposed, product::multiply_rounded(left_rows, &straight)]
                });
                shared.iter().for_each(|shared| assert_eq!(bits(shared), expected));
            }
            blocks
        });
    }
}

fn attention_in<A: Arithmetic>(seed: u64) {
    for width in WIDTHS {
        let (windows, gradient) = (windows(width), Window::below(4, 20));
        let heads = Heads { queries: 4, keys: 2, width };
        let length = 1 + seed as usize % 23;
        let joined = rounded(length * heads.joined_width(), seed, windows.value);
        let by_mixed = rounded(length * heads.queries * width, seed ^ 1, gradient);
        // Behind a sequence of another length, and behind nothing.
        let before = rounded(seed as usize % 7 * heads.joined_width(), seed ^ 2, windows.value);
        let head = Head { heads, key: 1 };
        assert_one_result(width, || {
            let mut mixed = vec![0.0; by_mixed.len()];
            let shares = head.attend::<A>([&before, &joined], &mut mixed, &windows);
            let (mut by_joined, mut tally) = (vec![0.0; joined.len()], Tally::default());
            let mut by_before = vec![0.0; before.len()];
            head.differentiate::<A>(
                &by_mixed,
                [&before, &joined],
                &shares,
                [&mut by_before, &mut by_joined],
                (&windows, gradient),
                &mut tally,
            );
            let counts = vec![tally.rounded, tally.saturated, tally.flushed];
            [bits(&mixed), bits(&shares), bits(&by_before), bits(&by_joined), counts].concat()
        });
        assert_one_result(width, || {
            let mut slots = cache::Slots::<A>::empty(heads, &windows);
            for at in joined.chunks_exact(heads.joined_width()) {
                let (keys, values) = at[heads.queries * width..].split_at(heads.keys * width);
                slots.push(heads, keys, values);
            }
            let queries = &joined[..heads.queries * width];
            let mut mixed = vec![0.0; queries.len()];
            slots.attend(heads, queries, &windows, &mut mixed);
            bits(&mixed)
        });
    }
}

#[test]
fn a_value_that_names_no_instruction_set_is_refused_with_the_names() {
    let error = of_value("sse9".into()).unwrap_err().to_string();
    assert_eq!(error, "DAPO_INSTRUCTIONS is \"sse9\"; it can be scalar, avx2 or avx512");
}

#[test]
fn an_empty_value_is_the_best_of_the_machine_as_none_is() {
    let best = Instructions::of(Arch::new());
    assert_eq!(of_value(OsString::new()).map(Instructions::of), Ok(best));
    assert_eq!(of_value("scalar".into()).map(Instructions::of), Ok(Instructions::Scalar));
}
