//! When each run reached the level. A run that never did is censored at its last evaluation.

use crate::experiment::{Arm, Grid};
use crate::statistics::{TimeToEvent, time_to_level};
use crate::study::{Clock, collection::Study, declaration::Level, metric};
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

pub fn times(study: &Study, grid: &Grid, level: &Level) -> Vec<ArmTimes> {
    let of = |arm: &Arm| {
        let id = format!("{}/{}", grid.name, arm.name);
        ArmTimes {
            updates: on_clock(study, &id, level, Clock::Updates),
            generated_rollouts: on_clock(study, &id, level, Clock::GeneratedRollouts),
            arm: id,
        }
    };
    grid.arms.iter().map(of).collect()
}

fn on_clock(study: &Study, id: &str, level: &Level, clock: Clock) -> LevelTimes {
    let seeds: Vec<(u64, TimeToEvent)> = study
        .cells_of(id)
        .into_iter()
        .filter_map(|cell| {
            let time = metric::time_to_level(cell, &level.set, level.level, clock).ok()?;
            Some((cell.seed, time))
        })
        .collect();
    let runs: Vec<TimeToEvent> = seeds.iter().map(|(_, time)| *time).collect();
    let median = time_to_level::median_time(&runs).ok().flatten();
    LevelTimes { reached: runs.iter().filter(|run| run.reached).count() as u64, seeds, median }
}
