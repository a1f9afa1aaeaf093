//! One run from its experiment to its outcome: steps, evaluations, checkpoints, and the
//! records that everything else reads.

pub mod damage;
pub mod evaluations;
pub mod inputs;
pub mod rows;
pub mod session;

use crate::algorithm::Kl;
use crate::base::{Lock, files};
use crate::experiment::{Data, place};
use crate::numerics::exact;
use crate::policy::{Loaded, PlaceError, Policy, checkpoint};
use crate::records::ledger::{self, Kind};
use crate::records::run_folder::Outcome;
use crate::records::{
    DivergenceRecord, Ending, EvaluationRecord, RunFolder, StepMetrics, StepTimings, environment,
    tables,
};
use crate::task::{data, prompt};
use crate::training::run::inputs::Inputs;
use crate::training::run::rows::{carried_groups, progress, rollout_rows, step_components};
use crate::training::step::{self, Step};
use crate::training::{
    Divergence, NotFinite, Opened, Phase, Position, Start, StepOutcome, Trainer, Unfinished,
    evaluation, update,
};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

/// A run that cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file.
    #[error(transparent)]
    File(#[from] files::Error),
    /// A parquet file.
    #[error(transparent)]
    Table(#[from] tables::Error),
    /// The problems.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// The tokenizer or a prompt.
    #[error(transparent)]
    Prompt(#[from] prompt::Error),
    /// The base policy or a checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// Prompt and response do not fit the positions that the model knows.
    #[error(
        "problem {problem}: its prompt has {tokens} tokens; with rollout.max_response_tokens ({response}) that exceeds the model's {positions} positions"
    )]
    Positions {
        /// The problem's id.
        problem: String,
        /// Length of its prompt.
        tokens: usize,
        /// L_max.
        response: u64,
        /// `max_position_embeddings`.
        positions: i64,
    },
    /// A device that is not there.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// Exact arithmetic elsewhere than on the processor.
    #[error(
        "numerics = \"exact\" is f32 on the processor, and {device} in {weights} was asked for"
    )]
    ExactElsewhere {
        /// What was asked for.
        device: place::Device,
        /// In which form.
        weights: place::WeightKind,
    },
    /// A policy or an update that exact arithmetic cannot serve.
    #[error(transparent)]
    Exact(#[from] exact::Error),
    /// An evaluation.
    #[error(transparent)]
    Evaluation(#[from] evaluation::Error),
    /// A rollout step.
    #[error(transparent)]
    Step(#[from] step::Error),
    /// A trial update of the base policy, before the run.
    #[error("a trial update of the base policy: {0}")]
    TrialUpdate(#[source] update::Error),
    /// A set whose k is not stated.
    #[error("evaluation.samples has no entry for the set {set}; it has {}", known.join(", "))]
    Samples {
        /// The set.
        set: String,
        /// The sets that have an entry.
        known: Vec<String>,
    },
    /// The folder holds files, and no run.
    #[error(
        "{} is not empty and holds no run ({found} is in it); choose another --out", folder.display()
    )]
    NotARun {
        /// The folder.
        folder: PathBuf,
        /// The first thing in it.
        found: String,
    },
    /// The folder belongs to another run.
    #[error(
        "{} holds another run (key {found}, this one is {wanted}); choose another --out or remove it", folder.display()
    )]
    OtherRun {
        /// The run folder.
        folder: PathBuf,
        /// The key in its manifest.
        found: String,
        /// The key of the run that was asked for.
        wanted: String,
    },
    /// The folder holds a run that was interrupted.
    #[error(
        "{} holds an unfinished run ({recorded} of {planned} rollout steps are recorded); \
         --resume goes on with it, --restart deletes it and begins again", folder.display()
    )]
    Unfinished {
        /// The run folder.
        folder: PathBuf,
        /// Rollout steps that are recorded.
        recorded: u64,
        /// Rollout steps of the run.
        planned: u64,
    },
    /// Another process works on the run.
    #[error("{} is in use by another process", folder.display())]
    InUse {
        /// The run folder.
        folder: PathBuf,
    },
    /// The lock was taken away while this process worked.
    #[error(
        "{}/run.lock was removed or replaced, so that another process may have begun; nothing \
         further was written, and --resume goes on when no process works here", folder.display()
    )]
    LockLost {
        /// The run folder.
        folder: PathBuf,
    },
}

/// What a run tells while it goes on.
#[derive(Debug)]
pub enum Event<'a> {
    /// Within a step: 1-based step, steps of the run, what is being done.
    Phase(u64, u64, Phase),
    /// A step is done.
    Step(&'a StepMetrics, &'a StepTimings),
    /// Responses of an evaluation: set, done, total.
    Evaluating(&'a str, usize, usize),
    /// A set was evaluated.
    Evaluated(&'a EvaluationRecord),
    /// The run goes on after this rollout step; 0 is the base policy.
    Resumed(u64),
    /// A checkpoint was written after this rollout step.
    Saved(u64),
    /// Something that the user should know.
    Warning(&'a str),
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// The run is over.
    Finished(Outcome),
    /// It was asked to stop and can be resumed after this rollout step.
    Stopped(u64),
}

/// Trains, evaluates and records. A finished run of the same key in the folder is returned as
/// it is. `stop` is asked between rollout steps and between evaluation sets: once it says yes,
/// a checkpoint is written and the session ends.
///
/// # Errors
/// See [`Error`]. Divergence ends the run with an outcome that says so, not with an error.
pub fn run(
    inputs: &Inputs,
    folder: &RunFolder,
    unfinished: Unfinished,
    stop: &dyn Fn() -> bool,
    watch: &mut dyn FnMut(Event),
) -> Result<Ended, Error> {
    let start = match session::open(inputs, folder, unfinished, watch)? {
        Opened::Finished(outcome) => return Ok(Ended::Finished(outcome)),
        Opened::Ready(start) => *start,
    };
    if let Some(Loaded { progress, .. }) = &start.checkpoint {
        watch(Event::Resumed(progress.counters.rollout_steps));
    }
    let mut run = Run::new(inputs, folder, start, stop)?;
    let stopped = |run: &Run| {
        session::close(run.held()?)?;
        Ok(Ended::Stopped(run.trainer.counters().rollout_steps))
    };
    let Some((ending, reason)) = run.train(watch)? else { return stopped(&run) };
    let counters = run.trainer.counters();
    let mut outcome = Outcome { ending, reason, counters, digests: BTreeMap::new() };
    run.record_end(&outcome)?;
    outcome.digests = folder.digests()?;
    files::write_json(&run.held()?.path("outcome.json"), &outcome)?;
    session::close(run.held()?)?;
    Ok(Ended::Finished(outcome))
}

/// The reason of a run that did all its rollout steps.
pub fn finished(steps: u64) -> String {
    format!("{steps} rollout steps were done")
}

/// The reason of a run that ended in rollout step `number`, which found nothing to train on.
pub fn saturated(number: u64) -> String {
    format!("no group of rollout step {number} was partly correct: nothing left to learn from")
}

/// The reason of a run that ended in rollout step `number`, which was not finite.
pub fn diverged(number: u64, source: &NotFinite) -> String {
    format!("rollout step {number}, {source}")
}

/// The trainer as it stands at a checkpoint, or before the first step.
///
/// # Errors
/// A base policy that cannot be loaded, or carried groups of another run.
pub fn trainer(inputs: &Inputs, checkpoint: Option<Loaded>) -> Result<Trainer<'_>, Error> {
    let experiment = &inputs.experiment;
    let load = || inputs.base_policy();
    let reference = match experiment.dapo.kl {
        Kl::None {} => None,
        Kl::Penalty { .. } => Some(load()?),
    };
    let styles = matches!(experiment.inputs.data, Data::MiniAime { .. });
    let (tokenizer, problems) = (&inputs.tokenizer, &inputs.data.train);
    let trainer = |policy| Trainer::new(experiment, tokenizer, problems, policy, reference, styles);
    let Some(Loaded { model, optimizer, progress }) = checkpoint else {
        return Ok(trainer(Policy::new(load()?, &experiment.optimizer)));
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

/// A run in progress.
struct Run<'a> {
    inputs: &'a Inputs,
    folder: &'a RunFolder,
    trainer: Trainer<'a>,
    /// What `evaluations.jsonl` holds: set and rollout step.
    evaluated: Vec<(String, u64)>,
    /// The ledger's last head.
    head: String,
    stop: &'a dyn Fn() -> bool,
    /// The hold on the folder.
    lock: Lock,
}

impl<'a> Run<'a> {
    fn new(
        inputs: &'a Inputs,
        folder: &'a RunFolder,
        start: Start,
        stop: &'a dyn Fn() -> bool,
    ) -> Result<Self, Error> {
        let Start { checkpoint, evaluated, head, lock } = start;
        let trainer = trainer(inputs, checkpoint)?;
        let key = |record: EvaluationRecord| (record.set, record.counters.rollout_steps);
        let evaluated = evaluated.into_iter().map(key).collect();
        Ok(Self { inputs, folder, trainer, evaluated, head, stop, lock })
    }

    /// The folder, to write into it or to delete: asked for before each record, evaluation and
    /// checkpoint and before the end.
    ///
    /// # Errors
    /// When this process no longer holds the folder.
    fn held(&self) -> Result<&'a RunFolder, Error> {
        match self.lock.is_held()? {
            true => Ok(self.folder),
            false => Err(Error::LockLost { folder: self.folder.root().to_path_buf() }),
        }
    }

    /// Rollout steps up to the end, or `None` when the session was asked to stop. What is due
    /// after a step depends on its number alone, so that a resumed run does the same.
    fn train(&mut self, watch: &mut dyn FnMut(Event)) -> Result<Option<(Ending, String)>, Error> {
        let steps = self.inputs.experiment.training.rollout_steps;
        loop {
            let done = self.trainer.counters().rollout_steps;
            if !self.evaluate(done == steps, watch)? {
                self.save_checkpoint(watch)?;
                return Ok(None);
            }
            if done == steps {
                self.remove_old_checkpoints(done)?;
                return Ok(Some((Ending::Finished, finished(steps))));
            }
            if (self.stop)() {
                self.save_checkpoint(watch)?;
                return Ok(None);
            }
            let (started, number) = (Instant::now(), done + 1);
            let outcome = self.trainer.step(&mut |phase| watch(Event::Phase(number, steps, phase)));
            match outcome? {
                StepOutcome::Trained(step) => self.record_step(number, *step, started, watch)?,
                StepOutcome::Saturated => {
                    self.save_checkpoint(watch)?;
                    if !self.evaluate(true, watch)? {
                        return Ok(None);
                    }
                    return Ok(Some((Ending::Saturated, saturated(number))));
                }
                StepOutcome::Diverged(divergence) => {
                    let reason = self.record_divergence(number, *divergence)?;
                    return Ok(Some((Ending::Diverged, reason)));
                }
            }
            if number == steps || self.is_scheduled(number) {
                self.save_checkpoint(watch)?;
            }
        }
    }

    /// Keeps what a look into a divergence needs: the step's rollouts and metrics, and the
    /// policy before the update that failed.
    fn record_divergence(&self, number: u64, found: Divergence) -> Result<String, Error> {
        let reason = diverged(number, &found.source);
        let folder = self.held()?.path("diverged");
        files::remove_folder(&folder)?;
        self.save(&folder.join("checkpoint"))?;
        tables::write_rollouts(&folder.join("rollouts.parquet"), &rollout_rows(&found.step))?;
        let mut metrics = found.step.metrics;
        metrics.retain(|_, value| value.is_finite());
        let record = DivergenceRecord { step: number, reason: reason.clone(), metrics };
        files::write_json(&folder.join("divergence.json"), &record)?;
        Ok(reason)
    }

    fn record_step(
        &mut self,
        number: u64,
        step: Step,
        started: Instant,
        watch: &mut dyn FnMut(Event),
    ) -> Result<(), Error> {
        let rows = rollout_rows(&step);
        tables::write_rollouts(&self.held()?.rollouts(number), &rows)?;
        let counters = self.trainer.counters();
        let metrics = StepMetrics { step: number, counters, metrics: step.metrics };
        files::append_line(&self.folder.path("metrics.jsonl"), &metrics)?;
        let components = step_components(&rows, &metrics, step.components);
        let place = (Kind::RolloutStep, number);
        self.head = ledger::append(self.folder, &self.head, place, components)?.head;
        let mut seconds = step.seconds;
        seconds.insert("total".to_string(), started.elapsed().as_secs_f64());
        let timings = StepTimings { step: number, seconds, ended_ms: Some(environment::now_ms()) };
        files::append_line(&self.folder.path("timings.jsonl"), &timings)?;
        watch(Event::Step(&metrics, &timings));
        Ok(())
    }

    /// Closes the ledger. The digests of files are not in it: the ledger's own is among them.
    fn record_end(&self, outcome: &Outcome) -> Result<(), Error> {
        let components = ledger::end(&self.folder.evaluations()?, outcome);
        let place = (Kind::End, self.trainer.counters().rollout_steps);
        ledger::append(self.held()?, &self.head, place, components)?;
        Ok(())
    }

    /// Appends what a phase outside the rollout steps took.
    fn record_seconds(&self, phase: &str, started: Instant) -> Result<(), Error> {
        let taken = started.elapsed().as_secs_f64();
        let seconds = [phase, "total"].map(|name| (name.to_string(), taken)).into();
        let step = self.trainer.counters().rollout_steps;
        let timings = StepTimings { step, seconds, ended_ms: Some(environment::now_ms()) };
        Ok(files::append_line(&self.held()?.path("timings.jsonl"), &timings)?)
    }

    /// Whether a checkpoint of this step is written in every run of this schedule.
    fn is_scheduled(&self, step: u64) -> bool {
        let every = self.inputs.experiment.checkpoints.every_steps;
        every > 0 && step.is_multiple_of(every)
    }

    /// Writes the checkpoint of the present step and removes those that need not be kept. One
    /// that is there already has the same bits.
    fn save_checkpoint(&mut self, watch: &mut dyn FnMut(Event)) -> Result<(), Error> {
        let step = self.trainer.counters().rollout_steps;
        if !self.folder.checkpoint(step).exists() {
            tracing::debug!(step, "checkpoint");
            let started = Instant::now();
            self.save(&self.held()?.checkpoint(step))?;
            self.record_seconds("checkpoint", started)?;
        }
        watch(Event::Saved(step));
        self.remove_old_checkpoints(step)
    }

    /// Keeps the newest scheduled checkpoints, those of every so many steps, and that of the
    /// present step. Which stand at the end of a run does not depend on where it was stopped.
    fn remove_old_checkpoints(&self, step: u64) -> Result<(), Error> {
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

    fn save(&self, folder: &std::path::Path) -> Result<(), Error> {
        let base = &self.inputs.experiment.inputs.model;
        let policy = self.trainer.policy();
        let (weights, moments) = (policy.weights(), policy.moments());
        Ok(checkpoint::save(folder, weights, moments, base, &progress(&self.trainer))?)
    }
}
