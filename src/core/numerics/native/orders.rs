//! Checks by trial that sums are exact. While the check is on, every product and every sum is
//! computed again with its terms reversed and shuffled, and must have the same bits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static CHECKED: AtomicBool = AtomicBool::new(false);
static COMPARED: AtomicU64 = AtomicU64::new(0);

/// Turns the check on or off, in the whole process. Returns how many sums were compared so far.
pub fn check(on: bool) -> u64 {
    CHECKED.store(on, Ordering::Relaxed);
    COMPARED.load(Ordering::Relaxed)
}

pub(super) fn checked() -> bool {
    CHECKED.load(Ordering::Relaxed)
}

/// Compares sums of so many terms with those that `again` makes in other orders.
pub(super) fn compare_others(terms: usize, sums: &[f64], again: impl Fn(&[usize]) -> Vec<f64>) {
    for order in others(terms) {
        compare(sums, &again(&order));
    }
}

fn others(terms: usize) -> [Vec<usize>; 2] {
    let reverse: Vec<usize> = (0..terms).rev().collect();
    let mut shuffled = reverse.clone();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for last in (1..terms).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        shuffled.swap(last, (state >> 33) as usize % (last + 1));
    }
    [reverse, shuffled]
}

/// Compares sums bit by bit. Panics when one differs: a sum was not exact.
fn compare(straight: &[f64], reordered: &[f64]) {
    assert_eq!(straight.len(), reordered.len());
    for (at, (a, b)) in straight.iter().zip(reordered).enumerate() {
        // The sign of a sum that is 0 does not count.
        let same = a.to_bits() == b.to_bits() || (*a == 0.0 && *b == 0.0);
        assert!(same, "sum {at} is {a:e} in one order and {b:e} in another");
    }
    COMPARED.fetch_add(straight.len() as u64, Ordering::Relaxed);
}
