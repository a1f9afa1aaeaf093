//! Warnings and errors of a plan, under stable names. Contradictions between settings are errors of
//! [`crate::experiment::validate`]; [`crate::training::run::inputs`] refuses prompts that are too long.

use crate::algorithm::dynamic_sampling::kept_by_reward;
use crate::algorithm::{Beyond, Dapo, DynamicSampling, Kl, KlEstimator, Problem, Punishment};
use crate::experiment::{Experiment, Sampling, Verifier, compare, shipped, sources, usage};
use crate::policy::checkpoint;
use crate::records::housekeeping::readable;
use crate::task::data::problem_file::Told;
use crate::task::{EarnedTruths, Grader, prompt, reward};
use crate::training::plan::work::PlanWork;
use crate::training::run::inputs::{self, Inputs};
use crate::training::{Disk, PlanMemory, RunPlan, TrialProbe, trainer};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The run may start.
    Warning,
    /// The run cannot be finished as planned.
    Error,
}

/// Published names do not change. Help texts show them with their meanings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    #[value(help = "the training data are used more than once")]
    DataRepeats,
    #[value(help = "one generation round draws a problem more than once")]
    DataSmallerThanRound,
    #[value(help = "the warm-up ends in the second half of the run")]
    WarmUpLong,
    #[value(help = "no group of the base policy would train")]
    NothingToLearn,
    #[value(help = "over half of the base policy's responses are truncated")]
    TruncationHigh,
    #[value(help = "no response of the base policy ended with a stop token")]
    StopTokenMissing,
    #[value(help = "the chat template's end of a turn stops no response")]
    EndOfTurnUnstopped,
    #[value(help = "evaluations sample several times the responses of training")]
    EvaluationHeavy,
    #[value(help = "more memory needed than there is (error beyond 25 %, by phases beyond 15 %)")]
    MemoryShort,
    #[value(help = "more disk needed than is free (error unless only at L_max)")]
    DiskShort,
    #[value(help = "half of the base policy's responses state no answer to read")]
    AnswerMissing,
    #[value(help = "the probe shortened responses to stay short")]
    ProbeCut,
    #[value(help = "ground truths that the verifier never grades right")]
    AnswerUnreadable,
    #[value(help = "a reward program's further numbers that differ or are not finite")]
    RewardNumbers,
    #[value(help = "keys that differ from base.toml's and that the arm does not read")]
    KeysUnread,
    #[value(help = "the KL penalty's estimator k1, whose gradient in a loss has mean 0")]
    KlWithoutGradient,
    #[value(help = "top-p or top-k with a ratio over the whole vocabulary")]
    TruncatedSampling,
    #[value(help = "a set is evaluated at temperature 0 with several samples")]
    GreedySamples,
    #[value(help = "columns that may belong to the question and are in no prompt")]
    ColumnsUnseen,
    #[value(help = "rows without a ground truth, or with another solution or columns")]
    RowsUncounted,
    #[value(help = "a reward program gets other arguments than verl or TRL would give it")]
    RewardArguments,
    #[value(help = "files beside a command that grades are not in the run's key")]
    RewardFiles,
    #[value(help = "packages that a reward program imports are not in the run's key")]
    RewardPackages,
    #[value(help = "prompts of a file have another system message than the experiment")]
    SystemDiffers,
    #[value(help = "the base policy's config.json states a dropout, which is not applied")]
    DropoutIgnored,
}

impl Name {
    pub fn text(self) -> String {
        serde_json::to_value(self).unwrap_or_default().as_str().unwrap_or_default().to_string()
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
    let mut named = settings(plan, experiment);
    named.extend(plan.probe.iter().flat_map(|probe| responses(probe, experiment)));
    named.extend(evaluations(&plan.work));
    let mut warnings: Vec<Warning> = named.into_iter().map(warning).collect();
    warnings.extend(memory(&plan.memory, experiment));
    warnings.extend(disk(&plan.disk));
    warnings
}

/// Of the problems and of the program that grades.
pub fn of_inputs(inputs: &Inputs) -> Vec<Warning> {
    let unreadable = inputs::named_sets(&inputs.data).into_iter().filter_map(|(name, problems)| {
        unreadable(name, problems, inputs.experiment.grading_of(name).rule()?)
    });
    let stops = [inputs.experiment.rollout_stop(), inputs.experiment.evaluation_stop()];
    let stops = stops.iter().any(|stop| !stop.is_empty());
    let arguments = inputs.graders().flat_map(|grader| grader.odd_arguments(stops));
    let Told { rows, unseen, systems, readings: _ } = inputs.data.told.clone();
    let others = [
        (Name::RewardNumbers, inputs.graders().flat_map(Grader::odd_numbers).collect()),
        (Name::RewardArguments, arguments.collect()),
        (Name::RewardFiles, inputs.graders().filter_map(Grader::unlisted_files).collect()),
        (Name::RewardPackages, inputs.graders().filter_map(unstated_packages).collect()),
        (Name::ColumnsUnseen, unseen),
        (Name::RowsUncounted, rows),
        (Name::SystemDiffers, systems),
        (
            Name::DropoutIgnored,
            checkpoint::dropout(&inputs.experiment.inputs.model).into_iter().collect(),
        ),
    ];
    let others = others.into_iter().flat_map(|(name, texts): (Name, Vec<String>)| {
        texts.into_iter().map(move |text| (name, text))
    });
    unreadable.chain(others).map(warning).collect()
}

/// Of a base policy that answers nothing right, as a program grades it.
pub fn unearned(plan: &RunPlan, inputs: &Inputs) -> Option<Warning> {
    const MOST: usize = 16;
    let is_right = plan.probe.as_ref().is_none_or(|probe| probe.accuracy > 0.0);
    let program = inputs.grader.program().filter(|_| !is_right)?;
    let problems = inputs.data.train.iter().take(MOST);
    let earned = EarnedTruths::of(&inputs.grader, &inputs.tokenizer, problems).ok().flatten();
    earned.filter(|it| it.earned == 0).map(|it| {
        let message = format!(
            "{} grades none of {} ground truths, each as the answer to its own problem, as correct; a number of the \
             file (612, not \"612\") reaches a function as a number; `dapo data grade` tries it on responses",
            program.name(),
            it.all
        );
        warning((Name::AnswerUnreadable, message))
    })
}

fn unstated_packages(grader: &Grader) -> Option<String> {
    let (program, packages) = (grader.program()?, grader.unstated_packages());
    (!packages.is_empty()).then(|| {
        format!(
            "{}: versions of packages that it imports are not in the run's key: list them in the table of the \
             verifier (packages = {packages:?})",
            program.name()
        )
    })
}

fn warning((name, message): (Name, String)) -> Warning {
    Warning { name, severity: Severity::Warning, message }
}

fn unreadable(name: &str, problems: &[Problem], rule: Verifier) -> Option<(Name, String)> {
    let forms = reward::FORMS.into_iter().filter(|(_, _, verifier)| *verifier == rule);
    let forms: Vec<_> = forms.collect();
    let is_earned = |answer: &str| forms.iter().any(|form| reward::is_earned(answer, *form));
    let mut earned: BTreeMap<&str, bool> = BTreeMap::new();
    let mut never: Vec<&Problem> = problems.iter().collect();
    never.retain(|it| !*earned.entry(&it.answer).or_insert_with(|| is_earned(&it.answer)));
    let first = never.first()?;
    let answer: String = first.answer.chars().take(60).collect();
    let rule = rule.to_possible_value()?.get_name().to_string();
    let (never, all, id) = (never.len(), problems.len(), &first.id);
    let message = format!(
        "the verifier {rule} never grades a response to {never} of {all} problems of {name} as correct, such as {id} \
         with the ground truth {answer:?}; strict-box compares texts, math-verify formulas (reward.verifier)"
    );
    Some((Name::AnswerUnreadable, message))
}

fn settings(plan: &RunPlan, experiment: &Experiment) -> Vec<(Name, String)> {
    let mut warnings = Vec::new();
    let PlanWork { problems, rollout_steps: steps, epochs_over_data: used, .. } = plan.work;
    if used.best() > 1.0 {
        let (times, drawn) = (used.best(), plan.work.prompts_drawn.best());
        let basis = if used.expected.is_some() { "" } else { " at least, without refill rounds" };
        let message = format!(
            "the data are used {times:.2} times: {drawn:.0} prompts will be drawn from {problems} problems{basis}"
        );
        warnings.push((Name::DataRepeats, message));
    }
    let round = trainer::prompts_per_round(experiment);
    if problems < round {
        let message = format!("a generation round draws {round} prompts from {problems} problems");
        warnings.push((Name::DataSmallerThanRound, message));
    }
    if let Some(token) = &plan.prompts.unstopped_end_of_turn {
        warnings.push((Name::EndOfTurnUnstopped, prompt::unstopped(token)));
    }
    let ramp = experiment.optimizer.warm_up.rollout_steps;
    if ramp > steps / 2 + steps % 2 {
        let message = format!(
            "the warm-up takes {ramp} of {steps} rollout steps: over half of the run is below the learning rate"
        );
        warnings.push((Name::WarmUpLong, message));
    }
    if let Kl::Penalty { estimator: KlEstimator::K1, .. } = experiment.dapo.kl {
        let message = "dapo.kl adds k1 to the loss: its gradient has mean 0 and does not pull to the reference; k2 has the \
                       divergence's gradient, k3 is GRPO's";
        warnings.push((Name::KlWithoutGradient, message.to_string()));
    }
    warnings.extend(usage::truncated_sampling(experiment).map(|it| (Name::TruncatedSampling, it)));
    warnings.extend(unread(experiment));
    warnings.extend(unclamped(experiment));
    warnings.extend(experiment.evaluation.samples.iter().filter_map(|(set, &samples)| {
        let sentence = greedy(set, samples, experiment.sampling_of(set))?;
        let message = format!("{sentence}; evaluation.samples.{set} = 1 says the same");
        Some((Name::GreedySamples, message))
    }));
    warnings
}

pub fn unread_keys(experiment: &Experiment) -> Vec<String> {
    let found = unread(experiment).into_iter().chain(unclamped(experiment));
    found.map(|(_, message)| message).collect()
}

/// Such a key makes another arm, which trains as one without it.
fn unread(experiment: &Experiment) -> Option<(Name, String)> {
    let unread = experiment.dapo.unread();
    let base = Experiment { dapo: base_dapo(), ..experiment.clone() };
    let (base, own) = (compare::flat(&base), compare::flat(experiment));
    let differing = compare::differing_keys(&base, &own).into_iter();
    let is_unread = |key: &&String| unread.iter().any(|table| sources::is_within(key, table));
    let stated = differing.filter(is_unread).filter_map(|key| Some((key, own.get(key)?)));
    let stated: Vec<String> = stated.map(|(key, value)| format!("{key} = {value}")).collect();
    let name = experiment.dapo.method_name();
    (!stated.is_empty()).then(|| {
        let stated = stated.join(", ");
        let message = format!(
            "{name} with these settings does not read {stated}: the run trains as with base.toml's \
             value, and counts as another arm; leave it out"
        );
        (Name::KeysUnread, message)
    })
}

fn unclamped(experiment: &Experiment) -> Option<(Name, String)> {
    let punishment = experiment.dapo.overlong.punishment;
    let is_unclamped = matches!(punishment, Punishment::Soft { beyond: Beyond::Unclamped, .. });
    (is_unclamped && experiment.engine.is_native()).then(|| {
        let message = "no response is longer than rollout.max_response_tokens, so the run trains with \
                       dapo.overlong.punishment.beyond = \"unclamped\" as with \"clamped\", and counts as \
                       another arm; state \"clamped\"";
        (Name::KeysUnread, message.to_string())
    })
}

fn base_dapo() -> Dapo {
    let table: toml::Table = shipped::BASE.1.parse().expect("base.toml is TOML");
    table["dapo"].clone().try_into().expect("base.toml states every key of [dapo]")
}

/// Samples at temperature 0 are the same response.
pub fn greedy(set: &str, samples: u64, sampling: Sampling) -> Option<String> {
    (samples > 1 && sampling.temperature == 0.0).then(|| {
        format!(
            "{set}: at temperature 0 the {samples} samples of a problem are one response, {samples} \
             times"
        )
    })
}

fn responses(probe: &TrialProbe, experiment: &Experiment) -> Vec<(Name, String)> {
    if let Some(tokens) = probe.cut_at_tokens {
        let message = format!(
            "the probe cut responses at {tokens} tokens to stay short: lengths and accuracy are not those of \
             whole responses"
        );
        return vec![(Name::ProbeCut, message)];
    }
    let mut warnings = Vec::new();
    let resamples = experiment.dapo.dynamic_sampling != DynamicSampling::None {};
    if probe.useful_share == 0.0 && (resamples || probe.differing_groups == 0) {
        let then = if resamples {
            let told = kept_by_reward(probe.differing_groups, probe.groups as usize);
            format!("dynamic sampling drops all{told}")
        } else {
            "every advantage is 0, but for a length penalty's".to_string()
        };
        let percent = 100.0 * probe.accuracy;
        let none = match probe.groups {
            1 => "the one group of the base policy would not train".to_string(),
            groups => format!("none of {groups} groups of the base policy would train"),
        };
        let message = format!("{none} ({percent:.0} % of the responses are correct): {then}");
        warnings.push((Name::NothingToLearn, message));
    }
    let (none, all) = probe.unanswered;
    let rule = experiment.reward.verifier.rule();
    if let Some(sentence) = rule.and_then(|rule| reward::unanswered(none, all, rule)) {
        warnings.push((Name::AnswerMissing, format!("probe: {sentence}")));
    }
    let truncated = probe.truncated_share;
    if truncated == 1.0 {
        let message = "no response of the base policy ended with a stop token; compare eos_token_id in \
                       generation_config.json with the tokens that the model was trained to end on";
        warnings.push((Name::StopTokenMissing, message.to_string()));
    } else if truncated > 0.5 {
        let percent = 100.0 * truncated;
        let message =
            format!("{percent:.0} % of the base policy's responses are truncated at L_max");
        warnings.push((Name::TruncationHigh, message));
    }
    warnings
}

/// An update costs about three times a response's generation: it reads forward and backward.
fn evaluations(work: &PlanWork) -> Option<(Name, String)> {
    let evaluated = work.dev_responses.saturating_add(work.test_responses);
    let (rollouts, trained) = (work.rollouts.best(), work.trained_rollouts as f64);
    (evaluated as f64 > rollouts + 3.0 * trained).then(|| {
        let times = work.evaluations;
        let message = format!(
            "{times} evaluations of sets sample {evaluated} responses, training {rollouts:.0}"
        );
        (Name::EvaluationHeavy, message)
    })
}

fn memory(memory: &PlanMemory, experiment: &Experiment) -> Option<Warning> {
    let available = memory.available_bytes.filter(|&bytes| bytes < memory.needed_bytes)?;
    // The estimate may be off by a quarter, that by phases by 15 %.
    let certain = if memory.phases.is_empty() { 0.75 } else { 0.85 };
    let hopeless = available < certain * memory.needed_bytes;
    let severity = if hopeless { Severity::Error } else { Severity::Warning };
    // Passes of a stated size are cut without regard to micro-batches.
    let of_a_pass = match experiment.execution.pass_tokens {
        Some(_) => "pass_tokens",
        None => "micro_batch_rollouts",
    };
    let message = format!(
        "the run needs about {} of memory, {} are available; a smaller execution.{of_a_pass} or \
         execution.generation_batch_rollouts needs less",
        readable(memory.needed_bytes as u64),
        readable(available as u64)
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
    let [needed, free] = [needed, free].map(|bytes| readable(bytes as u64));
    let message = format!("the run writes about {needed}{when}, {free} are free");
    Some(Warning { name: Name::DiskShort, severity, message })
}
