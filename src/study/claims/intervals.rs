//! Parts that an interval decides: an arm against a fixed value, and a correlation over training
//! runs.

use crate::statistics::{Interval, between};
use crate::study::claims::{needed, words};
use crate::study::collection::Study;
use crate::study::{
    AcrossRunsResult, Cell, ClaimVerdict, Direction, LevelResult, Mean, Metric, PartResult,
    RunValue, arms, window,
};

/// A single run has no other to spend as much as: its own total.
fn own_budget(metric: &Metric, cell: &Cell) -> Option<u64> {
    arms::common_budget(&[cell], metric.equal_clock()?)
}

/// Compares one arm's values with a bound, by a t interval over runs at 1 − `alpha`.
pub fn level(
    study: &Study,
    part: &mut PartResult,
    (arm, metric): (&str, &Metric),
    (bound, direction): (f64, Direction),
    alpha: f64,
) {
    if let Some(reason) = study.absence(arm) {
        part.needed = Some(format!("at least {} runs of `{arm}`", between::FEWEST_RUNS));
        part.reason = reason;
        return;
    }
    let (mut runs, mut without_value) = (Vec::new(), Vec::new());
    for cell in study.cells_of(arm) {
        match metric.value(cell, own_budget(metric, cell)) {
            Ok(value) => runs.push(RunValue { seed: cell.seed, value, censored: false }),
            Err(reason) => without_value.push(format!("{arm} seed {}: {reason}", cell.seed)),
        }
    }
    let values: Vec<f64> = runs.iter().map(|run| run.value).collect();
    let Some(summary) = arms::mean(&values, 1.0 - alpha) else {
        part.reason = format!("no run has the value ({})", without_value.join("; "));
        part.needed = Some("runs that record this metric".to_string());
        return;
    };
    let result = LevelResult {
        arm: arm.to_string(),
        metric_words: metric.words(),
        runs,
        without_value,
        mean: summary.mean,
        interval: summary.interval,
        bound,
        token_weighted: token_weighted(study, (arm, metric), alpha),
    };
    part.evidence = words::level(&result);
    decide(part, &result, &values, direction, alpha);
    part.level = Some(result);
}

/// `None` unless all runs have the value.
fn token_weighted(study: &Study, (arm, metric): (&str, &Metric), alpha: f64) -> Option<Mean> {
    let runs = study.cells_of(arm);
    let values: Option<Vec<f64>> = runs.iter().map(|cell| metric.token_weighted(cell)).collect();
    arms::mean(&values?, 1.0 - alpha)
}

fn decide(
    part: &mut PartResult,
    result: &LevelResult,
    values: &[f64],
    direction: Direction,
    alpha: f64,
) {
    let (bound, sign) = (result.bound, direction.sign());
    let Some(interval) = result.interval else {
        let (runs, least) = (values.len(), between::FEWEST_RUNS);
        part.reason = format!("an interval over training takes {least} runs, there are {runs}");
        part.needed = Some(format!("at least {least} runs of `{}`", result.arm));
        return;
    };
    let beyond = |end: f64| sign * (end - bound);
    let (low, high) = (beyond(interval.low), beyond(interval.high));
    if low > 0.0 && high > 0.0 {
        part.verdict = ClaimVerdict::Supported;
        part.reason = format!("the whole interval is {} than {bound}", direction.words());
    } else if low < 0.0 && high < 0.0 {
        part.verdict = ClaimVerdict::Contradicted;
        part.reason = format!("the whole interval is not {} than {bound}", direction.words());
    } else {
        part.reason = format!("the interval includes {bound}");
        part.needed = Some(needed::for_level(values, bound, alpha));
    }
}

/// Correlates two numbers of each run within arms, by Fisher's interval at 1 − `alpha`.
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
    // The only run of an arm equals its mean and carries no information.
    let arms_used: Vec<&String> =
        ids.iter().filter(|id| runs.iter().filter(|run| run.0 == **id).count() > 1).collect();
    runs.retain(|run| arms_used.contains(&&run.0));
    let pairs = centred(&runs, &arms_used);
    let correlation = window::correlation(&pairs);
    let free = runs.len() as f64 - arms_used.len() as f64 - 2.0;
    let interval = correlation.filter(|_| free > 0.0).map(|r| fisher(r, free, 1.0 - alpha));
    let result = AcrossRunsResult {
        x_words: x.words(),
        y_words: y.words(),
        correlation,
        interval,
        bound,
        runs,
    };
    part.evidence = words::across_runs(&result, arms_used.len());
    match interval {
        None => {
            part.reason = "too few runs, or runs without spread, for a correlation".to_string();
            part.needed = Some(format!("more runs of {}", ids.join(", ")));
        }
        Some(interval) if interval.low > -bound && interval.high < bound => {
            part.verdict = ClaimVerdict::Supported;
            part.reason = format!("the whole interval lies within ±{bound}");
        }
        Some(interval) if interval.low >= bound || interval.high <= -bound => {
            part.verdict = ClaimVerdict::Contradicted;
            part.reason = format!("the whole interval lies outside ±{bound}");
        }
        Some(_) => {
            part.reason = format!("the interval includes {bound} or −{bound}");
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
