//! Algorithm 1 of the paper.

use crate::algorithm::{
    DynamicSampling, Group, Problem, Prompt, Rollout, Row, ScoredRollout, Selected, Selection,
    StepTotals,
};
use crate::base::{Purpose, rng::Id, rng::stream};
use crate::experiment::{Experiment, NonFinite};
use crate::numerics::NumericsError;
use crate::policy::frozen::{self, Frozen};
use crate::policy::sampling::{generate, rounded};
use crate::policy::{
    Limits, Policy, PolicyError, Qwen2, Request, Response, batch, batch::Cut, optimizer,
};
use crate::records::{Components, Counters, NotFinite, ledger};
use crate::task::{Grader, ResponseText, Tally, Tokenizer, Twice, prompt};
use crate::training::{
    Divergence, Metrics, Phase, Position, Protocol, StepOutcome, TrainingError, UpdateError,
    Updates, effects, step::Step, step::StepClock, update,
};
use std::collections::BTreeMap;

/// The ledger's gradient of an update that was left out.
const SKIPPED: &str = "left out: not finite";

#[derive(Debug)]
pub struct Trainer<'a> {
    experiment: &'a Experiment,
    tokenizer: &'a Tokenizer,
    problems: &'a [Problem],
    grader: &'a Grader,
    /// π_θ
    policy: Policy,
    /// π_ref of a KL penalty: the frozen base policy.
    reference: Option<Qwen2>,
    position: Position,
    graded: Tally,
}

impl<'a> Trainer<'a> {
    /// Starts at step 0. Only a KL penalty needs `reference`. Panics when there are no problems.
    pub fn new(
        experiment: &'a Experiment,
        tokenizer: &'a Tokenizer,
        problems: &'a [Problem],
        grader: &'a Grader,
        policy: Policy,
        reference: Option<Qwen2>,
    ) -> Self {
        assert!(!problems.is_empty(), "training needs problems");
        let (position, graded) = (Position::default(), Tally::default());
        Self { policy, experiment, tokenizer, problems, grader, reference, position, graded }
    }

    /// `position` belongs to the policy.
    pub fn resume(self, position: Position) -> Self {
        Self { position, ..self }
    }

    pub fn experiment(&self) -> &Experiment {
        self.experiment
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    pub fn counters(&self) -> Counters {
        self.position.counters
    }

    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Algorithm 1, lines 2–11.
    /// Errors: see [`TrainingError`]; a failed step leaves the weights of its last complete update.
    pub fn step(&mut self, watch: &mut dyn FnMut(Phase)) -> Result<StepOutcome, TrainingError> {
        let before = self.position.clone();
        let mut clock = StepClock::default();
        let carried = std::mem::take(&mut self.position.carried);
        self.graded = Tally::default();
        let (dapo, target) = (&self.experiment.dapo, self.experiment.training.prompts_per_step);
        let mut selection = Selection::new(dapo, target, carried);
        let entropy = match self.fill(&mut selection, &mut clock, watch) {
            Ok(entropy) => entropy,
            Err(TrainingError::Generation {
                source: PolicyError::Logits { index, token }, ..
            }) => {
                // No update was made, so the step can be replayed.
                self.position = before;
                let (groups, carried) = selection.into_groups();
                let step = Step { groups, carried, seconds: clock.seconds(), ..Step::default() };
                return Ok(diverged(step, NotFinite::SamplerLogits { prompt: index, token }));
            }
            Err(error) => {
                self.position = before;
                return Err(error);
            }
        };
        let selected = selection.select(); // 9
        if selected.batch.is_empty() {
            self.position = before;
            let rollouts = selected.groups.iter().flat_map(|group| &group.rollouts);
            let correct = rollouts.filter(|scored| scored.is_correct).count();
            let groups = &selected.groups;
            let differing = groups.iter().filter(|group| group.rewards_differ()).count();
            return Ok(StepOutcome::Saturated { correct, differing: (differing, groups.len()) });
        }
        let mut metrics = effects::of_rollouts(&selected, self.experiment, entropy);
        metrics.extend(self.graded.metrics());
        let improved = self.improve(&selected, &mut clock, &mut metrics, watch); // 10–11
        let kept = selected.waiting();
        let Selected { groups, carried, batch, advantages, .. } = selected;
        let seconds = clock.seconds();
        let trained = batch.into_iter().zip(advantages).collect();
        let mut step =
            Step { trained, groups, carried, metrics, seconds, components: Components::new() };
        match improved {
            Ok(components) => step.components = components,
            Err(source) => {
                let counters = self.position.counters;
                return match source.not_finite(counters.updates + 1) {
                    Some(not_finite) => Ok(diverged(step, not_finite)),
                    None => Err(TrainingError::Update { step: counters.rollout_steps + 1, source }),
                };
            }
        }
        self.position.carried = kept;
        self.position.counters.rollout_steps += 1;
        Ok(StepOutcome::Trained(Box::new(step)))
    }

    /// Lines 2–8: generation rounds until the batch is full. Returns the new responses' summed entropy, if recorded.
    fn fill(
        &mut self,
        selection: &mut Selection,
        clock: &mut StepClock,
        watch: &mut dyn FnMut(Phase),
    ) -> Result<Option<f64>, TrainingError> {
        let mut entropy = (self.experiment.record_format() > 1).then_some(0.0);
        loop {
            let prompts = self.draw_prompts()?; // line 2
            let earlier = selection.generated();
            let sampled = self.generate(&prompts, earlier, &mut entropy, clock, watch)?; // 3–4
            let graded = clock.time("grading", || self.score(sampled))?; // 5
            let step = self.position.counters.rollout_steps + 1;
            let more = selection.add_round(graded); // 6–8
            if !more.map_err(|source| TrainingError::CapReached { step, source })? {
                return Ok(entropy);
            }
        }
    }

    /// The next ones of the shuffled epochs.
    fn draw_prompts(&mut self) -> Result<Vec<Prompt>, TrainingError> {
        let count = prompts_per_round(self.experiment);
        let seed = self.experiment.execution.seed;
        let drawn = drawn(self.problems.len(), seed, self.position.prompts_drawn, count);
        let prompt = |problem: usize| {
            let (settings, limit) =
                (&self.experiment.prompt, self.experiment.rollout.max_prompt_tokens);
            prompt::prompt(&self.problems[problem], settings, self.tokenizer, limit)
        };
        let prompts = drawn.into_iter().map(prompt).collect::<Result<_, _>>()?;
        self.position.prompts_drawn += count;
        Ok(prompts)
    }

    /// G responses for each prompt. `earlier` are groups that this step already sampled: they count
    /// as attempts at their problems. `entropy` grows by that of each response.
    fn generate(
        &mut self,
        prompts: &[Prompt],
        earlier: &[Group<ScoredRollout>],
        entropy: &mut Option<f64>,
        clock: &mut StepClock,
        watch: &mut dyn FnMut(Phase),
    ) -> Result<Vec<Group<Rollout>>, TrainingError> {
        let mut attempts: BTreeMap<&str, u32> = BTreeMap::new();
        for group in earlier {
            *attempts.entry(group.prompt.problem.id.as_str()).or_default() += 1;
        }
        let (seed, step) = (self.experiment.execution.seed, self.position.counters.rollout_steps);
        let size = self.experiment.rollout.group_size;
        let mut attempt_of = Vec::with_capacity(prompts.len());
        let mut requests = Vec::with_capacity(prompts.len() * size as usize);
        for prompt in prompts {
            let id = prompt.problem.id.as_str();
            let attempt = attempts.entry(id).or_default();
            for sample in 0..size {
                let key =
                    [Id::from(step), Id::from(id), Id::from(u64::from(*attempt)), Id::from(sample)];
                let stream = stream(seed, Purpose::Rollout, &key);
                requests.push(Request { prompt: &prompt.tokens, stream });
            }
            attempt_of.push(*attempt);
            *attempt += 1;
        }
        let protocol = Protocol::of_rollouts(self.experiment);
        let limits = protocol.limits(self.tokenizer);
        let limits = Limits { entropy: entropy.is_some() || self.samples_as_trained(), ..limits };
        let total = requests.len();
        tracing::debug!(step = step + 1, responses = total, "generation");
        let model = self.policy.model();
        let responses = clock
            .time("generation", || {
                let sampler = self.experiment.rollout.sampler_weights;
                let sampler = sampler.map(|weights| rounded::rounded(model, weights));
                let model = sampler.as_ref().unwrap_or(model);
                generate::generate(model, &requests, &limits, |done| {
                    watch(Phase::Generation(done, total));
                })
            })
            .map_err(|source| TrainingError::Generation { step: step + 1, source })?;
        self.position.counters.generation_rounds += 1;
        for response in &responses {
            *entropy =
                entropy.map(|sum| sum + response.entropy.iter().fold(0.0, |sum, it| sum + it));
        }
        let text = protocol.text(self.tokenizer);
        Ok(grouped(prompts.iter().zip(attempt_of), size, responses, text))
    }

    /// The sampler's log-probs and entropies are bit for bit those of the training forward.
    pub fn samples_as_trained(&self) -> bool {
        self.policy.model().is_native() && self.experiment.rollout.says_as_trained()
    }

    /// Eq. 7 plus Eq. 13. A program grades the responses of the first step twice.
    fn score(
        &mut self,
        sampled: Vec<Group<Rollout>>,
    ) -> Result<Vec<Group<ScoredRollout>>, TrainingError> {
        let twice = match self.position.counters.rollout_steps {
            0 => Twice::All,
            _ => Twice::Few(self.position.counters.generation_rounds),
        };
        let (mut groups, graded) = self.grader.grade_groups(sampled, twice)?;
        self.graded.add(graded);
        shape(&mut groups, self.experiment);
        Ok(groups)
    }

    /// Lines 10–11: μ passes of mini-batch updates on Eq. 8. `metrics` has what was measured before
    /// a failure, too. Returns the ledger's components that only this shows.
    fn improve(
        &mut self,
        selected: &Selected,
        clock: &mut StepClock,
        metrics: &mut Metrics,
        watch: &mut dyn FnMut(Phase),
    ) -> Result<Components, UpdateError> {
        let rows = &selected.rows[..];
        let groups = selected.trained();
        let old = clock.time("old_log_probs", || self.old_policy(selected, &groups))?;
        let reference = || self.reference.as_ref().map(|model| self.frozen(model, rows));
        let reference = clock.time("old_log_probs", || reference().transpose())?;
        metrics.extend(old.metrics(&groups));
        let mut passes_halved = old.passes_halved;
        passes_halved += reference.as_ref().map_or(0, |frozen| frozen.passes_halved);
        let reference = reference.map(|frozen| frozen.log_probs);
        let sampler = self.experiment.dapo.method.map(|_| sampler_log_probs(&groups));
        let plan = self.mini_batches(rows);
        let totals = StepTotals {
            tokens: rows.iter().map(Row::loss_tokens).sum(),
            mini_batches: plan.len() as u64 / self.experiment.training.epochs_per_step,
            max_response_tokens: self.experiment.rollout.max_response_tokens,
        };
        let (seed, step) = (self.experiment.execution.seed, self.position.counters.rollout_steps);
        let rate = optimizer::learning_rate(&self.experiment.optimizer, step);
        let settings = update::Settings {
            dapo: &self.experiment.dapo,
            temperature: self.experiment.rollout.sampling.temperature,
            cut: Cut::of(&self.experiment.execution),
        };
        let skips = self.experiment.optimizer.non_finite == Some(NonFinite::Skip);
        let mut updates = Updates::default();
        let mut gradients = Vec::with_capacity(plan.len());
        for (done, members) in plan.iter().enumerate() {
            tracing::debug!(step = step + 1, update = self.position.counters.updates + 1, "update");
            let ids = [Id::from(step), Id::from(done as u64)];
            let batch = update::MiniBatch {
                rows,
                members,
                old_log_probs: &old.log_probs,
                ref_log_probs: reference.as_deref(),
                sampler_log_probs: sampler.as_deref(),
                choice: &stream(seed, Purpose::TokenChoice, &ids),
                totals,
            };
            let updated =
                clock.time("update", || update::update(&mut self.policy, &batch, &settings, rate));
            match updated {
                Ok(updated) => {
                    passes_halved += updated.passes_halved;
                    if done == 0 && self.samples_as_trained() {
                        old.compared(metrics, updated.distance.sum, updated.distance.most);
                    }
                    updates.add(&updated);
                    gradients.push(updated.gradients_sha256);
                }
                Err(error) if skips && error.not_finite(0).is_some() => {
                    tracing::warn!(step = step + 1, %error, "an update is left out");
                    updates.skipped += 1;
                    gradients.push(SKIPPED.to_string());
                }
                Err(error) => return Err(error),
            }
            self.position.counters.updates += 1;
            watch(Phase::Update(done + 1, plan.len()));
        }
        metrics.extend(self.of_updates(&updates, rate));
        if passes_halved > 0 {
            metrics.insert("memory/passes_halved".to_string(), passes_halved as f64);
        }
        let components = || {
            let named = [
                ("old_log_probs", ledger::log_probs(&old.log_probs)),
                ("gradients", ledger::sequence(&gradients)),
            ];
            let mut components = self.policy.components();
            components.extend(named.map(|(name, digest)| (name.to_string(), digest)));
            components
        };
        Ok(clock.time("ledger", components))
    }

    /// π_old: what the sampler recorded, where that is the training forward's.
    fn old_policy(
        &self,
        selected: &Selected,
        groups: &[&Group<ScoredRollout>],
    ) -> Result<Frozen, NumericsError> {
        let (model, rows) = (self.policy.model(), &selected.rows[..]);
        if !self.samples_as_trained() {
            return self.frozen(model, rows);
        }
        let fresh = selected.batch.iter().map(|&index| index >= selected.carried);
        let fresh: Vec<bool> = fresh.collect();
        let cut = Cut::of(&self.experiment.execution);
        let temperature = self.experiment.rollout.sampling.temperature;
        Frozen::sampled(model, rows, groups, &fresh, temperature, cut)
    }

    fn frozen(&self, model: &Qwen2, rows: &[Row]) -> Result<Frozen, NumericsError> {
        let temperature = self.experiment.rollout.sampling.temperature;
        frozen::read(model, rows, temperature, Cut::of(&self.experiment.execution))
    }

    /// Those of all μ passes, in order.
    fn mini_batches(&self, rows: &[Row]) -> Vec<Vec<usize>> {
        let training = &self.experiment.training;
        let (seed, step) = (self.experiment.execution.seed, self.position.counters.rollout_steps);
        let of_epoch = |epoch| {
            let order = stream(seed, Purpose::MiniBatchOrder, &[Id::from(step), Id::from(epoch)]);
            batch::mini_batches(rows, training, order)
        };
        (0..training.epochs_per_step).flat_map(of_epoch).collect()
    }

    fn of_updates(&self, updates: &Updates, rate: f64) -> Metrics {
        let optimizer = &self.experiment.optimizer;
        let mut metrics = Metrics::new();
        metrics.extend(updates.metrics(optimizer.max_gradient_norm, rate));
        if self.experiment.record_format() > 2 {
            metrics.extend(updates.clipped_by_quarter());
        }
        if optimizer.non_finite == Some(NonFinite::Skip) {
            metrics.insert("optimizer/skipped_updates".to_string(), updates.skipped as f64);
        }
        metrics
    }
}

fn sampler_log_probs(groups: &[&Group<ScoredRollout>]) -> Vec<Vec<f64>> {
    let rollouts = groups.iter().flat_map(|group| &group.rollouts);
    rollouts.map(|scored| scored.rollout.rollout_log_probs.clone()).collect()
}

/// Adds the arm's rules to the rewards of graded groups.
pub fn shape(groups: &mut [Group<ScoredRollout>], experiment: &Experiment) {
    let (dapo, limit) = (&experiment.dapo, experiment.rollout.max_response_tokens);
    groups.iter_mut().for_each(|group| dapo.rules().shape(group, limit, dapo));
}

/// Prompts, each with its attempt, and `size` of the responses each.
pub fn grouped<'p>(
    prompts: impl Iterator<Item = (&'p Prompt, u32)>,
    size: u64,
    responses: Vec<Response>,
    text: ResponseText,
) -> Vec<Group<Rollout>> {
    let rollout = |Response { tokens, log_probs, entropy, finish }| {
        let text = text.of(&tokens);
        Rollout { rollout_entropy: entropy, ..Rollout::new(tokens, log_probs, finish, text) }
    };
    let mut rollouts = responses.into_iter().map(rollout);
    let group = |(prompt, attempt): (&Prompt, u32)| {
        let rollouts = rollouts.by_ref().take(size as usize).collect();
        Group { prompt: prompt.clone(), attempt, rollouts }
    };
    prompts.map(group).collect()
}

/// Without Dynamic Sampling one round is the whole batch.
pub fn prompts_per_round(experiment: &Experiment) -> u64 {
    match experiment.dapo.dynamic_sampling {
        DynamicSampling::None {} => experiment.training.prompts_per_step,
        DynamicSampling::Resample { .. } => experiment.rollout.prompts_per_round,
    }
}

/// Indices of the `count` problems that follow the first `before` of the shuffled epochs.
pub fn drawn(problems: usize, seed: u64, before: u64, count: u64) -> Vec<usize> {
    let size = problems as u64;
    let order_of = |epoch: u64| {
        let mut order: Vec<usize> = (0..problems).collect();
        stream(seed, Purpose::DataOrder, &[Id::from(epoch)]).shuffle(&mut order);
        (epoch, order)
    };
    let mut current = order_of(before / size);
    let problem = |drawn: u64| {
        if current.0 != drawn / size {
            current = order_of(drawn / size);
        }
        current.1[(drawn % size) as usize]
    };
    (before..before + count).map(problem).collect()
}

fn diverged(step: Step, not_finite: NotFinite) -> StepOutcome {
    StepOutcome::Diverged(Box::new(Divergence { step, not_finite }))
}
