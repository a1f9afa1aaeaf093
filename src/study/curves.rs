//! Curves of an arm: every seed, and a band over the seeds.

use crate::statistics::{Interval, Mean, aggregates, estimators};
use crate::study::{Cell, Clock, collection::Study};
use std::collections::BTreeMap;

const BAND_POINTS: usize = 41;

#[derive(Debug, Clone, PartialEq)]
pub enum Series {
    Evaluation { set: String },
    // `stage/name`.
    Metric { name: String },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Of a run, or of a block of runs where the arm is a pool.
    pub seeds: Vec<SeedCurve>,
    /// Empty for fewer than 2 seeds.
    pub band: Vec<BandPoint>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SeedCurve {
    pub seed: u64,
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BandPoint {
    pub x: f64,
    /// Seeds, runs or blocks, that have a value at this x; at least 2.
    pub runs: u64,
    pub mean: f64,
    pub lowest: f64,
    pub highest: f64,
    pub interval: Option<Interval>,
    pub interpolated: bool,
}

/// Where all runs have the same updates after each step, as far as they got, a band point over updates takes the seeds with
/// a value at exactly that x. Elsewhere, and over generated rollouts or tokens, values are interpolated linearly on the x
/// range that all seeds have: a mean over the seeds that reach an x would rise or fall because others do not. The arms of
/// a pool are averaged within each block first, because runs of a block share what differs between blocks.
pub fn curve(study: &Study, arm: &str, series: &Series, clock: Clock) -> Curve {
    let cells = study.cells_of(arm);
    let exact = clock == Clock::Updates && have_the_same_updates(&cells);
    let runs: Vec<SeedCurve> = cells
        .into_iter()
        .map(|cell| SeedCurve { seed: cell.seed, points: points(cell, series, clock) })
        .filter(|curve| !curve.points.is_empty())
        .collect();
    let arms = study.declaration.arms_of(arm).len();
    let seeds = if arms > 1 { blocks(runs, arms, exact) } else { runs };
    let level = study.declaration.level;
    let xs = xs(&seeds, exact).into_iter();
    let band = xs.filter_map(|x| band_point(&seeds, x, exact, level)).collect();
    Curve { seeds, band }
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
        Series::Evaluation { set } => {
            cell.evaluations_of(set).map(|it| (clock.at(cell, it), it.avg_at_k())).collect()
        }
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

/// The mean over the arms of a pool, in each block in which all of them have a run and where all of these have a value.
fn blocks(mut runs: Vec<SeedCurve>, arms: usize, exact: bool) -> Vec<SeedCurve> {
    let mut arms_of: BTreeMap<u64, usize> = BTreeMap::new();
    runs.iter().for_each(|run| *arms_of.entry(run.seed).or_default() += 1);
    runs.retain(|run| arms_of[&run.seed] == arms);
    let xs = xs(&runs, exact);
    let seeds = arms_of.into_iter().filter(|(_, count)| *count == arms);
    let of_block = |(seed, _)| {
        let own: Vec<&SeedCurve> = runs.iter().filter(|run| run.seed == seed).collect();
        let mean = |x: &f64| {
            let values = own.iter().map(|run| value_at(run, *x, exact));
            Some((*x, estimators::mean(&values.collect::<Option<Vec<f64>>>()?)))
        };
        SeedCurve { seed, points: xs.iter().filter_map(mean).collect() }
    };
    seeds.map(of_block).filter(|block| !block.points.is_empty()).collect()
}

fn xs(seeds: &[SeedCurve], exact: bool) -> Vec<f64> {
    if !exact {
        return even_xs(seeds);
    }
    let mut xs: Vec<f64> = seeds.iter().flat_map(|it| it.points.iter().map(|p| p.0)).collect();
    xs.sort_by(f64::total_cmp);
    xs.dedup();
    xs
}

fn even_xs(seeds: &[SeedCurve]) -> Vec<f64> {
    let firsts = seeds.iter().filter_map(|it| it.points.first()).map(|p| p.0);
    let lasts = seeds.iter().filter_map(|it| it.points.last()).map(|p| p.0);
    let range = firsts.reduce(f64::max).zip(lasts.reduce(f64::min));
    let Some((low, high)) = range.filter(|(low, high)| high > low) else { return Vec::new() };
    let step = (high - low) / (BAND_POINTS - 1) as f64;
    (0..BAND_POINTS).map(|index| (low + step * index as f64).min(high)).collect()
}

fn band_point(seeds: &[SeedCurve], x: f64, exact: bool, level: f64) -> Option<BandPoint> {
    let values: Vec<f64> = seeds.iter().filter_map(|curve| value_at(curve, x, exact)).collect();
    let Mean { mean, interval, runs, .. } = Mean::of(&values, level).filter(|it| it.runs > 1)?;
    let (lowest, highest) = aggregates::range(values);
    let is_between = |seed: &SeedCurve| seed.points.iter().all(|(at, _)| *at != x);
    let interpolated = !exact && seeds.iter().any(is_between);
    Some(BandPoint { x, runs, mean, lowest, highest, interval, interpolated })
}

fn value_at(curve: &SeedCurve, x: f64, exact: bool) -> Option<f64> {
    if exact {
        curve.points.iter().find(|(at, _)| *at == x).map(|(_, value)| *value)
    } else {
        interpolated(&curve.points, x)
    }
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

/// Mean from one x to another of the line through the points, which goes on as it ends.
pub fn mean_between(points: &[(f64, f64)], (from, to): (f64, f64)) -> Option<f64> {
    let (first, last) = (points.first()?, points.last()?);
    let at = |x: f64| {
        let end = if x < first.0 { first.1 } else { last.1 };
        (x, interpolated(points, x).unwrap_or(end))
    };
    let inner = points.iter().filter(|(x, _)| *x > from && *x < to);
    let knots: Vec<(f64, f64)> =
        [at(from)].into_iter().chain(inner.copied()).chain([at(to)]).collect();
    let area = knots.windows(2).map(|pair| (pair[0].1 + pair[1].1) / 2.0 * (pair[1].0 - pair[0].0));
    Some(area.sum::<f64>() / (to - from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_between_two_places_is_an_exact_integral() {
        let late = |points: &[(f64, f64)]| mean_between(points, (5.0, 10.0));
        assert_eq!(late(&[(0.0, 0.0), (10.0, 1.0)]), Some(0.75));
        let corner = late(&[(0.0, 0.0), (8.0, 0.8), (10.0, 0.8)]).unwrap();
        assert!((corner - (0.65 * 3.0 + 0.8 * 2.0) / 5.0).abs() < 1e-12);
        assert_eq!((late(&[(7.0, 0.4)]), late(&[])), (Some(0.4), None));
    }

    #[test]
    fn the_arms_of_a_pool_are_averaged_within_whole_blocks() {
        let run = |seed, points: &[(f64, f64)]| SeedCurve { seed, points: points.to_vec() };
        let runs = vec![
            run(1, &[(0.0, 0.0), (4.0, 0.4)]),
            run(2, &[(0.0, 0.5), (4.0, 0.7)]),
            run(1, &[(0.0, 0.2), (4.0, 0.8)]),
            run(2, &[(0.0, 0.5), (4.0, 0.5)]),
            run(3, &[(0.0, 0.9), (4.0, 0.9)]),
        ];
        let exact = blocks(runs.clone(), 2, true);
        let close = |got: &[(f64, f64)], expected: &[(f64, f64)]| {
            assert_eq!(got.len(), expected.len());
            for (got, expected) in got.iter().zip(expected) {
                assert!(got.0 == expected.0 && (got.1 - expected.1).abs() < 1e-12, "{got:?}");
            }
        };
        assert_eq!(exact.iter().map(|block| block.seed).collect::<Vec<_>>(), [1, 2]);
        close(&exact[0].points, &[(0.0, 0.1), (4.0, 0.6)]);
        close(&exact[1].points, &[(0.0, 0.5), (4.0, 0.6)]);
        // Two blocks, not four runs.
        assert_eq!(band_point(&exact, 4.0, true, 0.95).unwrap().runs, 2);
        let is_between = |x| band_point(&runs, x, false, 0.95).unwrap().interpolated;
        assert!(is_between(2.0) && !is_between(4.0));
        let even = blocks(runs, 2, false);
        assert_eq!(even[0].points.len(), BAND_POINTS);
        assert!((interpolated(&even[0].points, 2.0).unwrap() - 0.35).abs() < 1e-12);
    }

    #[test]
    fn a_block_has_no_mean_where_one_of_its_arms_has_no_value() {
        let runs = vec![
            SeedCurve { seed: 1, points: vec![(0.0, 0.1), (2.0, 0.2), (4.0, 0.3)] },
            SeedCurve { seed: 1, points: vec![(0.0, 0.3), (4.0, 0.5)] },
        ];
        let xs: Vec<f64> = blocks(runs, 2, true)[0].points.iter().map(|(x, _)| *x).collect();
        assert_eq!(xs, [0.0, 4.0]);
    }
}
