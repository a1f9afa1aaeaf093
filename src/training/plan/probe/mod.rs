//! A short measurement with the run's own model, prompts, sampling and batch sizes. Its draws
//! have a purpose of their own and its updates go to a copy that is thrown away: the run's
//! numbers are the same with and without it.

use crate::algorithm::{Group, Problem, Prompt, Rollout, ScoredRollout};
use crate::base::Purpose;
use crate::base::rng::{Id, stream};
use crate::experiment::{Experiment, Sampling, sets};
use crate::policy::sampling::generate::{self, Request};
use crate::policy::{Limits, Qwen2, Response};
use crate::task::{prompt, reward};
use crate::training::plan::{cost, machine};
use crate::training::run::Error;
use crate::training::run::inputs::Inputs;
use crate::training::{DecodeRate, Lengths, Rates, Speed, Stopwatch, evaluation, step, trainer};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Instant;

pub mod speed;
pub mod storage;

/// Groups that the forecast of Dynamic Sampling should rest on.
const GROUPS: usize = 64;
/// Seconds after which no further batch is generated, for each kind of sampling.
const GENERATION_SECONDS: f64 = 2.5;
/// Longest time that one batch may take, by a projection from its first tokens.
const BATCH_SECONDS: f64 = 6.0;

/// What was measured, without the single lengths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// Wall-clock seconds of the probe itself.
    pub seconds: f64,
    /// Processor seconds over wall-clock seconds: below 1 with one thread, the machine was
    /// busy with something else.
    pub processor_share: Option<f64>,
    /// Groups sampled with the training's sampling.
    pub groups: u64,
    /// Mean response length in tokens.
    pub response_tokens_mean: f64,
    /// 10th, 50th and 90th percentile of the response length.
    pub response_tokens_percentiles: [u64; 3],
    /// Mean length of the correct responses; `None` when there was none.
    pub correct_response_tokens_mean: Option<f64>,
    /// Share of responses without a stop token.
    pub truncated_share: f64,
    /// Share of correct responses.
    pub accuracy: f64,
    /// Mean response length with the evaluation's sampling.
    pub evaluation_response_tokens_mean: f64,
    /// Response tokens a second, with the training's sampling.
    pub generated_tokens_per_second: f64,
    /// Responses were cut here, below L_max, to keep the probe short.
    pub cut_at_tokens: Option<u64>,
    /// Peak of the process's memory up to the end of the probe.
    pub peak_memory_bytes: Option<u64>,
    /// Rows, tokens and seconds → rates.
    pub rates: Rates,
}

/// A probe with everything that planning needs of it.
#[derive(Debug)]
pub struct Measured {
    /// The record.
    pub probe: Probe,
    /// Each group's number of correct rollouts.
    pub correct: Vec<usize>,
    /// Lengths with the training's sampling.
    pub training: Lengths,
    /// Lengths of the correct ones.
    pub training_correct: Option<Lengths>,
    /// Lengths with the evaluation's sampling.
    pub evaluation: Lengths,
    /// Lengths of the correct ones.
    pub evaluation_correct: Option<Lengths>,
}

/// Measures. `folder` is where the run will write: a scratch folder in it is filled and
/// removed.
///
/// # Errors
/// What would also stop the run: a prompt, the model, a folder.
pub fn measure(inputs: &Inputs, folder: &Path) -> Result<Measured, Error> {
    let threads = inputs.experiment.execution.threads;
    let (watch, processor) = (Stopwatch::start(threads), machine::processor_seconds());
    let model = inputs.base_policy()?;
    let training = training(inputs, &model)?;
    let evaluation = evaluation(inputs, &model)?;
    let speed = speed::measure(&inputs.experiment, &model, &training.groups)?;
    let used = processor.and_then(|before| Some(machine::processor_seconds()? - before));
    let processor_share = used.map(|used| used / watch.wall_seconds());
    let slowdown = watch.wall_seconds() / watch.seconds();
    let storage =
        storage::measure(inputs, &speed.policy, &training.groups, &evaluation.groups, folder)?;
    let rates = rates(&training, &evaluation, &speed, &storage).slowed(slowdown);
    let rollouts = || training.groups.iter().flat_map(|group| &group.rollouts);
    let count = rollouts().count().max(1) as f64;
    let share =
        |of: fn(&ScoredRollout) -> bool| rollouts().filter(|r| of(r)).count() as f64 / count;
    let (lengths, correct) = training.lengths();
    let (evaluated, evaluated_correct) = evaluation.lengths();
    let percentile = |at: f64| lengths.quantile(at);
    let probe = Probe {
        seconds: watch.wall_seconds(),
        processor_share,
        groups: training.groups.len() as u64,
        response_tokens_mean: lengths.mean(),
        response_tokens_percentiles: [percentile(0.1), percentile(0.5), percentile(0.9)],
        correct_response_tokens_mean: correct.as_ref().map(Lengths::mean),
        truncated_share: share(|scored| scored.rollout.truncated()),
        accuracy: share(|scored| scored.is_correct),
        evaluation_response_tokens_mean: evaluated.mean(),
        generated_tokens_per_second: training.tokens_per_second() / slowdown,
        cut_at_tokens: training.cut_at_tokens.or(evaluation.cut_at_tokens),
        peak_memory_bytes: machine::process_bytes("VmHWM"),
        rates,
    };
    Ok(Measured {
        probe,
        correct: training.groups.iter().map(Group::correct).collect(),
        training: lengths,
        training_correct: correct,
        evaluation: evaluated,
        evaluation_correct: evaluated_correct,
    })
}

fn rates(
    training: &Sampled,
    evaluation: &Sampled,
    speed: &Speed,
    storage: &storage::Storage,
) -> Rates {
    let decode = |sampled: &Sampled| {
        let (iteration_seconds, token_seconds) = cost::fit(&sampled.points);
        DecodeRate { iteration_seconds, token_seconds }
    };
    Rates {
        generation: decode(training),
        evaluation: decode(evaluation),
        grading_response_seconds: training.grading_response_seconds,
        old_log_probs: speed.old_log_probs,
        update: speed.update,
        optimizer_seconds: speed.optimizer_seconds,
        checkpoint_seconds: storage.checkpoint_seconds,
        checkpoint_bytes: storage.checkpoint_bytes,
        rollout_table: storage.rollout_table,
        evaluation_table: storage.evaluation_table,
    }
}

/// Responses with what they took.
struct Sampled {
    groups: Vec<Group<ScoredRollout>>,
    /// Decode iterations, response tokens, seconds of each timed batch.
    points: Vec<[f64; 3]>,
    grading_response_seconds: f64,
    cut_at_tokens: Option<u64>,
}

impl Sampled {
    /// Lengths of all responses, and of the correct ones.
    fn lengths(&self) -> (Lengths, Option<Lengths>) {
        let rollouts = || self.groups.iter().flat_map(|group| &group.rollouts);
        let tokens = |scored: &ScoredRollout| scored.rollout.tokens.len() as u64;
        let correct = rollouts().filter(|scored| scored.is_correct).map(tokens).collect();
        let all = Lengths::new(rollouts().map(tokens).collect());
        (all.unwrap_or(Lengths::all(0)), Lengths::new(correct))
    }

    fn tokens_per_second(&self) -> f64 {
        let sum = |index: usize| self.points.iter().map(|point| point[index]).sum::<f64>();
        sum(1) / sum(2).max(f64::MIN_POSITIVE)
    }
}

/// Groups of the training's shape from problems in a random order of the probe's own.
fn training(inputs: &Inputs, model: &Qwen2) -> Result<Sampled, Error> {
    let experiment = &inputs.experiment;
    let size = experiment.rollout.group_size;
    let round = trainer::prompts_per_round(experiment).saturating_mul(size);
    let plan = Plan {
        name: "training",
        problems: &inputs.data.train,
        sampling: experiment.rollout.sampling,
        group_size: size,
        rows: round.min(experiment.execution.generation_batch_rollouts),
    };
    sample(inputs, model, &plan)
}

/// Groups of the evaluation's shape from the development set.
fn evaluation(inputs: &Inputs, model: &Qwen2) -> Result<Sampled, Error> {
    let experiment = &inputs.experiment;
    let size = inputs.samples(sets::DEV)?;
    let rows = (inputs.data.dev.len() as u64).saturating_mul(size);
    let plan = Plan {
        name: "evaluation",
        problems: &inputs.data.dev,
        sampling: experiment.evaluation.sampling,
        group_size: size,
        rows: rows.min(experiment.execution.generation_batch_rollouts),
    };
    sample(inputs, model, &plan)
}

/// What one kind of sampling is measured on.
struct Plan<'a> {
    name: &'static str,
    problems: &'a [Problem],
    sampling: Sampling,
    group_size: u64,
    /// Responses of one batch.
    rows: u64,
}

fn sample(inputs: &Inputs, model: &Qwen2, plan: &Plan) -> Result<Sampled, Error> {
    let experiment = &inputs.experiment;
    let limits = evaluation::limits(experiment, plan.sampling, &inputs.tokenizer);
    let mut order: Vec<usize> = (0..plan.problems.len()).collect();
    stream(experiment.execution.seed, Purpose::Plan, &[Id::from(plan.name)]).shuffle(&mut order);
    let mut next = order.iter().cycle().map(|&index| &plan.problems[index]);
    let mut sampled = Sampled {
        groups: Vec::new(),
        points: Vec::new(),
        grading_response_seconds: 0.0,
        cut_at_tokens: None,
    };
    let most = experiment.rollout.max_response_tokens as usize;
    let batch = Batch::sized(inputs, model, plan, &limits, &mut next)?;
    let limit = batch.response_tokens;
    sampled.cut_at_tokens = (limit < most).then_some(limit as u64);
    let threads = experiment.execution.threads;
    let (started, mut graded, mut attempt) = (Instant::now(), 0.0, 0);
    let done = |groups: usize, attempt: u64| {
        attempt > 0 && (groups >= GROUPS || started.elapsed().as_secs_f64() > GENERATION_SECONDS)
    };
    while !done(sampled.groups.len(), attempt) {
        let prompts = draw_prompts(inputs, &mut next, batch.groups)?;
        for limit in [limit, short(limit)] {
            let limits = Limits { max_response_tokens: limit, ..limits.clone() };
            let (responses, seconds) =
                generate(model, experiment, &prompts, attempt, plan, &limits)?;
            let lengths = || responses.iter().map(|response| response.tokens.len());
            let iterations = lengths().max().unwrap_or(0) as f64;
            sampled.points.push([iterations, lengths().sum::<usize>() as f64, seconds]);
            attempt += 1;
            if limit == batch.response_tokens {
                let watch = Stopwatch::start(threads);
                let groups = score(inputs, &prompts, responses, plan.group_size);
                graded += watch.seconds();
                sampled.groups.extend(groups);
            }
        }
    }
    let rollouts: usize = sampled.groups.iter().map(|group| group.rollouts.len()).sum();
    sampled.grading_response_seconds = graded / rollouts.max(1) as f64;
    Ok(sampled)
}

/// A limit at which most rows are still being generated: with the full limit it tells the
/// cost of an iteration from that of a token.
fn short(limit: usize) -> usize {
    (limit / 10).clamp(1, 16)
}

/// The size of a probe's batches.
struct Batch {
    groups: usize,
    response_tokens: usize,
}

impl Batch {
    /// The run's own batch, unless its first tokens say that it would take too long: then
    /// fewer groups, and at last shorter responses.
    fn sized<'a>(
        inputs: &Inputs,
        model: &Qwen2,
        plan: &Plan,
        limits: &Limits,
        next: &mut impl Iterator<Item = &'a Problem>,
    ) -> Result<Self, Error> {
        const PILOT_TOKENS: usize = 3;
        let most = inputs.experiment.rollout.max_response_tokens as usize;
        let whole = (plan.rows / plan.group_size.max(1)).clamp(1, 4_096) as usize;
        let mut batch = Self { groups: whole.min(2), response_tokens: most };
        let limits = Limits { max_response_tokens: PILOT_TOKENS.min(most), ..limits.clone() };
        // The first call also pays for what is set up once.
        for _ in 0..2 {
            let prompts = draw_prompts(inputs, next, batch.groups)?;
            let (_, seconds) = generate(model, &inputs.experiment, &prompts, 0, plan, &limits)?;
            let iteration = seconds / limits.max_response_tokens.max(1) as f64;
            let fitting = BATCH_SECONDS / (iteration * most as f64);
            // Twice the rows take at most twice the time.
            let groups = (batch.groups as f64 * fitting) as usize;
            batch.groups = groups.clamp(1, whole);
            if groups == 0 {
                batch.response_tokens =
                    ((most as f64 * fitting) as usize).clamp(PILOT_TOKENS.min(most), most);
            }
        }
        Ok(batch)
    }
}

fn draw_prompts<'a>(
    inputs: &Inputs,
    next: &mut impl Iterator<Item = &'a Problem>,
    count: usize,
) -> Result<Vec<Prompt>, Error> {
    let experiment = &inputs.experiment;
    let render = |problem: &Problem| {
        // A prompt beyond the limit is a warning of the plan; here it is as good as any.
        prompt::prompt(problem, experiment.prompt.template, &inputs.tokenizer, u64::MAX)
    };
    Ok(next.take(count).map(render).collect::<Result<_, _>>()?)
}

fn generate(
    model: &Qwen2,
    experiment: &Experiment,
    prompts: &[Prompt],
    attempt: u64,
    plan: &Plan,
    limits: &Limits,
) -> Result<(Vec<Response>, f64), Error> {
    let mut requests = Vec::new();
    for prompt in prompts {
        for sample in 0..plan.group_size {
            let id = Id::from(prompt.problem.id.as_str());
            let key = [Id::from(plan.name), id, Id::from(attempt), Id::from(sample)];
            let stream = stream(experiment.execution.seed, Purpose::Plan, &key);
            requests.push(Request { prompt: &prompt.tokens, stream });
        }
    }
    let watch = Stopwatch::start(experiment.execution.threads);
    let responses = generate::generate(model, &requests, limits, |_| ())
        .map_err(|source| step::Error::Generate { step: 0, source })?;
    Ok((responses, watch.seconds()))
}

fn score(
    inputs: &Inputs,
    prompts: &[Prompt],
    responses: Vec<Response>,
    group_size: u64,
) -> Vec<Group<ScoredRollout>> {
    let experiment = &inputs.experiment;
    let mut responses =
        responses.into_iter().map(|Response { tokens, log_probs, finish, .. }| {
            let text = inputs.tokenizer.decode(&tokens);
            Rollout::new(tokens, log_probs, finish, text)
        });
    let mut groups = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        let rollouts = responses.by_ref().take(group_size as usize).collect();
        let group = Group { prompt: prompt.clone(), attempt: 0, rollouts };
        let mut group = reward::grade_group(group, experiment.reward.verifier);
        let limit = experiment.rollout.max_response_tokens;
        experiment.dapo.rules().shape(&mut group, limit, &experiment.dapo);
        groups.push(group);
    }
    groups
}
