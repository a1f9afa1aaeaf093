//! The order in which the released code cuts a rollout step into mini-batches (`mini_batch_order = "length-bands"`).
//! Rows are dealt to ranks so that each has the same work (largest differencing method of Karmarkar and Karp), then
//! each rank's rows are sorted by work and read as "evens up, odds down". A mini-batch sees one band of lengths.

use std::collections::BinaryHeap;

/// Estimated work of one row: `24576·n + n²`, the released code's calibration on a 7 B model
/// with hidden size 4096 (verl/utils/seqlen_balancing.py).
pub fn workload(length: u64) -> u64 {
    24_576 * length + length * length
}

/// Indices of `lengths` in the released code's order for this number of ranks: rank 0's rows, then rank 1's
/// (verl/trainer/ppo/ray_trainer.py:1149-1159). With one rank it is the order of the whole batch. Panics when `ranks`
/// is 0 or does not divide the number of rows.
pub fn length_bands(lengths: &[u64], ranks: usize) -> Vec<usize> {
    let work: Vec<u64> = lengths.iter().map(|length| workload(*length)).collect();
    balanced_partitions(&work, ranks)
        .into_iter()
        .flat_map(|partition| band_order(partition, &work))
        .collect()
}

/// One rank's rows: ascending work for every second row, then the others descending.
pub fn band_order(mut partition: Vec<usize>, work: &[u64]) -> Vec<usize> {
    partition.sort_by_key(|index| (work[*index], *index));
    let evens = partition.iter().step_by(2);
    let odds = partition.iter().skip(1).step_by(2).rev();
    evens.chain(odds).copied().collect()
}

/// Splits rows into `parts` of equal size and nearly equal work, each part's indices ascending
/// (verl/utils/seqlen_balancing.py, `equal_size`). Panics when `parts` is 0 or does not divide the number of rows.
pub fn balanced_partitions(work: &[u64], parts: usize) -> Vec<Vec<usize>> {
    assert!(parts > 0 && work.len().is_multiple_of(parts), "{parts} parts of {} rows", work.len());
    let mut by_work: Vec<usize> = (0..work.len()).collect();
    by_work.sort_by_key(|index| (work[*index], *index));
    let part =
        |row: &usize| BandPart { work: work[*row], count: 1, rows: vec![(*row, work[*row])] };
    let mut states: BinaryHeap<BandState> =
        by_work.chunks(parts).map(|rows| BandState::new(rows.iter().map(part).collect())).collect();
    let Some(mut whole) = states.pop() else { return vec![Vec::new(); parts] };
    while let Some(next) = states.pop() {
        states.push(whole.merge(next));
        whole = states.pop().expect("a state was just pushed");
    }
    let sorted = |mut part: BandPart| {
        part.rows.sort_unstable();
        part.rows.into_iter().map(|(row, _)| row).collect()
    };
    whole.parts.into_iter().map(sorted).collect()
}

/// Rows of one part so far. Ordered by work, then number of rows, then the rows themselves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct BandPart {
    work: u64,
    count: usize,
    rows: Vec<(usize, u64)>,
}

/// A partial solution: its parts, the most loaded first. The state whose parts differ most comes first out of the heap;
/// among equals the one with the largest first part. No two states are equal: they share no row.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BandState {
    spread: u64,
    parts: Vec<BandPart>,
}

impl BandState {
    fn new(mut parts: Vec<BandPart>) -> Self {
        parts.sort_by(|left, right| right.cmp(left));
        Self { spread: parts[0].work - parts[parts.len() - 1].work, parts }
    }

    /// Joins the most loaded part of one state with the least loaded of the other.
    fn merge(self, other: BandState) -> Self {
        let joined = self.parts.into_iter().zip(other.parts.into_iter().rev());
        Self::new(
            joined
                .map(|(mut left, right)| {
                    left.work += right.work;
                    left.count += right.count;
                    left.rows.extend(right.rows);
                    left
                })
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq};
    use proptest::proptest;

    #[test]
    fn two_ranks_get_the_released_codes_rows() {
        let lengths = [480, 297, 410, 122, 391, 47, 126, 459];
        assert_eq!(length_bands(&lengths, 2), [5, 4, 7, 1, 3, 2, 0, 6]);
    }

    #[test]
    fn one_rank_goes_up_the_evens_and_down_the_odds() {
        assert_eq!(length_bands(&[50, 10, 40, 20, 30], 1), [1, 4, 0, 2, 3]);
        assert_eq!(length_bands(&[7, 7, 7, 7], 1), [0, 2, 3, 1]);
        assert!(length_bands(&[], 3).is_empty());
    }

    #[test]
    #[should_panic(expected = "2 parts of 3 rows")]
    fn rows_that_do_not_divide_are_refused() {
        length_bands(&[1, 2, 3], 2);
    }

    proptest! {
        #[test]
        fn every_row_stands_once_and_ranks_are_balanced(
            lengths in proptest::collection::vec(0u64..5000, 24), ranks in proptest::sample::select(vec![1usize, 2, 3, 4, 8]),
        ) {
            let mut order = length_bands(&lengths, ranks);
            order.sort_unstable();
            prop_assert_eq!(order, (0..24).collect::<Vec<_>>());
            let work: Vec<u64> = lengths.iter().map(|length| workload(*length)).collect();
            let loads: Vec<u64> = balanced_partitions(&work, ranks)
                .iter()
                .map(|part| part.iter().map(|row| work[*row]).sum())
                .collect();
            let spread = loads.iter().max().unwrap() - loads.iter().min().unwrap();
            prop_assert!(spread <= *work.iter().max().unwrap());
        }
    }
}
