use super::*;
use crate::numerics::fast;
use proptest::{prelude::prop_assert, proptest};
use tch::{Kind, Tensor};

/// Numbers between −1 and 1 without a pattern.
fn noise(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 7919 + seed * 104_729) as f64 * 0.618).sin() as f32).collect()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor.flatten(0, -1)).unwrap()
}

fn assert_close(ours: &[f32], theirs: &[f32], tolerance: f32) {
    assert_eq!(ours.len(), theirs.len());
    let most = theirs.iter().fold(0f32, |most, x| most.max(x.abs()));
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert!((ours - theirs).abs() <= tolerance * most, "{ours} {theirs}, largest {most}");
    }
}

proptest! {
    #[test]
    fn exp_is_libms_within_two_units_in_the_last_place(x in -87.3f32..88.0) {
        let exact = libm::exp(f64::from(x));
        let unit = f64::from(f32::EPSILON) * exact;
        prop_assert!((f64::from(exp(x)) - exact).abs() <= 2.0 * unit, "{x}: {} {exact}", exp(x));
    }
}

#[test]
fn exp_at_its_ends() {
    assert_eq!(exp(0.0), 1.0);
    assert_eq!(exp(89.0), f32::INFINITY);
    assert_eq!(exp(f32::INFINITY), f32::INFINITY);
    assert!(exp(f32::NEG_INFINITY) < 1.3e-38 && exp(-200.0) < 1.3e-38);
    assert!(exp(f32::NAN).is_nan());
}

#[test]
fn norm_and_swiglu_are_those_of_tensors_for_widths_that_are_no_whole_blocks() {
    for width in [1, 16, 20, 128] {
        let x = noise(3 * 2 * width, width);
        let rows = Tensor::from_slice(&x).view([3, 2 * width as i64]);
        let mut ours = Vec::new();
        rms_norm(&x, 2 * width, 1e-6, &mut ours);
        assert_close(&ours, &numbers(&fast::rms_norm(&rows, 1e-6)), 1e-6);
        swiglu(&x, width, &mut ours);
        let halves = rows.chunk(2, 1);
        assert_close(&ours, &numbers(&fast::swiglu(&halves[0], &halves[1])), 1e-6);
    }
}

/// One decode step of rows that have `lengths` slots already: what [`attend`] mixes, and what
/// tensors do with a mask.
fn both(heads: Heads, lengths: &[usize]) -> (Vec<f32>, Vec<f32>) {
    let (key_width, rows) = (heads.keys * heads.width, lengths.len());
    let longest = lengths.iter().max().unwrap() + 1;
    let (mut all, mut slots) = ([Vec::new(), Vec::new()], Vec::new());
    let mut mask = vec![f32::NEG_INFINITY; rows * longest];
    let joined = noise(rows * heads.joined_width(), 1);
    let angles = noise(rows * heads.width / 2, 2);
    let rotation: Vec<f32> = angles.iter().flat_map(|angle| [angle.cos(), angle.sin()]).collect();
    let tensor = Tensor::from_slice(&joined).view([rows as i64, -1, heads.width as i64]);
    let turns = Tensor::from_slice(&rotation).view([rows as i64, 1, heads.width as i64 / 2, 2]);
    let (queries, keys) = (heads.queries as i64, heads.keys as i64);
    let parts = tensor.split_with_sizes([queries + keys, keys], 1);
    let turned = fast::rotary(&parts[0].contiguous(), &turns.view_as_complex());
    let turned = turned.split_with_sizes([queries, keys], 1);
    let new = [numbers(&turned[1]), numbers(&parts[1])];
    for (row, &length) in lengths.iter().enumerate() {
        let old = [noise(length * key_width, row + 3), noise(length * key_width, row + 90)];
        let mut own = Slots::default();
        for at in 0..length {
            let at = at * key_width..(at + 1) * key_width;
            own.push(heads, &old[0][at.clone()], &old[1][at]);
        }
        slots.push(own);
        mask[row * longest..][..=length].fill(0.0);
        for (all, (old, new)) in all.iter_mut().zip(old.iter().zip(&new)) {
            all.extend(old);
            all.extend(&new[row * key_width..(row + 1) * key_width]);
            all.resize((row + 1) * longest * key_width, 0.0);
        }
    }
    let mut mixed = Vec::new();
    attend(heads, &mut joined.clone(), &rotation, slots.iter_mut(), &mut mixed);
    let shape = [rows as i64, longest as i64, keys, heads.width as i64];
    let [all_keys, all_values] = all.map(|all| Tensor::from_slice(&all).view(shape));
    let mask = Tensor::from_slice(&mask).view([rows as i64, 1, 1, longest as i64]);
    let queries = turned[0].contiguous();
    let theirs = fast::cached_attention(&queries, &all_keys, &all_values, &mask);
    (mixed, numbers(&theirs.to_kind(Kind::Float)))
}

#[test]
fn attention_is_that_of_tensors_for_rows_of_all_lengths_and_grouped_heads() {
    for (queries, keys) in [(4, 2), (6, 1), (4, 4)] {
        for width in [4, 20, 32, 64] {
            let heads = Heads { queries, keys, width };
            let (ours, theirs) = both(heads, &[0, 1, 14, 15, 16, 17, 31, 32, 70]);
            assert_close(&ours, &theirs, 1e-6);
        }
    }
}

#[test]
fn a_row_gets_the_same_bits_alone_and_in_company() {
    let heads = Heads { queries: 4, keys: 2, width: 32 };
    let (together, _) = both(heads, &[5, 33, 60]);
    let (alone, _) = both(heads, &[5]);
    assert_eq!(together[..alone.len()], alone);
}

#[test]
fn what_is_not_finite_comes_out_as_what_is_not_finite() {
    let heads = Heads { queries: 2, keys: 1, width: 4 };
    for bad in [f32::NAN, f32::INFINITY] {
        let mut joined = vec![1.0; heads.joined_width()];
        joined[0] = bad;
        let (mut slots, mut mixed) = ([Slots::default()], Vec::new());
        attend(heads, &mut joined, &[1.0, 0.0, 1.0, 0.0], slots.iter_mut(), &mut mixed);
        assert!(mixed[..4].iter().all(|x| x.is_nan()), "{mixed:?}");
        assert!(mixed[4..].iter().all(|x| x.is_finite()), "{mixed:?}");
        let mut normed = Vec::new();
        rms_norm(&[1.0, bad], 2, 1e-6, &mut normed);
        assert!(normed.iter().any(|x| x.is_nan()), "{normed:?}");
    }
}
