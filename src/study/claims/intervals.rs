//! Parts that an interval decides: an arm against a value, and correlations over runs.

use crate::statistics::{Interval, between};
use crate::study::claims::needed;
use crate::study::collection::Study;
use crate::study::{
    AcrossRunsResult, Cell, ClaimVerdict, Direction, LevelResult, Mean, Metric, Needed, PartResult,
    PartWhy, RunValue, WithoutValue, arms, window,
};

/// There is no other run to compare with, so its own total.
fn own_budget(metric: &Metric, cell: &Cell) -> Option<u64> {
    arms::common_budget(&[cell], metric.equal_clock()?)
}

/// Compares by a t interval over runs at 1 − `alpha`.
pub fn level(
    study: &Study,
    part: &mut PartResult,
    (arm, metric): (&str, &Metric),
    (bound, direction): (f64, Direction),
    alpha: f64,
) {
    if let Some(absence) = study.absence(arm) {
        part.needed = Some(fewest_runs_of(arm));
        part.why = PartWhy::Absent { absence };
        return;
    }
    let (mut runs, mut without_value) = (Vec::new(), Vec::new());
    for cell in study.cells_of(arm) {
        match metric.value(cell, own_budget(metric, cell)) {
            Ok(value) => runs.push(RunValue { seed: cell.seed, value, censored: false }),
            Err(why) => {
                let arm = arm.to_string();
                without_value.push(WithoutValue { arm, seed: cell.seed, why });
            }
        }
    }
    let values: Vec<f64> = runs.iter().map(|run| run.value).collect();
    let Some(summary) = arms::mean(&values, 1.0 - alpha) else {
        part.why = PartWhy::NoRunHasTheValue { without_value };
        part.needed = Some(Needed::RunsThatRecordTheMetric);
        return;
    };
    let result = LevelResult {
        arm: arm.to_string(),
        metric: metric.clone(),
        direction,
        runs,
        without_value,
        mean: summary.mean,
        interval: summary.interval,
        bound,
        token_weighted: token_weighted(study, (arm, metric), alpha),
    };
    decide(part, &result, &values, alpha);
    part.level = Some(result);
}

fn fewest_runs_of(arm: &str) -> Needed {
    Needed::AtLeast { count: between::FEWEST_RUNS, blocks: false, of: vec![arm.to_string()] }
}

/// `None` unless all runs have the value.
fn token_weighted(study: &Study, (arm, metric): (&str, &Metric), alpha: f64) -> Option<Mean> {
    let runs = study.cells_of(arm);
    let values: Option<Vec<f64>> = runs.iter().map(|cell| metric.token_weighted(cell)).collect();
    arms::mean(&values?, 1.0 - alpha)
}

fn decide(part: &mut PartResult, result: &LevelResult, values: &[f64], alpha: f64) {
    let (bound, sign) = (result.bound, result.direction.sign());
    let Some(interval) = result.interval else {
        part.why = PartWhy::TooFewRuns { runs: values.len(), least: between::FEWEST_RUNS };
        part.needed = Some(fewest_runs_of(&result.arm));
        return;
    };
    let beyond = |end: f64| sign * (end - bound);
    let (low, high) = (beyond(interval.low), beyond(interval.high));
    if low > 0.0 && high > 0.0 {
        part.verdict = ClaimVerdict::Supported;
        part.why = PartWhy::BeyondBound { claimed: true };
    } else if low < 0.0 && high < 0.0 {
        part.verdict = ClaimVerdict::Contradicted;
        part.why = PartWhy::BeyondBound { claimed: false };
    } else {
        part.why = PartWhy::IncludesBound;
        part.needed = Some(needed::for_level(values, bound, alpha));
    }
}

/// Correlates within arms, by Fisher's interval at 1 − `alpha`.
pub fn across_runs(
    study: &Study,
    part: &mut PartResult,
    ids: &[String],
    (x, y): (&Metric, &Metric),
    bound: f64,
    alpha: f64,
) {
    let mut runs = Vec::new();
    for id in ids {
        for cell in study.cells_of(id) {
            let value = |metric: &Metric| metric.value(cell, own_budget(metric, cell));
            if let (Ok(x), Ok(y)) = (value(x), value(y)) {
                runs.push((id.clone(), cell.seed, x, y));
            }
        }
    }
    // An arm's only run equals its mean and carries no information.
    let arms_used: Vec<&String> =
        ids.iter().filter(|id| runs.iter().filter(|run| run.0 == **id).count() > 1).collect();
    runs.retain(|run| arms_used.contains(&&run.0));
    let pairs = centred(&runs, &arms_used);
    let correlation = window::correlation(&pairs);
    let free = runs.len() as f64 - arms_used.len() as f64 - 2.0;
    let interval = correlation.filter(|_| free > 0.0).map(|r| fisher(r, free, 1.0 - alpha));
    let result =
        AcrossRunsResult { x: x.clone(), y: y.clone(), correlation, interval, bound, runs };
    match interval {
        None => {
            part.why = PartWhy::NoCorrelation;
            part.needed = Some(Needed::MoreRunsOf { arms: ids.to_vec() });
        }
        Some(interval) if interval.low > -bound && interval.high < bound => {
            part.verdict = ClaimVerdict::Supported;
            part.why = PartWhy::WithinBound;
        }
        Some(interval) if interval.low >= bound || interval.high <= -bound => {
            part.verdict = ClaimVerdict::Contradicted;
            part.why = PartWhy::OutsideBound;
        }
        Some(_) => {
            part.why = PartWhy::IncludesBound;
            part.needed = Some(needed::for_correlation(bound, alpha, arms_used.len()));
        }
    }
    part.across_runs = Some(result);
}

fn centred(runs: &[(String, u64, f64, f64)], arms: &[&String]) -> Vec<(f64, f64)> {
    let mut pairs = Vec::new();
    for arm in arms {
        let own: Vec<(f64, f64)> =
            runs.iter().filter(|run| run.0 == **arm).map(|run| (run.2, run.3)).collect();
        let count = own.len() as f64;
        let mean_x = own.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = own.iter().map(|(_, y)| y).sum::<f64>() / count;
        pairs.extend(own.into_iter().map(|(x, y)| (x - mean_x, y - mean_y)));
    }
    pairs
}

/// tanh(artanh r ± z/√free); `free` is N − (arms − 1) − 3, as for a partial correlation.
fn fisher(r: f64, free: f64, level: f64) -> Interval {
    let r = r.clamp(-0.999_999, 0.999_999);
    let half_width = needed::normal_quantile(0.5 + level / 2.0) / free.sqrt();
    let z = libm::atanh(r);
    Interval { low: libm::tanh(z - half_width), high: libm::tanh(z + half_width), level }
}
