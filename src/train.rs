//! Algorithm 1 of the paper: the only place that closes a loop.

use crate::batch;
use crate::batch::Row;
use crate::config::Experiment;
use crate::config::dapo::AtCap;
use crate::config::dapo::DynamicSampling;
use crate::config::dapo::Surplus;
use crate::dapo::advantage;
use crate::dapo::aggregation::StepTotals;
use crate::dapo::dynamic_sampling;
use crate::dapo::dynamic_sampling::Buffer;
use crate::dapo::dynamic_sampling::Next;
use crate::dapo::overlong;
use crate::effects;
use crate::effects::Metrics;
use crate::effects::Updates;
use crate::effects::techniques;
use crate::eval;
use crate::frozen;
use crate::model::qwen2::Qwen2;
use crate::optimizer;
use crate::policy::Policy;
use crate::prompt;
use crate::prompt::Tokenizer;
use crate::records::Group;
use crate::records::Problem;
use crate::records::Prompt;
use crate::records::Rollout;
use crate::records::ScoredRollout;
use crate::reward;
use crate::rng::Id;
use crate::rng::Purpose;
use crate::rng::stream;
use crate::rollout::generate;
use crate::rollout::generate::Request;
use crate::run_folder::Counters;
use crate::update;
use std::collections::BTreeMap;
use std::time::Instant;

/// A step that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A problem that cannot be rendered.
    #[error(transparent)]
    Prompt(#[from] prompt::Error),
    /// A prompt that the model cannot serve.
    #[error("rollout step {step}: {source}")]
    Generate {
        /// Rollout step, from 1.
        step: u64,
        /// What is wrong.
        source: generate::Error,
    },
    /// Dynamic Sampling's cap, with `at_cap = "stop"`.
    #[error("rollout step {step}: {source}")]
    CapReached {
        /// Rollout step, from 1.
        step: u64,
        /// The share that was kept.
        source: dynamic_sampling::CapReached,
    },
}

/// A step's progress, for whoever watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Responses of a generation round: done of total.
    Generation(usize, usize),
    /// Updates of the step: done of total.
    Update(usize, usize),
}

/// One rollout step, done.
#[derive(Debug)]
pub struct Step {
    /// Every group that was generated, with those carried over in front.
    pub groups: Vec<Group<ScoredRollout>>,
    /// Indices into `groups` of the batch, in batch order, with each rollout's advantage.
    pub trained: Vec<(usize, Vec<f64>)>,
    /// How many of `groups` were carried over from the step before.
    pub carried: usize,
    /// `stage/name` → value.
    pub metrics: Metrics,
    /// Phase → wall-clock seconds.
    pub seconds: BTreeMap<String, f64>,
}

/// What a step came to.
#[derive(Debug)]
pub enum StepOutcome {
    /// The policy was trained.
    Trained(Box<Step>),
    /// No group had a useful gradient: there is nothing left to learn from. The trainer stands
    /// where it stood before the step.
    Saturated,
    /// A loss or gradient was NaN or infinite. The weights are those of the last update that was
    /// made.
    Diverged(Box<Divergence>),
}

/// A value that was not finite, and what led to it.
#[derive(Debug)]
pub struct Divergence {
    /// The step as far as it came: what was generated, trained on and measured.
    pub step: Step,
    /// Which update of the run failed, from 1.
    pub update: u64,
    /// Which value.
    pub source: update::Error,
}

/// Where Algorithm 1 stands between two rollout steps, beside the policy.
#[derive(Debug, Clone, Default)]
pub struct Position {
    /// The three clocks.
    pub counters: Counters,
    /// Position in the endless sequence of shuffled epochs.
    pub prompts_drawn: u64,
    /// Useful groups beyond the last batch, with `surplus = "carry"`.
    pub carried: Vec<Group<ScoredRollout>>,
}

/// The state that Algorithm 1 carries from step to step.
#[derive(Debug)]
pub struct Trainer<'a> {
    experiment: &'a Experiment,
    tokenizer: &'a Tokenizer,
    problems: &'a [Problem],
    /// The policy π_θ.
    policy: Policy,
    /// π_ref of a KL penalty: the frozen base policy.
    reference: Option<Qwen2>,
    position: Position,
    /// Shares of solution styles are a metric of the embedded benchmark alone.
    styles: bool,
}

impl<'a> Trainer<'a> {
    /// A trainer at step 0 with a base policy. `reference` is needed by a KL penalty and unused
    /// otherwise.
    ///
    /// # Panics
    /// When there are no problems.
    pub fn new(
        experiment: &'a Experiment,
        tokenizer: &'a Tokenizer,
        problems: &'a [Problem],
        model: Qwen2,
        reference: Option<Qwen2>,
        styles: bool,
    ) -> Self {
        assert!(!problems.is_empty(), "training needs problems");
        let policy = Policy::new(model, &experiment.optimizer);
        let position = Position::default();
        Self { policy, experiment, tokenizer, problems, reference, position, styles }
    }

    /// Goes on from a policy and the position that belongs to it.
    pub fn resume(mut self, policy: Policy, position: Position) -> Self {
        (self.policy, self.position) = (policy, position);
        self
    }

    /// The policy that is being trained.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The three clocks.
    pub fn counters(&self) -> Counters {
        self.position.counters
    }

    /// Where the trainer stands.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// One rollout step: Algorithm 1, lines 2–11.
    ///
    /// # Errors
    /// See [`Error`]; a failed step leaves the weights of its last complete update.
    pub fn step(&mut self, watch: &mut dyn FnMut(Phase)) -> Result<StepOutcome, Error> {
        let before = self.position.clone();
        let mut clock = Clock::default();
        let carried = self.position.carried.len();
        let mut groups = std::mem::take(&mut self.position.carried);
        let mut buffer = Buffer::new((0..carried).collect());
        loop {
            let prompts = self.draw_prompts()?; // line 2
            let sampled = self.generate(&prompts, &groups[carried..], &mut clock, watch)?; // 3–4
            let round = groups.len()..groups.len() + sampled.len();
            groups.extend(clock.time("grading", || self.score(sampled))); // 5
            let filter = self.experiment.dapo.dynamic_sampling != DynamicSampling::None {};
            buffer.add_round(round.collect(), |&index| {
                !filter || is_useful(&groups[index]) // 6
            });
            if !self.sample_more(&buffer)? {
                break; // 7–8
            }
        }
        let rounds = u64::from(buffer.rounds());
        let (batch, surplus) = buffer.take(self.prompts_per_step(), self.surplus());
        if batch.is_empty() {
            self.position = before;
            return Ok(StepOutcome::Saturated);
        }
        let advantages: Vec<Vec<f64>> =
            batch.iter().map(|&index| self.advantages(&groups[index])).collect(); // 9
        let chosen: Vec<Group<ScoredRollout>> =
            batch.iter().map(|&index| groups[index].clone()).collect();
        let rows = batch::rows(&chosen, &advantages, self.experiment.dapo.overlong.filter);
        let new: Vec<&Group<ScoredRollout>> = groups[carried..].iter().collect();
        let mut metrics = effects::generated(&new, rounds, self.styles);
        let step = techniques::Step {
            groups: &groups,
            carried,
            rounds,
            batch: &batch,
            surplus: &surplus,
            advantages: &advantages,
            rows: &rows,
        };
        metrics.extend(techniques::metrics(&step, self.experiment));
        let masked = rows.iter().filter(|row| !row.in_loss).count() as u64;
        metrics.extend(effects::trained(&chosen.iter().collect::<Vec<_>>(), masked));
        let improved = self.improve(&rows, &chosen, &mut clock, &mut metrics, watch); // 10–11
        let kept = surplus.into_iter().map(|index| groups[index].clone()).collect();
        let seconds = clock.seconds();
        let trained = batch.into_iter().zip(advantages).collect();
        let step = Step { trained, groups, carried, metrics, seconds };
        if let Err(source) = improved {
            let update = self.position.counters.updates + 1;
            return Ok(StepOutcome::Diverged(Box::new(Divergence { step, update, source })));
        }
        self.position.carried = kept;
        self.position.counters.rollout_steps += 1;
        Ok(StepOutcome::Trained(Box::new(step)))
    }

    fn prompts_per_step(&self) -> usize {
        self.experiment.training.prompts_per_step as usize
    }

    fn surplus(&self) -> Surplus {
        match self.experiment.dapo.dynamic_sampling {
            DynamicSampling::None {} => Surplus::Discard,
            DynamicSampling::Resample { surplus, .. } => surplus,
        }
    }

    /// The prompts of one generation round: the next ones of the shuffled epochs. Without
    /// Dynamic Sampling one round is the whole batch.
    fn draw_prompts(&mut self) -> Result<Vec<Prompt>, Error> {
        let count = match self.experiment.dapo.dynamic_sampling {
            DynamicSampling::None {} => self.experiment.training.prompts_per_step,
            DynamicSampling::Resample { .. } => self.experiment.rollout.prompts_per_round,
        };
        let size = self.problems.len() as u64;
        let seed = self.experiment.execution.seed;
        let order_of = |epoch: u64| {
            let mut order: Vec<usize> = (0..self.problems.len()).collect();
            stream(seed, Purpose::DataOrder, &[Id::from(epoch)]).shuffle(&mut order);
            (epoch, order)
        };
        let mut current = order_of(self.position.prompts_drawn / size);
        let mut prompts = Vec::with_capacity(count as usize);
        for drawn in self.position.prompts_drawn..self.position.prompts_drawn + count {
            if current.0 != drawn / size {
                current = order_of(drawn / size);
            }
            prompts.push(prompt::prompt(
                &self.problems[current.1[(drawn % size) as usize]],
                self.experiment.prompt.template,
                self.tokenizer,
                self.experiment.rollout.max_prompt_tokens,
            )?);
        }
        self.position.prompts_drawn += count;
        Ok(prompts)
    }

    /// G responses for each prompt from the current policy. `earlier` are the groups that
    /// this step already sampled: a problem drawn again counts its attempts.
    fn generate(
        &mut self,
        prompts: &[Prompt],
        earlier: &[Group<ScoredRollout>],
        clock: &mut Clock,
        watch: &mut dyn FnMut(Phase),
    ) -> Result<Vec<Group<Rollout>>, Error> {
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
        let sampling = self.experiment.rollout.sampling;
        let limits = eval::limits(self.experiment, sampling, self.tokenizer);
        let total = requests.len();
        tracing::debug!(step = step + 1, responses = total, "generation");
        let responses = clock
            .time("generation", || {
                generate::generate(self.policy.model(), &requests, &limits, |done| {
                    watch(Phase::Generation(done, total));
                })
            })
            .map_err(|source| Error::Generate { step: step + 1, source })?;
        self.position.counters.generation_rounds += 1;
        let mut responses = responses.into_iter();
        let groups = prompts.iter().zip(attempt_of).map(|(prompt, attempt)| {
            let rollouts = responses
                .by_ref()
                .take(size as usize)
                .map(|response| {
                    let text = self.tokenizer.decode(&response.tokens);
                    Rollout::new(response.tokens, response.log_probs, response.finish, text)
                })
                .collect();
            Group { prompt: prompt.clone(), attempt, rollouts }
        });
        Ok(groups.collect())
    }

    /// Eq. 7 plus Eq. 13.
    fn score(&self, sampled: Vec<Group<Rollout>>) -> Vec<Group<ScoredRollout>> {
        let limit = self.experiment.rollout.max_response_tokens;
        let mut scored = Vec::with_capacity(sampled.len());
        for group in sampled {
            let mut group = reward::grade_group(group, self.experiment.reward.verifier);
            overlong::shape(&mut group, limit, &self.experiment.dapo.overlong);
            scored.push(group);
        }
        scored
    }

    /// Lines 7–8: whether another round is needed and allowed.
    fn sample_more(&self, buffer: &Buffer<usize>) -> Result<bool, Error> {
        let DynamicSampling::Resample { max_rounds, at_cap, .. } =
            self.experiment.dapo.dynamic_sampling
        else {
            return Ok(false);
        };
        let target = self.prompts_per_step();
        match (buffer.next(target, max_rounds), at_cap) {
            (Next::Train, _) | (Next::CapReached, AtCap::Train) => Ok(false),
            (Next::SampleMore, _) => Ok(true),
            (Next::CapReached, AtCap::Stop) => Err(Error::CapReached {
                step: self.position.counters.rollout_steps + 1,
                source: buffer.cap_reached(target),
            }),
        }
    }

    fn advantages(&self, group: &Group<ScoredRollout>) -> Vec<f64> {
        let rewards: Vec<f64> = group.rollouts.iter().map(ScoredRollout::reward).collect();
        advantage::advantages(&rewards, &self.experiment.dapo.advantage)
    }

    /// Lines 10–11: μ passes of mini-batch updates on Eq. 8. What was measured before a
    /// failure is in `metrics` too.
    fn improve(
        &mut self,
        rows: &[Row],
        groups: &[Group<ScoredRollout>],
        clock: &mut Clock,
        metrics: &mut Metrics,
        watch: &mut dyn FnMut(Phase),
    ) -> Result<(), update::Error> {
        let temperature = self.experiment.rollout.sampling.temperature;
        let micro_batch_rollouts = self.experiment.execution.micro_batch_rollouts as usize;
        let frozen = |model| frozen::read(model, rows, temperature, micro_batch_rollouts);
        let old = clock.time("old_log_probs", || frozen(self.policy.model()));
        let reference = clock
            .time("old_log_probs", || self.reference.as_ref().map(|model| frozen(model).log_probs));
        metrics.extend(old.metrics(groups));
        let training = &self.experiment.training;
        let (seed, step) = (self.experiment.execution.seed, self.position.counters.rollout_steps);
        let mut plan = Vec::new();
        for epoch in 0..training.epochs_per_step {
            let order = stream(seed, Purpose::MiniBatchOrder, &[Id::from(step), Id::from(epoch)]);
            plan.extend(batch::mini_batches(rows, training, order));
        }
        let totals = StepTotals {
            tokens: rows.iter().map(Row::loss_tokens).sum(),
            mini_batches: plan.len() as u64 / training.epochs_per_step,
        };
        let rate = optimizer::learning_rate(&self.experiment.optimizer, step);
        let settings =
            update::Settings { dapo: &self.experiment.dapo, temperature, micro_batch_rollouts };
        let mut updates = Updates::default();
        for (done, members) in plan.iter().enumerate() {
            tracing::debug!(step = step + 1, update = self.position.counters.updates + 1, "update");
            let batch = update::MiniBatch {
                rows,
                members,
                old_log_probs: &old.log_probs,
                ref_log_probs: reference.as_deref(),
                totals,
            };
            let made = clock
                .time("update", || update::update(&mut self.policy, &batch, &settings, rate))?;
            self.position.counters.updates += 1;
            updates.add(&made.sums, made.gradient_norm, made.weight_shift);
            watch(Phase::Update(done + 1, plan.len()));
        }
        metrics.extend(updates.metrics(self.experiment.optimizer.max_gradient_norm, rate));
        Ok(())
    }
}

fn is_useful(group: &Group<ScoredRollout>) -> bool {
    dynamic_sampling::is_useful(group.correct(), group.rollouts.len())
}

/// Wall-clock seconds by phase.
#[derive(Default)]
struct Clock(BTreeMap<String, f64>);

impl Clock {
    fn time<T>(&mut self, phase: &str, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        *self.0.entry(phase.to_string()).or_default() += started.elapsed().as_secs_f64();
        result
    }

    fn seconds(self) -> BTreeMap<String, f64> {
        self.0
    }
}
