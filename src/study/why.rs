//! Reasons (of missing values, comparisons, verdicts) as data. Reports make the sentences.

use crate::study::{Clock, MetricWindow};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum NoValue {
    MetricNotRecorded { name: String },
    EmptyWindow { name: String, window: MetricWindow },
    NeverEvaluated { set: String },
    DivergedBeforeEvaluation { set: String },
    NeverEvaluatedWithin { set: String, clock: Clock, budget: u64 },
    // Within the budget only the base policy was.
    OnlyBaseEvaluatedWithin { set: String, clock: Clock, budget: u64 },
    NotEvaluatedBetween { set: String, from: f64, clock: Clock, budget: u64 },
    // The compared runs have no common reading of the clock.
    NoCommonReading { clock: Clock },
    ClockNotRecorded { clock: Clock },
    // Too few values, or no spread.
    NoCorrelation { x: String, y: String },
    // A most frequent answer is asked for, and the program that grades names none.
    NoAnswers,
    NoRewards,
    NotFinite,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WithoutValue {
    pub arm: String,
    pub seed: u64,
    pub why: NoValue,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Absence {
    NoArm { arm: String },
    NoRunThatCounts { arm: String },
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Why {
    Absent { absence: Absence },
    MixedHarnesses { first: String, other: String },
    // The runs were not all evaluated on the same problems, with as many samples.
    OtherProblems { set: String },
    // A missing run would favour its arm.
    RunWithoutScore { run: WithoutValue },
    TooFewRuns { arm: usize, reference: usize, without_value: Option<WithoutValue> },
    CannotBeTested(Untestable),
    // The margin is of the undivided difference; it was divided by 1, or by 2^(k−1) for an interaction of k factors.
    Equivalent { margin: f64, divisor: u64 },
    // The adjusted p is at most α and, where there is one, the interval lies on one side of 0.
    Shown { adjusted_p: f64, alpha: f64, by_interval: bool },
    // Even the smallest p of so few runs, or of so few blocks that differ, is above α.
    RunsCannotShow(RunsCannotShow),
    IntervalIncludesZero { adjusted_p: f64 },
    NoInterval { adjusted_p: f64 },
    NotShown(NotShown),
    DoseBelow(DosesBelow),
    // Another family must be shown entirely first.
    Closed { after: String, otherwise: Box<Why> },
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunsCannotShow {
    pub smallest_p: f64,
    pub alpha: f64,
    #[serde(skip)]
    pub ties: Option<Ties>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NotShown {
    pub adjusted_p: f64,
    /// Number of comparisons in the family, and the smallest adjusted p that so few runs can give.
    pub least: Option<(usize, f64)>,
    #[serde(skip)]
    pub ties: Option<Ties>,
}

/// Blocks whose sides are equal: they have no sign to flip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ties {
    pub tied: usize,
    pub blocks: usize,
}

impl Ties {
    pub fn of(differences: &[f64]) -> Option<Self> {
        let tied = differences.iter().filter(|difference| **difference == 0.0).count();
        (tied > 0).then_some(Self { tied, blocks: differences.len() })
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Untestable {
    /// Of the statistics, for a reader.
    #[serde(skip)]
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DosesBelow {
    #[serde(flatten)]
    pub below: DoseBelow,
    /// Of a comparison that is about more than one technique.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<DoseBelow>,
    pub otherwise: Box<Why>,
}

/// The mean over the runs with a technique is below the declared least dose.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DoseBelow {
    pub technique: String,
    pub dose: f64,
    pub least: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PartWhy {
    Comparison,
    // Equivalent within δ, and what is claimed is a direction, or a size below δ.
    EquivalentIsNoSize,
    // The direction is shown, and the interval ends at `most`, below the size that is claimed.
    SmallerThanClaimed { claimed: f64, most: f64 },
    Absent { absence: Absence },
    NoRunHasTheValue { without_value: Vec<WithoutValue> },
    TooFewRuns { runs: usize, least: usize },
    // The interval lies on one side of the bound, the claimed one or the other.
    BeyondBound { claimed: bool },
    WithinBound,
    OutsideBound,
    IncludesBound,
    NoCorrelation,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Needed {
    // Runs of each arm, or blocks.
    AtLeast { count: usize, blocks: bool, of: Vec<String> },
    MoreThan { count: usize, blocks: bool },
    MoreThanForSeen { count: usize, blocks: bool },
    AboutForSeen { count: usize, blocks: bool, power: f64 },
    RunsThatRecordTheMetric,
    AboutForSeenSpread { count: usize },
    MoreThanForSeenSpread { count: usize },
    MoreRunsOf { arms: Vec<String> },
    AtLeastInAll { count: usize },
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Remark {
    SharedBase,
    BaseOfSeed,
    RecordsChecked,
    Unregistered,
    NoPilot,
    FailedRuns { count: usize },
    OtherRecords { count: usize },
    HeldOutAbsent { grid: String },
    MissingRuns { count: usize, grids: Vec<String> },
    // The paper's claims are judged on the embedded benchmark alone.
    ClaimsElsewhere,
}
