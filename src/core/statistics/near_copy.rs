//! Whether two runs share outcomes as only copies do.

/// A lower bound, in nats, for how surprising the agreement of two runs of different seeds is: in
/// independent runs the chance of so much agreement is at most exp of minus it.
///
/// `one` and `other` hold `samples` outcomes of each problem, in the same order. The samples of a
/// problem are exchangeable, so that of its c and d correct ones those at the same places are
/// hypergeometric, whatever the problem's accuracy is. Hoeffding (1963, §6) bounds the moments of
/// their number H by those of c trials with chance d / k, and for every t > 0
///
/// ```text
/// ln P(ΣH ≥ h) ≤ Σ c ln(1 + d/k (eᵗ − 1)) − t h
/// ```
///
/// Problems that one of the two solved in every sample, or in none, carry no information.
///
/// # Panics
/// When the lists differ in length.
pub fn surprise(one: &[bool], other: &[bool], samples: usize) -> f64 {
    assert_eq!(one.len(), other.len(), "outcomes of the same problems and samples");
    let k = samples.max(1);
    // (c, d) of a problem → how many have them.
    let mut problems = std::collections::BTreeMap::<(u32, u32), f64>::new();
    let mut hits = 0.0;
    for (one, other) in one.chunks(k).zip(other.chunks(k)) {
        let (mut c, mut d, mut both) = (0, 0, 0);
        for (a, b) in one.iter().zip(other) {
            c += u32::from(*a);
            d += u32::from(*b);
            both += u32::from(*a && *b);
        }
        if [c, d].iter().all(|count| (1..k as u32).contains(count)) {
            *problems.entry((c, d)).or_default() += 1.0;
            hits += f64::from(both);
        }
    }
    let bound = |t: f64| {
        let grown = libm::expm1(t);
        let moments = problems.iter().map(|((c, d), count)| {
            count * f64::from(*c) * libm::log1p(f64::from(*d) / k as f64 * grown)
        });
        t * hits - moments.sum::<f64>()
    };
    (1..=32).map(|step| bound(f64::from(step) / 4.0)).fold(0.0, f64::max)
}

/// The pairs of different seeds whose agreement has at least this much surprise. Each cell is its seed
/// and its outcomes.
pub fn pairs(cells: &[(u64, &[bool])], samples: usize, least: f64) -> Vec<(usize, usize)> {
    let packed: Vec<Packed> =
        cells.iter().map(|(_, outcomes)| Packed::of(outcomes, samples)).collect();
    let mut pairs = Vec::new();
    for (other, (seed, outcomes)) in cells.iter().enumerate() {
        for (one, (own, before)) in cells[..other].iter().enumerate() {
            let may_be = seed != own && packed[one].agrees(&packed[other]);
            if may_be && surprise(before, outcomes, samples) >= least {
                pairs.push((one, other));
            }
        }
    }
    pairs
}

/// 64 outcomes a word, and which of them are of problems that were solved in some samples.
struct Packed(Vec<(u64, u64)>);

impl Packed {
    fn of(outcomes: &[bool], samples: usize) -> Self {
        let problems = outcomes.chunks(samples.max(1));
        let is_mixed = |problem: &[bool]| problem.contains(&true) && problem.contains(&false);
        let mixed: Vec<bool> = problems
            .flat_map(|problem| std::iter::repeat_n(is_mixed(problem), problem.len()))
            .collect();
        let word = |bits: &[bool]| bits.iter().fold(0, |word, bit| word << 1 | u64::from(*bit));
        Self(outcomes.chunks(64).map(word).zip(mixed.chunks(64).map(word)).collect())
    }

    /// Whether three of four outcomes agree where both solved a problem in some samples: a sieve, for
    /// there are many pairs.
    fn agrees(&self, other: &Self) -> bool {
        let (mut differ, mut all) = (0, 0);
        for ((one, one_mixed), (other, other_mixed)) in self.0.iter().zip(&other.0) {
            let mixed = one_mixed & other_mixed;
            differ += ((one ^ other) & mixed).count_ones();
            all += mixed.count_ones();
        }
        4 * differ <= all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Purpose;
    use crate::base::rng::{Id, stream};

    fn run(seed: u64, problems: usize, samples: usize) -> Vec<bool> {
        let mut draws = stream(seed, Purpose::Generate, &[Id::from("run")]);
        let accuracy = |problem: usize| (problem % 11) as f64 / 10.0;
        let each =
            (0..problems).flat_map(|problem| std::iter::repeat_n(accuracy(problem), samples));
        each.map(|accuracy| draws.uniform() < accuracy).collect()
    }

    #[test]
    fn a_copy_with_a_tenth_of_its_outcomes_flipped_is_far_from_any_independent_pair() {
        let runs: Vec<Vec<bool>> = (0..40).map(|seed| run(seed, 220, 4)).collect();
        let pairs =
            runs.iter().enumerate().flat_map(|(i, a)| runs[..i].iter().map(move |b| (a, b)));
        let highest = pairs.map(|(a, b)| surprise(a, b, 4)).fold(0.0, f64::max);
        // 780 pairs: e^-10 is the order of the smallest chance among them.
        assert!(highest < 10.0, "{highest}");
        let mut copy = runs[0].clone();
        copy[37] ^= true;
        assert!(surprise(&runs[0], &copy, 4) > 100.0);
        copy.iter_mut().step_by(10).for_each(|outcome| *outcome ^= true);
        assert!(surprise(&runs[0], &copy, 4) > 45.0, "{}", surprise(&runs[0], &copy, 4));
    }

    #[test]
    fn outcomes_without_information_surprise_nobody() {
        assert_eq!(surprise(&[true; 400], &[true; 400], 4), 0.0);
        assert_eq!(surprise(&[false; 400], &[true; 400], 4), 0.0);
        assert_eq!(surprise(&[], &[], 4), 0.0);
    }
}
