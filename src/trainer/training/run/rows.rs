//! Converts a step's rollouts to rows of a table and back.

use crate::algorithm::{Finish, Group, Problem, Prompt, Rollout, ScoredRollout};
use crate::experiment::Experiment;
use crate::policy::CheckpointProgress;
use crate::records::{Components, RolloutRow, StepMetrics, ledger};
use crate::task::{TaskError, Tokenizer, prompt};
use crate::training::{Trainer, step::Step};
use std::collections::BTreeMap;

pub fn rollout_rows(step: &Step) -> Vec<RolloutRow> {
    rows(&step.groups, &step.trained)
}

/// `unrecorded`: components that only the trainer knows.
pub fn step_components(
    rows: &[RolloutRow],
    metrics: &StepMetrics,
    unrecorded: Components,
) -> Components {
    let mut components = ledger::rollouts(rows);
    components.insert("metrics".to_string(), ledger::metrics(metrics));
    components.extend(unrecorded);
    components
}

pub fn progress(trainer: &Trainer) -> CheckpointProgress {
    let position = trainer.position();
    CheckpointProgress {
        counters: position.counters,
        prompts_drawn: position.prompts_drawn,
        carried: rows(&position.carried, &BTreeMap::new()),
    }
}

fn rows(
    groups: &[Group<ScoredRollout>],
    advantages: &BTreeMap<usize, Vec<f64>>,
) -> Vec<RolloutRow> {
    let mut rows = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let problem = &group.prompt.problem;
        for (sample, scored) in group.rollouts.iter().enumerate() {
            let trained = advantages.get(&index);
            rows.push(RolloutRow {
                group: index as u32,
                problem: problem.id.clone(),
                question: problem.question.clone(),
                answer: problem.answer.clone(),
                attempt: group.attempt,
                sample: sample as u32,
                trained: trained.is_some(),
                is_correct: scored.is_correct,
                prediction: scored.prediction.clone(),
                reward: scored.reward(),
                correctness_reward: scored.correctness_reward,
                overlong_penalty: scored.overlong_penalty,
                advantage: trained.map_or(0.0, |advantages| advantages[sample]),
                truncated: scored.rollout.truncated(),
                tokens: scored.rollout.tokens.clone(),
                rollout_log_probs: scored.rollout.rollout_log_probs.clone(),
                response: scored.rollout.text.clone(),
            });
        }
    }
    rows
}

pub fn carried_groups(
    rows: &[RolloutRow],
    experiment: &Experiment,
    tokenizer: &Tokenizer,
) -> Result<Vec<Group<ScoredRollout>>, TaskError> {
    let limit = experiment.rollout.max_prompt_tokens;
    groups(rows, |problem| prompt::prompt(&problem, &experiment.prompt, tokenizer, limit))
}

pub fn groups<E>(
    rows: &[RolloutRow],
    prompt: impl Fn(Problem) -> Result<Prompt, E>,
) -> Result<Vec<Group<ScoredRollout>>, E> {
    let group = |members: &[RolloutRow]| {
        let RolloutRow { problem, question, answer, attempt, .. } = members[0].clone();
        let prompt = prompt(Problem { id: problem, question, answer })?;
        Ok(Group { prompt, attempt, rollouts: members.iter().map(scored).collect() })
    };
    rows.chunk_by(|a, b| a.group == b.group).map(group).collect()
}

/// Needs as many log-probs as tokens.
fn scored(row: &RolloutRow) -> ScoredRollout {
    let finish = if row.truncated { Finish::Length } else { Finish::Stop };
    let (tokens, log_probs) = (row.tokens.clone(), row.rollout_log_probs.clone());
    ScoredRollout {
        rollout: Rollout::new(tokens, log_probs, finish, row.response.clone()),
        is_correct: row.is_correct,
        prediction: row.prediction.clone(),
        correctness_reward: row.correctness_reward,
        overlong_penalty: row.overlong_penalty,
    }
}
