//! Curves of an arm: every seed, and a band where the seeds can be laid over each other.

use crate::statistics::{Interval, between};
use crate::study::collection::Study;
use crate::study::{Cell, Clock, Statistic};
use serde::{Deserialize, Serialize};

/// Points that a band over generated rollouts is computed at.
const BAND_POINTS: usize = 41;

/// What is drawn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Series {
    /// A statistic of every evaluation of a set.
    Evaluation {
        /// The set.
        set: String,
        /// What of it.
        statistic: Statistic,
    },
    /// A training metric at every rollout step.
    Metric {
        /// `stage/name`.
        name: String,
    },
}

/// An arm's curves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    /// `<grid>/<arm>`.
    pub arm: String,
    /// The x-axis.
    pub clock: Clock,
    /// By seed; a seed without the series is left out.
    pub seeds: Vec<SeedCurve>,
    /// Over the seeds; empty for fewer than 2.
    pub band: Vec<BandPoint>,
}

/// One run's curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeedCurve {
    /// The run seed.
    pub seed: u64,
    /// (x, y), x rising.
    pub points: Vec<(f64, f64)>,
}

/// The seeds at one x.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BandPoint {
    /// On the curve's clock.
    pub x: f64,
    /// How many seeds reach this x; at least 2.
    pub runs: u64,
    /// Of their values.
    pub mean: f64,
    /// The smallest value.
    pub lowest: f64,
    /// The largest value.
    pub highest: f64,
    /// t interval of the mean over training runs.
    pub interval: Option<Interval>,
}

/// The curves of an arm.
///
/// Over updates a band point takes the seeds that have a value at exactly that x. Over generated
/// rollouts, where each seed has an x of its own, values are interpolated linearly between a
/// seed's neighbouring points, from the largest first x of a seed to the smallest last one.
pub fn curve(study: &Study, arm: &str, series: &Series, clock: Clock) -> Curve {
    let seeds: Vec<SeedCurve> = study
        .cells_of(arm)
        .into_iter()
        .map(|cell| SeedCurve { seed: cell.seed, points: points(cell, series, clock) })
        .filter(|curve| !curve.points.is_empty())
        .collect();
    let xs = match clock {
        Clock::Updates => common_xs(&seeds),
        Clock::GeneratedRollouts => even_xs(&seeds),
    };
    let level = study.declaration.level;
    let band = xs.into_iter().filter_map(|x| band_point(&seeds, x, clock, level)).collect();
    Curve { arm: arm.to_string(), clock, seeds, band }
}

/// One run's points; values that are not finite are left out.
fn points(cell: &Cell, series: &Series, clock: Clock) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = match series {
        Series::Evaluation { set, statistic } => cell
            .evaluations_of(set)
            .map(|evaluation| (clock.at(evaluation) as f64, statistic.of(evaluation)))
            .collect(),
        Series::Metric { name } => {
            let Some(values) = cell.metric(name) else { return Vec::new() };
            let xs = clock_by_step(cell, clock);
            xs.into_iter().zip(values).filter_map(|(x, y)| Some((x, (*y)?))).collect()
        }
    };
    points.retain(|(x, y)| x.is_finite() && y.is_finite());
    // A record from elsewhere may have them in any order.
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.dedup_by(|later, earlier| later.0 == earlier.0);
    points
}

/// The clock after each rollout step.
fn clock_by_step(cell: &Cell, clock: Clock) -> Vec<f64> {
    match clock {
        Clock::Updates => cell.counters.iter().map(|it| it.updates as f64).collect(),
        Clock::GeneratedRollouts => {
            let mut sum = 0.0;
            let each = cell.metric("rollout/generated_rollouts").unwrap_or(&[]);
            let add = |value: &Option<f64>| {
                sum += value.unwrap_or(0.0);
                sum
            };
            each.iter().map(add).collect()
        }
    }
}

fn common_xs(seeds: &[SeedCurve]) -> Vec<f64> {
    let mut xs: Vec<f64> = seeds.iter().flat_map(|it| it.points.iter().map(|p| p.0)).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    xs
}

fn even_xs(seeds: &[SeedCurve]) -> Vec<f64> {
    let firsts = seeds.iter().filter_map(|it| it.points.first()).map(|p| p.0);
    let lasts = seeds.iter().filter_map(|it| it.points.last()).map(|p| p.0);
    let (Some(low), Some(high)) = (firsts.reduce(f64::max), lasts.reduce(f64::min)) else {
        return Vec::new();
    };
    if high <= low {
        return Vec::new();
    }
    let step = (high - low) / (BAND_POINTS - 1) as f64;
    (0..BAND_POINTS).map(|index| (low + step * index as f64).min(high)).collect()
}

fn band_point(seeds: &[SeedCurve], x: f64, clock: Clock, level: f64) -> Option<BandPoint> {
    let value = |curve: &SeedCurve| match clock {
        Clock::Updates => curve.points.iter().find(|(at, _)| *at == x).map(|(_, value)| *value),
        Clock::GeneratedRollouts => interpolated(&curve.points, x),
    };
    let values: Vec<f64> = seeds.iter().filter_map(value).collect();
    if values.len() < 2 {
        return None;
    }
    Some(BandPoint {
        x,
        runs: values.len() as u64,
        mean: values.iter().sum::<f64>() / values.len() as f64,
        lowest: values.iter().copied().fold(f64::INFINITY, f64::min),
        highest: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        interval: between::t_interval(&values, level).ok(),
    })
}

/// On the straight lines between points with rising x; `None` outside them.
pub fn interpolated(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = points.partition_point(|(at, _)| *at < x);
    let (right_x, right_y) = *points.get(after)?;
    if right_x == x {
        return Some(right_y);
    }
    let (left_x, left_y) = *points.get(after.checked_sub(1)?)?;
    Some(left_y + (right_y - left_y) * (x - left_x) / (right_x - left_x))
}
