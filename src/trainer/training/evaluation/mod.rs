//! Evaluation on frozen weights: k responses for each problem; every outcome is kept by problem.

pub mod resumable;

use crate::algorithm::{Finish, Problem, Prompt};
use crate::base::{Purpose, rng::Id, rng::stream};
use crate::experiment::{Experiment, Grading, PromptSettings, Sampling};
use crate::policy::sampling::generate;
use crate::policy::{Limits, Qwen2, Request};
use crate::records::{Counters, EvaluationRecord, tables::OutcomeRecord};
use crate::statistics::{Sample, estimators};
use crate::task::grader::Answered;
use crate::task::{Grader, ResponseText, TaskError, Tokenizer, Twice, prompt, reward};
use crate::training::TrainingError;
use crate::training::long_prompts::LongPrompts;
use serde::Serialize;

#[derive(Debug, Clone, Copy)]
pub struct Set<'a> {
    /// Part of the key of every draw.
    pub name: &'a str,
    /// Unique by id.
    pub problems: &'a [Problem],
    /// k.
    pub samples: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Protocol {
    #[serde(flatten)]
    pub prompt: PromptSettings,
    pub max_prompt_tokens: u64,
    /// L_max.
    pub max_response_tokens: u64,
    pub sampling: Sampling,
    pub verifier: Grading,
    pub seed: u64,
    pub batch_rows: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Outcomes have the rewards of a program; from format 4 of records on.
    #[serde(skip)]
    pub keeps_rewards: bool,
}

impl Protocol {
    pub fn of(experiment: &Experiment) -> Self {
        Self {
            prompt: experiment.prompt.clone(),
            max_prompt_tokens: experiment.rollout.max_prompt_tokens,
            max_response_tokens: experiment.rollout.max_response_tokens,
            sampling: experiment.evaluation.sampling,
            verifier: experiment.reward.verifier.clone(),
            seed: experiment.execution.seed,
            batch_rows: experiment.execution.generation_batch_rollouts,
            stop: experiment.evaluation_stop().to_vec(),
            keeps_rewards: experiment.record_format() >= 4,
        }
    }

    pub fn of_set(experiment: &Experiment, set: &str) -> Self {
        let (verifier, sampling) = (experiment.grading_of(set), experiment.sampling_of(set));
        Self { verifier: verifier.clone(), sampling, ..Self::of(experiment) }
    }

    pub fn of_rollouts(experiment: &Experiment) -> Self {
        let stop = experiment.rollout_stop().to_vec();
        Self { sampling: experiment.rollout.sampling, stop, ..Self::of(experiment) }
    }

    pub fn text<'a>(&'a self, tokenizer: &'a Tokenizer) -> ResponseText<'a> {
        ResponseText::new(tokenizer, self.prompt.response_prefix.as_deref(), &self.stop)
    }

    pub fn limits<'a>(&'a self, tokenizer: &'a Tokenizer) -> Limits<'a> {
        Limits {
            sampling: self.sampling,
            max_response_tokens: self.max_response_tokens as usize,
            entropy: false,
            stop_tokens: tokenizer.stop_tokens(),
            text: self.text(tokenizer).stopping(),
            batch_rows: self.batch_rows as usize,
        }
    }
}

/// Outcomes in the order (problem, sample). Draws are keyed by (seed, set, problem, sample), not by
/// the checkpoint, so that checkpoints and arms are compared under common random numbers.
pub fn outcomes(
    model: &Qwen2,
    tokenizer: &Tokenizer,
    (protocol, grader): (&Protocol, &Grader),
    set: Set,
    progress: impl FnMut(usize, usize),
) -> Result<Vec<OutcomeRecord>, TrainingError> {
    let sampled = sampled(model, tokenizer, (protocol, grader), set, false, progress)?;
    Ok(sampled.into_iter().map(|(outcome, _)| outcome).collect())
}

/// As [`outcomes`], with token entropies where `entropy` asks for them ([`crate::policy::Response::entropy`]).
pub fn sampled(
    model: &Qwen2,
    tokenizer: &Tokenizer,
    (protocol, grader): (&Protocol, &Grader),
    set: Set,
    entropy: bool,
    mut progress: impl FnMut(usize, usize),
) -> Result<Vec<(OutcomeRecord, Vec<f64>)>, TrainingError> {
    let (settings, limit) = (&protocol.prompt, protocol.max_prompt_tokens);
    let prompt = |problem| prompt::prompt(problem, settings, tokenizer, limit);
    let prompts: Vec<Prompt> = set.problems.iter().map(prompt).collect::<Result<_, _>>()?;
    let seed = protocol.seed;
    let keys =
        || prompts.iter().flat_map(|prompt| (0..set.samples).map(move |sample| (prompt, sample)));
    let requests: Vec<Request> = keys()
        .map(|(prompt, sample)| {
            let ids = [Id::from(set.name), Id::from(prompt.problem.id.as_str()), Id::from(sample)];
            Request { prompt: &prompt.tokens, stream: stream(seed, Purpose::Evaluation, &ids) }
        })
        .collect();
    let limits = Limits { entropy, ..protocol.limits(tokenizer) };
    let responses =
        generate::generate(model, &requests, &limits, |done| progress(done, requests.len()))
            .map_err(|source| TrainingError::Evaluation { set: set.name.to_string(), source })?;
    let text = protocol.text(tokenizer);
    let texts: Vec<String> = responses.iter().map(|response| text.of(&response.tokens)).collect();
    let answered = keys().zip(texts.iter().zip(&responses));
    let answered = answered.map(|((prompt, _), (text, response))| {
        (&prompt.problem, text.as_str(), Some(&response.tokens[..]))
    });
    let answered: Vec<Answered> = answered.collect();
    let tokens: usize = responses.iter().map(|response| response.tokens.len()).sum();
    let (grades, _) = grader.grade(&answered, Twice::Few(tokens as u64))?;
    let outcomes = keys().zip(grades).zip(responses.iter().zip(texts));
    let keeps_rewards = protocol.keeps_rewards && protocol.verifier.program().is_some();
    let outcomes = outcomes.map(|(((prompt, sample), grade), (response, text))| OutcomeRecord {
        problem: prompt.problem.id.clone(),
        sample: sample as u32,
        is_correct: grade.is_correct,
        response_tokens: response.tokens.len() as u32,
        truncated: response.finish == Finish::Length,
        prediction: grade.prediction,
        answer: prompt.problem.answer.clone(),
        response: text,
        reward: keeps_rewards.then_some(grade.reward),
    });
    let entropies = responses.iter().map(|response| response.entropy.clone());
    Ok(outcomes.zip(entropies).collect())
}

/// `outcomes` have the order of [`outcomes`].
pub fn record(
    set: &str,
    counters: Counters,
    outcomes: &[OutcomeRecord],
    outcomes_sha256: String,
) -> Result<EvaluationRecord, TrainingError> {
    let sample = |row: &OutcomeRecord| Sample {
        is_correct: row.is_correct,
        prediction: row.prediction.clone(),
    };
    let by_problem = outcomes.chunk_by(|a, b| a.problem == b.problem);
    let by_problem: Vec<Vec<Sample>> =
        by_problem.map(|rows| rows.iter().map(sample).collect()).collect();
    let summary = estimators::summary(&by_problem)
        .map_err(|source| TrainingError::Statistics { set: set.to_string(), source })?;
    let count = outcomes.len() as f64;
    let tokens: u64 = outcomes.iter().map(|row| u64::from(row.response_tokens)).sum();
    let truncated = outcomes.iter().filter(|row| row.truncated).count();
    Ok(EvaluationRecord {
        counters,
        set: set.to_string(),
        problems: summary.problems,
        samples: summary.samples,
        avg_at_k: summary.avg_at_k,
        standard_error_fixed_problems: summary.standard_error_fixed_problems,
        standard_error_new_problems: summary.standard_error_new_problems,
        pass_at_k: summary.pass_at_k,
        cons_at_k: summary.cons_at_k,
        truncated_share: truncated as f64 / count,
        response_tokens_mean: tokens as f64 / count,
        reward_mean: reward_mean(outcomes),
        outcomes_sha256,
    })
}

pub fn is_of_outcomes(record: &EvaluationRecord, outcomes: &[OutcomeRecord]) -> bool {
    let digest = record.outcomes_sha256.clone();
    let again = self::record(&record.set, record.counters, outcomes, digest);
    again.is_ok_and(|again| again == *record)
}

pub fn reward_mean(outcomes: &[OutcomeRecord]) -> Option<f64> {
    let rewards = outcomes.iter().map(|row| row.reward).collect::<Option<Vec<f64>>>()?;
    Some(estimators::mean(&rewards))
}

/// Every prompt of `dapo eval --data` before the first response.
/// Errors: a prompt that cannot be made, and how many are too long.
pub fn check_prompts(
    tokenizer: &Tokenizer,
    protocol: &Protocol,
    problems: &[Problem],
) -> Result<(), TaskError> {
    let (settings, limit) = (&protocol.prompt, protocol.max_prompt_tokens);
    let mut long = LongPrompts::default();
    for problem in problems {
        long.counted(prompt::prompt(problem, settings, tokenizer, limit))?;
    }
    long.refuse(problems.len(), limit, "--max-prompt-tokens N")
}

/// `None` unless half of the responses or more state no answer that the verifier reads.
pub fn unanswered(protocol: &Protocol, set: Set, outcomes: &[OutcomeRecord]) -> Option<String> {
    let none = outcomes.iter().filter(|row| row.prediction.is_none()).count();
    let told = reward::unanswered(none, outcomes.len(), protocol.verifier.rule()?)?;
    Some(format!("{}: {told}", set.name))
}
