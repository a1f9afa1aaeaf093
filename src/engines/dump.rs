//! Another trainer's responses as groups, graded by this harness.

use crate::algorithm::{Finish, Group, Problem, Rollout, ScoredRollout};
use crate::engines::EngineError;
use crate::experiment::Grading;
use crate::task::{ResponseText, Twice, prompt};
use crate::training::{TrainingError, run::inputs::Inputs};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Debug, Clone, PartialEq)]
pub struct DumpedResponse {
    /// Equal within a group; decides the order of groups.
    pub group: u64,
    /// Index into the training problems.
    pub problem: usize,
    /// With the stop token, if there was one.
    pub tokens: Vec<u32>,
    /// The other trainer's score for correctness alone.
    pub score: f64,
}

/// Grades and shapes a step's groups again. Errors: groups of the file that are not whole, or have other scores than the
/// arm's verifier gives.
pub fn groups(
    inputs: &Inputs,
    responses: Vec<DumpedResponse>,
    path: &Path,
) -> Result<Vec<Group<ScoredRollout>>, EngineError> {
    let experiment = &inputs.experiment;
    let refused = |reason: String| EngineError::Output { path: path.to_path_buf(), reason };
    let (size, wanted) = (experiment.rollout.group_size, experiment.training.prompts_per_step);
    let mut members: BTreeMap<u64, Vec<DumpedResponse>> = BTreeMap::new();
    for response in responses {
        members.entry(response.group).or_default().push(response);
    }
    let count = members.len();
    if count as u64 != wanted {
        let reason = format!("there are {count} groups, and training.prompts_per_step is {wanted}");
        return Err(refused(reason));
    }
    let mut attempts: BTreeMap<usize, u32> = BTreeMap::new();
    let mut groups = Vec::with_capacity(members.len());
    for (group, members) in members {
        let count = members.len();
        if count as u64 != size {
            let reason =
                format!("group {group} has {count} responses, and rollout.group_size is {size}");
            return Err(refused(reason));
        }
        let problem = &inputs.data.train[members[0].problem];
        if members.iter().any(|it| it.problem != members[0].problem) {
            return Err(refused(format!(
                "the responses of group {group} are to different problems"
            )));
        }
        let attempt = attempts.entry(members[0].problem).or_default();
        groups.push(graded(inputs, problem, *attempt, members, &refused)?);
        *attempt += 1;
    }
    Ok(groups)
}

fn graded(
    inputs: &Inputs,
    problem: &Problem,
    attempt: u32,
    members: Vec<DumpedResponse>,
    refused: &dyn Fn(String) -> EngineError,
) -> Result<Group<ScoredRollout>, EngineError> {
    let (experiment, tokenizer) = (&inputs.experiment, &inputs.tokenizer);
    let limit = experiment.rollout.max_response_tokens;
    let theirs: Vec<f64> = members.iter().map(|member| member.score).collect();
    let problem_id = &problem.id;
    let mut rollouts = Vec::with_capacity(members.len());
    for DumpedResponse { tokens, .. } in members {
        let count = tokens.len();
        if count == 0 || count as u64 > limit {
            return Err(refused(format!(
                "a response to problem {problem_id} has {count} tokens; it must have 1 to {limit}"
            )));
        }
        let vocabulary = inputs.config.vocab_size;
        if let Some(token) = tokens.iter().find(|token| i64::from(**token) >= vocabulary) {
            return Err(refused(format!(
                "a response to problem {problem_id} has the token {token}, which the tokenizer lacks"
            )));
        }
        let stopped = tokens.last().is_some_and(|last| tokenizer.stop_tokens().contains(last));
        let finish = if stopped { Finish::Stop } else { Finish::Length };
        let text = ResponseText::of_rollouts(experiment, tokenizer).of(&tokens);
        rollouts.push(Rollout::new(tokens, Vec::new(), finish, text));
    }
    let (settings, longest) = (&experiment.prompt, experiment.rollout.max_prompt_tokens);
    let prompt =
        prompt::prompt(problem, settings, tokenizer, longest).map_err(TrainingError::from)?;
    let groups = vec![Group { prompt, attempt, rollouts }];
    let graded = inputs.grader.grade_groups(groups, Twice::Never);
    let mut group = graded.map_err(TrainingError::from)?.0.remove(0);
    for (scored, theirs) in group.rollouts.iter().zip(theirs) {
        let ours = scored.correctness_reward;
        if theirs != ours {
            let verifier = match &experiment.reward.verifier {
                Grading::Rule(rule) => format!("{rule:?}"),
                Grading::Program(program) => program.name(),
            };
            return Err(refused(format!(
                "a response to problem {problem_id} has the score {theirs}; `{verifier}` gives it {ours}"
            )));
        }
    }
    experiment.dapo.rules().shape(&mut group, limit, &experiment.dapo);
    Ok(group)
}
