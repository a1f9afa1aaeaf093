//! Statistics of an evaluation: problems i = 1…n, samples j = 1…kᵢ, xᵢⱼ ∈ {0, 1}, p̂ᵢ = mean of xᵢⱼ over j. The problem
//! is the unit that repeats; √(μ̂(1−μ̂)/nk), which treats all samples as independent, is never used.

use crate::statistics::{Counts, StatisticsError, outcomes};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Eq. 7's verdict.
    pub is_correct: bool,
    /// The normalised answer that the verifier read; `None` when it found none.
    pub prediction: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EstimateSummary {
    /// n.
    pub problems: u64,
    /// k: the fewest samples of any problem.
    pub samples: u64,
    pub avg_at_k: f64,
    pub standard_error_fixed_problems: f64,
    pub standard_error_new_problems: f64,
    /// [`pass_at_k`] for 1, 2, 4, … below `samples`, and for `samples`.
    pub pass_at_k: BTreeMap<u64, f64>,
    /// [`cons_at_k`] over the first `samples` responses of each problem.
    pub cons_at_k: f64,
}

pub fn summary(problems: &[Vec<Sample>]) -> Result<EstimateSummary, StatisticsError> {
    if problems.is_empty() {
        return Err(StatisticsError::NoProblems);
    }
    if let Some(index) = problems.iter().position(Vec::is_empty) {
        return Err(StatisticsError::NoSamples { index });
    }
    let counts: Vec<Counts> = problems.iter().map(|samples| Counts::of(samples)).collect();
    let samples = problems.iter().map(Vec::len).min().unwrap_or(0);
    let passes = doubling(samples as u64).map(|k| (k, pass_at_k(&counts, k)));
    Ok(EstimateSummary {
        problems: problems.len() as u64,
        samples: samples as u64,
        avg_at_k: avg_at_k(&counts),
        standard_error_fixed_problems: outcomes::standard_error_fixed_problems(&counts),
        standard_error_new_problems: standard_error_new_problems(&counts),
        pass_at_k: passes.collect(),
        cons_at_k: cons_at_k(problems, samples),
    })
}

/// 1, 2, 4, … below `samples`, and `samples`.
pub fn doubling(samples: u64) -> impl Iterator<Item = u64> {
    let doubles = std::iter::successors(Some(1), |k| Some(k * 2));
    doubles.take_while(move |k| *k < samples).chain([samples])
}

impl Counts {
    pub fn of(samples: &[Sample]) -> Self {
        let correct = samples.iter().filter(|sample| sample.is_correct).count();
        Self { correct: correct as u64, samples: samples.len() as u64 }
    }
}

/// avg@k: μ̂ = (1/n) Σᵢ p̂ᵢ. Every problem has the same weight, whatever its kᵢ. This function and those below panic
/// when there is no problem.
pub fn avg_at_k(problems: &[Counts]) -> f64 {
    mean(&accuracies(problems))
}

/// Noise of avg@k for this checkpoint when the problems are a draw too (clustered by problem, Miller 2024): SE² = Σᵢ
/// (p̂ᵢ−μ̂)² / (n(n−1)). With equal kᵢ this is the clustered estimator n/(n−1) · (nk)⁻² Σᵢ (Σⱼ (xᵢⱼ−μ̂))². One problem
/// has ½, the largest standard deviation of a quantity in [0, 1].
pub fn standard_error_new_problems(problems: &[Counts]) -> f64 {
    if problems.len() == 1 { 0.5 } else { standard_error_of_mean(&accuracies(problems)) }
}

/// [`Counts::pass_at_k`], averaged over problems.
pub fn pass_at_k(problems: &[Counts], k: u64) -> f64 {
    mean(&problems.iter().map(|counts| counts.pass_at_k(k)).collect::<Vec<f64>>())
}

pub fn accuracies(problems: &[Counts]) -> Vec<f64> {
    problems.iter().map(Counts::accuracy).collect()
}

/// cons@k: share of problems whose most frequent prediction among the first k responses is correct. Responses without
/// an answer do not vote; the first among tied predictions wins; a problem without a vote counts as wrong.
pub fn cons_at_k(problems: &[Vec<Sample>], k: usize) -> f64 {
    let verdicts: Vec<f64> = problems
        .iter()
        .map(|samples| f64::from(consensus_is_correct(&samples[..k.min(samples.len())])))
        .collect();
    mean(&verdicts)
}

fn consensus_is_correct(samples: &[Sample]) -> bool {
    // prediction → (votes, position of the first vote)
    let mut votes: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (index, sample) in samples.iter().enumerate() {
        if let Some(prediction) = &sample.prediction {
            votes.entry(prediction).or_insert((0, index)).0 += 1;
        }
    }
    let winner = votes.into_values().max_by_key(|(count, first)| (*count, usize::MAX - first));
    winner.is_some_and(|(_, first)| samples[first].is_correct)
}

/// Half the width of the 95 % interval for [`outcomes::standard_error_fixed_problems`]: 1.96 · SE.
pub fn half_width_fixed_problems(standard_error: f64) -> f64 {
    1.96 * standard_error
}

pub fn mean(values: &[f64]) -> f64 {
    assert!(!values.is_empty(), "{}", StatisticsError::NoProblems);
    values.iter().sum::<f64>() / values.len() as f64
}

pub fn standard_error_of_mean(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    (squares_around(values, mean(values)) / (n * (n - 1.0))).sqrt()
}

pub(crate) fn squares_around(values: &[f64], centre: f64) -> f64 {
    values.iter().map(|value| difference(centre, *value)).map(|away| away * away).sum()
}

/// b − a. It is 0 where rounding alone tells them apart: sums of the same numbers in another order are rounded otherwise.
pub fn difference(a: f64, b: f64) -> f64 {
    beyond_rounding(b - a, a.abs().max(b.abs()))
}

pub fn difference_of_means(a: &[f64], b: &[f64]) -> f64 {
    let size = a.iter().chain(b).fold(0.0, |size: f64, value| size.max(value.abs()));
    beyond_rounding(mean(b) - mean(a), size)
}

pub fn reaches(value: f64, least: f64) -> bool {
    difference(least, value) >= 0.0
}

/// A difference of numbers of this size, or 0 where it is no more than their rounding.
pub fn beyond_rounding(difference: f64, size: f64) -> f64 {
    if difference.abs() < 1e-12 * size { 0.0 } else { difference }
}

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;
