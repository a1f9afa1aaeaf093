//! A run as `:::MLLOG` lines, the log format of MLPerf, with the keys of its GRPO benchmark
//! (`mlperf_logging` 4.1, `mllog/mllog.py` and `compliance_checker/training_6.1.0`). It is a
//! format, not a submission: no organisation is named and no closed rule is met on purpose.
//!
//! One sample is one rollout that was trained on. Every time is a recorded one.

use crate::base::files;
use crate::base::visible::visible;
use crate::experiment::{Data, Experiment};
use crate::records::{Ending, EvaluationRecord, RunFolder, StepMetrics, StepTimings};
use crate::report::export::inventory;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::panic::Location;
use std::path::PathBuf;

/// A run that cannot be told in this format.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A record.
    #[error(transparent)]
    File(#[from] files::Error),
    /// The format needs a time on each line.
    #[error("{}: {what} has no time; the run was made before times were recorded", path.display())]
    NoTime {
        /// The file.
        path: PathBuf,
        /// The record without a time.
        what: String,
    },
    /// Nothing has an end yet.
    #[error("{} has not ended: there is no outcome.json", folder.display())]
    Unfinished {
        /// The run folder.
        folder: PathBuf,
    },
}

/// One line, its keys in the order that MLPerf's own logger writes.
#[derive(Debug, Serialize)]
struct Line {
    namespace: &'static str,
    time_ms: u64,
    event_type: &'static str,
    key: &'static str,
    value: Value,
    metadata: Value,
}

const POINT: &str = "POINT_IN_TIME";
const START: &str = "INTERVAL_START";
const END: &str = "INTERVAL_END";

#[derive(Default)]
struct Log(Vec<Line>);

impl Log {
    /// Adds a line; `file` and `lineno` say where in this program it was made.
    #[track_caller]
    fn put(
        &mut self,
        event_type: &'static str,
        (time_ms, key): (u64, &'static str),
        value: Value,
        metadata: Value,
    ) {
        let place = Location::caller();
        let mut all = Map::new();
        all.insert("file".to_string(), place.file().into());
        all.insert("lineno".to_string(), place.line().into());
        if let Value::Object(metadata) = metadata {
            all.extend(metadata);
        }
        let metadata = Value::Object(all);
        self.0.push(Line { namespace: "", time_ms, event_type, key, value, metadata });
    }
}

/// The log of a run that has ended: a line for each event, each with its line end.
///
/// # Errors
/// See [`Error`].
pub fn lines(run: &RunFolder) -> Result<String, Error> {
    if !run.path("outcome.json").exists() {
        return Err(Error::Unfinished { folder: run.root().to_path_buf() });
    }
    let (experiment, outcome) = (run.experiment()?, run.outcome()?);
    let no_time =
        |name: &str, what: &str| Error::NoTime { path: run.path(name), what: what.to_string() };
    let times = inventory::times(run)?;
    let started = times.started_ms.ok_or_else(|| no_time("sessions.jsonl", "the first session"))?;
    let mut phases = Vec::new();
    for timings in run.timings()? {
        let what = || format!("a record of rollout step {}", timings.step);
        let ended = timings.ended_ms.ok_or_else(|| no_time("timings.jsonl", &what()))?;
        let seconds = timings.seconds.get("total").copied().unwrap_or(0.0).max(0.0);
        phases.push(Phase { began: ended.saturating_sub((seconds * 1e3) as u64), ended, timings });
    }
    let mut log = Log::default();
    log.put(START, (started, "init_start"), Value::Null, Value::Null);
    settings(&mut log, started, &experiment, run)?;
    let began = phases.first().map_or(started, |phase| phase.began.max(started));
    log.put(END, (began, "init_stop"), Value::Null, Value::Null);
    log.put(START, (began, "run_start"), Value::Null, Value::Null);
    course(&mut log, &phases, &run.metrics()?, run.evaluations()?);
    let last = phases.last().map_or(began, |phase| phase.ended);
    let (status, word) = match outcome.ending {
        Ending::Finished => ("success", "finished"),
        Ending::Saturated => ("success", "saturated"),
        Ending::Diverged => ("aborted", "diverged"),
    };
    let metadata = json!({ "status": status, "ending": word });
    log.put(END, (times.ended_ms.unwrap_or(last), "run_stop"), Value::Null, metadata);
    let text = |line: &Line| serde_json::to_string(line).expect("a log line is plain JSON");
    Ok(log.0.iter().map(|line| format!(":::MLLOG {}\n", text(line))).collect())
}

/// A line of `timings.jsonl` with its begin and end in milliseconds.
struct Phase {
    began: u64,
    ended: u64,
    timings: StepTimings,
}

/// What is set before a run.
fn settings(
    log: &mut Log,
    time: u64,
    experiment: &Experiment,
    run: &RunFolder,
) -> Result<(), files::Error> {
    let benchmark = match experiment.inputs.data {
        Data::MiniAime { .. } => "dapo_mini_aime",
        Data::Files { .. } => "dapo_files",
    };
    let (rollout, optimizer) = (&experiment.rollout, &experiment.optimizer);
    let (training, evaluation) = (&experiment.training, &experiment.evaluation);
    let micro_batch = experiment.execution.micro_batch_rollouts.max(1);
    let values = [
        ("submission_benchmark", json!(benchmark)),
        ("submission_division", json!("open")),
        ("submission_status", json!("research")),
        ("seed", json!(experiment.execution.seed)),
        ("global_batch_size", json!(training.mini_batch_rollouts)),
        ("micro_batch_size", json!(micro_batch)),
        ("gradient_accumulation_steps", json!(training.mini_batch_rollouts.div_ceil(micro_batch))),
        ("num_prompts_per_step", json!(training.prompts_per_step)),
        ("num_generations_per_prompt", json!(rollout.group_size)),
        ("max_steps", json!(training.rollout_steps)),
        (
            "max_sequence_length",
            json!(rollout.max_prompt_tokens.saturating_add(rollout.max_response_tokens)),
        ),
        ("generation_training_rollout_temperature", json!(rollout.sampling.temperature)),
        ("generation_training_rollout_top_p", json!(rollout.sampling.top_p)),
        ("generation_validation_rollout_temperature", json!(evaluation.sampling.temperature)),
        ("generation_validation_rollout_top_p", json!(evaluation.sampling.top_p)),
        ("opt_name", json!("adamw")),
        ("opt_base_learning_rate", json!(optimizer.learning_rate)),
        ("opt_adamw_beta_1", json!(optimizer.beta1)),
        ("opt_adamw_beta_2", json!(optimizer.beta2)),
        ("opt_adamw_epsilon", json!(optimizer.epsilon)),
        ("opt_adamw_weight_decay", json!(optimizer.weight_decay)),
        ("opt_gradient_clip_norm", json!(optimizer.max_gradient_norm)),
        ("opt_learning_rate_warmup_steps", json!(optimizer.warm_up.rollout_steps)),
        ("opt_learning_rate_decay_schedule", json!("constant")),
    ];
    for (key, value) in values {
        log.put(POINT, (time, key), value, Value::Null);
    }
    if run.path("environment.json").exists()
        && let Some(cpu) = run.environment()?.facts.get("cpu")
    {
        log.put(POINT, (time, "submission_platform"), visible(cpu).into(), Value::Null);
    }
    if let Some(record) = run.evaluations()?.first() {
        let metadata = json!({ "set": visible(&record.set) });
        log.put(POINT, (time, "eval_samples"), record.problems.into(), metadata);
    }
    Ok(())
}

/// Rollout steps and evaluations in the order in which they were recorded.
fn course(
    log: &mut Log,
    phases: &[Phase],
    metrics: &[StepMetrics],
    evaluations: Vec<EvaluationRecord>,
) {
    // Samples after each step.
    let mut samples = BTreeMap::from([(0, 0u64)]);
    let mut total = 0u64;
    for step in metrics {
        let trained = step.metrics.get("train/rollouts").copied().unwrap_or(0.0);
        total = total.saturating_add(trained as u64);
        samples.insert(step.step, total);
    }
    let after = |step: u64| samples.range(..=step).next_back().map_or(0, |(_, samples)| *samples);
    let steps: BTreeMap<u64, &StepMetrics> = metrics.iter().map(|step| (step.step, step)).collect();
    let is_evaluation = |phase: &Phase| phase.timings.seconds.contains_key("evaluation");
    // Lines of time for the evaluations of each step that are still to come.
    let mut coming: BTreeMap<u64, usize> = BTreeMap::new();
    for phase in phases.iter().filter(|phase| is_evaluation(phase)) {
        *coming.entry(phase.timings.step).or_default() += 1;
    }
    let mut waiting = by_step(evaluations);
    for phase in phases {
        let step = phase.timings.step;
        if is_evaluation(phase) {
            let (coming, records) =
                (coming.entry(step).or_default(), waiting.entry(step).or_default());
            // One line of time for each record. Where a session was killed between the two, nobody
            // knows which belongs to which: what is left over gets the time of the last line.
            if *coming == records.len() {
                if let Some(record) = records.pop() {
                    evaluation(log, Some(phase.began), phase.ended, &record, &after);
                }
            } else if *coming == 1 {
                while let Some(record) = records.pop() {
                    evaluation(log, None, phase.ended, &record, &after);
                }
            }
            *coming = coming.saturating_sub(1);
        } else if let Some(step) = steps.get(&step)
            && !phase.timings.seconds.contains_key("checkpoint")
        {
            rollout_step(log, phase, step, &after);
        }
    }
}

/// The records of the evaluations that were made when the trainer stood at a step, last first.
fn by_step(evaluations: Vec<EvaluationRecord>) -> BTreeMap<u64, Vec<EvaluationRecord>> {
    let mut waiting: BTreeMap<u64, Vec<EvaluationRecord>> = BTreeMap::new();
    for record in evaluations.into_iter().rev() {
        waiting.entry(record.counters.rollout_steps).or_default().push(record);
    }
    waiting
}

fn rollout_step(log: &mut Log, phase: &Phase, step: &StepMetrics, after: &impl Fn(u64) -> u64) {
    let number = step.step;
    let before = after(number.saturating_sub(1));
    let metadata = json!({ "samples_count": before, "step": number });
    log.put(START, (phase.began, "block_start"), Value::Null, metadata);
    let value = |name: &str| step.metrics.get(name).copied();
    let shown = [
        ("reward", value("rollout/reward_mean")),
        ("accuracy", value("rollout/accuracy")),
        ("entropy", value("policy/entropy")),
        ("gradient_norm", value("optimizer/gradient_norm_mean")),
    ];
    let shown: BTreeMap<&str, f64> =
        shown.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let metadata = json!({ "samples_count": after(number), "step": number });
    log.put(POINT, (phase.ended, "tracked_stats"), json!(shown), metadata.clone());
    log.put(END, (phase.ended, "block_stop"), Value::Null, metadata);
}

fn evaluation(
    log: &mut Log,
    began: Option<u64>,
    ended: u64,
    record: &EvaluationRecord,
    after: &impl Fn(u64) -> u64,
) {
    let metadata = json!({
        "samples_count": after(record.counters.rollout_steps),
        "step": record.counters.rollout_steps,
        "set": visible(&record.set),
        "problems": record.problems,
        "samples_per_problem": record.samples,
    });
    if let Some(began) = began {
        log.put(START, (began, "eval_start"), Value::Null, metadata.clone());
    }
    log.put(POINT, (ended, "eval_accuracy"), record.avg_at_k.into(), metadata.clone());
    if began.is_some() {
        log.put(END, (ended, "eval_stop"), Value::Null, metadata);
    }
}
