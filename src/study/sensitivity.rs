//! The first family's comparisons of scores again: on other clocks and windows, without each block, without changed work
//! trees and collapsed runs. Nothing of it was registered but the row that says so, and no p is corrected.

use crate::statistics::{Estimate, Interval};
use crate::study::comparisons::{self, Comparison, RunValue};
use crate::study::{
    Cell, CellEnding, Clock, FamilyResult, Metric, NoValue, Series, Statistic, arms,
    collection::Study, curves, stability,
};
use serde::Serialize;
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sensitivity {
    pub family: String,
    pub id: String,
    pub rows: Vec<SensitivityRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SensitivityRow {
    pub change: Change,
    /// arm − reference; `None` where a run has no value or too few are left.
    pub difference: Option<f64>,
    pub interval: Option<Interval>,
    /// Not corrected.
    pub p: Option<f64>,
    /// Of the arm, that are kept.
    pub runs: u64,
    #[serde(skip)]
    pub fewest: u64,
    /// Of the first run without one.
    #[serde(skip)]
    pub without_value: Option<NoValue>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Change {
    // The comparison as it was declared.
    None,
    // The mean from half of the smallest total of a run on, the exact integral of the score, which is linear between
    // evaluations. Declared endpoints are plain means of evaluations.
    Clock { clock: Clock },
    // The plain mean of the evaluations from this share of the smallest total on.
    From { share: f64, clock: Clock },
    LastEvaluation,
    WithoutSeed { seed: u64 },
    // Without records of a work tree with changes (`git_dirty`).
    CleanBuilds { left_out: u64 },
    WithoutCollapsed { seeds: Vec<u64> },
}

const CLOCKS: [Clock; 5] = [
    Clock::GeneratedTokens,
    Clock::GeneratedRollouts,
    Clock::Flops,
    Clock::Updates,
    Clock::Seconds,
];
const FROM_SHARES: [f64; 4] = [0.0, 0.25, 0.5, 0.75];

pub fn of(study: &Study, families: &[FamilyResult]) -> Vec<Sensitivity> {
    let first = families.iter().take(1).flat_map(|family| &family.comparisons);
    let of_scores = first.filter(|it| it.declared.metric.is_avg_at_k() && it.result.is_some());
    of_scores.map(|comparison| of_comparison(study, comparison)).collect()
}

fn of_comparison(study: &Study, comparison: &Comparison) -> Sensitivity {
    let again = Again { study, comparison };
    let mut rows = vec![again.row(Change::None, &|_| true)];
    if let [set] = comparison.declared.metric.sets() {
        let has_seconds = again.sides().concat().iter().all(|cell| !cell.step_seconds.is_empty());
        let clocks = CLOCKS.into_iter().filter(|clock| *clock != Clock::Seconds || has_seconds);
        rows.extend(clocks.map(|clock| again.on_clock(set, clock)));
        rows.extend(again.windows(set));
    }
    let seeds: BTreeSet<u64> = comparison.arm.iter().map(|run| run.seed).collect();
    if seeds.len() > 2 {
        let without =
            |seed| again.row(Change::WithoutSeed { seed }, &move |cell| cell.seed != seed);
        rows.extend(seeds.into_iter().map(without));
    }
    rows.extend(again.clean_builds());
    rows.extend(again.without_collapsed());
    let (family, id) = (comparison.family.clone(), comparison.declared.id.clone());
    Sensitivity { family, id, rows }
}

struct Again<'a> {
    study: &'a Study,
    comparison: &'a Comparison,
}

impl Again<'_> {
    fn sides(&self) -> [Vec<&Cell>; 2] {
        let declared = &self.comparison.declared;
        [&declared.arm, &declared.reference].map(|id| self.study.cells_of(id))
    }

    /// The declared value of the runs that are kept.
    fn row(&self, change: Change, keeps: &dyn Fn(&Cell) -> bool) -> SensitivityRow {
        let Comparison { declared, budget, .. } = self.comparison;
        self.of_values(change, keeps, &|cell| declared.metric.value(cell, *budget))
    }

    fn of_values(
        &self,
        change: Change,
        keeps: &dyn Fn(&Cell) -> bool,
        value: &dyn Fn(&Cell) -> Result<f64, NoValue>,
    ) -> SensitivityRow {
        let kept = self.sides().map(|mut cells| {
            cells.retain(|cell| keeps(cell));
            cells
        });
        let [runs, others] = [&kept[0], &kept[1]].map(|cells| cells.len() as u64);
        let sides = kept.map(|cells| {
            let values = cells.into_iter().map(|cell| {
                let (seed, value) = (cell.seed, value(cell)?);
                Ok(RunValue { seed, value, censored: false })
            });
            values.collect::<Result<Vec<_>, NoValue>>()
        });
        let (result, without_value): (Option<Estimate>, _) = match sides {
            [Ok(arm), Ok(reference)] => {
                (comparisons::again(self.study, self.comparison, arm, reference), None)
            }
            [Err(why), _] | [_, Err(why)] => (None, Some(why)),
        };
        SensitivityRow {
            change,
            difference: result.as_ref().map(|it| it.difference),
            interval: result.as_ref().and_then(|it| it.interval),
            p: result.map(|it| it.p),
            runs,
            fewest: runs.min(others),
            without_value,
        }
    }

    fn on_clock(&self, set: &str, clock: Clock) -> SensitivityRow {
        let cells = self.sides().concat();
        let least = |finished: bool| {
            let counts = |cell: &&&Cell| !finished || cell.ending == CellEnding::Finished;
            let totals = cells.iter().filter(counts);
            let totals = totals.map(|cell| curves::clock_by_step(cell, clock).last().copied());
            totals.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)
        };
        let budget = least(true).or_else(|| least(false));
        let series = Series::Evaluation { set: set.to_string() };
        let late = |cell: &Cell| {
            let budget = budget.ok_or(NoValue::ClockNotRecorded { clock })?;
            let points = curves::points(cell, &series, clock);
            let set = || set.to_owned();
            if is_trained(cell) && !has_evaluation_within(&points, budget) {
                let budget = budget as u64;
                return Err(NoValue::OnlyBaseEvaluatedWithin { set: set(), clock, budget });
            }
            let late = curves::mean_between(&points, (budget / 2.0, budget));
            late.ok_or_else(|| NoValue::NeverEvaluated { set: set() })
        };
        self.of_values(Change::Clock { clock }, &|_| true, &late)
    }

    fn windows(&self, set: &str) -> Vec<SensitivityRow> {
        let declared = &self.comparison.declared.metric;
        let clock = declared.equal_clock().unwrap_or(Clock::Updates);
        let budget = arms::common_budget(&self.sides().concat(), clock);
        let (set, statistic) = (set.to_string(), Statistic::AvgAtK);
        let window = |from_share| {
            let metric = Metric::EvaluationMean { set: set.clone(), statistic, clock, from_share };
            (Change::From { share: from_share, clock }, metric)
        };
        let last = (Change::LastEvaluation, Metric::last_score(&set));
        let all = FROM_SHARES.map(window).into_iter().chain([last]);
        let others = all.filter(|(_, metric)| metric != declared);
        let row = |(change, metric): (Change, Metric)| {
            self.of_values(change, &|_| true, &|cell| metric.value(cell, budget))
        };
        others.map(row).collect()
    }

    fn clean_builds(&self) -> Option<SensitivityRow> {
        let left_out = self.sides().concat().into_iter().filter(|cell| is_dirty(cell)).count();
        let change = Change::CleanBuilds { left_out: left_out as u64 };
        (left_out > 0).then(|| self.row(change, &|cell| !is_dirty(cell)))
    }

    fn without_collapsed(&self) -> Option<SensitivityRow> {
        let declared = &self.comparison.declared;
        let seeds = stability::collapsed_seeds(self.study, &[&declared.arm, &declared.reference]);
        let change = Change::WithoutCollapsed { seeds: seeds.clone() };
        (!seeds.is_empty()).then(|| self.row(change, &|cell| !seeds.contains(&cell.seed)))
    }
}

fn is_dirty(cell: &Cell) -> bool {
    cell.environment.get("git_dirty").is_some_and(|dirty| dirty == "true")
}

fn is_trained(cell: &Cell) -> bool {
    cell.counters.last().is_some_and(|end| end.updates > 0)
}

/// Of a policy in training: a line from the base policy to one beyond the budget is no course of a run.
fn has_evaluation_within(points: &[(f64, f64)], budget: f64) -> bool {
    points.iter().any(|(x, _)| *x > 0.0 && *x <= budget)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_was_evaluated_at_both_ends_has_no_course() {
        let ends = [(0.0, 0.2), (12.0, 0.6)];
        assert!(!has_evaluation_within(&ends, 10.0));
        assert!(has_evaluation_within(&ends, 12.0));
        assert!(has_evaluation_within(&[ends[0], (4.0, 0.3), ends[1]], 10.0));
    }
}
