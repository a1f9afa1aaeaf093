//! Parts that an interval decides: an arm against a value, and correlations over runs.

use crate::statistics::comparison::{Region, lies_in};
use crate::statistics::{Interval, Mean, between, correlation, needed as runs_needed};
use crate::study::collection::Study;
use crate::study::needed;
use crate::study::{
    AcrossRunsResult, Cell, ClaimVerdict, Direction, LevelResult, Metric, Needed, PartResult,
    PartWhy, arms, comparisons,
};
use std::collections::BTreeSet;

/// Compares by a t interval over runs at 1 − `alpha`.
pub fn level(
    study: &Study,
    part: &mut PartResult,
    (arm, metric): (&str, &Metric),
    (bound, direction): (f64, Direction),
    alpha: f64,
) {
    if let Some(absence) = study.absence(arm) {
        part.needed = Some(needed::fewest_runs(vec![arm.to_string()]));
        part.why = PartWhy::Absent { absence };
        return;
    }
    let cells = not_counted(study, arm, &mut BTreeSet::new());
    let (runs, without_value) =
        comparisons::run_values(arm, &cells, metric, &|cell| own_budget(metric, cell));
    let values: Vec<f64> = runs.iter().map(|run| run.value).collect();
    let Some(seen) = Mean::of(&values, 1.0 - alpha) else {
        part.why = PartWhy::NoRunHasTheValue { without_value };
        part.needed = Some(Needed::RunsThatRecordTheMetric);
        return;
    };
    if let Some(interval) = &seen.interval {
        let region = match direction {
            Direction::Higher => Region::Above(bound),
            Direction::Lower => Region::Below(bound),
        };
        let whys = [true, false].map(|claimed| PartWhy::BeyondBound { claimed });
        decide(part, interval, region, whys, || needed::for_level(&values, bound, alpha));
    } else {
        part.why = PartWhy::TooFewRuns { runs: values.len(), least: between::FEWEST_RUNS };
        part.needed = Some(needed::fewest_runs(vec![arm.to_string()]));
    }
    part.level = Some(LevelResult {
        arm: arm.to_string(),
        metric: metric.clone(),
        direction,
        runs,
        without_value,
        mean: seen.mean,
        interval: seen.interval,
        bound,
        token_weighted: token_weighted(&cells, metric, alpha),
    });
}

/// Two grids may name one arm, and a pool may have it under both names: its runs count once.
fn not_counted<'a>(study: &'a Study, id: &str, counted: &mut BTreeSet<String>) -> Vec<&'a Cell> {
    let mut cells = study.cells_of(id);
    cells.retain(|cell| counted.insert(cell.file_name()));
    cells
}

/// There is no other run to compare with, so its own total.
fn own_budget(metric: &Metric, cell: &Cell) -> Option<u64> {
    arms::common_budget(&[cell], metric.equal_clock()?)
}

/// `None` unless all runs have the value.
fn token_weighted(cells: &[&Cell], metric: &Metric, alpha: f64) -> Option<Mean> {
    let values: Option<Vec<f64>> = cells.iter().map(|cell| metric.token_weighted(cell)).collect();
    Mean::of(&values?, 1.0 - alpha)
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
    let mut arms = Vec::new();
    let mut counted = BTreeSet::new();
    for id in ids {
        let value =
            |cell: &Cell, metric: &Metric| metric.value(cell, own_budget(metric, cell)).ok();
        let of_run = |cell: &Cell| Some((id.clone(), cell.seed, value(cell, x)?, value(cell, y)?));
        let cells = not_counted(study, id, &mut counted).into_iter();
        let own: Vec<_> = cells.filter_map(of_run).collect();
        // An arm's only run equals its mean and carries no information.
        if own.len() > 1 {
            arms.push(own.iter().map(|run| (run.2, run.3)).collect());
            runs.extend(own);
        }
    }
    let (correlation, interval) = correlation::within_groups(&arms, 1.0 - alpha);
    if let Some(interval) = &interval {
        let whys = [PartWhy::WithinBound, PartWhy::OutsideBound];
        decide(part, interval, Region::Within(bound), whys, || {
            let count = runs_needed::for_correlation(bound, alpha, arms.len());
            Needed::AtLeastInAll { count }
        });
    } else {
        part.why = PartWhy::NoCorrelation;
        part.needed = Some(Needed::MoreRunsOf { arms: ids.to_vec() });
    }
    let (x, y) = (x.clone(), y.clone());
    part.across_runs = Some(AcrossRunsResult { x, y, correlation, interval, bound, runs });
}

fn decide(
    part: &mut PartResult,
    interval: &Interval,
    claimed: Region,
    [inside, outside]: [PartWhy; 2],
    needed: impl FnOnce() -> Needed,
) {
    match lies_in(interval, claimed) {
        Some(true) => (part.verdict, part.why) = (ClaimVerdict::Supported, inside),
        Some(false) => (part.verdict, part.why) = (ClaimVerdict::Contradicted, outside),
        None => {
            part.why = PartWhy::IncludesBound;
            part.needed = Some(needed());
        }
    }
}
