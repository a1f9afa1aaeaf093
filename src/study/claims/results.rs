//! Verdicts of claims, and the evidence of each part.

use crate::statistics::{Interval, Mean};
use crate::study::claims::ClaimSource;
use crate::study::{
    ClaimRule, Direction, Metric, Needed, PaperEvidence, PartWhy, Remark, RunValue, WithoutValue,
    comparisons::Comparison,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimVerdict {
    Supported,
    /// Every part was shown, and the benchmark was made to show it.
    PositiveControl,
    /// Every part has the claimed direction, and the interval of one ends below the claimed size.
    SmallerThanClaimed,
    Contradicted,
    Inconclusive,
    NotTestable,
}

impl ClaimVerdict {
    pub fn words(self) -> &'static str {
        match self {
            Self::Supported => "supported",
            Self::PositiveControl => "positive control",
            Self::SmallerThanClaimed => "smaller than claimed",
            Self::Contradicted => "contradicted",
            Self::Inconclusive => "inconclusive",
            Self::NotTestable => "not testable at this scale",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    pub claims: Vec<ClaimResult>,
    pub remarks: Vec<Remark>,
    pub declaration_sha256: String,
    pub registered: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClaimResult {
    pub id: String,
    pub claim: String,
    pub source: ClaimSource,
    pub verdict: ClaimVerdict,
    pub positive_control: Option<String>,
    pub not_testable: Option<String>,
    pub parts: Vec<PartResult>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PartResult {
    pub id: String,
    pub says: String,
    pub family: String,
    pub rule: ClaimRule,
    pub registered: bool,
    pub verdict: ClaimVerdict,
    pub why: PartWhy,
    pub needed: Option<Needed>,
    pub comparison: Option<Comparison>,
    pub level: Option<LevelResult>,
    pub across_runs: Option<AcrossRunsResult>,
    pub paper: Option<PaperEvidence>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelResult {
    pub arm: String,
    pub metric: Metric,
    pub direction: Direction,
    pub runs: Vec<RunValue>,
    pub without_value: Vec<WithoutValue>,
    pub mean: f64,
    /// At 1 − α / (family size); `None` for fewer than
    /// [`between::FEWEST_RUNS`](crate::statistics::between::FEWEST_RUNS) runs.
    pub interval: Option<Interval>,
    pub bound: f64,
    /// Weighs tokens equally, where the registered value weighs rollout steps. It decides nothing.
    pub token_weighted: Option<Mean>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AcrossRunsResult {
    pub x: Metric,
    pub y: Metric,
    pub runs: Vec<(String, u64, f64, f64)>,
    /// It is of the deviations from each arm's mean; `None` without spread.
    pub correlation: Option<f64>,
    /// Fisher's z at 1 − α / (family size).
    pub interval: Option<Interval>,
    pub bound: f64,
}
