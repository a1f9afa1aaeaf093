//! The probability that executing some rollout steps again catches altered ones.
//!
//! A step is *altered* if its line in the ledger is not what executing it from the state before (a
//! checkpoint or the step before) gives. So a run that continues honestly after an altered step has
//! one. Executed altered steps are always caught, or under `fast` arithmetic elsewhere suspected.

use serde::Serialize;

/// The probability of catching at least one of k altered steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Detection {
    /// k.
    pub altered_steps: u64,
    /// A lower bound over the seeds, for steps that were altered before the challenge's seed was
    /// known. It counts picked steps, not those on the way.
    pub at_least: f64,
    /// Holds for the executed steps, if all sets of k steps are equally likely.
    pub uniform: f64,
}

/// For k = 1, 2, 5 and 10, up to the number of steps.
pub fn detections(steps: u64, picked: u64, covered: u64) -> Vec<Detection> {
    let altered = [1, 2, 5, 10].into_iter().filter(|&k| k <= steps);
    altered
        .map(|altered_steps| Detection {
            altered_steps,
            at_least: 1.0 - missed(steps, picked, altered_steps),
            uniform: 1.0 - missed(steps, covered, altered_steps),
        })
        .collect()
}

/// The probability of catching altered outcomes in one evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AlteredProblems {
    /// k, altered before the challenge's seed was known.
    pub altered_problems: u64,
    /// A lower bound over the seeds.
    pub at_least: f64,
}

/// For k = 1, 5, 20 and 100. `share`: executed evaluations; `evaluations`: problems of each, and
/// how many of them were sampled again.
pub fn altered_problems(share: f64, evaluations: &[(u64, u64)]) -> Vec<AlteredProblems> {
    let largest = evaluations.iter().map(|(problems, _)| *problems).max().unwrap_or(0);
    let caught = |altered: u64| {
        let each = evaluations
            .iter()
            .map(|&(problems, executed)| 1.0 - missed(problems, executed, altered.min(problems)));
        share * each.fold(1.0, f64::min)
    };
    let altered = [1, 5, 20, 100].into_iter().filter(|&altered| altered <= largest);
    altered
        .map(|altered| AlteredProblems { altered_problems: altered, at_least: caught(altered) })
        .collect()
}

/// C(T − n, k) / C(T, k): probability that n of T steps, drawn without replacement, miss k marked ones.
fn missed(steps: u64, drawn: u64, altered: u64) -> f64 {
    let left = steps.saturating_sub(drawn);
    (0..altered).map(|i| left.saturating_sub(i) as f64 / (steps - i) as f64).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chance_is_the_hypergeometric_one_counted_by_hand() {
        // 10 steps, 3 executed. C(7, 2) / C(10, 2) = 21 / 45; C(7, 5) / C(10, 5) = 21 / 252.
        let found = detections(10, 3, 3);
        let expected = [(1, 0.3), (2, 1.0 - 21.0 / 45.0), (5, 1.0 - 21.0 / 252.0), (10, 1.0)];
        for (detection, (k, chance)) in found.iter().zip(expected) {
            assert_eq!(detection.altered_steps, k);
            assert!((detection.uniform - chance).abs() < 1e-12, "{detection:?}");
            assert!((detection.at_least - chance).abs() < 1e-12, "{detection:?}");
        }
        assert_eq!(found.len(), 4);
        // Half of the evaluations; of the larger one 4 of 20 problems: C(16, 5) / C(20, 5).
        let found = altered_problems(0.5, &[(20, 4), (4, 2)]);
        let missed = 16.0 * 15.0 * 14.0 * 13.0 * 12.0 / (20.0 * 19.0 * 18.0 * 17.0 * 16.0);
        let expected = [(1, 0.5 * 0.2), (5, 0.5 * (1.0 - missed)), (20, 0.5)];
        assert_eq!(found.len(), expected.len());
        for (found, (k, chance)) in found.iter().zip(expected) {
            assert_eq!(found.altered_problems, k);
            assert!((found.at_least - chance).abs() < 1e-12, "{found:?}");
        }
        assert_eq!(detections(2, 1, 2).len(), 2);
        assert_eq!(detections(2, 1, 2)[0].uniform, 1.0);
    }
}
