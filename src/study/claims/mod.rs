//! The paper's empirical claims (`experiments/claims.toml`) and a study's verdicts. The code knows no single claim.

pub mod published;
pub mod results;
pub mod intervals;
pub mod evidence;

use crate::base::files;
use crate::study::cell::numbers::ensure;
use crate::study::{Direction, Metric, PaperCheck, StudyError, collection::Study, declaration};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

pub const FILE: &str = "claims.toml";

const SHIPPED: &str = include_str!("../../../experiments/claims.toml");

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    pub claims: Vec<Claim>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub id: String,
    pub claim: String,
    pub source: ClaimSource,
    /// What the benchmark was made or tuned to show; its truth here is no news.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positive_control: Option<String>,
    /// Why no part can test it at this scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_testable: Option<String>,
    #[serde(default)]
    pub parts: Vec<ClaimPart>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimSource {
    pub section: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimPart {
    pub id: String,
    pub says: String,
    /// Its parts share the error rate α. A part that a declared family of this name holds takes its result from there.
    pub family: String,
    pub test: Test,
    pub rule: ClaimRule,
    /// The size of the difference that is claimed, in the unit of the metric. Without it a claim is of a direction alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_size: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<PaperCheck>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Test {
    Difference { arm: String, reference: String, metric: Metric, direction: Direction },
    Level { arm: String, metric: Metric, bound: f64, direction: Direction },
    // Over runs: each run's deviation from its arm's mean, all arms together. |r| below the bound counts as little.
    AcrossRuns { arms: Vec<String>, x: Metric, y: Metric, bound: f64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimRule {
    /// Supported: Holm-adjusted permutation p ≤ α, and Welch's interval on the claimed side of 0.
    /// Contradicted: the same on the other side, or equivalent within a δ of at most the claimed size.
    HolmAndInterval,
    /// Supported: the t interval at 1 − α / (family size) lies on the bound's claimed side. Contradicted: on the other.
    IntervalBeyondBound,
    /// Supported: Fisher's interval at 1 − α / (family size) lies within ± the bound. Contradicted: wholly outside.
    IntervalWithinBound,
}

impl ClaimRule {
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
    fn rule(&self) -> ClaimRule {
        match self {
            Self::Difference { .. } => ClaimRule::HolmAndInterval,
            Self::Level { .. } => ClaimRule::IntervalBeyondBound,
            Self::AcrossRuns { .. } => ClaimRule::IntervalWithinBound,
        }
    }

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

pub fn shipped() -> Claims {
    parse(SHIPPED).expect("experiments/claims.toml holds the claims")
}

/// The folder's `claims.toml`, else the paper's claims for a study of mini-AIME, else nothing.
pub fn of(folder: &Path, study: &Study) -> Result<Claims, StudyError> {
    let own = files::foreign::inside(folder, FILE)?;
    if own.exists() {
        return load(&own);
    }
    Ok(if study.is_of_mini_aime() { shipped() } else { Claims::default() })
}

pub fn load(path: &Path) -> Result<Claims, StudyError> {
    let text = files::read_text_up_to(path, 1 << 20)?;
    parse(&text).map_err(|reason| StudyError::invalid(path, reason))
}

fn parse(text: &str) -> Result<Claims, String> {
    let claims: Claims = toml::from_str(text).map_err(|error: toml::de::Error| {
        files::foreign::without_text(text, error.message(), error.span())
    })?;
    let mut ids = BTreeSet::new();
    for claim in &claims.claims {
        let at = |reason: String| format!("claim `{}`: {reason}", claim.id);
        let is_named = !claim.id.is_empty() && ids.insert(&claim.id);
        ensure(is_named, "the id is empty or there twice").map_err(at)?;
        check_claim(claim).map_err(at)?;
    }
    Ok(claims)
}

fn check_claim(claim: &Claim) -> Result<(), String> {
    let Claim { not_testable, positive_control, parts, .. } = claim;
    let reason = "needs either `not_testable` or at least one part";
    ensure(not_testable.is_some() == parts.is_empty(), reason)?;
    let reason = "what cannot be tested is no positive control";
    ensure(not_testable.is_none() || positive_control.is_none(), reason)?;
    let mut ids = BTreeSet::new();
    for part in parts {
        ensure(ids.insert(&part.id), format_args!("part `{}` is there twice", part.id))?;
        check_part(part).map_err(|reason| format!("part `{}`: {reason}", part.id))?;
    }
    Ok(())
}

fn check_part(part: &ClaimPart) -> Result<(), String> {
    for arm in part.test.arms() {
        declaration::check_arm(arm)?;
    }
    if let Some(reason) = part.test.metrics().into_iter().find_map(Metric::problem) {
        return Err(reason);
    }
    let reason = format_args!("rule {:?} does not decide such a test", part.rule);
    ensure(part.rule == part.test.rule(), reason)?;
    match &part.test {
        Test::Difference { arm, reference, .. } => {
            ensure(arm != reference, format_args!("compares `{arm}` with itself"))?;
        }
        Test::Level { metric, bound, .. } => {
            let reason = "a time can be censored and has no t interval; a bound is finite";
            ensure(!metric.is_time() && bound.is_finite(), reason)?;
        }
        Test::AcrossRuns { arms, x, y, bound } => {
            let is_possible = !arms.is_empty() && *bound > 0.0 && *bound < 1.0;
            let reason = format_args!("needs an arm and a bound in (0, 1), got {bound}");
            ensure(is_possible, reason)?;
            let reason = "a time can be censored and has no correlation";
            ensure(!x.is_time() && !y.is_time(), reason)?;
        }
    }
    let is_size = part.claimed_size.is_none_or(|size| size > 0.0 && size.is_finite());
    ensure(is_size, "`claimed_size` must be above 0")?;
    let is_known = part.paper.as_ref().is_none_or(|check| check.evidence().is_some());
    let how = "`paper` is none of the checks in golden/paper/evidence.json: write it as there, or run \
               golden/paper/evidence.py, which computes those of the claims, and build again";
    ensure(is_known, how)
}
