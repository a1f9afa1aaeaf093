//! The paper's empirical claims (`experiments/claims.toml`) and a study's verdicts. The code knows no single claim.

pub mod published;
pub mod names;
pub mod results;
pub mod intervals;
pub mod evidence;

use crate::base::files;
use crate::records::metrics::{self, MetricRange};
use crate::study::cell::numbers::ensure;
use crate::study::{
    Direction, Metric, PaperCheck, Reduce, StudyError, collection::Study, declaration,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

pub const FILE: &str = "claims.toml";

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    pub claims: Vec<Claim>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    pub id: String,
    pub claim: String,
    pub source: ClaimSource,
    /// What the benchmark was made or tuned to show; its truth here is no news.
    pub positive_control: Option<String>,
    /// Why no part can test it at this scale.
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

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimPart {
    pub id: String,
    pub says: String,
    /// Its parts share the error rate α. A part that a declared family of this name holds takes its result from there.
    pub family: String,
    pub test: Test,
    pub rule: ClaimRule,
    /// The size of the difference that is claimed, in the unit of the metric. Without it a claim is of a direction alone.
    pub claimed_size: Option<f64>,
    pub paper: Option<PaperCheck>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
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
    let text = include_str!("../../../experiments/claims.toml");
    parse(text).expect("experiments/claims.toml holds the claims")
}

/// The folder's `claims.toml`, else the paper's claims for a study of mini-AIME, else nothing.
pub fn of(folder: &Path, study: &Study) -> Result<Claims, StudyError> {
    let own = files::foreign::inside(folder, FILE)?;
    if own.exists() {
        return load(&own, study);
    }
    Ok(if study.is_of_mini_aime() { shipped() } else { Claims::default() })
}

/// Errors: a name that the study does not have; the paper's claims are judged as far as it has their arms.
pub fn load(path: &Path, study: &Study) -> Result<Claims, StudyError> {
    let text = files::read_text_up_to(path, 1 << 20)?;
    let claims = parse(&text).map_err(|reason| StudyError::invalid(path, reason))?;
    match names::problem(&claims, study).filter(|_| claims != shipped()) {
        Some(problem) => Err(StudyError::invalid(path, problem)),
        None => Ok(claims),
    }
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
    part.test.metrics().into_iter().try_for_each(Metric::check)?;
    let reason = format_args!("rule {:?} does not decide such a test", part.rule);
    ensure(part.rule == part.test.rule(), reason)?;
    match &part.test {
        Test::Difference { arm, reference, metric, .. } => {
            ensure(arm != reference, format_args!("compares `{arm}` with itself"))?;
            part.claimed_size.map_or(Ok(()), |size| check_size(metric, size))?;
        }
        Test::Level { metric, bound, .. } => {
            let reason = "a time can be censored and has no t interval; a bound is finite";
            ensure(!metric.is_time() && bound.is_finite(), reason)?;
            if let Some((low, high, unit)) = range(metric) {
                let reason = format_args!(
                    "`bound` must lie in [{low}, {high}], got {bound}: {} is {unit}",
                    metric.words()
                );
                ensure((low..=high).contains(bound), reason)?;
            }
        }
        Test::AcrossRuns { arms, x, y, bound } => {
            let is_possible = !arms.is_empty() && *bound > 0.0 && *bound < 1.0;
            let reason = format_args!("needs an arm and a bound in (0, 1), got {bound}");
            ensure(is_possible, reason)?;
            let distinct: BTreeSet<&String> = arms.iter().collect();
            let reason = format_args!("`arms` names an arm twice: {}", arms.join(", "));
            ensure(distinct.len() == arms.len(), reason)?;
            let reason = "a time can be censored and has no correlation";
            ensure(!x.is_time() && !y.is_time(), reason)?;
        }
    }
    let is_difference = matches!(part.test, Test::Difference { .. });
    let reason = "`claimed_size` is for a difference; this test has a bound";
    ensure(part.claimed_size.is_none() || is_difference, reason)?;
    let is_known = part.paper.as_ref().is_none_or(|check| check.evidence().is_some());
    let how = "`paper` is none of the checks in golden/paper/evidence.json: write it as there, or run \
               golden/paper/evidence.py, which computes those of the claims, and build again";
    ensure(is_known, how)
}

fn check_size(metric: &Metric, size: f64) -> Result<(), String> {
    ensure(size > 0.0 && size.is_finite(), "`claimed_size` must be above 0")?;
    let Some((low, high, unit)) = range(metric) else { return Ok(()) };
    let (most, words) = (high - low, metric.words());
    let reason =
        format_args!("`claimed_size` must be at most {most}, got {size}: {words} is {unit}");
    ensure(size <= most, reason)
}

/// The lowest and the highest value that a metric can have, and its unit.
fn range(metric: &Metric) -> Option<(f64, f64, &'static str)> {
    use Reduce::{Maximum, Mean, Minimum};
    let has_share =
        |name: &str| metrics::of(name).is_some_and(|it| it.range == Some(MetricRange::Share));
    let is_share = match metric {
        Metric::Correlation { .. } => return Some((-1.0, 1.0, "a correlation")),
        Metric::Contrast { name, .. } if has_share(name) => {
            return Some((-1.0, 1.0, "a difference of shares (0.25 for 25 points)"));
        }
        Metric::Metric { name, reduce: Mean | Minimum | Maximum, .. } => has_share(name),
        _ => metric.statistic()?.is_share(),
    };
    is_share.then_some((0.0, 1.0, "a share (0.25 for 25 %)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_metric_cannot_be_and_an_arm_that_is_named_twice_are_refused() {
        let checked = |test: Test, claimed_size| {
            let [id, says, family] = ["p", "s", "f"].map(str::to_string);
            let rule = test.rule();
            check_part(&ClaimPart { id, says, family, test, rule, claimed_size, paper: None })
        };
        let score = || Metric::last_score("dev");
        let arms = |names: &[&str]| names.iter().map(|name| format!("g/{name}")).collect();
        let direction = Direction::Higher;
        let level = |bound| Test::Level { arm: "g/a".into(), metric: score(), bound, direction };
        let across = |names: &[&str]| Test::AcrossRuns {
            arms: arms(names),
            x: score(),
            y: score(),
            bound: 0.2,
        };
        let (arm, reference) = ("g/a".to_string(), "g/b".to_string());
        let difference = Test::Difference { arm, reference, metric: score(), direction };
        let refused = |test, claimed_size| checked(test, claimed_size).unwrap_err();
        checked(level(1.0), None).unwrap();
        checked(across(&["a", "b"]), None).unwrap();
        checked(difference.clone(), Some(0.2)).unwrap();
        let share = "avg@k on dev, last evaluation is a share (0.25 for 25 %)";
        let bound = format!("`bound` must lie in [0, 1], got 25: {share}");
        assert_eq!(refused(level(25.0), None), bound);
        let size = format!("`claimed_size` must be at most 1, got 20: {share}");
        assert_eq!(refused(difference, Some(20.0)), size);
        assert!(refused(level(0.2), Some(0.2)).contains("is for a difference"));
        let twice = "`arms` names an arm twice: g/a, g/b, g/a";
        assert_eq!(refused(across(&["a", "b", "a"]), None), twice);
    }
}
