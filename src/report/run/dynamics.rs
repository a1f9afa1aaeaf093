//! The run over time: metrics, counters, and wall-clock time by phase.

use crate::experiment::Experiment;
use crate::records::{Counters, StepMetrics, metrics as registry};
use crate::report::{RunReportLoaded, text};
use crate::study::{Clock, effect_checks::findings};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownMetric {
    pub name: String,
    pub is_main: bool,
    /// `None` of a metric that is not in the registry, such as another trainer's own.
    pub meaning: Option<&'static str>,
    /// (updates, value)
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunCounts {
    /// At the last recorded step.
    pub counters: Counters,
    /// Sampled for training, dropped groups included.
    pub generated_rollouts: Option<f64>,
    pub generated_tokens: Option<f64>,
    pub trained_rollouts: Option<f64>,
    /// Summed over steps, largest first; without `total`.
    pub seconds_by_phase: Vec<(String, f64)>,
    pub seconds: Option<f64>,
}

/// Main metrics in the order of the registry, then the rest by name.
pub fn rows(experiment: &Experiment, metrics: &[StepMetrics]) -> Vec<ShownMetric> {
    let main =
        |name: &str| registry::all().iter().position(|metric| metric.main && metric.name == *name);
    let reads_no_clip = findings::reads_no_clip(experiment);
    let names = metrics.iter().flat_map(|step| step.metrics.keys());
    let names = names.filter(|it| !(reads_no_clip && it.starts_with("effect/clip_higher_")));
    let names: BTreeSet<(usize, &String)> =
        names.map(|name| (main(name).unwrap_or(usize::MAX), name)).collect();
    let row = |name: &str| ShownMetric {
        name: text::visible(name),
        is_main: main(name).is_some(),
        meaning: registry::of(name).map(|metric| metric.meaning.as_str()),
        points: curve(metrics, name),
    };
    names.into_iter().map(|(_, name)| row(name)).collect()
}

pub fn curve(metrics: &[StepMetrics], name: &str) -> Vec<(f64, f64)> {
    metrics
        .iter()
        .filter_map(|step| Some((step.counters.updates as f64, *step.metrics.get(name)?)))
        .collect()
}

/// `None` when no step recorded the metric.
pub fn sum(metrics: &[StepMetrics], name: &str) -> Option<f64> {
    let values = metrics.iter().filter_map(|step| step.metrics.get(name)).copied();
    values.reduce(|sum, value| sum + value)
}

/// What a clock reads when the updates are done; `None` where it is not recorded.
pub fn reading(loaded: &RunReportLoaded, clock: Clock, updates: f64) -> Option<f64> {
    let RunReportLoaded { experiment, metrics, .. } = loaded;
    if clock == Clock::Updates {
        return Some(updates);
    }
    let added =
        |step: &StepMetrics| clock.added(experiment, |name| step.metrics.get(name).copied());
    metrics.iter().find_map(added)?;
    let until = metrics.iter().filter(|step| step.counters.updates as f64 <= updates);
    Some(0.0 + until.filter_map(added).sum::<f64>())
}

pub fn counts(loaded: &RunReportLoaded) -> RunCounts {
    let mut phases: BTreeMap<&str, f64> = BTreeMap::new();
    for step in loaded.timings.iter().filter(|step| step.are_possible()) {
        for (phase, seconds) in &step.seconds {
            *phases.entry(phase).or_default() += seconds;
        }
    }
    let total = phases.remove("total");
    let mut by_phase: Vec<(String, f64)> =
        phases.into_iter().map(|(phase, seconds)| (text::visible(phase), seconds)).collect();
    by_phase.sort_by(|a, b| b.1.total_cmp(&a.1));
    let ended = loaded.outcome.as_ref().map(|outcome| outcome.counters);
    let recorded = loaded.metrics.last().map(|step| step.counters);
    let named = by_phase.iter().map(|(_, seconds)| seconds).sum();
    RunCounts {
        counters: ended.or(recorded).unwrap_or_default(),
        generated_rollouts: sum(&loaded.metrics, "rollout/generated_rollouts"),
        generated_tokens: sum(&loaded.metrics, "rollout/generated_tokens"),
        trained_rollouts: sum(&loaded.metrics, "train/rollouts"),
        seconds: total.or((!by_phase.is_empty()).then_some(named)),
        seconds_by_phase: by_phase,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::RunFolder;
    use crate::report::run::load;
    use std::path::Path;

    #[test]
    fn before_the_first_step_a_clock_reads_zero_which_has_no_sign() {
        let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/runs/exact");
        let loaded = load::load(&RunFolder::at(run)).unwrap();
        let read = reading(&loaded, Clock::GeneratedTokens, 0.0).unwrap();
        assert!(read == 0.0 && read.is_sign_positive(), "{read}");
    }
}
