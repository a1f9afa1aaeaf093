//! Another trainer's responses as groups, graded by this harness.

use crate::algorithm::{Finish, Group, Problem, Rollout, ScoredRollout};
use crate::experiment::Grading;
use crate::task::{ResponseText, Twice, prompt};
use crate::training::{TrainingError, run::inputs::Inputs};
use std::collections::BTreeMap;

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

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DumpProblem {
    #[error("group {group} has {found} responses, and rollout.group_size is {wanted}")]
    Size { group: u64, found: usize, wanted: u64 },
    #[error("the responses of group {group} are to different problems")]
    Mixed { group: u64 },
    #[error("there are {found} groups, and training.prompts_per_step is {wanted}")]
    Groups { found: usize, wanted: u64 },
    #[error("a response to problem {problem} has {found} tokens; it must have 1 to {most}")]
    Length { problem: String, found: usize, most: u64 },
    #[error("a response to problem {problem} has the token {token}, which the tokenizer lacks")]
    Token { problem: String, token: u32 },
    #[error("a response to problem {problem} has the score {said}; `{verifier}` gives it {found}")]
    Score { problem: String, said: String, found: String, verifier: String },
}

/// Grades and shapes a step's groups again. They must be whole, with the scores of the arm's verifier.
pub fn groups(
    inputs: &Inputs,
    responses: Vec<DumpedResponse>,
) -> Result<Vec<Group<ScoredRollout>>, GroupsError> {
    let experiment = &inputs.experiment;
    let (size, wanted) = (experiment.rollout.group_size, experiment.training.prompts_per_step);
    let mut members: BTreeMap<u64, Vec<DumpedResponse>> = BTreeMap::new();
    for response in responses {
        members.entry(response.group).or_default().push(response);
    }
    if members.len() as u64 != wanted {
        return Err(DumpProblem::Groups { found: members.len(), wanted }.into());
    }
    let mut attempts: BTreeMap<usize, u32> = BTreeMap::new();
    let mut groups = Vec::with_capacity(members.len());
    for (group, members) in members {
        if members.len() as u64 != size {
            return Err(DumpProblem::Size { group, found: members.len(), wanted: size }.into());
        }
        let problem = &inputs.data.train[members[0].problem];
        if members.iter().any(|it| it.problem != members[0].problem) {
            return Err(DumpProblem::Mixed { group }.into());
        }
        let attempt = attempts.entry(members[0].problem).or_default();
        groups.push(graded(inputs, problem, *attempt, members)?);
        *attempt += 1;
    }
    Ok(groups)
}

#[derive(Debug, thiserror::Error)]
pub enum GroupsError {
    #[error(transparent)]
    Dump(#[from] DumpProblem),
    #[error(transparent)]
    Training(#[from] TrainingError),
}

fn graded(
    inputs: &Inputs,
    problem: &Problem,
    attempt: u32,
    members: Vec<DumpedResponse>,
) -> Result<Group<ScoredRollout>, GroupsError> {
    let (experiment, tokenizer) = (&inputs.experiment, &inputs.tokenizer);
    let limit = experiment.rollout.max_response_tokens;
    let said: Vec<f64> = members.iter().map(|member| member.score).collect();
    let mut rollouts = Vec::with_capacity(members.len());
    for DumpedResponse { tokens, .. } in members {
        let (found, name) = (tokens.len(), || problem.id.clone());
        if found == 0 || found as u64 > limit {
            return Err(DumpProblem::Length { problem: name(), found, most: limit }.into());
        }
        let vocabulary = inputs.config.vocab_size;
        if let Some(&token) = tokens.iter().find(|token| i64::from(**token) >= vocabulary) {
            return Err(DumpProblem::Token { problem: name(), token }.into());
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
    let graded = inputs.grader.grade_groups(groups, Twice::Hundredth(1));
    let mut group = graded.map_err(TrainingError::from)?.0.remove(0);
    for (scored, said) in group.rollouts.iter().zip(said) {
        let found = scored.correctness_reward;
        if said != found {
            let (said, found) = (said.to_string(), found.to_string());
            let verifier = match &experiment.reward.verifier {
                Grading::Rule(rule) => format!("{rule:?}"),
                Grading::Program(program) => program.name(),
            };
            return Err(
                DumpProblem::Score { problem: problem.id.clone(), said, found, verifier }.into()
            );
        }
    }
    experiment.dapo.rules().shape(&mut group, limit, &experiment.dapo);
    Ok(group)
}
