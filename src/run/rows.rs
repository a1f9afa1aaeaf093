//! A step and a policy's moments in the form in which they are stored.

use crate::policy::Policy;
use crate::tables::RolloutRow;
use crate::train::Step;
use std::collections::BTreeMap;

/// AdamW's moments as named tensors with their shapes.
pub fn moments(policy: &Policy) -> BTreeMap<String, (Vec<i64>, Vec<f32>)> {
    let state = policy.optimizer().state();
    let shape = |name: &String| policy.model().parameters()[name].size();
    let named = |prefix: &'static str, moments: &BTreeMap<String, Vec<f32>>| {
        moments
            .iter()
            .map(|(name, values)| (format!("{prefix}.{name}"), (shape(name), values.clone())))
            .collect::<Vec<_>>()
    };
    named("first", &state.first_moments)
        .into_iter()
        .chain(named("second", &state.second_moments))
        .collect()
}

/// Every rollout of a step, as the rows of its table.
pub fn rollout_rows(step: &Step) -> Vec<RolloutRow> {
    let advantages: BTreeMap<usize, &Vec<f64>> =
        step.trained.iter().map(|(index, advantages)| (*index, advantages)).collect();
    let mut rows = Vec::new();
    for (index, group) in step.groups.iter().enumerate() {
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
