//! `rule.toml`: what is run, and the margins.

use crate::base::files;
use crate::verification::VerificationError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegressRule {
    pub exact: Exact,
    pub fast: Fast,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exact {
    /// Relative to the rule.
    pub experiment: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fast {
    /// Relative to the rule.
    pub experiment: PathBuf,
    /// Golden and compared curves have the same seeds.
    pub seeds: Vec<u64>,
    /// Error rate of each one-sided test.
    pub alpha: f64,
    pub points: Vec<RegressPoint>,
}

/// Mean of a metric over some rollout steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegressPoint {
    /// Such as `rollout/accuracy`, or `evaluation/<set>` for avg@k.
    pub value: String,
    pub steps: [u64; 2],
    /// δ, in the metric's unit.
    pub margin: f64,
}

impl RegressPoint {
    /// `rollout/accuracy, steps 1-4`.
    pub fn name(&self) -> String {
        let [first, last] = self.steps;
        if first == last {
            format!("{}, step {first}", self.value)
        } else {
            format!("{}, steps {first}-{last}", self.value)
        }
    }
}

impl Fast {
    /// Golden curves carry it: a margin cannot change without a new blessing.
    pub fn sha256(&self) -> String {
        files::sha256(files::canonical_json_line(self).as_bytes())
    }
}

pub fn load(path: &Path) -> Result<RegressRule, VerificationError> {
    let refuse =
        |reason: String| VerificationError::Refused(format!("{}: {reason}", path.display()));
    let text = files::read_text(path)?;
    let rule: RegressRule = toml::from_str(&text).map_err(|error: toml::de::Error| {
        refuse(files::foreign::without_text(&text, error.message(), error.span()))
    })?;
    let Fast { seeds, points, .. } = &rule.fast;
    let distinct: BTreeSet<&u64> = seeds.iter().collect();
    if distinct.len() < 2 || distinct.len() < seeds.len() {
        let what = format!("fast.seeds must name at least 2 seeds, each once, got {seeds:?}");
        return Err(refuse(what));
    }
    if points.is_empty() {
        return Err(refuse("fast.points is empty: nothing would be compared".to_string()));
    }
    let is_backwards = |point: &&RegressPoint| point.steps[0] > point.steps[1];
    if let Some(RegressPoint { value, steps, .. }) = points.iter().find(is_backwards) {
        return Err(refuse(format!("{value}: steps {steps:?} end before they begin")));
    }
    Ok(rule)
}
