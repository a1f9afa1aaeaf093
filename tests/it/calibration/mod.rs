//! Whether each method keeps its promise on data whose truth is known: coverage of intervals,
//! error rates of tests, power at the detectable effect. Every stream is seeded, so that anybody
//! gets the same table; where a method misses its range, the code that offers it withholds it.

pub mod problems;
pub mod runs;
pub mod table;
pub mod worlds;

use serde::{Deserialize, Serialize};

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

/// One method in one scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    pub method: String,
    pub question: String,
    pub scenario: String,
    /// How much data one replicate has.
    pub size: String,
    pub measure: Measure,
    pub least: f64,
    pub most: f64,
    pub replicates: u64,
    /// Replicates in which the method was offered.
    pub offered: u64,
    /// Of those: the ones counted by `measure`.
    pub hits: u64,
    /// Of all replicates, offered or not: the ones counted by `measure`.
    pub hits_if_always_offered: u64,
    /// The same of the first [`FIRST`] replicates, which anybody can repeat quickly.
    pub hits_of_the_first: u64,
    /// The scenario breaks what the method assumes: a limit that is stated, not a promise.
    pub outside_question: bool,
}

impl Row {
    /// hits / offered; `None` where it was never offered.
    pub fn share(&self) -> Option<f64> {
        (self.offered > 0).then(|| self.hits as f64 / self.offered as f64)
    }

    /// Monte-Carlo standard error of `share` where the truth is `share`.
    fn error(&self, share: f64) -> f64 {
        (share * (1.0 - share) / self.offered.max(1) as f64).sqrt()
    }

    /// Whether the share lies in the allowed range or within three Monte-Carlo standard errors of
    /// it: a method that keeps its range by a hair fails one row in 700. Never offered: kept. A
    /// method that is withheld in more than 1 % of the replicates may cover more than the range:
    /// it is withheld where it would have been short.
    pub fn is_kept(&self) -> bool {
        let Some(share) = self.share() else { return true };
        // A handful of offers in thousands of replicates tells nothing of a share.
        if self.offered < FIRST {
            return true;
        }
        let withheld = self.offered * 100 < self.replicates * 99;
        let most = if withheld && self.measure == Measure::Coverage { 1.0 } else { self.most };
        share >= self.least - 3.0 * self.error(self.least) && share <= most + 3.0 * self.error(most)
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    replicates: u64,
    offered: u64,
    hits: u64,
    always: u64,
    first: u64,
}

impl Tally {
    fn count(&mut self, hit: bool) {
        self.count_offered(hit, true);
    }

    /// One replicate: what the method would have said, and whether it was offered.
    fn count_offered(&mut self, hit: bool, offered: bool) {
        self.first += u64::from(hit && self.replicates < FIRST);
        self.replicates += 1;
        self.offered += u64::from(offered);
        self.hits += u64::from(offered && hit);
        self.always += u64::from(hit);
    }
}

#[derive(Debug, Clone, Copy)]
struct Promise {
    method: &'static str,
    question: &'static str,
    measure: Measure,
    least: f64,
    most: f64,
}

impl Promise {
    const fn coverage(method: &'static str, question: &'static str) -> Self {
        Self { method, question, measure: Measure::Coverage, least: 0.93, most: 0.97 }
    }

    const fn test(method: &'static str, question: &'static str) -> Self {
        Self { method, question, measure: Measure::FalseRejections, least: 0.0, most: 0.05 }
    }

    fn row(&self, scenario: &str, size: &str, tally: Tally) -> Row {
        Row {
            method: self.method.into(),
            question: self.question.into(),
            scenario: scenario.into(),
            size: size.into(),
            measure: self.measure,
            least: self.least,
            most: self.most,
            replicates: tally.replicates,
            offered: tally.offered,
            hits: tally.hits,
            hits_if_always_offered: tally.always,
            hits_of_the_first: tally.first,
            outside_question: false,
        }
    }
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
