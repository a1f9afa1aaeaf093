//! When each run reached the level. A run that never did is censored at its last evaluation.

use crate::experiment::{Arm, Grid};
use crate::statistics::{Mean, TimeToEvent, time_to_level};
use crate::study::{Cell, Clock, collection::Study, declaration::Level, membership, metric};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmTimes {
    pub arm: String,
    pub updates: LevelTimes,
    pub generated_rollouts: LevelTimes,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelTimes {
    pub seeds: Vec<(u64, TimeToEvent)>,
    pub reached: u64,
    /// Kaplan–Meier median; `None` where more than half never reached it.
    pub median: Option<f64>,
}

/// avg@k on the curve set, whether or not a level was declared.
const REFERENCE_LEVELS: [f64; 5] = [0.5, 0.6, 0.7, 0.8, 0.9];

/// What the runs of an arm took to reach a level for the first time: a reference convergence point, as MLPerf has them.
/// Means are over all runs, and absent where a run never reached it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReferencePoint {
    pub arm: String,
    /// avg@k in [0, 1].
    pub level: f64,
    pub reached: u64,
    pub runs: u64,
    pub updates: Option<Mean>,
    pub generated_tokens: Option<Mean>,
}

/// Of each level that a run reached.
pub fn reference_points(study: &Study, grid: &Grid) -> Vec<ReferencePoint> {
    let of_arm =
        |(id, _): (String, &Arm)| REFERENCE_LEVELS.map(|level| reference_point(study, &id, level));
    let points = membership::arms_of(grid).flat_map(of_arm);
    points.filter(|point| point.reached > 0).collect()
}

fn reference_point(study: &Study, id: &str, level: f64) -> ReferencePoint {
    let set = &study.declaration.curve_set;
    let cells = study.cells_of(id);
    let times = |clock| -> Vec<f64> {
        let times = cells.iter().filter_map(|cell| {
            metric::total(cell, clock)?;
            let time = metric::time_to_level(cell, set, level, clock).ok()?;
            time.reached.then_some(time.time)
        });
        times.collect()
    };
    let mean = |times: Vec<f64>| {
        let all = times.len() == cells.len();
        Mean::of(&times, study.declaration.level).filter(|_| all)
    };
    let updates = times(Clock::Updates);
    ReferencePoint {
        arm: id.to_string(),
        level,
        reached: updates.len() as u64,
        runs: cells.len() as u64,
        updates: mean(updates),
        generated_tokens: mean(times(Clock::GeneratedTokens)),
    }
}

pub fn times(study: &Study, grid: &Grid, level: &Level) -> Vec<ArmTimes> {
    let of_arm = |(id, _): (String, &Arm)| ArmTimes {
        updates: on_clock(study, &id, level, Clock::Updates),
        generated_rollouts: on_clock(study, &id, level, Clock::GeneratedRollouts),
        arm: id,
    };
    membership::arms_of(grid).map(of_arm).collect()
}

fn on_clock(study: &Study, id: &str, level: &Level, clock: Clock) -> LevelTimes {
    let time = |cell: &Cell| metric::time_to_level(cell, &level.set, level.level, clock).ok();
    let cells = study.cells_of(id).into_iter();
    let seeds: Vec<(u64, TimeToEvent)> =
        cells.filter_map(|cell| Some((cell.seed, time(cell)?))).collect();
    let runs: Vec<TimeToEvent> = seeds.iter().map(|(_, time)| *time).collect();
    let median = time_to_level::median_time(&runs).ok().flatten();
    LevelTimes { reached: runs.iter().filter(|run| run.reached).count() as u64, seeds, median }
}
