//! Samples responses of the base policy with the run's prompts: their lengths, and shares of
//! correct ones. The draws have their own purpose, so that the run's numbers do not change.

use crate::algorithm::{Group, Prompt, ScoredRollout};
use crate::base::{Purpose, rng::Id, rng::stream};
use crate::experiment::Experiment;
use crate::policy::sampling::generate;
use crate::policy::{Limits, Qwen2, Request, Response};
use crate::task::{ResponseText, Twice, prompt};
use crate::training::run::inputs::Inputs;
use crate::training::{Protocol, TrainingError, trainer};
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Tokens from which the time of a batch is projected.
const PILOT_TOKENS: usize = 8;

/// Limit of projected generation time; loading the policy comes on top.
const SECONDS: f64 = 10.0;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrialProbe {
    pub groups: u64,
    pub response_tokens_mean: f64,
    /// Without a stop token.
    pub truncated_share: f64,
    pub accuracy: f64,
    /// Responses without an answer that the verifier reads, and all.
    pub unanswered: (usize, usize),
    pub useful_share: f64,
    #[serde(default)]
    pub differing_groups: usize,
    /// Below L_max, to keep the probe short.
    pub cut_at_tokens: Option<u64>,
}

/// `watch` is told the progress. Errors would also stop the run: a prompt, the model.
pub fn measure(inputs: &Inputs, watch: &mut dyn FnMut(&str)) -> Result<TrialProbe, TrainingError> {
    let experiment = &inputs.experiment;
    watch("probe: loading the base policy");
    let model = inputs.base_policy()?;
    let size = experiment.rollout.group_size;
    let round = trainer::prompts_per_round(experiment).saturating_mul(size);
    let rows = round.min(experiment.execution.generation_batch_rollouts);
    let groups = (rows / size.max(1)).clamp(1, 4_096) as usize;
    let mut order: Vec<usize> = (0..inputs.data.train.len()).collect();
    stream(experiment.execution.seed, Purpose::Plan, &[]).shuffle(&mut order);
    let prompt = |&index: &usize| {
        // The plan warns of prompts beyond the limit; here they are as good as any.
        let problem = &inputs.data.train[index];
        prompt::prompt(problem, &experiment.prompt, &inputs.tokenizer, u64::MAX)
    };
    let prompts = order.iter().cycle().take(groups).map(prompt).collect::<Result<Vec<_>, _>>()?;

    let protocol = Protocol::of_rollouts(experiment);
    let limits = protocol.limits(&inputs.tokenizer);
    let most = limits.max_response_tokens;
    let at_most = |tokens: usize| Limits { max_response_tokens: tokens, ..limits.clone() };
    let mut seconds = 0.0;
    watch("probe: generating");
    // The first call also pays for setup. n groups take at most n times as long as one.
    for _ in 0..2 {
        let pilot = at_most(PILOT_TOKENS.min(most));
        (_, seconds) = generate(&model, experiment, &prompts[..1], &pilot)?;
    }
    // A few whole groups say more than many cut ones.
    let group_seconds = seconds / PILOT_TOKENS.min(most).max(1) as f64;
    let whole = ((SECONDS / (group_seconds * most as f64)) as usize).clamp(1, groups);
    let limit = (SECONDS / (group_seconds * whole as f64)) as usize;
    let limit = limit.max(PILOT_TOKENS).min(most);
    let prompts = &prompts[..whole];
    let (responses, _) = generate(&model, experiment, prompts, &at_most(limit))?;
    let groups = score(inputs, prompts, responses)?;
    let rollouts = || groups.iter().flat_map(|group| &group.rollouts);
    let count = rollouts().count().max(1) as f64;
    let share =
        |of: fn(&ScoredRollout) -> bool| rollouts().filter(|r| of(r)).count() as f64 / count;
    let none = rollouts().filter(|scored| scored.prediction.is_none()).count();
    let tokens: f64 = rollouts().map(|scored| scored.rollout.tokens.len() as f64).sum();
    let dapo = &experiment.dapo;
    let useful = |group: &&Group<ScoredRollout>| dapo.rules().is_useful(group, dapo);
    let differs = |group: &&Group<ScoredRollout>| group.rewards_differ() && !useful(group);
    Ok(TrialProbe {
        groups: groups.len() as u64,
        response_tokens_mean: tokens / count,
        truncated_share: share(|scored| scored.rollout.truncated()),
        accuracy: share(|scored| scored.is_correct),
        unanswered: (none, rollouts().count()),
        useful_share: groups.iter().filter(useful).count() as f64 / groups.len().max(1) as f64,
        differing_groups: groups.iter().filter(differs).count(),
        cut_at_tokens: (limit < most).then_some(limit as u64),
    })
}

fn generate(
    model: &Qwen2,
    experiment: &Experiment,
    prompts: &[Prompt],
    limits: &Limits,
) -> Result<(Vec<Response>, f64), TrainingError> {
    let mut requests = Vec::new();
    for prompt in prompts {
        for sample in 0..experiment.rollout.group_size {
            let key = [Id::from(prompt.problem.id.as_str()), Id::from(sample)];
            let stream = stream(experiment.execution.seed, Purpose::Plan, &key);
            requests.push(Request { prompt: &prompt.tokens, stream });
        }
    }
    let started = Instant::now();
    let responses = generate::generate(model, &requests, limits, |_| ())
        .map_err(|source| TrainingError::Generation { step: 0, source })?;
    Ok((responses, started.elapsed().as_secs_f64()))
}

fn score(
    inputs: &Inputs,
    prompts: &[Prompt],
    responses: Vec<Response>,
) -> Result<Vec<Group<ScoredRollout>>, TrainingError> {
    let experiment = &inputs.experiment;
    let text = ResponseText::of_rollouts(experiment, &inputs.tokenizer);
    let prompts = prompts.iter().map(|prompt| (prompt, 0));
    let groups = trainer::grouped(prompts, experiment.rollout.group_size, responses, text);
    let graded = inputs.grader.grade_groups(groups, Twice::All);
    let (mut groups, _) = graded.map_err(TrainingError::UngradedProbe)?;
    trainer::shape(&mut groups, experiment);
    Ok(groups)
}
