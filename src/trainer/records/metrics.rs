//! The registry of metrics, and of what reports draw of them: `metrics.toml`.

use crate::algorithm::{DynamicSampling, Surplus};
use crate::experiment::Experiment;
use crate::numerics::Numerics;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
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
    #[serde(default)]
    pub may_lack: bool,
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

    /// Whether every step has it that trained on something.
    pub fn is_always_recorded_by(&self, experiment: &Experiment) -> bool {
        let is_measured = match self.of {
            DeterminedBy::Generated => experiment.records_every_group(),
            DeterminedBy::Batch => true,
            DeterminedBy::Updates | DeterminedBy::Sampler => experiment.engine.is_native(),
            DeterminedBy::Verifier | DeterminedBy::Engine => false,
        };
        let may_lack = self.may_lack || self.only == Some(OnlyRuns::Method);
        is_measured && !may_lack && self.is_recorded_by(experiment)
    }

    fn has_star_for(&self, name: &str) -> bool {
        self.name.split_once('*').is_some_and(|(start, end)| {
            name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end))
        })
    }
}

/// `A * B + C = D` or `A <= B`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Relation {
    holds: String,
    unless: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct BrokenRelation {
    relation: &'static str,
    left: f64,
    right: f64,
}

impl Display for BrokenRelation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { relation, left, right } = self;
        write!(f, "its metrics break `{relation}`: {left:?} and {right:?}")
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
    relation: Vec<Relation>,
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

pub const GENERATED_BY_CLOCK: &str = "clock/generated_rollouts";
pub const LARGEST_ENTROPY: &str = "policy/largest_entropy";

pub fn largest_entropy(config: &Value) -> Option<f64> {
    config["vocab_size"].as_f64().map(libm::log)
}

type Known<'a> = &'a dyn Fn(&str) -> Option<f64>;

pub fn lacking(value: Known, experiment: &Experiment) -> Vec<&'static str> {
    let has_no_mean = value("effect/loss_tokens") == Some(0.0)
        || value("optimizer/skipped_updates").is_some_and(|updates| updates > 0.0);
    let is_due = |metric: &&RecordedMetric| {
        metric.is_always_recorded_by(experiment)
            && !(has_no_mean && metric.of == DeterminedBy::Updates)
    };
    let names = all().iter().filter(is_due).map(|metric| metric.name.as_str());
    names.filter(|name| value(name).is_none()).collect()
}

/// Relations of `metrics.toml` that a step's values break. `rounding`: how far a value can lie off, as a share of it.
pub fn broken(value: Known, experiment: &Experiment, rounding: f64) -> Vec<BrokenRelation> {
    let known = |name: &str| match name {
        "group_size" => Some(experiment.rollout.group_size as f64),
        "epochs_per_step" => Some(experiment.training.epochs_per_step as f64),
        "program_grades" => Some(f64::from(experiment.reward.verifier.rule().is_none())),
        "surplus_is_carried" => {
            let sampling = experiment.dapo.dynamic_sampling;
            let carried =
                matches!(sampling, DynamicSampling::Resample { surplus: Surplus::Carry, .. });
            Some(f64::from(carried))
        }
        name => name.parse().ok().or_else(|| value(name)),
    };
    REGISTRY.relation.iter().filter_map(|relation| relation.broken(&known, rounding)).collect()
}

impl Relation {
    fn broken(&'static self, known: Known, rounding: f64) -> Option<BrokenRelation> {
        if self.unless.as_deref().and_then(known).is_some_and(|value| value > 0.0) {
            return None;
        }
        let equal = self.holds.split_once(" = ");
        let (left, right) = equal.or_else(|| self.holds.split_once(" <= "))?;
        let ((left, left_size), (right, right_size)) = (sum(left, known)?, sum(right, known)?);
        let above = if equal.is_some() { (left - right).abs() } else { left - right };
        let most = rounding * (left_size + right_size);
        let holds = above <= most && most.is_finite();
        (!holds).then_some(BrokenRelation { relation: &self.holds, left, right })
    }
}

/// A sum of products, and the sum of their sizes.
fn sum(text: &str, known: Known) -> Option<(f64, f64)> {
    let product = |term: &str| term.split(" * ").map(known).product::<Option<f64>>();
    let terms: Vec<f64> = text.split(" + ").map(product).collect::<Option<_>>()?;
    Some((terms.iter().sum(), terms.iter().map(|term| term.abs()).sum()))
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
    fn relations_are_of_known_names_and_hold_in_the_golden_run() {
        let run = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/runs/exact"));
        let (experiment, steps) = (RunFolder::at(run).experiment().unwrap(), RunFolder::at(run));
        let steps = steps.metrics().unwrap();
        let mut forged = steps[0].metrics.clone();
        for step in &steps {
            let value = |name: &str| step.metrics.get(name).copied();
            assert_eq!(broken(&value, &experiment, 1e-9), []);
            assert_eq!(lacking(&value, &experiment), [""; 0]);
        }
        let tokens = |forged: &BTreeMap<String, f64>| {
            let value = |name: &str| forged.get(name).copied();
            broken(&value, &experiment, 1e-9).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        *forged.get_mut("rollout/generated_tokens").unwrap() *= 0.25;
        let [one] = tokens(&forged).try_into().unwrap();
        assert!(one.contains("`rollout/generated_tokens = rollout/generated_rollouts * "), "{one}");
        forged = steps[0].metrics.clone();
        forged.insert("optimizer/gradient_norm_max".to_string(), 0.0);
        forged.insert("loss/ratio_max".to_string(), 0.5);
        assert_eq!(tokens(&forged).len(), 2);
        forged.remove("policy/entropy");
        let value = |name: &str| forged.get(name).copied();
        assert_eq!(lacking(&value, &experiment), ["policy/entropy"]);
        let others = ["group_size", "epochs_per_step", "program_grades", "surplus_is_carried"];
        let asked = [GENERATED_BY_CLOCK, LARGEST_ENTROPY];
        for relation in &REGISTRY.relation {
            let words = relation.holds.split(' ').chain(relation.unless.as_deref());
            for word in words.filter(|word| !["=", "<=", "+", "*"].contains(word)) {
                let is_known = of(word).is_some() || word.parse::<f64>().is_ok();
                assert!(is_known || [&others[..], &asked].concat().contains(&word), "{word}");
            }
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
    fn an_entropy_of_another_trainer_may_round_below_0_and_ours_does_not() {
        let run = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/runs/exact"));
        let experiment = RunFolder::at(run).experiment().unwrap();
        let is_possible = |name| is_possible(name, -3e-8, &experiment);
        assert_eq!(["engine/entropy", "policy/entropy"].map(is_possible), [true, false]);
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
