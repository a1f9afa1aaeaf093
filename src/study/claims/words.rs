//! Evidence in one phrase. Scores are in percent points only here.

use crate::statistics::Interval;
use crate::study::{AcrossRunsResult, LevelResult, claims::published, comparisons::Comparison};

pub fn comparison(comparison: &Comparison) -> String {
    let (arm, reference) = comparison.means();
    let (Some(arm), Some(reference), Some(result)) = (arm, reference, &comparison.result) else {
        return String::new();
    };
    let metric = &comparison.declared.metric;
    let shown = |value: f64| match metric.is_score() {
        true => format!("{:.1} %", 100.0 * value),
        false => published::number(value),
    };
    let points = |value: f64| match metric.is_score() {
        true => format!("{:+.1}", 100.0 * value),
        false if value > 0.0 => format!("+{}", published::number(value)),
        false => published::number(value),
    };
    let runs = format!("{} and {} runs", comparison.arm.len(), comparison.reference.len());
    let p = format!("p {:.4}, adjusted {:.4}", result.p, result.adjusted_p);
    if let Some((median, other)) = result.medians {
        let words = |median: Option<f64>| {
            median.map_or("never (median)".to_string(), |it| format!("{it:.0} (median)"))
        };
        return format!("{} against {}; {p}; {runs}", words(median), words(other));
    }
    let interval = result.interval.map_or(String::new(), |it| {
        format!(" ({:.0} % {} to {})", 100.0 * it.level, points(it.low), points(it.high))
    });
    let unit = if metric.is_score() { " points" } else { "" };
    let difference = points(result.difference);
    let (arm, reference) = (shown(arm), shown(reference));
    format!("{arm} against {reference}: {difference}{unit}{interval}; {p}; {runs}")
}

pub fn level(level: &LevelResult) -> String {
    let number = published::number;
    let with_interval = |mean: f64, interval: Option<Interval>| {
        let interval = interval.map_or(String::new(), |it| {
            format!(" ({:.1} % {} to {})", 100.0 * it.level, number(it.low), number(it.high))
        });
        format!("{}{interval}", number(mean))
    };
    let (mean, bound) = (with_interval(level.mean, level.interval), level.bound);
    let weighted = level.token_weighted.as_ref().map_or(String::new(), |weighted| {
        let mean = with_interval(weighted.mean, weighted.interval);
        format!("; this mean weighs rollout steps equally, by tokens it is {mean}")
    });
    format!("{mean} against {bound}; {} runs{weighted}", level.runs.len())
}

pub fn across_runs(result: &AcrossRunsResult, arms: usize) -> String {
    let Some(r) = result.correlation else { return String::new() };
    let interval = result.interval.map_or(String::new(), |it| {
        format!(" ({:.1} % {:.2} to {:.2})", 100.0 * it.level, it.low, it.high)
    });
    format!("r = {r:.2}{interval}; {} runs of {arms} arms, within arms", result.runs.len())
}
