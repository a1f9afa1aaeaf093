//! Warnings and errors of a plan, under stable names. Contradictions between settings are errors of
//! [`crate::experiment::validate`]; [`crate::training::run::inputs`] refuses prompts that are too long.

use crate::algorithm::DynamicSampling;
use crate::experiment::Experiment;
use crate::task::reward;
use crate::training::plan::work::PlanWork;
use crate::training::{Disk, PlanMemory, RunPlan, TrialProbe, trainer};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The run may start.
    Warning,
    /// The run cannot be finished as planned.
    Error,
}

/// Published names do not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// Training problems are drawn more than once.
    DataRepeats,
    /// One generation round draws a problem more than once.
    DataSmallerThanRound,
    /// The warm-up ends in the second half of the run.
    WarmUpLong,
    /// No group of the probe is partly correct.
    NothingToLearn,
    /// More than half of the base policy's responses are truncated.
    TruncationHigh,
    /// No response of the probe ended with a stop token.
    StopTokenMissing,
    /// The chat template ends a turn with a token that stops no response.
    EndOfTurnUnstopped,
    /// Evaluations sample several times the responses of training.
    EvaluationHeavy,
    /// The run needs more memory than there is.
    MemoryShort,
    /// The run needs more disk than is free.
    DiskShort,
    /// Half of the base policy's responses or more state no answer that the verifier reads.
    AnswerMissing,
    /// The probe was cut: lengths and shares are those of shortened responses.
    ProbeCut,
}

impl Name {
    /// Help texts show names and meanings.
    pub const ALL: [(Name, &'static str); 12] = [
        (Name::DataRepeats, "the training data are used more than once"),
        (Name::DataSmallerThanRound, "one generation round draws a problem more than once"),
        (Name::WarmUpLong, "the warm-up ends in the second half of the run"),
        (Name::NothingToLearn, "no group of the base policy is partly correct"),
        (Name::TruncationHigh, "over half of the base policy's responses are truncated"),
        (Name::StopTokenMissing, "no response of the base policy ended with a stop token"),
        (Name::EndOfTurnUnstopped, "the chat template's end of a turn stops no response"),
        (Name::EvaluationHeavy, "evaluations sample several times the responses of training"),
        (
            Name::MemoryShort,
            "more memory needed than there is (error beyond 25 %, by phases beyond 15 %)",
        ),
        (Name::DiskShort, "more disk needed than is free (error unless only at L_max)"),
        (Name::AnswerMissing, "half of the base policy's responses state no answer to read"),
        (Name::ProbeCut, "the probe shortened responses to stay short"),
    ];

    pub fn text(self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value.as_str().unwrap_or_default().to_string()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warning {
    pub name: Name,
    pub severity: Severity,
    /// One sentence with the numbers.
    pub message: String,
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}[{}]: {}", self.name.text(), self.message)
    }
}

/// The plan's own `warnings` are not included.
pub fn of(plan: &RunPlan, experiment: &Experiment) -> Vec<Warning> {
    let responses = plan.probe.iter().flat_map(|probe| responses(probe, experiment));
    let findings = settings(plan, experiment).into_iter().chain(responses);
    let findings = findings.chain([evaluations(&plan.work)]);
    let warnings = findings.filter(|(holds, ..)| *holds).map(|(_, name, message)| Warning {
        name,
        severity: Severity::Warning,
        message,
    });
    warnings.chain(memory(&plan.memory)).chain(disk(&plan.disk)).collect()
}

type PlanFinding = (bool, Name, String);

fn settings(plan: &RunPlan, experiment: &Experiment) -> [PlanFinding; 4] {
    let work = &plan.work;
    let used = work.epochs_over_data.best();
    let basis = match work.epochs_over_data.expected {
        Some(_) => "",
        None => " at least, without refill rounds",
    };
    let repeats = format!(
        "the data are used {used:.2} times: {:.0} prompts will be drawn from {} problems{basis}",
        work.prompts_drawn.best(),
        work.problems
    );
    let round = trainer::prompts_per_round(experiment);
    let smaller =
        format!("a generation round draws {round} prompts from {} problems", work.problems);
    let token = plan.prompts.unstopped_end_of_turn.as_deref();
    let unstopped = format!(
        "the chat template ends a turn with {}, which stops no response: a policy that ends its answers so goes on to the limit. eos_token_id of generation_config.json may be a list of both",
        token.unwrap_or_default()
    );
    let (ramp, steps) = (experiment.optimizer.warm_up.rollout_steps, work.rollout_steps);
    let long = format!(
        "the warm-up takes {ramp} of {steps} rollout steps: over half of the run is below the learning rate"
    );
    [
        (used > 1.0, Name::DataRepeats, repeats),
        (work.problems < round, Name::DataSmallerThanRound, smaller),
        (token.is_some(), Name::EndOfTurnUnstopped, unstopped),
        (ramp > steps / 2 + steps % 2, Name::WarmUpLong, long),
    ]
}

fn responses(probe: &TrialProbe, experiment: &Experiment) -> [PlanFinding; 5] {
    let resample = experiment.dapo.dynamic_sampling != DynamicSampling::None {};
    let then = if resample { "dynamic sampling drops all" } else { "every advantage is 0" };
    let nothing = format!(
        "none of {} groups of the base policy is partly correct ({:.0} % of the responses are correct): {then}",
        probe.groups,
        100.0 * probe.accuracy
    );
    let (cut, truncated) = (probe.cut_at_tokens, probe.truncated_share);
    let short = format!(
        "the probe cut responses at {} tokens to stay short: lengths and accuracy are not those of whole responses",
        cut.unwrap_or_default()
    );
    let missing = "no response of the base policy ended with a stop token; compare eos_token_id in generation_config.json with the tokens that the model was trained to end on";
    let high =
        format!("{:.0} % of the base policy's responses are truncated at L_max", 100.0 * truncated);
    let (none, all) = probe.unanswered;
    let unanswered = reward::unanswered(none, all, experiment.reward.verifier);
    let is_high = truncated > 0.5 && truncated < 1.0;
    [
        (cut.is_none() && probe.useful_share == 0.0, Name::NothingToLearn, nothing),
        (cut.is_some(), Name::ProbeCut, short),
        (
            cut.is_none() && unanswered.is_some(),
            Name::AnswerMissing,
            format!("probe: {}", unanswered.unwrap_or_default()),
        ),
        (cut.is_none() && truncated == 1.0, Name::StopTokenMissing, missing.into()),
        (cut.is_none() && is_high, Name::TruncationHigh, high),
    ]
}

/// An update costs about three times a response's generation: it reads forward and backward.
fn evaluations(work: &PlanWork) -> PlanFinding {
    let evaluated = work.dev_responses.saturating_add(work.test_responses);
    let (rollouts, trained) = (work.rollouts.best(), work.trained_rollouts as f64);
    let heavy = format!(
        "evaluations sample {evaluated} responses, training {rollouts:.0}: a set is evaluated {} times",
        work.evaluations
    );
    (evaluated as f64 > rollouts + 3.0 * trained, Name::EvaluationHeavy, heavy)
}

fn size(bytes: f64) -> String {
    if bytes < (1u64 << 30) as f64 {
        format!("{:.1} MiB", bytes / (1u64 << 20) as f64)
    } else {
        format!("{:.2} GiB", bytes / (1u64 << 30) as f64)
    }
}

fn memory(memory: &PlanMemory) -> Option<Warning> {
    let available = memory.available_bytes.filter(|&bytes| bytes < memory.needed_bytes)?;
    // The estimate may be off by a quarter, that by phases by 15 %.
    let certain = if memory.phases.is_empty() { 0.75 } else { 0.85 };
    let hopeless = available < certain * memory.needed_bytes;
    let severity = if hopeless { Severity::Error } else { Severity::Warning };
    let message = format!(
        "the run needs about {} of memory, {} are available; smaller execution.micro_batch_rollouts or execution.generation_batch_rollouts need less",
        size(memory.needed_bytes),
        size(available)
    );
    Some(Warning { name: Name::MemoryShort, severity, message })
}

fn disk(disk: &Disk) -> Option<Warning> {
    let free = disk.free_bytes.filter(|&bytes| bytes < disk.most_bytes)?;
    let (severity, needed, when) = if free < disk.needed_bytes {
        (Severity::Error, disk.needed_bytes, "")
    } else {
        (Severity::Warning, disk.most_bytes, " when every response runs to L_max")
    };
    let message = format!("the run writes about {}{when}, {} are free", size(needed), size(free));
    Some(Warning { name: Name::DiskShort, severity, message })
}
