//! How likely altered rollout steps are to be caught by executing some of them again.
//!
//! A step is *altered* when its line in the ledger is not what executing it from the state before
//! gives. The state before is a checkpoint or the step before, so a run that goes on honestly
//! after an altered step has one altered step. Each altered step that is executed again is caught
//! (under `fast` arithmetic on another kind of machine it can only be suspected).

use serde::Serialize;

/// The chance of catching at least one of k altered steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Detection {
    /// k.
    pub altered_steps: u64,
    /// Whichever k steps were altered, before the seed of the challenge was known: at least this,
    /// over the seeds. Counts only the steps that the seed picks, not those passed on the way.
    pub at_least: f64,
    /// With the steps that were executed here, when every k of the run's steps are equally likely
    /// to be the altered ones.
    pub uniform: f64,
}

/// For k = 1, 2, 5 and 10, as far as the run has so many steps.
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

/// C(T − n, k) / C(T, k): none of k marked steps among n drawn of T without replacement.
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
        assert_eq!(detections(2, 1, 2).len(), 2);
        assert_eq!(detections(2, 1, 2)[0].uniform, 1.0);
    }
}
