//! `rule.toml`: what is run, and by which margins it is judged.

use crate::base::files;
use crate::verification::regress::Error;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The rule of both parts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The run whose ledger must not change.
    pub exact: Exact,
    /// The runs whose curves must not move.
    pub fast: Fast,
}

/// The run whose ledger must not change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exact {
    /// Experiment file, relative to the rule.
    pub experiment: PathBuf,
}

/// The runs whose curves must not move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fast {
    /// Experiment file, relative to the rule.
    pub experiment: PathBuf,
    /// The run seeds, of the golden curves and of those compared with them.
    pub seeds: Vec<u64>,
    /// α of each of the two one-sided tests.
    pub alpha: f64,
    /// What is compared. All of it has to be reproduced.
    pub points: Vec<Point>,
}

/// A value of each run: the mean of a metric over some rollout steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// A metric such as `rollout/accuracy`, or `evaluation/` and a set for its avg@k.
    pub value: String,
    /// First and last rollout step.
    pub steps: [u64; 2],
    /// δ, in the unit of the metric.
    pub margin: f64,
}

impl Point {
    /// `rollout/accuracy, steps 1-4`.
    pub fn name(&self) -> String {
        let [first, last] = self.steps;
        match first == last {
            true => format!("{}, step {first}", self.value),
            false => format!("{}, steps {first}-{last}", self.value),
        }
    }
}

impl Fast {
    /// SHA-256 of the rule: golden curves carry it, so that a margin cannot be moved after they
    /// were made without blessing anew.
    pub fn sha256(&self) -> String {
        files::sha256(files::canonical_json_line(self).as_bytes())
    }
}

/// Reads a rule.
///
/// # Errors
/// A file that cannot be read, is no rule, or has less than two seeds, a seed twice, no point, or
/// a step range that ends before it begins.
pub fn load(path: &Path) -> Result<Rule, Error> {
    let refuse = |reason: String| Error::Rule { path: path.to_path_buf(), reason };
    let text = files::read_text(path)?;
    let rule: Rule = toml::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    let mut seeds = rule.fast.seeds.clone();
    seeds.sort_unstable();
    seeds.dedup();
    if seeds.len() < 2 || seeds.len() < rule.fast.seeds.len() {
        return Err(refuse(format!(
            "fast.seeds must name at least 2 seeds, each once, got {:?}",
            rule.fast.seeds
        )));
    }
    if rule.fast.points.is_empty() {
        return Err(refuse("fast.points is empty: nothing would be compared".to_string()));
    }
    if let Some(point) = rule.fast.points.iter().find(|point| point.steps[0] > point.steps[1]) {
        let [first, last] = point.steps;
        return Err(refuse(format!(
            "{}: steps [{first}, {last}] end before they begin",
            point.value
        )));
    }
    Ok(rule)
}
