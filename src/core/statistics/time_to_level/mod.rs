//! Time to a level that some runs never reach: Kaplan–Meier and the log-rank test. A run that ended
//! without reaching the level is censored at its last evaluation, never dropped.

use crate::statistics::{PermutationTest, StatisticsError, between, error, estimators};
use serde::{Deserialize, Serialize};

/// In updates or in generated rollouts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeToEvent {
    /// The first evaluation at or above the level; where `reached` is false the last evaluation.
    pub time: f64,
    /// False if the run is censored.
    pub reached: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogRank {
    /// Permutation test on the log-rank scores: the p that decides.
    pub permutation: PermutationTest,
    /// Observed minus expected events of b: below 0 where b takes longer.
    pub observed_minus_expected: f64,
    /// (O − E)²/V with the hypergeometric variance; 0 where V is 0.
    pub chi_square: f64,
    /// P(χ²₁ ≥ `chi_square`). Too small for few runs; reported for comparison with other programs only.
    pub chi_square_p: f64,
}

/// Tests whether two methods have the same distribution of the time to a level, where a run may be censored for reasons
/// that have nothing to do with its method (all runs end at the same budget). O − E of b is the sum over b of δᵢ −
/// Λ̂(tᵢ) with the pooled Nelson–Aalen estimate, which depends on no label; relabelling these scores is the exact test.
pub fn log_rank(a: &[TimeToEvent], b: &[TimeToEvent]) -> Result<LogRank, StatisticsError> {
    const METHOD: &str = "a log-rank test";
    check(METHOD, a)?;
    check(METHOD, b)?;
    let pooled: Vec<TimeToEvent> = a.iter().chain(b).copied().collect();
    let mut variance = 0.0;
    // (time, hazard of the pooled runs at it)
    let mut hazards: Vec<(f64, f64)> = Vec::new();
    for time in event_times(&pooled) {
        let at_risk = |runs: &[TimeToEvent]| runs.iter().filter(|run| run.time >= time).count();
        let (n, n_b) = (at_risk(&pooled) as f64, at_risk(b) as f64);
        let d = pooled.iter().filter(|run| run.reached && run.time == time).count() as f64;
        hazards.push((time, d / n));
        if n > 1.0 {
            variance += d * (n_b / n) * (1.0 - n_b / n) * (n - d) / (n - 1.0);
        }
    }
    let score = |run: &TimeToEvent| {
        let before = hazards.iter().filter(|(time, _)| *time <= run.time);
        f64::from(run.reached) - before.map(|(_, hazard)| hazard).sum::<f64>()
    };
    let scores = |runs: &[TimeToEvent]| runs.iter().map(score).collect::<Vec<f64>>();
    // Of sides that are the same, sums of hazards d/n leave some 10⁻¹⁶.
    let observed_minus_expected =
        estimators::beyond_rounding(scores(b).iter().sum(), pooled.len() as f64);
    let chi_square = if variance > 0.0 {
        observed_minus_expected * observed_minus_expected / variance
    } else {
        0.0
    };
    Ok(LogRank {
        permutation: between::permutation_test(&scores(a), &scores(b))?,
        observed_minus_expected,
        chi_square,
        chi_square_p: libm::erfc((chi_square / 2.0).sqrt()),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SurvivalStep {
    pub time: f64,
    /// Estimated share of runs that have not reached it after this time.
    pub not_reached_share: f64,
}

/// The share of runs that have not reached the level, after each time at which one did.
pub fn kaplan_meier(runs: &[TimeToEvent]) -> Result<Vec<SurvivalStep>, StatisticsError> {
    check("a Kaplan–Meier curve", runs)?;
    let mut not_reached_share = 1.0;
    let step = |time: f64| {
        let at_risk = runs.iter().filter(|run| run.time >= time).count() as f64;
        let events = runs.iter().filter(|run| run.reached && run.time == time).count() as f64;
        not_reached_share *= 1.0 - events / at_risk;
        SurvivalStep { time, not_reached_share }
    };
    Ok(event_times(runs).into_iter().map(step).collect())
}

/// The first time after which at most half of the runs have not reached the level; `None` if more than half never did.
pub fn median_time(runs: &[TimeToEvent]) -> Result<Option<f64>, StatisticsError> {
    let steps = kaplan_meier(runs)?;
    // ½ is not exact after a product of fractions.
    let half = |step: &&SurvivalStep| step.not_reached_share <= 0.5 + 1e-12;
    Ok(steps.iter().find(half).map(|step| step.time))
}

/// Distinct times at which a run reached the level, ascending.
fn event_times(runs: &[TimeToEvent]) -> Vec<f64> {
    let mut times: Vec<f64> = runs.iter().filter(|run| run.reached).map(|run| run.time).collect();
    times.sort_by(f64::total_cmp);
    times.dedup();
    times
}

fn check(method: &'static str, runs: &[TimeToEvent]) -> Result<(), StatisticsError> {
    let times: Vec<f64> = runs.iter().map(|run| run.time).collect();
    error::check(method, &times, 1)?;
    match times.into_iter().find(|time| *time < 0.0) {
        Some(value) => Err(StatisticsError::Negative { method, value }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
