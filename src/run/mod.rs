//! One run from its experiment to its outcome: steps, evaluations, checkpoints, and the
//! records that everything else reads.

pub mod inputs;
pub mod rows;

use crate::checkpoint;
use crate::checkpoint::TrainerState;
use crate::config::Data;
use crate::config::dapo::Kl;
use crate::data;
use crate::data::mini_aime;
use crate::environment;
use crate::eval;
use crate::eval::Set;
use crate::files;
use crate::model::qwen2::Qwen2;
use crate::prompt;
use crate::run::inputs::Inputs;
use crate::run::rows::moments;
use crate::run::rows::rollout_rows;
use crate::run_folder::Counters;
use crate::run_folder::Ending;
use crate::run_folder::EvaluationRecord;
use crate::run_folder::Outcome;
use crate::run_folder::RunFolder;
use crate::run_folder::StepMetrics;
use crate::run_folder::StepTimings;
use crate::tables;
use crate::train;
use crate::train::Phase;
use crate::train::Step;
use crate::train::StepOutcome;
use crate::train::Trainer;
use std::collections::BTreeMap;
use std::path::Path;
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
    /// Tokenizer and model do not belong together.
    #[error(
        "{}: the tokenizer has {tokens} tokens, the model's vocabulary only {vocabulary}", folder.display()
    )]
    Vocabulary {
        /// The model's folder.
        folder: PathBuf,
        /// Tokens of the tokenizer.
        tokens: usize,
        /// Rows of the embedding.
        vocabulary: i64,
    },
    /// An evaluation.
    #[error(transparent)]
    Evaluation(#[from] eval::Error),
    /// A rollout step.
    #[error(transparent)]
    Step(#[from] train::Error),
    /// A set whose k is not stated.
    #[error("evaluation.samples has no entry for the set {set}; it has {}", known.join(", "))]
    Samples {
        /// The set.
        set: String,
        /// The sets that have an entry.
        known: Vec<String>,
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
}

/// Trains, evaluates and records. A finished run of the same key in the folder is returned as
/// it is; an unfinished one starts again from the base policy.
///
/// # Errors
/// See [`Error`]. Divergence ends the run with an outcome that says so, not with an error.
pub fn run(
    inputs: &Inputs,
    folder: &RunFolder,
    watch: &mut dyn FnMut(Event),
) -> Result<Outcome, Error> {
    if let Some(outcome) = finished(inputs, folder)? {
        return Ok(outcome);
    }
    start(inputs, folder)?;
    let mut run = Run::new(inputs, folder)?;
    run.evaluate_dev(watch)?;
    let (ending, reason) = run.train(watch)?;
    if ending != Ending::Diverged {
        run.evaluate_tests(watch)?;
    }
    for name in ["metrics.jsonl", "evaluations.jsonl"] {
        run.note_digest(&folder.path(name))?;
    }
    let outcome = Outcome {
        ending,
        reason,
        counters: run.trainer.counters(),
        digests: std::mem::take(&mut run.digests),
    };
    files::write_json(&folder.path("outcome.json"), &outcome)?;
    Ok(outcome)
}

/// The outcome of a finished run of the same key, if the folder holds one.
fn finished(inputs: &Inputs, folder: &RunFolder) -> Result<Option<Outcome>, Error> {
    if !folder.path("manifest.json").exists() {
        return Ok(None);
    }
    let found = folder.manifest()?.run_key;
    if found != inputs.manifest.run_key {
        let (folder, wanted) = (folder.root().to_path_buf(), inputs.manifest.run_key.clone());
        return Err(Error::OtherRun { folder, found, wanted });
    }
    match folder.path("outcome.json").exists() {
        true => Ok(Some(folder.outcome()?)),
        false => Ok(None),
    }
}

fn start(inputs: &Inputs, folder: &RunFolder) -> Result<(), Error> {
    files::create_folder(folder.root())?;
    files::write_json(&folder.path("manifest.json"), &inputs.manifest)?;
    files::write_json(&folder.path("experiment.json"), &inputs.experiment)?;
    let environment = environment::describe(inputs.experiment.execution.threads);
    files::write_json(&folder.path("environment.json"), &environment)?;
    for name in ["rollouts", "evaluations", "checkpoints"] {
        files::remove_folder(&folder.path(name))?;
        files::create_folder(&folder.path(name))?;
    }
    for name in ["metrics.jsonl", "timings.jsonl", "evaluations.jsonl"] {
        files::write_atomic(&folder.path(name), b"")?;
    }
    Ok(())
}

/// A run in progress.
struct Run<'a> {
    inputs: &'a Inputs,
    folder: &'a RunFolder,
    trainer: Trainer<'a>,
    digests: BTreeMap<String, String>,
}

impl<'a> Run<'a> {
    fn new(inputs: &'a Inputs, folder: &'a RunFolder) -> Result<Self, Error> {
        let experiment = &inputs.experiment;
        let load = || checkpoint::load_model(&experiment.inputs.model);
        let reference = match experiment.dapo.kl {
            Kl::None {} => None,
            Kl::Penalty { .. } => Some(load()?),
        };
        let styles = matches!(experiment.inputs.data, Data::MiniAime {});
        let trainer = Trainer::new(
            experiment,
            &inputs.tokenizer,
            &inputs.data.train,
            load()?,
            reference,
            styles,
        );
        Ok(Self { inputs, folder, trainer, digests: BTreeMap::new() })
    }

    fn train(&mut self, watch: &mut dyn FnMut(Event)) -> Result<(Ending, String), Error> {
        let training = &self.inputs.experiment.training;
        let steps = training.rollout_steps;
        for number in 1..=steps {
            let started = Instant::now();
            let outcome = self.trainer.step(&mut |phase| watch(Event::Phase(number, steps, phase)));
            let step = match outcome {
                Ok(StepOutcome::Trained(step)) => step,
                Ok(StepOutcome::Saturated) => {
                    self.finish_training(number - 1, watch)?;
                    let reason = format!(
                        "no group of rollout step {number} was partly correct: nothing left to learn from"
                    );
                    return Ok((Ending::Saturated, reason));
                }
                Err(error @ train::Error::Diverged { .. }) => {
                    return Ok((Ending::Diverged, error.to_string()));
                }
                Err(error) => return Err(error.into()),
            };
            self.record_step(number, *step, started, watch)?;
            let due = |every: u64| every > 0 && number % every == 0;
            if number == steps {
                self.finish_training(number, watch)?;
            } else {
                if due(training.checkpoint_every_steps) {
                    self.save_checkpoint(number)?;
                }
                if due(self.inputs.experiment.evaluation.every_steps) {
                    self.evaluate_dev(watch)?;
                }
            }
        }
        Ok((Ending::Finished, format!("{steps} rollout steps were done")))
    }

    fn finish_training(&mut self, step: u64, watch: &mut dyn FnMut(Event)) -> Result<(), Error> {
        self.save_checkpoint(step)?;
        self.evaluate_dev(watch)
    }

    fn record_step(
        &mut self,
        number: u64,
        step: Step,
        started: Instant,
        watch: &mut dyn FnMut(Event),
    ) -> Result<(), Error> {
        let path = self.folder.rollouts(number);
        tables::write_rollouts(&path, &rollout_rows(&step))?;
        self.note_digest(&path)?;
        let counters = self.trainer.counters();
        let metrics = StepMetrics { step: number, counters, metrics: step.metrics };
        files::append_line(&self.folder.path("metrics.jsonl"), &metrics)?;
        let mut seconds = step.seconds;
        seconds.insert("total".to_string(), started.elapsed().as_secs_f64());
        let timings = StepTimings { step: number, seconds };
        files::append_line(&self.folder.path("timings.jsonl"), &timings)?;
        watch(Event::Step(&metrics, &timings));
        Ok(())
    }

    /// Appends what a phase outside the rollout steps took.
    fn record_seconds(&self, phase: &str, started: Instant) -> Result<(), Error> {
        let taken = started.elapsed().as_secs_f64();
        let seconds = [phase, "total"].map(|name| (name.to_string(), taken)).into();
        let timings = StepTimings { step: self.trainer.counters().rollout_steps, seconds };
        Ok(files::append_line(&self.folder.path("timings.jsonl"), &timings)?)
    }

    fn save_checkpoint(&mut self, step: u64) -> Result<(), Error> {
        let started = Instant::now();
        let path = self.folder.checkpoint(step);
        let policy = self.trainer.policy();
        let state = TrainerState {
            counters: self.trainer.counters(),
            prompts_drawn: self.trainer.prompts_drawn(),
            optimizer_steps: policy.optimizer().state().updates,
        };
        let base = &self.inputs.experiment.inputs.model;
        checkpoint::save(&path, policy.model(), base, &moments(policy), &state)?;
        for name in ["model.safetensors", "optimizer.safetensors", "trainer.json"] {
            self.note_digest(&path.join(name))?;
        }
        self.record_seconds("checkpoint", started)
    }

    /// The development set, once for each step.
    fn evaluate_dev(&mut self, watch: &mut dyn FnMut(Event)) -> Result<(), Error> {
        let samples = self.inputs.samples(mini_aime::DEV)?;
        let set = Set { name: mini_aime::DEV, problems: &self.inputs.data.dev, samples };
        let (step, counters) = (self.trainer.counters().rollout_steps, self.trainer.counters());
        if self.folder.outcomes(set.name, step).exists() {
            return Ok(());
        }
        let started = Instant::now();
        let model = self.trainer.policy().model();
        evaluate_into(self.inputs, self.folder, model, set, (step, counters), watch)?;
        self.note_digest(&self.folder.outcomes(set.name, step))?;
        self.record_seconds("evaluation", started)
    }

    /// The final sets, for the base policy and for the trained one.
    fn evaluate_tests(&mut self, watch: &mut dyn FnMut(Event)) -> Result<(), Error> {
        let started = Instant::now();
        let base = checkpoint::load_model(&self.inputs.experiment.inputs.model)?;
        let counters = self.trainer.counters();
        for (name, problems) in &self.inputs.data.tests {
            let samples = self.inputs.samples(name)?;
            let set = Set { name, problems, samples };
            let mut policies = vec![(&base, (0, Counters::default()))];
            if counters.rollout_steps > 0 {
                let when = (counters.rollout_steps, counters);
                policies.push((self.trainer.policy().model(), when));
            }
            for (model, when) in policies {
                evaluate_into(self.inputs, self.folder, model, set, when, watch)?;
            }
            self.note_digest(&self.folder.outcomes(name, 0))?;
            self.note_digest(&self.folder.outcomes(name, counters.rollout_steps))?;
        }
        self.record_seconds("evaluation", started)
    }

    fn note_digest(&mut self, path: &Path) -> Result<(), Error> {
        let name = path.strip_prefix(self.folder.root()).unwrap_or(path);
        self.digests.insert(name.display().to_string(), files::sha256_file(path)?);
        Ok(())
    }
}

/// Evaluates a policy on a set, keeps every outcome, and appends the record.
///
/// # Errors
/// A problem that cannot be served, or a file that cannot be written.
pub fn evaluate_into(
    inputs: &Inputs,
    folder: &RunFolder,
    model: &Qwen2,
    set: Set,
    (step, counters): (u64, Counters),
    watch: &mut dyn FnMut(Event),
) -> Result<EvaluationRecord, Error> {
    let outcomes =
        eval::outcomes(model, &inputs.tokenizer, &inputs.experiment, set, |done, total| {
            watch(Event::Evaluating(set.name, done, total));
        })?;
    let path = folder.outcomes(set.name, step);
    tables::write_outcomes(&path, &outcomes)?;
    let record = eval::record(set, counters, &outcomes, files::sha256_file(&path)?)?;
    files::append_line(&folder.path("evaluations.jsonl"), &record)?;
    watch(Event::Evaluated(&record));
    Ok(record)
}
