//! Aggregates of `scores[run][task]` as rliable defines them (Agarwal et al. 2021, arXiv
//! 2108.13264; `rliable/metrics.py`, `rliable/library.py` at 3ccd9f4), with a repeatable bootstrap.
//! A task is whatever every run was scored on: a set, a problem, an arm's endpoint.

use crate::base::Purpose;
use crate::base::rng::{self, Id};
use crate::statistics::between::{self, BetweenError};
use crate::statistics::{Interval, estimators};

/// Fewest runs that a bootstrap may resample. Over 10 normal runs a nominal 95 % interval of the
/// mean covers 90 %, over 20 still less than 93 % (`golden/stats/`).
pub const FEWEST_BOOTSTRAP_RUNS: usize = 30;

/// Interquartile mean: the mean after the ⌊m/4⌋ lowest and as many highest of the m values are
/// dropped (scipy's `trim_mean` with 0.25). On scores that are nearly 0 or 1 it says little.
pub fn iqm(values: &[f64]) -> Result<f64, BetweenError> {
    between::check("an interquartile mean", values, 1)?;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let dropped = sorted.len() / 4;
    Ok(estimators::mean(&sorted[dropped..sorted.len() - dropped]))
}

/// P(b > a) for a run of each on the same task, averaged over tasks: the Mann–Whitney U of a
/// task's two columns over n_a · n_b, ties counting ½. Arguments are `scores[run][task]`.
pub fn probability_of_improvement(a: &[Vec<f64>], b: &[Vec<f64>]) -> Result<f64, BetweenError> {
    const METHOD: &str = "a probability of improvement";
    let tasks = tasks(METHOD, a)?;
    let other = self::tasks(METHOD, b)?;
    if tasks != other {
        return Err(BetweenError::Ragged { method: METHOD, run: 0, expected: tasks, got: other });
    }
    let wins = (0..tasks).map(|task| {
        let pairs = b.iter().flat_map(|new| a.iter().map(|old| (new[task], old[task])));
        let points: f64 = pairs
            .map(|(new, old)| match new.total_cmp(&old) {
                _ if new == old => 0.5,
                std::cmp::Ordering::Greater => 1.0,
                _ => 0.0,
            })
            .sum();
        points / (a.len() * b.len()) as f64
    });
    Ok(wins.sum::<f64>() / tasks as f64)
}

/// Performance profile: for each threshold τ the share of (run, task) scores above it (rliable's
/// `run_score_deviation`).
pub fn performance_profile(
    scores: &[Vec<f64>],
    thresholds: &[f64],
) -> Result<Vec<f64>, BetweenError> {
    let tasks = tasks("a performance profile", scores)?;
    let total = (scores.len() * tasks) as f64;
    let above = |tau: &f64| scores.iter().flatten().filter(|score| *score > tau).count();
    Ok(thresholds.iter().map(|tau| above(tau) as f64 / total).collect())
}

/// Percentile interval of a stratified bootstrap: each replicate draws, for each task on its own,
/// as many runs as there are, with replacement. Several groups (the sides of a comparison) are
/// resampled independently. Draws come from a stream fixed by `name`, so that a call repeats
/// bit for bit (rliable's `random_state` has no effect on its intervals). The two ends are
/// percentiles with linear interpolation, as numpy's.
pub fn stratified_bootstrap(
    groups: &[&[Vec<f64>]],
    statistic: impl Fn(&[Vec<Vec<f64>>]) -> f64,
    replicates: usize,
    level: f64,
    name: &str,
) -> Result<Interval, BetweenError> {
    const METHOD: &str = "a bootstrap over runs (with fewer its intervals are too short)";
    if !(level > 0.0 && level < 1.0) {
        return Err(BetweenError::Level(level));
    }
    if replicates < 100 {
        let what = "replicates";
        return Err(BetweenError::TooFew {
            method: "a bootstrap",
            what,
            needed: 100,
            got: replicates,
        });
    }
    for group in groups {
        let (needed, got) = (FEWEST_BOOTSTRAP_RUNS, group.len());
        if got < needed {
            return Err(BetweenError::TooFew { method: METHOD, what: "runs", needed, got });
        }
        tasks("a bootstrap", group)?;
    }
    Ok(any_bootstrap(groups, statistic, replicates, level, name))
}

/// [`stratified_bootstrap`] for any number of runs; calibration measures it below the limit too.
pub fn any_bootstrap(
    groups: &[&[Vec<f64>]],
    statistic: impl Fn(&[Vec<Vec<f64>>]) -> f64,
    replicates: usize,
    level: f64,
    name: &str,
) -> Interval {
    let mut draw = rng::stream(0, Purpose::Resampling, &[Id::from("bootstrap"), Id::from(name)]);
    let mut drawn: Vec<Vec<Vec<f64>>> = groups.iter().map(|group| group.to_vec()).collect();
    let mut values: Vec<f64> = Vec::with_capacity(replicates);
    for _ in 0..replicates {
        for (group, drawn) in groups.iter().zip(&mut drawn) {
            for task in 0..group[0].len() {
                for run in drawn.iter_mut() {
                    run[task] = group[draw.below(group.len() as u64) as usize][task];
                }
            }
        }
        values.push(statistic(&drawn));
    }
    values.sort_by(f64::total_cmp);
    let tail = (1.0 - level) / 2.0;
    Interval { low: percentile(&values, tail), high: percentile(&values, 1.0 - tail), level }
}

/// The `share` quantile of sorted values, with linear interpolation.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, part) = (place.floor() as usize, place - place.floor());
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + part * (sorted[above] - sorted[below])
}

fn tasks(method: &'static str, scores: &[Vec<f64>]) -> Result<usize, BetweenError> {
    let expected = scores.first().map_or(0, Vec::len);
    if scores.is_empty() {
        return Err(BetweenError::TooFew { method, what: "runs", needed: 1, got: 0 });
    }
    if expected == 0 {
        return Err(BetweenError::TooFew { method, what: "tasks", needed: 1, got: 0 });
    }
    for (run, values) in scores.iter().enumerate() {
        if values.len() != expected {
            return Err(BetweenError::Ragged { method, run, expected, got: values.len() });
        }
        between::check(method, values, 1)?;
    }
    Ok(expected)
}

#[cfg(test)]
mod tests;
