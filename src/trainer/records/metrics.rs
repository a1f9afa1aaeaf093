//! The registry of metrics, and of what reports draw of them: `metrics.toml`.

use crate::experiment::Experiment;
use crate::numerics::Numerics;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedMetric {
    /// `stage/name`; `*` stands for any word.
    pub name: String,
    pub of: DeterminedBy,
    /// `None`: any finite number.
    pub range: Option<MetricRange>,
    /// The format of records that it comes with.
    #[serde(default = "first_format")]
    pub format: u64,
    pub only: Option<OnlyRuns>,
    /// A run's report shows it openly.
    #[serde(default)]
    pub main: bool,
    pub meaning: String,
}

fn first_format() -> u64 {
    1
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeterminedBy {
    /// All groups that were sampled, dropped ones too.
    Generated,
    /// The groups that were trained on.
    Batch,
    /// Forward passes and updates; no table of rollouts has it.
    Updates,
    /// The sampler's log-probs or distributions.
    Sampler,
    /// A program that grades; no table has its further numbers.
    Verifier,
    /// Another trainer, which measured it by itself.
    Engine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MetricRange {
    /// In [0, 1].
    Share,
    /// In [−1, 1].
    Correctness,
    /// At least 0.
    NotNegative,
    /// Whole, at least 0.
    Count,
    /// In tokens of a response, up to L_max.
    Length,
    WholeLength,
}

/// Runs that have a metric which others lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnlyRuns {
    Exact,
    Fast,
    /// `optimizer.non_finite` is stated.
    NonFinite,
    /// `dapo.method` is stated.
    Method,
    Program,
}

impl RecordedMetric {
    pub fn is_recorded_by(&self, experiment: &Experiment) -> bool {
        let has_it = match self.only {
            None => true,
            Some(OnlyRuns::Exact) => experiment.numerics == Numerics::Exact,
            Some(OnlyRuns::Fast) => experiment.numerics == Numerics::Fast,
            Some(OnlyRuns::NonFinite) => experiment.optimizer.non_finite.is_some(),
            Some(OnlyRuns::Method) => experiment.dapo.method.is_some(),
            Some(OnlyRuns::Program) => experiment.reward.verifier.program().is_some(),
        };
        has_it && experiment.record_format() >= self.format
    }

    fn has_star_for(&self, name: &str) -> bool {
        let ends = self.name.split_once('*');
        ends.is_some_and(|(start, end)| {
            name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end))
        })
    }
}

/// A quantity over training, of one metric or several.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantity {
    pub id: String,
    pub title: String,
    pub unit: String,
    pub run: Option<RunPlace>,
    #[serde(default)]
    pub in_studies: bool,
    pub metrics: Vec<DrawnMetric>,
    /// The paper's figures.
    #[serde(default)]
    pub paper: Vec<String>,
    /// A reader needs it before comparing.
    #[serde(default)]
    pub remark: String,
    run_remark: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunPlace {
    Paper,
    Own,
    Effects,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DrawnMetric {
    pub name: String,
    pub legend: String,
}

impl Quantity {
    pub fn run_remark(&self) -> &str {
        self.run_remark.as_ref().unwrap_or(&self.remark)
    }

    /// The metrics of all rollouts of a step (missing in format 1) and of the batch; else the first metric.
    pub fn scopes(&self) -> (Option<&str>, &str) {
        match &self.metrics[..] {
            [all, batch] if batch.legend == "batch" => (Some(&all.name), &batch.name),
            _ => (None, &self.metrics[0].name),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Registry {
    metric: Vec<RecordedMetric>,
    quantity: Vec<Quantity>,
}

static REGISTRY: LazyLock<Registry> =
    LazyLock::new(|| toml::from_str(include_str!("metrics.toml")).expect("a table of metrics"));

/// In the order of a run's report.
pub fn all() -> &'static [RecordedMetric] {
    &REGISTRY.metric
}

pub fn quantities() -> &'static [Quantity] {
    &REGISTRY.quantity
}

pub fn of(name: &str) -> Option<&'static RecordedMetric> {
    static BY_NAME: LazyLock<BTreeMap<&str, &RecordedMetric>> =
        LazyLock::new(|| all().iter().map(|metric| (metric.name.as_str(), metric)).collect());
    BY_NAME.get(name).copied().or_else(|| all().iter().find(|metric| metric.has_star_for(name)))
}

/// `%`, `nats`, `tokens`; `None` of a pure number, and of a metric that is not in the registry.
pub fn unit(name: &str) -> Option<&'static str> {
    let is_drawn = |it: &&Quantity| it.metrics.iter().any(|drawn| drawn.name == name);
    if let Some(quantity) = quantities().iter().find(is_drawn) {
        return Some(&quantity.unit);
    }
    match of(name)?.range? {
        MetricRange::Share => Some("%"),
        MetricRange::Length | MetricRange::WholeLength => Some("tokens"),
        MetricRange::Correctness | MetricRange::NotNegative | MetricRange::Count => None,
    }
}

/// Whether a run can have recorded the value; of a metric that is not in the registry: whether it is finite.
pub fn is_possible(name: &str, value: f64, experiment: &Experiment) -> bool {
    let Some(range) = of(name).and_then(|metric| metric.range) else { return value.is_finite() };
    let limit = experiment.rollout.max_response_tokens as f64;
    let (low, high, whole) = match range {
        MetricRange::Share => (0.0, 1.0, false),
        // A program's rewards have any range.
        MetricRange::Correctness if experiment.reward.verifier.rule().is_none() => {
            return value.is_finite();
        }
        MetricRange::Correctness => (-1.0, 1.0, false),
        MetricRange::NotNegative => (0.0, f64::MAX, false),
        MetricRange::Count => (0.0, f64::MAX, true),
        MetricRange::Length => (0.0, limit, false),
        MetricRange::WholeLength => (0.0, limit, true),
    };
    // A count with more digits than a record keeps is still whole.
    value >= low && value <= high + 1e-9 && (!whole || value.fract() == 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::methods;
    use crate::records::RunFolder;
    use std::path::Path;

    #[test]
    fn every_metric_of_the_golden_runs_and_of_the_methods_is_registered() {
        let run = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/runs/exact"));
        let mut names: Vec<String> = Vec::new();
        for step in RunFolder::at(run).metrics().unwrap() {
            names.extend(step.metrics.into_keys());
        }
        assert!(names.len() > 100, "{}", names.len());
        names.extend(methods::MEASURES.concat().iter().map(|name| format!("effect/{name}")));
        for name in names {
            assert!(of(&name).is_some(), "{name} has no entry in metrics.toml");
        }
    }

    #[test]
    fn quantities_are_drawn_of_registered_metrics() {
        for quantity in quantities() {
            assert!(!quantity.metrics.is_empty(), "{quantity:?}");
            assert_eq!(quantity.run == Some(RunPlace::Paper), !quantity.paper.is_empty());
            assert!(quantity.metrics.iter().all(|drawn| of(&drawn.name).is_some()), "{quantity:?}");
        }
        assert_eq!(quantities()[0].scopes(), (Some("policy/rollout_entropy"), "policy/entropy"));
        assert_eq!(quantities()[1].scopes(), (None, "rollout/response_tokens_mean"));
    }

    #[test]
    fn a_name_with_a_star_stands_for_any_word() {
        let style = of("rollout/style_careful_share").unwrap();
        assert_eq!(
            (style.name.as_str(), style.range),
            ("rollout/style_*_share", Some(MetricRange::Share))
        );
        assert_eq!(of("rollout/style_careful"), None);
    }
}
