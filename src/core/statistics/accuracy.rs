//! avg@k with three intervals. More samples narrow the first, more problems the second, more training runs the third.

use crate::statistics::distributions::t_quantile;
use crate::statistics::{Counts, Interval, StatisticsError, between, error, estimators, outcomes};
use serde::{Deserialize, Serialize};

/// An interval over another draw of problems needs at least this many problems.
pub const FEWEST_PROBLEMS: usize = 10;

/// An interval over another decoding needs this many outcomes of the rarer kind in all: fewer show no spread.
pub const FEWEST_MINORITY_OUTCOMES: u64 = 2;

/// An interval over another draw of problems needs n · min(μ̂, 1 − μ̂) to be at least this.
pub const FEWEST_UNUSUAL_PROBLEMS: f64 = 2.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    TheseCheckpointsOnTheseProblems,
    AnotherDrawOfProblems,
    AnotherTrainingRun,
}

impl Question {
    pub fn text(self) -> &'static str {
        match self {
            Self::TheseCheckpointsOnTheseProblems => "these checkpoints, these problems",
            Self::AnotherDrawOfProblems => "another draw of problems",
            Self::AnotherTrainingRun => "another training run",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Uncertainty {
    pub question: Question,
    /// Standard error of avg@k, as a share; `None` where it cannot be estimated.
    pub standard_error: Option<f64>,
    pub interval: Option<Interval>,
    pub withheld: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accuracy {
    pub problems: u64,
    /// k: the fewest samples of any problem of any run.
    pub samples: u64,
    pub runs: u64,
    /// Mean over runs of the mean over problems of p̂, a share.
    pub avg_at_k: f64,
    /// One for each [`Question`], in its order.
    pub uncertainties: [Uncertainty; 3],
}

/// avg@k of `runs[run][problem]` with its three intervals of confidence `level`.
pub fn accuracy(runs: &[Vec<Counts>], level: f64) -> Result<Accuracy, StatisticsError> {
    check(runs)?;
    error::check_level(level)?;
    let by_run: Vec<f64> = runs.iter().map(|run| estimators::avg_at_k(run)).collect();
    let avg_at_k = estimators::mean(&by_run);
    let samples = runs.iter().flatten().map(|counts| counts.samples).min().unwrap_or(0);
    Ok(Accuracy {
        problems: runs[0].len() as u64,
        samples,
        runs: runs.len() as u64,
        avg_at_k,
        uncertainties: [
            of_decoding((avg_at_k, decoding_error(runs)), level, runs.iter()),
            other_problems_of_shares(&problem_means(runs), avg_at_k, level),
            other_runs(&by_run, level),
        ],
    })
}

/// p̂ of each problem, averaged over runs.
pub fn problem_means(runs: &[Vec<Counts>]) -> Vec<f64> {
    let of = |problem: usize| runs.iter().map(|run| run[problem].accuracy()).sum::<f64>();
    (0..runs[0].len()).map(|problem| of(problem) / runs.len() as f64).collect()
}

pub fn decoding_error(runs: &[Vec<Counts>]) -> f64 {
    let squares = runs.iter().map(|run| {
        let error = outcomes::standard_error_fixed_problems(run);
        error * error
    });
    squares.sum::<f64>().sqrt() / runs.len() as f64
}

/// Why there is no interval, where too few outcomes of some runs are of the rarer kind.
fn too_few_minority<'a>(runs: impl Iterator<Item = &'a Vec<Counts>>) -> Option<String> {
    let least = FEWEST_MINORITY_OUTCOMES;
    let (minority, most) = runs.flatten().fold((0, 0), |(minority, most), counts| {
        (minority + counts.minority(), counts.samples.max(most))
    });
    (minority < least).then(|| match (minority, most) {
        (_, 1) => "one response to each problem shows no spread".to_string(),
        (0, _) => "all responses to each problem have the same outcome".to_string(),
        _ => format!(
            "only {minority} outcome differs from the usual one of its problem; an interval needs {least}"
        ),
    })
}

/// With so many degrees of freedom the quantiles are the normal distribution's.
pub const MANY: f64 = 1e9;

/// Whether [`accuracy`] of one run has its first interval, by the numbers that a record keeps: with one outcome
/// of the rarer kind the standard error is 1/(n·k), with two at least √(4/3) of it.
pub fn has_interval_of_decoding(standard_error: f64, problems: u64, samples: u64) -> bool {
    samples > 1 && standard_error * problems as f64 * samples as f64 > 1.1
}

/// As [`has_interval_of_decoding`], of the interval over another draw of problems.
pub fn has_interval_of_problems(avg_at_k: f64, problems: u64) -> bool {
    problems >= FEWEST_PROBLEMS as u64
        && estimators::reaches(unusual(avg_at_k, problems as f64), FEWEST_UNUSUAL_PROBLEMS)
}

/// Of a value with the error that decoding of the runs gives it.
pub(crate) fn of_decoding<'a>(
    (centre, error): (f64, f64),
    level: f64,
    runs: impl Iterator<Item = &'a Vec<Counts>>,
) -> Uncertainty {
    let question = Question::TheseCheckpointsOnTheseProblems;
    Uncertainty::around((centre, error), (MANY, level), question, too_few_minority(runs))
}

impl Uncertainty {
    /// By Student's t, unless it is withheld.
    fn around(
        (centre, error): (f64, f64),
        (degrees_of_freedom, level): (f64, f64),
        question: Question,
        withheld: Option<String>,
    ) -> Self {
        let half_width = t_quantile(0.5 + level / 2.0, degrees_of_freedom) * error;
        let interval = withheld.is_none().then(|| Interval::around(centre, half_width, level));
        Self { question, standard_error: Some(error), interval, withheld }
    }

    /// Withholds an interval where there is less than `least` to estimate it from.
    pub(crate) fn withheld_below(self, least: f64, seen: f64, what: &str) -> Self {
        if self.interval.is_none() || estimators::reaches(seen, least) {
            return self;
        }
        let rounded_down = (10.0 * seen + 1e-9).floor() / 10.0;
        let withheld =
            Some(format!("an interval needs at least {least} {what}; this has {rounded_down}"));
        Self { interval: None, withheld, ..self }
    }
}

/// The interval of the mean when the problems are a draw; one value a problem (p̂, or a paired difference).
pub fn other_problems(values: &[f64], centre: f64, level: f64) -> Uncertainty {
    let question = Question::AnotherDrawOfProblems;
    let n = values.len();
    if n < 2 {
        let withheld = Some("one problem says nothing about others".to_string());
        return Uncertainty { question, standard_error: None, interval: None, withheld };
    }
    let error = estimators::standard_error_of_mean(values);
    let withheld =
        (n < FEWEST_PROBLEMS).then(|| format!("{n} problems, fewer than {FEWEST_PROBLEMS}"));
    Uncertainty::around((centre, error), ((n - 1) as f64, level), question, withheld)
}

/// [`other_problems`] for shares in [0, 1]. It withholds the interval close to either end: a set
/// that is nearly all solved holds too few other problems to estimate their share.
fn other_problems_of_shares(values: &[f64], centre: f64, level: f64) -> Uncertainty {
    let left = unusual(centre, values.len() as f64);
    let what = if centre > 0.5 { "unsolved problems" } else { "solved problems" };
    other_problems(values, centre, level).withheld_below(FEWEST_UNUSUAL_PROBLEMS, left, what)
}

fn unusual(avg_at_k: f64, problems: f64) -> f64 {
    problems * avg_at_k.min(1.0 - avg_at_k)
}

fn other_runs(by_run: &[f64], level: f64) -> Uncertainty {
    let interval = between::t_interval(by_run, level);
    let withheld = match &interval {
        Ok(_) => None,
        Err(_) if by_run.len() == 1 => Some("one run says nothing about another".to_string()),
        Err(error) => Some(error.to_string()),
    };
    Uncertainty {
        question: Question::AnotherTrainingRun,
        standard_error: (by_run.len() > 1).then(|| estimators::standard_error_of_mean(by_run)),
        interval: interval.ok(),
        withheld,
    }
}

/// Requires the same positive number of problems in every run, and possible counts.
pub(crate) fn check(runs: &[Vec<Counts>]) -> Result<(), StatisticsError> {
    const METHOD: &str = "avg@k";
    let none = |what| StatisticsError::TooFew { method: METHOD, what, needed: 1, got: 0 };
    let expected = runs.first().map_or(0, Vec::len);
    if expected == 0 {
        return Err(none("problems"));
    }
    for (run, problems) in runs.iter().enumerate() {
        if problems.len() != expected {
            let got = problems.len();
            return Err(StatisticsError::Ragged { method: METHOD, run, expected, got });
        }
        if problems.iter().any(|counts| counts.samples == 0 || counts.correct > counts.samples) {
            return Err(none("samples"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_of_the_same_evaluations_as_their_outcomes_that_they_have_intervals() {
        let counts = |correct: &[u64], samples| -> Vec<Counts> {
            correct.iter().map(|&correct| Counts { correct, samples }).collect()
        };
        for (correct, samples, expected) in [
            (&[0, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1][..], 1, [false, true]),
            (&[0, 2, 0], 2, [false, false]),
            (&[0, 1, 0], 2, [false, false]),
            (&[1, 1, 0], 2, [true, false]),
            (&[32, 31, 32], 32, [false, false]),
            (&[32, 30, 32], 32, [true, false]),
            (&[0, 2], 4, [true, false]),
            (&[0, 0, 0, 0, 0, 4, 4, 4, 4, 4], 4, [false, true]),
            (&[0, 0, 0, 0, 0, 0, 0, 0, 1, 4], 4, [false, false]),
            // 10 · (1 − 0.8) is rounded to less than 2.
            (&[4, 4, 4, 4, 4, 4, 4, 4, 0, 0], 4, [false, true]),
        ] {
            let run = counts(correct, samples);
            let (error, problems) = (decoding_error(std::slice::from_ref(&run)), run.len() as u64);
            let whole = accuracy(&[run], 0.95).unwrap();
            let [decoding, drawn, _] = whole.uncertainties;
            let given = [decoding, drawn].map(|uncertainty| uncertainty.interval.is_some());
            assert_eq!(given, expected, "{correct:?} of {samples}");
            let [decoding, drawn] = [
                has_interval_of_decoding(error, problems, samples),
                has_interval_of_problems(whole.avg_at_k, problems),
            ];
            assert_eq!([decoding, drawn], expected, "{correct:?} of {samples}");
        }
    }
}
