//! Whether each technique acts, by a run's experiment and metrics, not by its switches. Frameworks printed techniques
//! as enabled and trained without them: an enabled one that did nothing is a warning, as is a disabled one that acted.

pub mod findings;

use crate::algorithm::{Aggregation, TokenMeanUnit};
use crate::experiment::{Experiment, MiniBatchOrder, usage};
use crate::records::StepMetrics;
use crate::study::Cell;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EffectVerdict {
    /// Enabled, and it changed the training.
    Acted,
    /// The run would have been the same without it; a warning.
    EnabledButDidNothing,
    DisabledButActed,
    /// Another setting of the arm, named in the evidence, has the same effect.
    Explained,
    Off,
    NotRecorded,
}

impl EffectVerdict {
    pub fn words(self) -> &'static str {
        match self {
            Self::Acted | Self::DisabledButActed | Self::Explained => "acted",
            Self::EnabledButDidNothing => "did nothing",
            Self::Off => "idle",
            Self::NotRecorded => "not recorded",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EffectFinding {
    pub technique: &'static str,
    pub enabled: bool,
    pub verdict: EffectVerdict,
    /// One sentence without a full stop.
    pub evidence: String,
    /// The share of what it could act on (tokens, groups, loss weight, rollouts) that it acted on, over all steps.
    #[serde(skip)]
    pub dose: Option<f64>,
}

impl EffectFinding {
    /// What a reader is warned of.
    pub fn fault(&self) -> Option<String> {
        let fault = match self.verdict {
            EffectVerdict::EnabledButDidNothing => "is on and did nothing",
            EffectVerdict::DisabledButActed => "is off and acted",
            _ => return None,
        };
        Some(format!("{} {fault}", self.technique))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NamedWarning {
    pub name: &'static str,
    pub sentence: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effects {
    pub steps: usize,
    /// In the paper's order.
    pub findings: Vec<EffectFinding>,
    pub named_warnings: Vec<NamedWarning>,
}

impl Effects {
    pub fn warnings(&self) -> Vec<String> {
        let warning = |it: &EffectFinding| Some(format!("{}: {}", it.fault()?, it.evidence));
        let findings = self.findings.iter().filter_map(warning);
        let named = self.named_warnings.iter();
        findings.chain(named.map(|w| format!("{}: {}", w.name, w.sentence))).collect()
    }
}

pub fn check(experiment: &Experiment, metrics: &[StepMetrics]) -> Effects {
    let steps: Vec<u64> = metrics.iter().map(|step| step.step).collect();
    check_series(experiment, &steps, &|name| {
        metrics.iter().map(|step| step.metrics.get(name).copied()).collect()
    })
}

pub fn of_cell(cell: &Cell) -> Effects {
    let steps: Vec<u64> = cell.counters.iter().map(|counters| counters.rollout_steps).collect();
    check_series(&cell.experiment, &steps, &|name| {
        let values = cell.metric(name).unwrap_or_default();
        (0..steps.len()).map(|step| values.get(step).copied().flatten()).collect()
    })
}

/// Each metric has one value for each step.
pub fn check_series(
    experiment: &Experiment,
    steps: &[u64],
    series: &dyn Fn(&str) -> Vec<Option<f64>>,
) -> Effects {
    let recorded = Recorded { experiment, steps, series };
    let (findings, named_warnings) = (findings::all(&recorded), named_warnings(&recorded));
    Effects { steps: steps.len(), findings, named_warnings }
}

/// A larger share of cut-off numbers is a warning. The embedded benchmark has under a thousandth of it.
const MOST_SATURATED_SHARE: f64 = 1e-3;

fn named_warnings(recorded: &Recorded) -> Vec<NamedWarning> {
    let experiment = recorded.experiment;
    let mut warnings = Vec::new();
    let mut warn = |name, sentence| warnings.push(NamedWarning { name, sentence });
    let rates = (recorded.series)("optimizer/learning_rate");
    let at_zero = recorded.steps.iter().zip(rates).filter(|(_, rate)| *rate == Some(0.0));
    let still: Vec<String> = at_zero.map(|(step, _)| step.to_string()).collect();
    if !still.is_empty() {
        let steps = if still.len() == 1 { "step" } else { "steps" };
        let sentence = format!(
            "rollout {steps} {} ran at learning rate 0 and trained nothing \
             (optimizer.warm_up.start = \"zero\", as the released code)",
            still.join(", ")
        );
        warn("learning-rate-zero", sentence);
    }
    let dapo = &experiment.dapo;
    let token_mean = dapo.aggregation == Aggregation::TokenMean;
    if token_mean && dapo.token_mean_unit == TokenMeanUnit::MicroBatch {
        let sentence = format!(
            "dapo.token_mean_unit = \"micro-batch\" makes the loss depend on \
             execution.micro_batch_rollouts (here {}); with one response a micro-batch it is \
             GRPO's response mean",
            experiment.execution.micro_batch_rollouts
        );
        warn("micro-batch-token-mean", sentence);
    }
    if token_mean && experiment.training.mini_batch_order == MiniBatchOrder::LengthBands {
        let sentence = "training.mini_batch_order = \"length-bands\" gives each update responses of similar \
             length, and the token mean is taken inside such a band";
        warn("length-band-mini-batches", sentence.to_string());
    }
    if let Some(sentence) = usage::truncated_sampling(experiment) {
        warn("truncated-sampling", sentence);
    }
    for what in ["weights", "activations", "gradients"] {
        let share = recorded.highest(&format!("exact/{what}_saturated_share")).unwrap_or(0.0);
        if share > MOST_SATURATED_SHARE {
            let sentence = format!(
                "in one rollout step {:.2} % of the {what} were larger than the window of exact \
                 arithmetic and were cut off: the policy outgrew it, or diverged",
                share * 100.0
            );
            warn("exact-saturation", sentence);
        }
    }
    let useless = recorded.sum("effect/dynamic_sampling_trained_useless_groups").unwrap_or(0.0);
    if findings::resamples(experiment) && useless > 0.0 {
        let sentence = format!(
            "Dynamic Sampling is on, and {useless} groups that it drops (all correct or all wrong, or by the \
             reward all equal) were trained on"
        );
        warn("useless-groups-trained", sentence);
    }
    let batch = experiment.training.prompts_per_step as f64;
    if let Some(waiting) = recorded.last(findings::CARRIED).filter(|waiting| *waiting > batch) {
        let sentence = format!(
            "{waiting} groups wait after the last step, and a step trains on {batch}: groups train \
             several steps after they were sampled; a smaller rollout.prompts_per_round or \
             dapo.dynamic_sampling.surplus = \"discard\" keeps them young"
        );
        warn("carried-groups-grow-old", sentence);
    }
    warnings
}

struct Recorded<'a> {
    experiment: &'a Experiment,
    steps: &'a [u64],
    series: &'a dyn Fn(&str) -> Vec<Option<f64>>,
}

impl Recorded<'_> {
    fn values(&self, name: &str) -> impl Iterator<Item = f64> + use<> {
        (self.series)(name).into_iter().flatten()
    }

    /// `None` without a recorded value.
    fn sum(&self, name: &str) -> Option<f64> {
        self.values(name).reduce(|sum, value| sum + value)
    }

    fn mean(&self, name: &str) -> Option<f64> {
        Some(self.sum(name)? / self.values(name).count() as f64)
    }

    fn last(&self, name: &str) -> Option<f64> {
        self.values(name).last()
    }

    fn highest(&self, name: &str) -> Option<f64> {
        self.values(name).reduce(f64::max)
    }
}

#[cfg(test)]
mod tests;
