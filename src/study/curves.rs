//! Curves of an arm: every seed, and a band over the seeds.

use crate::statistics::{Interval, Mean, aggregates};
use crate::study::{Cell, Clock, Statistic, collection::Study};
use serde::{Deserialize, Serialize};

const BAND_POINTS: usize = 41;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "source", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Series {
    Evaluation {
        set: String,
        statistic: Statistic,
    },
    Metric {
        /// `stage/name`.
        name: String,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Curve {
    pub arm: String,
    pub clock: Clock,
    pub seeds: Vec<SeedCurve>,
    /// Empty for fewer than 2 seeds.
    pub band: Vec<BandPoint>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SeedCurve {
    pub seed: u64,
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct BandPoint {
    pub x: f64,
    /// Seeds that have a value at this x; at least 2.
    pub runs: u64,
    pub mean: f64,
    pub lowest: f64,
    pub highest: f64,
    pub interval: Option<Interval>,
}

/// Where all runs have the same updates after each step, as far as they got, a band point over updates takes the seeds with
/// a value at exactly that x. Elsewhere, and over generated rollouts or tokens, values are interpolated linearly on the x
/// range that all seeds have: a mean over the seeds that reach an x would rise or fall because others do not.
pub fn curve(study: &Study, arm: &str, series: &Series, clock: Clock) -> Curve {
    let cells = study.cells_of(arm);
    let exact = clock == Clock::Updates && have_the_same_updates(&cells);
    let seeds: Vec<SeedCurve> = cells
        .into_iter()
        .map(|cell| SeedCurve { seed: cell.seed, points: points(cell, series, clock) })
        .filter(|curve| !curve.points.is_empty())
        .collect();
    let xs = if exact { all_xs(&seeds) } else { even_xs(&seeds) };
    let level = study.declaration.level;
    let band = xs.into_iter().filter_map(|x| band_point(&seeds, x, exact, level)).collect();
    Curve { arm: arm.to_string(), clock, seeds, band }
}

/// After each rollout step that two runs both did.
fn have_the_same_updates(cells: &[&Cell]) -> bool {
    let Some(longest) = cells.iter().max_by_key(|cell| cell.counters.len()) else { return true };
    let updates = |cell: &Cell| clock_by_step(cell, Clock::Updates);
    let of_longest = updates(longest);
    cells.iter().all(|cell| of_longest.starts_with(&updates(cell)))
}

pub fn points(cell: &Cell, series: &Series, clock: Clock) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = match series {
        Series::Evaluation { set, statistic } => cell
            .evaluations_of(set)
            .filter_map(|it| Some((clock.at(cell, it), statistic.of(cell, it).ok()?)))
            .collect(),
        Series::Metric { name } => {
            let Some(values) = cell.metric(name) else { return Vec::new() };
            let xs = clock_by_step(cell, clock);
            xs.into_iter().zip(values).filter_map(|(x, y)| Some((x, (*y)?))).collect()
        }
    };
    points.retain(|(x, y)| x.is_finite() && y.is_finite());
    // A foreign record may have them in any order.
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points.dedup_by(|later, earlier| later.0 == earlier.0);
    points
}

/// The reading after each rollout step; empty where it is not recorded.
pub fn clock_by_step(cell: &Cell, clock: Clock) -> Vec<f64> {
    if clock == Clock::Updates {
        return cell.counters.iter().map(|it| it.updates as f64).collect();
    }
    let added = clock.by_step(cell);
    if added.iter().all(Option::is_none) {
        return Vec::new();
    }
    let mut sum = 0.0;
    let add = |value: Option<f64>| {
        sum += value.unwrap_or(0.0);
        sum
    };
    added.into_iter().map(add).collect()
}

fn all_xs(seeds: &[SeedCurve]) -> Vec<f64> {
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

fn band_point(seeds: &[SeedCurve], x: f64, exact: bool, level: f64) -> Option<BandPoint> {
    let value = |curve: &SeedCurve| {
        if exact {
            curve.points.iter().find(|(at, _)| *at == x).map(|(_, value)| *value)
        } else {
            interpolated(&curve.points, x)
        }
    };
    let values: Vec<f64> = seeds.iter().filter_map(value).collect();
    let Mean { mean, interval, runs, .. } = Mean::of(&values, level).filter(|it| it.runs > 1)?;
    let (lowest, highest) = aggregates::range(values);
    Some(BandPoint { x, runs, mean, lowest, highest, interval })
}

/// Linear between points with rising x; `None` outside them.
pub fn interpolated(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = points.partition_point(|(at, _)| *at < x);
    let (right_x, right_y) = *points.get(after)?;
    if right_x == x {
        return Some(right_y);
    }
    let (left_x, left_y) = *points.get(after.checked_sub(1)?)?;
    Some(left_y + (right_y - left_y) * (x - left_x) / (right_x - left_x))
}
