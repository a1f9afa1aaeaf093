//! One run from experiment to outcome: steps, evaluations, checkpoints, records.

pub mod evaluations;
pub mod inputs;
pub mod rows;
pub mod session;
pub mod stepper;

use crate::algorithm::{Kl, dynamic_sampling::kept_by_reward};
use crate::base::{Lock, files};
use crate::policy::{Loaded, Policy};
use crate::records::{
    DivergenceRecord, Ending, EvaluationRecord, NotFinite, Outcome, RunFolder, StepMetrics,
    StepTimings, environment, ledger, ledger::Kind, run_folder::UNGRADED, tables,
};
use crate::task::reward;
use crate::training::run::inputs::Inputs;
use crate::training::run::rows::{carried_groups, rollout_rows, step_components};
use crate::training::{
    Divergence, Opened, Phase, Position, Start, StepOutcome, Stepper, Trainer, TrainingError,
    Unfinished, step::Step,
};
use std::time::Instant;

#[derive(Debug)]
pub enum RunEvent<'a> {
    /// Step from 1, phase.
    Phase(u64, Phase),
    Step(&'a StepMetrics, &'a StepTimings),
    /// Set, responses done, total.
    Evaluating(&'a str, usize, usize),
    Evaluated(&'a EvaluationRecord),
    /// After this rollout step; 0 is the base policy.
    Resumed(u64),
    FinishedBefore,
    Saved(u64),
    Warning(&'a str),
}

#[derive(Debug, Clone, PartialEq)]
pub enum RunEnded {
    Finished(Outcome),
    /// The run can be resumed after this rollout step.
    Stopped(u64),
}

/// Returns a finished run of the same key as it is. `stop` is asked between rollout steps and
/// between evaluation sets; once it returns true, the session writes a checkpoint and ends.
pub fn run(
    inputs: &Inputs,
    folder: &RunFolder,
    unfinished: Unfinished,
    stop: &dyn Fn() -> bool,
    watch: &mut dyn FnMut(RunEvent),
) -> Result<RunEnded, TrainingError> {
    run_with(inputs, folder, unfinished, stop, watch, &|checkpoint| {
        Ok(Box::new(trainer(inputs, checkpoint)?))
    })
}

/// The session resumes a checkpoint, or begins.
pub type MakeStepper<'a> =
    dyn Fn(Option<Loaded>) -> Result<Box<dyn Stepper + 'a>, TrainingError> + 'a;

/// As [`run`], with another trainer's steps. `make` is called when the folder is ready.
pub fn run_with(
    inputs: &Inputs,
    folder: &RunFolder,
    unfinished: Unfinished,
    stop: &dyn Fn() -> bool,
    watch: &mut dyn FnMut(RunEvent),
    make: &MakeStepper,
) -> Result<RunEnded, TrainingError> {
    let start = match session::open(inputs, folder, unfinished, watch)? {
        Opened::Finished(outcome) => {
            watch(RunEvent::FinishedBefore);
            return Ok(RunEnded::Finished(outcome));
        }
        Opened::Ready(start) => *start,
    };
    if let Some(Loaded { progress, .. }) = &start.checkpoint {
        watch(RunEvent::Resumed(progress.counters.rollout_steps));
    }
    let Start { checkpoint, evaluated, head, lock } = start;
    let stepper = make(checkpoint)?;
    let key = |record: EvaluationRecord| (record.set, record.counters.rollout_steps);
    let evaluated = evaluated.into_iter().map(key).collect();
    let mut run = RunInProgress { inputs, folder, stepper, evaluated, head, stop, lock };
    let trained = run.train(watch);
    let closed = |trained| {
        let after = format!("the last batch, of step {}", run.stepper.counters().rollout_steps);
        inputs.graders().try_for_each(|grader| grader.close(&after))?;
        Ok(trained)
    };
    let trained = match trained.and_then(closed) {
        Err(TrainingError::Ungraded(batch)) if batch.batch.is_empty() => {
            session::close(run.held()?)?;
            return Err(batch.into());
        }
        Err(TrainingError::Ungraded(batch)) => {
            let kept = run.held()?.path(UNGRADED);
            files::write_lines(&kept, &batch.batch)?;
            run.save_checkpoint(watch)?;
            session::close(run.held()?)?;
            return Err(TrainingError::UngradedKept { batch, kept });
        }
        trained => trained?,
    };
    let Some((ending, not_finite)) = trained else {
        session::close(run.held()?)?;
        return Ok(RunEnded::Stopped(run.stepper.counters().rollout_steps));
    };
    let format = inputs.experiment.record_format();
    let mut outcome = Outcome::new(format, ending, not_finite, run.stepper.counters());
    // The ledger has no digests of files, because its own is among them.
    let components = ledger::end(&folder.evaluations()?, &outcome);
    let place = (Kind::End, run.stepper.counters().rollout_steps);
    ledger::append(run.held()?, &run.head, place, components)?;
    outcome.digests = folder.digests()?;
    files::write_json(&run.held()?.path("outcome.json"), &outcome)?;
    session::close(run.held()?)?;
    Ok(RunEnded::Finished(outcome))
}

pub fn trainer(inputs: &Inputs, checkpoint: Option<Loaded>) -> Result<Trainer<'_>, TrainingError> {
    let experiment = &inputs.experiment;
    let is_penalised = experiment.dapo.kl != Kl::None {};
    let reference = is_penalised.then(|| inputs.base_policy()).transpose()?;
    let (tokenizer, problems) = (&inputs.tokenizer, &inputs.data.train);
    let grader = &inputs.grader;
    let trainer = |policy| Trainer::new(experiment, tokenizer, problems, grader, policy, reference);
    let Some(Loaded { model, optimizer, progress }) = checkpoint else {
        return Ok(trainer(Policy::new(inputs.base_policy()?, &experiment.optimizer)));
    };
    inputs.forget_base_policy();
    let stored = model.share();
    let (model, settings) = (inputs.executed(model)?, &experiment.optimizer);
    let policy = Policy::resume(model, Some(stored.parameters()), settings, optimizer);
    let position = Position {
        counters: progress.counters,
        prompts_drawn: progress.prompts_drawn,
        carried: carried_groups(&progress.carried, experiment, tokenizer)?,
    };
    Ok(trainer(policy).resume(position))
}

struct RunInProgress<'a> {
    inputs: &'a Inputs,
    folder: &'a RunFolder,
    stepper: Box<dyn Stepper + 'a>,
    /// Set and rollout step, as in `evaluations.jsonl`.
    evaluated: Vec<(String, u64)>,
    head: String,
    stop: &'a dyn Fn() -> bool,
    lock: Lock,
}

impl<'a> RunInProgress<'a> {
    /// `Err` if this process lost its lock. Call it before anything is written or deleted.
    fn held(&self) -> Result<&'a RunFolder, TrainingError> {
        if self.lock.is_held()? {
            Ok(self.folder)
        } else {
            Err(TrainingError::LockLost { folder: self.folder.root().to_path_buf() })
        }
    }

    /// `None` when asked to stop. What is due after a step depends on its number alone: a resumed run does the same.
    fn train(
        &mut self,
        watch: &mut dyn FnMut(RunEvent),
    ) -> Result<Option<(Ending, Option<NotFinite>)>, TrainingError> {
        let steps = self.inputs.experiment.training.rollout_steps;
        loop {
            let done = self.stepper.counters().rollout_steps;
            if !self.evaluate(done == steps, watch)? {
                self.save_checkpoint(watch)?;
                return Ok(None);
            }
            if done == steps {
                self.remove_old_checkpoints(done)?;
                return Ok(Some((Ending::Finished, None)));
            }
            if (self.stop)() {
                self.save_checkpoint(watch)?;
                return Ok(None);
            }
            let (started, number) = (Instant::now(), done + 1);
            let outcome = self.stepper.step(&mut |phase| watch(RunEvent::Phase(number, phase)));
            match outcome? {
                StepOutcome::Trained(step) => self.record_step(number, *step, started, watch)?,
                StepOutcome::Saturated { correct, differing: (differing, groups) } => {
                    let told = kept_by_reward(differing, groups);
                    if !told.is_empty() {
                        let warning = format!("no group of step {number} trains{told}");
                        watch(RunEvent::Warning(&warning));
                    }
                    self.save_checkpoint(watch)?;
                    if !self.evaluate(true, watch)? {
                        return Ok(None);
                    }
                    return Ok(Some((Ending::without_gradient(correct), None)));
                }
                StepOutcome::Diverged(divergence) => {
                    let not_finite = divergence.not_finite.clone();
                    self.record_divergence(number, *divergence)?;
                    return Ok(Some((Ending::Diverged, Some(not_finite))));
                }
            }
            if number == steps || self.is_scheduled(number) {
                self.save_checkpoint(watch)?;
            }
        }
    }

    /// Keeps the step's rollouts and metrics, and the policy before the failed update.
    fn record_divergence(&self, number: u64, found: Divergence) -> Result<(), TrainingError> {
        let folder = self.held()?.path("diverged");
        files::remove_folder(&folder)?;
        self.stepper.save(&folder.join("checkpoint"))?;
        tables::write_rollouts(&folder.join("rollouts.parquet"), &rollout_rows(&found.step))?;
        let mut metrics = found.step.metrics;
        metrics.retain(|_, value| value.is_finite());
        let (format, counters) = (self.inputs.experiment.record_format(), self.stepper.counters());
        let Outcome { not_finite, reason, .. } =
            Outcome::new(format, Ending::Diverged, Some(found.not_finite), counters);
        let record = DivergenceRecord { step: number, not_finite, reason, metrics };
        Ok(files::write_json(&folder.join("divergence.json"), &record)?)
    }

    fn record_step(
        &mut self,
        number: u64,
        step: Step,
        started: Instant,
        watch: &mut dyn FnMut(RunEvent),
    ) -> Result<(), TrainingError> {
        let rows = rollout_rows(&step);
        tables::write_rollouts(&self.held()?.rollouts(number), &rows)?;
        let counters = self.stepper.counters();
        let metrics = StepMetrics { step: number, counters, metrics: step.metrics };
        files::append_line(&self.folder.path("metrics.jsonl"), &metrics)?;
        let components = step_components(&rows, &metrics, step.components);
        let place = (Kind::RolloutStep, number);
        self.head = ledger::append(self.folder, &self.head, place, components)?.head;
        let mut seconds = step.seconds;
        seconds.insert("total".to_string(), started.elapsed().as_secs_f64());
        let timings = StepTimings { step: number, seconds, ended_ms: Some(environment::now_ms()) };
        files::append_line(&self.folder.path("timings.jsonl"), &timings)?;
        watch(RunEvent::Step(&metrics, &timings));
        let none = rows.iter().filter(|row| row.prediction.is_none()).count();
        // Only for the first step: records have the others.
        let rule = self.inputs.grader.rule().filter(|_| number == 1);
        if let Some(told) = rule.and_then(|rule| reward::unanswered(none, rows.len(), rule)) {
            watch(RunEvent::Warning(&format!("rollout step 1: {told}")));
        }
        Ok(())
    }

    /// Phases outside rollout steps have lines of their own.
    fn record_seconds(&self, phase: &str, started: Instant) -> Result<(), TrainingError> {
        let taken = started.elapsed().as_secs_f64();
        let seconds = [phase, "total"].map(|name| (name.to_string(), taken)).into();
        let step = self.stepper.counters().rollout_steps;
        let timings = StepTimings { step, seconds, ended_ms: Some(environment::now_ms()) };
        Ok(files::append_line(&self.held()?.path("timings.jsonl"), &timings)?)
    }

    fn is_scheduled(&self, step: u64) -> bool {
        let every = self.inputs.experiment.checkpoints.every_steps;
        every > 0 && step.is_multiple_of(every)
    }

    /// An existing checkpoint has the same bits. Also removes old ones.
    fn save_checkpoint(&mut self, watch: &mut dyn FnMut(RunEvent)) -> Result<(), TrainingError> {
        let step = self.stepper.counters().rollout_steps;
        if !self.folder.checkpoint(step).exists() {
            tracing::debug!(step, "checkpoint");
            let started = Instant::now();
            if !self.stepper.save(&self.held()?.checkpoint(step))? {
                return Ok(());
            }
            self.record_seconds("checkpoint", started)?;
        }
        watch(RunEvent::Saved(step));
        self.remove_old_checkpoints(step)
    }

    /// Keeps the newest scheduled ones, those of `keep_every`, and the present one, wherever the run was stopped.
    fn remove_old_checkpoints(&self, step: u64) -> Result<(), TrainingError> {
        let kept = self.inputs.experiment.checkpoints;
        let all = self.folder.checkpoint_steps()?;
        let scheduled: Vec<u64> =
            all.iter().copied().filter(|&it| it == step || self.is_scheduled(it)).collect();
        let newest = &scheduled[scheduled.len().saturating_sub(kept.keep_last as usize)..];
        for old in all {
            let by_number = kept.keep_every > 0
                && old.is_multiple_of(kept.keep_every)
                && self.is_scheduled(old);
            if !newest.contains(&old) && !by_number {
                files::remove_folder(&self.held()?.checkpoint(old))?;
            }
        }
        Ok(())
    }
}
