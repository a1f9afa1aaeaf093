//! Work that runs again with fewer rows when memory does not hold it. A panic for another reason goes on.

use crate::base::contained;
use crate::numerics::NumericsError;

/// Does `work` on each part, in order, and hands what comes of it to `take`. A part for which
/// memory does not suffice is cut into two. Returns how often that happened.
pub fn each<T: Clone, R, E: From<NumericsError>>(
    parts: Vec<Vec<T>>,
    mut work: impl FnMut(&[T]) -> Result<R, E>,
    mut take: impl FnMut(&[T], R),
) -> Result<u64, E> {
    let mut waiting: Vec<Vec<T>> = parts.into_iter().rev().collect();
    let mut halved = 0;
    while let Some(part) = waiting.pop() {
        match attempt(part.len() > 1, "a pass; it is made again in halves", || work(&part))? {
            Some(result) => take(&part, result),
            None => {
                halved += 1;
                waiting.extend(halves(&part).rev());
            }
        }
    }
    Ok(halved)
}

/// Does `work` on all parts at once, for work whose result is one for all parts. When memory does not suffice,
/// it runs again with every part cut into two. Returns the result and how many parts were cut.
pub fn together<T: Clone, R, E: From<NumericsError>>(
    mut parts: Vec<Vec<T>>,
    mut work: impl FnMut(&[Vec<T>]) -> Result<R, E>,
) -> Result<(R, u64), E> {
    let mut halved = 0;
    loop {
        let can_halve = parts.iter().any(|part| part.len() > 1);
        let instead = "a pass; all are made again in halves";
        if let Some(result) = attempt(can_halve, instead, || work(&parts))? {
            return Ok((result, halved));
        }
        let before = parts.len();
        parts = parts.iter().flat_map(|part| halves(part)).collect();
        halved += (parts.len() - before) as u64;
    }
}

/// Does `work` with at most so many rows at a time; with half as many when memory does not suffice.
pub fn fewer<R, E: From<NumericsError>>(
    mut rows: usize,
    mut work: impl FnMut(usize) -> Result<R, E>,
) -> Result<R, E> {
    loop {
        let instead = "a generation; it is made again with half as many rows at a time";
        if let Some(result) = attempt(rows > 1, instead, || work(rows))? {
            return Ok(result);
        }
        rows /= 2;
    }
}

/// What LibTorch's allocators say, that of CUDA and that of the processor.
const OUT_OF_MEMORY: [&str; 3] = [
    "CUDA out of memory",
    "DefaultCPUAllocator: can't allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
];

/// What `work` makes; `None` when memory does not hold it and there is less to be done `instead`.
fn attempt<R, E: From<NumericsError>>(
    can_halve: bool,
    instead: &str,
    work: impl FnOnce() -> Result<R, E>,
) -> Result<Option<R>, E> {
    match contained::caught(work) {
        Ok(result) => result.map(Some),
        Err(text) if !OUT_OF_MEMORY.iter().any(|known| text.contains(known)) => panic!("{text}"),
        Err(text) if !can_halve => {
            Err(NumericsError::OutOfMemory(first_line(&text).to_string()).into())
        }
        Err(text) => {
            let reason = first_line(&text);
            tracing::warn!(reason, "memory does not hold {instead}");
            Ok(None)
        }
    }
}

fn first_line(text: &str) -> &str {
    text.split("\\n").flat_map(str::lines).next().unwrap_or_default()
}

fn halves<T: Clone>(part: &[T]) -> impl DoubleEndedIterator<Item = Vec<T>> {
    let (first, second) = part.split_at(part.len() / 2);
    [first, second].into_iter().filter(|half| !half.is_empty()).map(<[T]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::{Device, Kind, Tensor};

    /// Asks LibTorch for more than any machine has when there are more than `most` rows.
    fn greedy(rows: &[u32], most: usize) -> Result<u32, NumericsError> {
        if rows.len() > most {
            let _ = Tensor::empty([1 << 46], (Kind::Float, Device::Cpu));
        }
        if rows.contains(&99) { Err(NumericsError::HeadNorms) } else { Ok(rows.iter().sum()) }
    }

    #[test]
    fn a_part_that_does_not_fit_is_done_in_halves_and_in_order() {
        let mut seen = Vec::new();
        let parts = vec![vec![1, 2, 3, 4, 5], vec![6, 7]];
        let halved =
            each(parts, |rows| greedy(rows, 2), |rows, sum| seen.push((rows.to_vec(), sum)));
        assert_eq!(halved, Ok(2));
        assert_eq!(seen, [(vec![1, 2], 3), (vec![3], 3), (vec![4, 5], 9), (vec![6, 7], 13),]);
    }

    #[test]
    fn all_parts_are_cut_when_one_does_not_fit() {
        let mut tries = Vec::new();
        let parts = vec![vec![1], vec![2, 3, 4, 5, 6]];
        let work = |parts: &[Vec<u32>]| {
            tries.push(parts.len());
            parts.iter().map(|rows| greedy(rows, 2)).sum::<Result<u32, NumericsError>>()
        };
        assert_eq!(together(parts, work), Ok((21, 3)));
        assert_eq!(tries, [2, 3, 5]);
        let failed = together(vec![vec![1, 2]], |parts| greedy(&parts[0], 0));
        assert!(matches!(failed, Err(NumericsError::OutOfMemory(_))), "{failed:?}");
        let failed = together(vec![vec![99]], |parts| greedy(&parts[0], 2));
        assert_eq!(failed, Err(NumericsError::HeadNorms));
    }

    #[test]
    fn a_generation_has_half_as_many_rows_until_it_fits() {
        let work = |rows: usize| greedy(&vec![1; rows], 3);
        assert_eq!(fewer(20, work), Ok(2));
        assert_eq!(fewer(3, work), Ok(3));
        assert!(matches!(
            fewer(9, |rows| greedy(&vec![1; rows], 0)),
            Err(NumericsError::OutOfMemory(_))
        ));
    }

    #[test]
    fn one_row_that_does_not_fit_is_an_error_and_so_is_what_the_work_says() {
        let failed = each(vec![vec![1, 2]], |rows| greedy(rows, 0), |_, _| ());
        let Err(NumericsError::OutOfMemory(text)) = failed else { panic!("{failed:?}") };
        assert!(text.contains("allocate memory") && !text.contains("frame #"), "{text}");
        let failed = each(vec![vec![99]], |rows| greedy(rows, 2), |_, _| ());
        assert_eq!(failed, Err(NumericsError::HeadNorms));
    }

    #[test]
    #[should_panic(expected = "something else")]
    fn another_panic_goes_on() {
        let work = |_: &[u32]| -> Result<(), NumericsError> { panic!("something else") };
        let _ = each(vec![vec![1, 2]], work, |_, ()| ());
    }
}
