//! The paper's empirical claims as data (`experiments/claims.toml`), and what a study says of
//! each: evidence and one verdict. Nothing here knows a claim; it knows kinds of tests.

pub mod published;
pub mod words;
pub mod needed;
pub mod intervals;
pub mod evidence;
pub mod text;

use crate::base::files;
use crate::study::collection::Study;
use crate::study::{Direction, Metric, PaperCheck, declaration};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The shipped claims.
const SHIPPED: &str = include_str!("../../../experiments/claims.toml");

/// Claims that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] files::Error),
    /// The file is not TOML of the right shape, or contradicts itself.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The claim or key, and what is wrong.
        reason: String,
    },
}

/// A file of claims.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// In the order of reports.
    pub claims: Vec<Claim>,
}

/// One empirical claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Unique.
    pub id: String,
    /// The claim in our words.
    pub claim: String,
    /// Where the paper makes it.
    pub source: Source,
    /// Why its truth here is no news: what the embedded benchmark was made or tuned to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positive_control: Option<String>,
    /// Why nothing at this scale can test it. Such a claim has no parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_testable: Option<String>,
    /// What must all hold for the claim to be supported.
    #[serde(default)]
    pub parts: Vec<Part>,
}

/// Where the paper makes a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Such as `§3.1`.
    pub section: String,
    /// Such as `2b`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<String>,
    /// Such as `Table 1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
}

/// One testable statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Unique in its claim.
    pub id: String,
    /// What it says, in our words.
    pub says: String,
    /// Parts of one family share the error rate α. A family of the same name in the study's
    /// declaration takes precedence: a part that is declared there has that result.
    pub family: String,
    /// What is computed.
    pub test: Test,
    /// What decides.
    pub rule: Rule,
    /// What the paper's own numbers say of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<PaperCheck>,
}

/// What is computed for a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Test {
    /// One arm against another.
    Difference {
        /// `<grid>/<arm>`.
        arm: String,
        /// `<grid>/<arm>`.
        reference: String,
        /// What of each run.
        metric: Metric,
        /// Which way the claim goes.
        direction: Direction,
    },
    /// One arm's runs against a fixed value.
    Level {
        /// `<grid>/<arm>`.
        arm: String,
        /// What of each run.
        metric: Metric,
        /// The value, in the metric's unit.
        bound: f64,
        /// Which side of it the claim says.
        direction: Direction,
    },
    /// Correlation of two numbers over training runs, within arms: each run's deviation from the
    /// mean of its arm, all arms together.
    AcrossRuns {
        /// `<grid>/<arm>`s.
        arms: Vec<String>,
        /// The first number of each run.
        x: Metric,
        /// The second.
        y: Metric,
        /// |r| below this counts as little.
        bound: f64,
    },
}

/// What decides a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Supported: Holm-adjusted permutation p at most α, and Welch's interval on the claimed side
    /// of 0. Contradicted: the same on the other side, or equivalent within δ.
    HolmAndInterval,
    /// Supported: the t interval over runs, at 1 − α divided by the family's size, lies on the
    /// claimed side of the bound. Contradicted: it lies on the other side.
    IntervalBeyondBound,
    /// Supported: the interval of the correlation (Fisher's z, at 1 − α divided by the family's
    /// size) lies within ± the bound. Contradicted: it lies wholly outside.
    IntervalWithinBound,
}

impl Rule {
    /// For reports.
    pub fn words(self) -> &'static str {
        match self {
            Self::HolmAndInterval => {
                "Holm-adjusted permutation p at most alpha, and Welch's interval on one side of 0"
            }
            Self::IntervalBeyondBound => {
                "t interval over runs on one side of the bound, alpha shared within the family"
            }
            Self::IntervalWithinBound => {
                "interval of the correlation within the bound, alpha shared within the family"
            }
        }
    }
}

impl Test {
    /// The rule that such a test is decided by.
    fn rule(&self) -> Rule {
        match self {
            Self::Difference { .. } => Rule::HolmAndInterval,
            Self::Level { .. } => Rule::IntervalBeyondBound,
            Self::AcrossRuns { .. } => Rule::IntervalWithinBound,
        }
    }

    /// Every arm that it needs.
    pub fn arms(&self) -> Vec<&str> {
        match self {
            Self::Difference { arm, reference, .. } => vec![arm, reference],
            Self::Level { arm, .. } => vec![arm],
            Self::AcrossRuns { arms, .. } => arms.iter().map(String::as_str).collect(),
        }
    }

    fn metrics(&self) -> Vec<&Metric> {
        match self {
            Self::Difference { metric, .. } | Self::Level { metric, .. } => vec![metric],
            Self::AcrossRuns { x, y, .. } => vec![x, y],
        }
    }
}

/// The claims that come with the harness.
///
/// # Panics
/// Never: a test reads them.
pub fn shipped() -> Claims {
    parse(SHIPPED).expect("experiments/claims.toml holds the claims")
}

/// The claims that come with the harness, for a study: none of one that did not run on the embedded
/// benchmark, whose sets they are about (see [`CLAIMS_ELSEWHERE`](crate::study::collection::CLAIMS_ELSEWHERE)).
pub fn shipped_for(study: &Study) -> Claims {
    match study.on_embedded_benchmark() {
        true => shipped(),
        false => Claims { claims: Vec::new() },
    }
}

/// Reads claims from a file.
///
/// # Errors
/// A file that cannot be read, or whose claims cannot be used.
pub fn load(path: &Path) -> Result<Claims, Error> {
    let text = files::read_text_up_to(path, 1 << 20)?;
    parse(&text).map_err(|reason| Error::Invalid { path: path.to_path_buf(), reason })
}

fn parse(text: &str) -> Result<Claims, String> {
    let claims: Claims = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut ids = BTreeSet::new();
    for claim in &claims.claims {
        let at = |reason: String| format!("claim `{}`: {reason}", claim.id);
        if claim.id.is_empty() || !ids.insert(&claim.id) {
            return Err(at("the id is empty or there twice".to_string()));
        }
        if claim.not_testable.is_some() != claim.parts.is_empty() {
            return Err(at("needs either `not_testable` or at least one part".to_string()));
        }
        if claim.not_testable.is_some() && claim.positive_control.is_some() {
            return Err(at("what cannot be tested is no positive control".to_string()));
        }
        let mut parts = BTreeSet::new();
        for part in &claim.parts {
            if !parts.insert(&part.id) {
                return Err(at(format!("part `{}` is there twice", part.id)));
            }
            check_part(part).map_err(|reason| at(format!("part `{}`: {reason}", part.id)))?;
        }
    }
    Ok(claims)
}

fn check_part(part: &Part) -> Result<(), String> {
    for arm in part.test.arms() {
        declaration::check_arm(arm)?;
    }
    if let Some(reason) = part.test.metrics().into_iter().find_map(Metric::problem) {
        return Err(reason);
    }
    if part.rule != part.test.rule() {
        return Err(format!("rule {:?} does not decide such a test", part.rule));
    }
    match &part.test {
        Test::Difference { arm, reference, .. } if arm == reference => {
            return Err(format!("compares `{arm}` with itself"));
        }
        Test::Level { metric, bound, .. } if metric.is_time() || !bound.is_finite() => {
            return Err("a time can be censored and has no t interval; a bound is finite".into());
        }
        Test::AcrossRuns { arms, x, y, bound } => {
            if arms.is_empty() || !(*bound > 0.0 && *bound < 1.0) {
                return Err(format!("needs an arm and a bound in (0, 1), got {bound}"));
            }
            if x.is_time() || y.is_time() {
                return Err("a time can be censored and has no correlation".to_string());
            }
        }
        _ => {}
    }
    part.paper.as_ref().map_or(Ok(()), PaperCheck::check)
}
