//! Counts of one problem's outcomes, and the statistics that need no more than counts.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// c: correct ones, at most `samples`.
    pub correct: u64,
    /// k, at least 1.
    pub samples: u64,
}

impl Counts {
    /// p̂ = c/k.
    pub fn accuracy(&self) -> f64 {
        self.correct as f64 / self.samples as f64
    }

    /// Unbiased pass@k: the chance that at least one of `k` of the samples, drawn without replacement, is correct: 1 −
    /// Π_{i=N−c+1}^{N} (1 − k/i), and 1 where N − c < k. Panics when `k` is 0 or above the number of samples.
    pub fn pass_at_k(&self, k: u64) -> f64 {
        let Self { correct, samples } = *self;
        assert!(k > 0, "pass@k needs k > 0");
        assert!(k <= samples, "pass@{k} needs {k} samples of each problem, got {samples}");
        if samples - correct < k {
            return 1.0;
        }
        let none: f64 =
            (samples - correct + 1..=samples).map(|i| 1.0 - k as f64 / i as f64).product();
        1.0 - none
    }

    pub fn minority(&self) -> u64 {
        self.correct.min(self.samples - self.correct)
    }
}

/// Decoding noise of avg@k, for this checkpoint on these problems: SE² = (1/n²) Σᵢ p̂ᵢ(1−p̂ᵢ)/(kᵢ−1). A problem with
/// one sample shows no spread of its own; it counts with μ̂(1−μ̂), which is at least the mean of p(1−p) over problems,
/// so the result errs upwards.
pub fn standard_error_fixed_problems(problems: &[Counts]) -> f64 {
    let accuracies = problems.iter().map(Counts::accuracy);
    let overall = accuracies.sum::<f64>() / problems.len() as f64;
    let variance: f64 = problems
        .iter()
        .map(|counts| match (counts.samples, counts.accuracy()) {
            (1, _) => overall * (1.0 - overall),
            (k, p) => p * (1.0 - p) / (k - 1) as f64,
        })
        .sum();
    variance.max(0.0).sqrt() / problems.len() as f64
}
