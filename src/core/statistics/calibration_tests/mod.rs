//! Whether each method keeps its promise on data whose truth is known: coverage of intervals,
//! error rates of tests, power at the detectable effect. Every stream is seeded, so that anybody
//! gets the same table; where a method misses its range, the code that offers it withholds it.

pub mod problems;
pub mod runs;
pub mod table;
pub mod worlds;

use crate::base::rng::Stream;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const REPLICATES: u64 = 10_000;

/// Replicates that a test repeats.
pub const FIRST: u64 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Share of offered intervals that contain the truth; nominal 95 %.
    Coverage,
    /// Share of replicates in which a true null hypothesis is rejected at 5 %.
    FalseRejections,
    /// Share of replicates in which a true effect is found.
    Power,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    #[serde(flatten)]
    pub promise: Promise,
    pub scenario: String,
    /// How much data one replicate has.
    pub size: String,
    #[serde(flatten)]
    pub tally: Tally,
    /// The scenario breaks what the method assumes: a limit that is stated, not a promise.
    pub outside_question: bool,
}

/// What a method is for, and the range of its share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Promise {
    pub method: String,
    pub question: String,
    pub measure: Measure,
    pub least: f64,
    pub most: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    pub replicates: u64,
    /// Replicates in which the method was offered.
    pub offered: u64,
    /// Of those: the ones counted by [`Measure`].
    pub hits: u64,
    /// Of all replicates, offered or not: the ones counted.
    pub hits_if_always_offered: u64,
    /// The same of the first [`FIRST`] replicates, which anybody can repeat quickly.
    pub hits_of_the_first: u64,
}

impl Row {
    /// Whether the share lies in the allowed range or within three Monte-Carlo standard errors of
    /// it: a method that keeps its range by a hair fails one row in 700. Never offered: kept. A
    /// method that is withheld in more than 1 % of the replicates may cover more than the range:
    /// it is withheld where it would have been short.
    pub fn is_kept(&self) -> bool {
        let (Tally { replicates, offered, hits, .. }, promise) = (self.tally, &self.promise);
        // A handful of offers in thousands of replicates tells nothing of a share.
        if offered < FIRST {
            return true;
        }
        let withheld = offered * 100 < replicates * 99;
        let may_cover_all = withheld && promise.measure == Measure::Coverage;
        let (least, most) = (promise.least, if may_cover_all { 1.0 } else { promise.most });
        let error = |share: f64| (share * (1.0 - share) / offered as f64).sqrt();
        let share = hits as f64 / offered as f64;
        share >= least - 3.0 * error(least) && share <= most + 3.0 * error(most)
    }
}

impl Tally {
    /// One replicate: what the method would have said, and whether it was offered.
    fn count(&mut self, (hit, offered): (bool, bool)) {
        self.hits_of_the_first += u64::from(hit && self.replicates < FIRST);
        self.replicates += 1;
        self.offered += u64::from(offered);
        self.hits += u64::from(offered && hit);
        self.hits_if_always_offered += u64::from(hit);
    }
}

/// Replicates of one scenario and size, for names of `promises.toml`: of each method whether it hit,
/// and whether it was offered. `name` is that of the replicates' streams.
fn simulate<const N: usize>(
    promises: [&str; N],
    replicates: u64,
    [name, scenario, size]: [&str; 3],
    mut replicate: impl FnMut(&mut Stream) -> [(bool, bool); N],
) -> Vec<Row> {
    let all: BTreeMap<String, Promise> = toml::from_str(include_str!("promises.toml")).unwrap();
    let mut tallies = [Tally::default(); N];
    for index in 0..replicates {
        let outcomes = replicate(&mut worlds::stream(name, index));
        tallies.iter_mut().zip(outcomes).for_each(|(tally, outcome)| tally.count(outcome));
    }
    let row = |(promise, tally)| {
        let promise = all[promise].clone();
        let (scenario, size) = (scenario.to_string(), size.to_string());
        Row { promise, scenario, size, tally, outside_question: false }
    };
    promises.into_iter().zip(tallies).map(row).collect()
}

/// The whole table, each row with so many replicates.
pub fn calibrate(replicates: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |new: Vec<Row>| rows.extend(new);
    problems::rows(replicates, &mut add);
    runs::rows(replicates, &mut add);
    rows
}

mod tests;
