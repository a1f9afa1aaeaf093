//! Two checkpoints compared problem by problem. The unit is the problem: another training run is another question.

use crate::statistics::{
    Counts, PermutationTest, StatisticsError, Uncertainty, accuracy, between, correlation, error,
    estimators,
};
use serde::{Deserialize, Serialize};

/// An interval over another draw of problems needs Σ|d_i| to be at least this.
pub const FEWEST_CHANGED_PROBLEMS: f64 = 2.0;

const SAME_CHANGE: &str = "all problems changed by the same amount, which shows no spread";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paired {
    /// d̄: the mean over problems of d_i = p̂_i of b − p̂_i of a, each averaged over runs.
    pub difference: f64,
    /// Sampling again from the same checkpoints, then another draw of problems.
    pub uncertainties: [Uncertainty; 2],
    /// Whether the d_i are centred on 0 over another draw of problems.
    pub sign_flip: PermutationTest,
    /// Correlation of p̂_i of a and b over problems: what pairing gains; `None` where a side has no spread.
    pub correlation: Option<f64>,
    /// d_i, in the order of the problems.
    pub by_problem: Vec<f64>,
}

impl Paired {
    pub fn changes_alike(&self) -> bool {
        self.difference != 0.0 && self.uncertainties[1].standard_error == Some(0.0)
    }
}

/// Compares `a[run][problem]` with `b[run][problem]`; entry i of every run is the same problem.
pub fn paired(a: &[Vec<Counts>], b: &[Vec<Counts>], level: f64) -> Result<Paired, StatisticsError> {
    paired_up_to(a, b, level, between::MOST_SPLITS)
}

pub fn paired_up_to(
    a: &[Vec<Counts>],
    b: &[Vec<Counts>],
    level: f64,
    most_flips: u64,
) -> Result<Paired, StatisticsError> {
    accuracy::check(a)?;
    accuracy::check(b)?;
    if a[0].len() != b[0].len() {
        let (expected, got) = (a[0].len(), b[0].len());
        return Err(StatisticsError::Ragged {
            method: "a paired difference",
            run: 0,
            expected,
            got,
        });
    }
    error::check_level(level)?;
    let (before, after) = (accuracy::problem_means(a), accuracy::problem_means(b));
    let pairs: Vec<(f64, f64)> = before.into_iter().zip(after).collect();
    let by_problem: Vec<f64> = pairs.iter().map(|(a, b)| estimators::difference(*a, *b)).collect();
    let difference = estimators::mean(&by_problem);
    let [first, second] = [a, b].map(accuracy::decoding_error);
    let error = (first * first + second * second).sqrt();
    let these = accuracy::of_decoding((difference, error), level, a.iter().chain(b));
    let others = other_problems(&by_problem, difference, level);
    let (aa, bb, ab) = correlation::centred_sums(&pairs);
    Ok(Paired {
        difference,
        uncertainties: [these, others],
        sign_flip: between::sign_flips_up_to(&by_problem, most_flips)?,
        correlation: (aa > 0.0 && bb > 0.0).then(|| ab / (aa * bb).sqrt()),
        by_problem,
    })
}

/// Withheld where few problems changed, or all alike: how often a rare change occurs cannot be estimated from none or one.
fn other_problems(by_problem: &[f64], difference: f64, level: f64) -> Uncertainty {
    let changed: f64 = by_problem.iter().map(|value| value.abs()).sum();
    let answer = accuracy::other_problems(by_problem, difference, level);
    let answer = answer.withheld_below(FEWEST_CHANGED_PROBLEMS, changed, "changed problems");
    if answer.interval.is_none() || answer.standard_error != Some(0.0) {
        return answer;
    }
    Uncertainty { interval: None, withheld: Some(SAME_CHANGE.to_string()), ..answer }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(correct: [u64; 5]) -> Vec<Vec<Counts>> {
        vec![correct.map(|correct| Counts { correct, samples: 4 }).to_vec()]
    }

    #[test]
    fn a_paired_difference_agrees_with_numpy() {
        let result = paired(&counts([3, 0, 4, 1, 2]), &counts([4, 1, 4, 2, 1]), 0.95).unwrap();
        let errors = result.uncertainties.map(|uncertainty| uncertainty.standard_error.unwrap());
        for (value, expected) in
            [(result.difference, 0.1), (errors[0], 0.12909944487358055), (errors[1], 0.1)]
        {
            assert!((value - expected).abs() < 1e-15, "{value} {expected}");
        }
    }

    #[test]
    fn sums_in_another_order_are_no_difference_and_no_spread() {
        let problem = |correct: [u64; 3]| correct.map(|correct| Counts { correct, samples: 10 });
        let runs = |problems: [[u64; 3]; 3]| -> Vec<Vec<Counts>> {
            (0..3).map(|run| problems.map(|correct| problem(correct)[run]).to_vec()).collect()
        };
        let result = paired(
            &runs([[1, 2, 3], [3, 2, 1], [2, 3, 1]]),
            &runs([[3, 2, 1], [1, 2, 3], [2, 2, 2]]),
            0.95,
        );
        let Paired { by_problem, sign_flip, correlation, .. } = result.unwrap();
        assert_eq!((by_problem, sign_flip.p, correlation), (vec![0.0; 3], 1.0, None));
    }

    #[test]
    fn problems_that_all_changed_alike_show_no_spread() {
        // 0.2 → 0.4 and 0.7 → 0.9 are apart by rounding.
        let side = |correct: [u64; 2]| -> Vec<Vec<Counts>> {
            let counts = |place: usize| Counts { correct: correct[place % 2], samples: 10 };
            vec![(0..12).map(counts).collect()]
        };
        let result = |after| paired(&side([2, 7]), &side(after), 0.95).unwrap();
        let alike = result([4, 9]);
        assert!(alike.changes_alike() && alike.sign_flip.p < 0.001);
        let [these, others] = alike.uncertainties;
        assert!(these.interval.is_some() && others.interval.is_none());
        assert_eq!(others.withheld.as_deref(), Some(SAME_CHANGE));
        assert!(!result([4, 10]).changes_alike() && !result([2, 7]).changes_alike());
    }

    #[test]
    fn few_problems_or_few_changes_say_nothing_of_another_draw_of_problems() {
        let same = |problems: usize| vec![vec![Counts { correct: 2, samples: 4 }; problems]];
        for problems in [8, 10, 400] {
            let result = paired(&same(problems), &same(problems), 0.95).unwrap();
            let [these, others] = result.uncertainties;
            assert!(these.interval.is_some());
            assert!(
                others.interval.is_none() && others.withheld.is_some(),
                "{problems}: {others:?}"
            );
        }
    }
}
