//! `rule.toml`: what is run, and the margins.

use crate::base::files;
use crate::study::cell::numbers::ensure;
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

/// Beside them curves have avg@k of evaluated sets.
pub const METRICS: [&str; 4] =
    ["rollout/accuracy", "rollout/reward_mean", "rollout/response_tokens_mean", "policy/entropy"];

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
    check(&rule.fast).map_err(refuse)?;
    Ok(rule)
}

fn check(Fast { seeds, points, alpha, .. }: &Fast) -> Result<(), String> {
    let reason = format_args!("fast.alpha must lie between 0 and 0.5, got {alpha}");
    ensure(*alpha > 0.0 && *alpha < 0.5, reason)?;
    let distinct: BTreeSet<&u64> = seeds.iter().collect();
    let reason = format_args!("fast.seeds must name at least 2 seeds, each once, got {seeds:?}");
    ensure(distinct.len() > 1 && distinct.len() == seeds.len(), reason)?;
    ensure(!points.is_empty(), "fast.points is empty: nothing would be compared")?;
    let known = METRICS.join(", ");
    for point in points {
        let (name, RegressPoint { value, steps, margin }) = (point.name(), point);
        let reason = format_args!("{value}: steps {steps:?} end before they begin");
        ensure(steps[0] <= steps[1], reason)?;
        let reason = format_args!("{name}: margin must be above 0, got {margin}");
        ensure(margin.is_finite() && *margin > 0.0, reason)?;
        let is_known = METRICS.contains(&value.as_str()) || value.starts_with("evaluation/");
        ensure(is_known, format_args!("{name}: expected {known} or evaluation/SET"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_that_no_run_can_meet_is_refused_by_its_value() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rule.toml");
        for (alpha, value, margin, words) in [
            ("0.05", "rollout/accuracy", "0.1", ""),
            ("0.05", "evaluation/dev", "0.1", ""),
            ("0.5", "rollout/accuracy", "0.1", "fast.alpha must lie between 0 and 0.5, got 0.5"),
            ("nan", "rollout/accuracy", "0.1", "fast.alpha"),
            ("0.05", "rollout/accuracy", "0.0", "steps 1-2: margin must be above 0, got 0"),
            ("0.05", "rollout/accurracy", "0.1", "rollout/accurracy, steps 1-2: expected rollout/"),
        ] {
            let text = format!(
                "exact.experiment = \"a.toml\"\n[fast]\nexperiment = \"a.toml\"\nseeds = [1, 2]\nalpha = {alpha}\n\
                 [[fast.points]]\nvalue = \"{value}\"\nsteps = [1, 2]\nmargin = {margin}\n"
            );
            files::write_atomic(&path, text.as_bytes()).unwrap();
            let refusal = load(&path).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(refusal.contains(words) && refusal.is_empty() == words.is_empty(), "{refusal}");
        }
    }
}
