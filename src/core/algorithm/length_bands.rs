//! The order in which the released code cuts a rollout step into mini-batches (`mini_batch_order = "length-bands"`).
//! The rows are sorted by work and read as "evens up, odds down". A mini-batch sees one band of lengths.
// Deviation: the released code first deals the rows to its ranks, each with the same work; here is one rank.

/// Estimated work of one row: `24576·n + n²`, the released code's calibration on a 7 B model
/// with hidden size 4096 (verl/utils/seqlen_balancing.py).
pub fn workload(length: u64) -> u64 {
    24_576 * length + length * length
}

/// Indices of `lengths` in the released code's order with one rank (verl/trainer/ppo/ray_trainer.py:1149-1159).
pub fn length_bands(lengths: &[u64]) -> Vec<usize> {
    let work: Vec<u64> = lengths.iter().map(|length| workload(*length)).collect();
    band_order((0..work.len()).collect(), &work)
}

/// One rank's rows: ascending work for every second row, then the others descending.
pub fn band_order(mut partition: Vec<usize>, work: &[u64]) -> Vec<usize> {
    partition.sort_by_key(|index| (work[*index], *index));
    let evens = partition.iter().step_by(2);
    let odds = partition.iter().skip(1).step_by(2).rev();
    evens.chain(odds).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::prop_assert_eq;
    use proptest::proptest;

    #[test]
    fn the_order_goes_up_the_evens_and_down_the_odds() {
        assert_eq!(length_bands(&[50, 10, 40, 20, 30]), [1, 4, 0, 2, 3]);
        assert_eq!(length_bands(&[7, 7, 7, 7]), [0, 2, 3, 1]);
        assert!(length_bands(&[]).is_empty());
    }

    proptest! {
        #[test]
        fn every_row_stands_once(lengths in proptest::collection::vec(0u64..5000, 24)) {
            let mut order = length_bands(&lengths);
            order.sort_unstable();
            prop_assert_eq!(order, (0..24).collect::<Vec<_>>());
        }
    }
}
