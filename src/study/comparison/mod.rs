//! Compares two sides of one or more runs from outcomes: (problem, sample, correct). The unit is
//! the run; with one run a side it is the problem, and nothing is said about other runs.

pub mod load;

use crate::base::visible;
use crate::statistics::{
    Accuracy, Counts, Design, Estimate, Measured, Paired, PermutationTest, Question,
    StatisticsError, Verdict, WelchDifference, accuracy, between, comparison, distributions,
    estimators, paired,
};
use crate::study::StudyError;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

pub const FORMAT: u64 = 1;

/// Tables and curves declare neither.
pub const ALPHA: f64 = 0.05;
pub const POWER: f64 = 0.8;

#[derive(Debug, Clone, PartialEq)]
pub struct EvaluatedRun {
    pub path: PathBuf,
    pub problems: BTreeMap<String, Counts>,
    pub remarks: Vec<String>,
    /// A run folder's or a record's; tables have none.
    pub set: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedRuns {
    pub files: Vec<String>,
    pub most_samples: u64,
    /// avg@k of each run, a share.
    pub by_run: Vec<f64>,
    pub accuracy: Accuracy,
    /// k → pass@k, a share, averaged over runs.
    pub pass_at_k: BTreeMap<u64, f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    pub problem: String,
    pub a: f64,
    pub b: f64,
    /// b − a.
    pub difference: f64,
}

/// The smallest true difference found with probability 0.8, by the spread seen, at a two-sided 5 % or, where that is
/// less, by an interval of the level that was asked for. It decides nothing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Detectable {
    pub question: Question,
    /// A share; `None` where the spread is unknown.
    pub difference: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BetweenRuns {
    pub welch: WelchDifference,
    pub permutation: PermutationTest,
    pub verdict: Verdict,
    #[serde(skip)]
    pub is_same: bool,
    #[serde(skip)]
    detectable_effect: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunComparison {
    pub format: u64,
    pub a: ComparedRuns,
    pub b: ComparedRuns,
    pub paired: Paired,
    pub changes: Vec<Change>,
    /// `None` with one run on a side.
    pub between_runs: Option<BetweenRuns>,
    pub detectable: Vec<Detectable>,
    pub remarks: Vec<String>,
}

pub fn compare(
    a: &[EvaluatedRun],
    b: &[EvaluatedRun],
    level: f64,
    common_problems: bool,
) -> Result<RunComparison, StudyError> {
    let all: Vec<&EvaluatedRun> = a.iter().chain(b).collect();
    let mut remarks: Vec<String> = Vec::new();
    let [of_a, of_b]: [Vec<&String>; 2] =
        [a, b].map(|runs| runs.iter().flat_map(|run| &run.remarks).collect());
    for own in of_a.iter().chain(&of_b) {
        let remark = match (of_a.contains(own), of_b.contains(own)) {
            (true, false) => format!("A: {own}"),
            (false, true) => format!("B: {own}"),
            _ => own.to_string(),
        };
        if !remarks.contains(&remark) {
            remarks.push(remark);
        }
    }
    remarks.extend([a, b].into_iter().flat_map(copies));
    let names = problems(&all, common_problems, &mut remarks)?;
    let counts = |runs: &[EvaluatedRun]| -> Vec<Vec<Counts>> {
        runs.iter().map(|run| names.iter().map(|name| run.problems[*name]).collect()).collect()
    };
    let (before, after) = (counts(a), counts(b));
    let paired = paired::paired(&before, &after, level)?;
    let sides = [side(a, &before, level)?, side(b, &after, level)?];
    let between_runs = between_runs(&sides[0].by_run, &sides[1].by_run, level)?;
    let problems = sides[0].accuracy.problems;
    let detectable = detectable(&paired, problems, between_runs.as_ref(), level);
    let changes = changes(&names, &before, &after);
    let [a, b] = sides;
    let of = |side: &ComparedRuns| (side.accuracy.samples, side.most_samples);
    if of(&a) != of(&b) {
        let [a, b] = [of(&a), of(&b)].map(|(least, most)| {
            if least < most { format!("{least} to {most}") } else { least.to_string() }
        });
        remarks.push(format!(
            "the sides have different numbers of samples a problem: A {a}, B {b}; avg@k means the same of both"
        ));
    }
    Ok(RunComparison { format: FORMAT, a, b, paired, changes, between_runs, detectable, remarks })
}

/// Two training runs hardly ever have the same counts.
fn copies(runs: &[EvaluatedRun]) -> Vec<String> {
    let copy = |(place, run): (usize, &EvaluatedRun)| {
        let same = runs[..place].iter().find(|other| other.problems == run.problems)?;
        let (one, other) = (run.path.display(), same.path.display());
        let advice = "both count. If one is a copy, leave it out";
        Some(format!("{one} has as many correct samples of each problem as {other}; {advice}"))
    };
    runs.iter().enumerate().filter_map(copy).collect()
}

fn problems<'a>(
    runs: &[&'a EvaluatedRun],
    common: bool,
    remarks: &mut Vec<String>,
) -> Result<Vec<&'a str>, StudyError> {
    let Some(first) = runs.first() else { return Ok(Vec::new()) };
    for one in runs {
        for other in runs {
            let mut only = one.problems.keys().filter(|name| !other.problems.contains_key(*name));
            if let (Some(name), false) = (only.next(), common) {
                let name = visible::start(name, 80);
                return Err(StudyError::OtherProblems {
                    one: one.path.clone(),
                    other: other.path.clone(),
                    only: format!("{} problems, such as {name:?},", 1 + only.count()),
                });
            }
        }
    }
    let in_all = |name: &&String| runs.iter().all(|run| run.problems.contains_key(*name));
    let names: Vec<&str> = first.problems.keys().filter(in_all).map(String::as_str).collect();
    if names.is_empty() {
        return Err(StudyError::invalid(&first.path, "no problem is in all files"));
    }
    let largest = runs.iter().map(|run| run.problems.len()).max().unwrap_or(0);
    if common && names.len() < largest {
        let left = largest - names.len();
        remarks.push(format!(
            "only the {} problems that are in all files are compared; a file has up to {left} more",
            names.len()
        ));
    }
    Ok(names)
}

fn side(
    runs: &[EvaluatedRun],
    counts: &[Vec<Counts>],
    level: f64,
) -> Result<ComparedRuns, StudyError> {
    let accuracy = accuracy::accuracy(counts, level)?;
    let ks = estimators::doubling(accuracy.samples);
    let all = counts.concat();
    Ok(ComparedRuns {
        files: runs.iter().map(|run| run.path.display().to_string()).collect(),
        most_samples: all.iter().map(|counts| counts.samples).max().unwrap_or(0),
        by_run: counts.iter().map(|run| estimators::avg_at_k(run)).collect(),
        pass_at_k: ks.map(|k| (k, estimators::pass_at_k(&all, k))).collect(),
        accuracy,
    })
}

fn changes(names: &[&str], a: &[Vec<Counts>], b: &[Vec<Counts>]) -> Vec<Change> {
    let (a, b) = (accuracy::problem_means(a), accuracy::problem_means(b));
    let change = |(index, name): (usize, &&str)| {
        let (a, b) = (a[index], b[index]);
        Change { problem: name.to_string(), a, b, difference: estimators::difference(a, b) }
    };
    let mut changes: Vec<Change> = names.iter().enumerate().map(change).collect();
    changes.sort_by(|one, other| other.difference.abs().total_cmp(&one.difference.abs()));
    changes
}

fn between_runs(a: &[f64], b: &[f64], level: f64) -> Result<Option<BetweenRuns>, StudyError> {
    if a.len().min(b.len()) < 2 {
        return Ok(None);
    }
    let measured = Measured::Runs(a.to_vec(), b.to_vec());
    let estimate = estimate_alone(&measured, level, None)?;
    Ok(Some(BetweenRuns {
        welch: between::welch(a, b, level)?,
        permutation: between::permutation_test(a, b)?,
        verdict: estimate.verdict(ALPHA),
        is_same: measured.is_same(),
        detectable_effect: estimate.minimum_detectable_effect,
    }))
}

pub fn estimate_alone(
    measured: &Measured,
    level: f64,
    margin: Option<f64>,
) -> Result<Estimate, StatisticsError> {
    let sigma = match measured {
        Measured::Runs(a, b) if a.len().min(b.len()) >= between::FEWEST_RUNS => {
            between::pooled_deviation(a, b)
        }
        _ => None,
    };
    let design = Design { level, alpha: ALPHA, family_size: 1, power: POWER, sigma, margin };
    let mut estimate = comparison::estimate(measured, &design)?;
    if let (Measured::Blocks(differences), Some(_)) = (measured, &estimate.interval) {
        let effect = comparison::detectable_of_blocks(differences, &design);
        estimate.minimum_detectable_effect = effect;
    }
    Ok(estimate)
}

fn detectable(
    paired: &Paired,
    problems: u64,
    runs: Option<&BetweenRuns>,
    level: f64,
) -> Vec<Detectable> {
    let alpha = ALPHA.min(1.0 - level);
    let [power, level] = [POWER, 1.0 - alpha / 2.0];
    let quantiles = [power, level].map(|p| distributions::t_quantile(p, accuracy::MANY));
    let freedom = (problems.max(2) - 1) as f64;
    let of_problems = paired.uncertainties.iter().map(|answer| {
        let error = answer.standard_error.filter(|_| answer.interval.is_some());
        let difference = error.map(|error| match answer.question {
            Question::TheseCheckpointsOnTheseProblems => quantiles.iter().sum::<f64>() * error,
            _ => between::minimum_detectable_effect_of_t(error, freedom, alpha, POWER),
        });
        Detectable { question: answer.question, difference }
    });
    let of_runs = Detectable {
        question: Question::AnotherTrainingRun,
        difference: runs.and_then(|runs| runs.detectable_effect),
    };
    of_problems.chain([of_runs]).collect()
}

#[cfg(test)]
mod tests;
