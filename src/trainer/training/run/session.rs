//! Begins a session. A killed process may have left anything half done: the session continues from
//! the newest checkpoint whose every byte is as written, and removes everything after it.

use crate::base::{Lock, files, files::foreign, visible};
use crate::experiment::compare::{ComparedSide, differences, differing_keys};
use crate::policy::{Loaded, checkpoint};
use crate::records::Outcome;
use crate::records::audit::{self, Sound};
use crate::records::ledger::{self, LedgerEntry};
use crate::records::run_folder::{self, DAMAGED_CHECKPOINT, LAYOUT, UNGRADED};
use crate::records::{
    Environment, EvaluationRecord, RolloutRow, RunFolder, Session, StepMetrics, StepTimings,
    environment,
};
use crate::task::ResponseText;
use crate::training::run::{RunEvent, evaluations, inputs::Inputs};
use crate::training::{TrainingError, evaluation};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfinished {
    /// Report it; a run without a recorded step begins again.
    Refuse,
    Resume,
    /// Delete also a finished run, and begin again.
    Restart,
}

#[derive(Debug)]
pub enum Opened {
    Finished(Outcome),
    /// The session holds the folder as long as this lives.
    Ready(Box<Start>),
}

#[derive(Debug)]
pub struct Start {
    /// `None`: the base policy.
    pub checkpoint: Option<Loaded>,
    pub evaluated: Vec<EvaluationRecord>,
    pub head: String,
    pub lock: Lock,
}

const PLACES: [&str; 4] = ["", "rollouts", "evaluations", "checkpoints"];

pub fn open(
    inputs: &Inputs,
    folder: &RunFolder,
    unfinished: Unfinished,
    watch: &mut dyn FnMut(RunEvent),
) -> Result<Opened, TrainingError> {
    if unfinished != Unfinished::Restart
        && let Some(outcome) = finished(inputs, folder)?
    {
        PLACES.iter().for_each(|name| files::leftovers::remove_leftovers(&folder.path(name)));
        return Ok(Opened::Finished(outcome));
    }
    refuse_strangers(folder)?;
    files::create_folder(folder.root())?;
    // Sessions delete and append; a link would redirect that.
    foreign::refuse_links(folder.root())?;
    let root = || folder.root().to_path_buf();
    let lock = folder.lock()?.ok_or_else(|| TrainingError::InUse { folder: root() })?;
    // Another process may have finished the run meanwhile.
    if let Some(outcome) = finished(inputs, folder)?
        && unfinished != Unfinished::Restart
    {
        return Ok(Opened::Finished(outcome));
    }
    if unfinished != Unfinished::Restart
        && let Some(missing) = audit::lost(folder)?
    {
        return Err(TrainingError::Lost { folder: root(), missing });
    }
    let begun = files::kind(&folder.path("manifest.json"))?.is_some();
    let recorded = audit::recorded_steps(folder)?;
    let (checkpoint, evaluated) = match unfinished {
        Unfinished::Refuse if begun && (recorded > 0 || audit::is_evaluated(folder)?) => {
            let planned = inputs.experiment.training.rollout_steps;
            return Err(TrainingError::Unfinished { folder: root(), recorded, planned });
        }
        Unfinished::Resume if begun => resume(inputs, folder, recorded, watch)?,
        _ => {
            initialise(inputs, folder)?;
            (None, Vec::new())
        }
    };
    let from_step = checkpoint.as_ref().map_or(0, |it| it.progress.counters.rollout_steps);
    record_session(inputs, folder, from_step, watch)?;
    let head = folder.ledger()?.pop().map(|entry| entry.head).unwrap_or_default();
    Ok(Opened::Ready(Box::new(Start { checkpoint, evaluated, head, lock })))
}

/// Only of a finished run of the same key.
fn finished(inputs: &Inputs, folder: &RunFolder) -> Result<Option<Outcome>, TrainingError> {
    if !folder.path("manifest.json").exists() {
        return Ok(None);
    }
    let found = folder.manifest()?.run_key;
    if found != inputs.manifest.run_key {
        let differing = differing(inputs, folder)?;
        return Err(TrainingError::OtherRun { folder: folder.root().to_path_buf(), differing });
    }
    if files::kind(&folder.path("outcome.json"))?.is_none() {
        return Ok(None);
    }
    match audit::lost(folder)? {
        Some(missing) => Err(TrainingError::Lost { folder: folder.root().to_path_buf(), missing }),
        None => Ok(Some(folder.outcome()?)),
    }
}

/// Differing keys and inputs, each with both values.
fn differing(inputs: &Inputs, folder: &RunFolder) -> Result<String, TrainingError> {
    const SHOWN: usize = 8;
    let there = folder.experiment()?;
    let side = ComparedSide::experiment;
    // Digests identify inputs, not their paths; these keys do not make another run.
    let counts = |key: &str| {
        !["name", "inputs.model", "inputs.data.train", "inputs.data.dev"].contains(&key)
            && !["inputs.data.test", "checkpoints", "records"].iter().any(|it| key.starts_with(it))
    };
    let text = |value: &Option<serde_json::Value>| {
        value.as_ref().map_or("not stated".to_string(), ToString::to_string)
    };
    let keys = differences(&side(&there), &side(&inputs.experiment)).into_iter();
    let keys = keys.filter(|it| counts(&it.key));
    let keys = keys.map(|it| format!("{} ({} there, {} here)", it.key, text(&it.a), text(&it.b)));
    let found = folder.manifest()?.inputs;
    let files = differing_keys(&found, &inputs.manifest.inputs).into_iter();
    let all: Vec<String> = keys.chain(files.map(|name| format!("the content of {name}"))).collect();
    if all.is_empty() {
        return Ok("the version of its records".to_string());
    }
    Ok(visible::first_of(&all, SHOWN, ", "))
}

/// Foreign files must not be deleted. Without a manifest only what a killed first session left (lock first) is allowed.
fn refuse_strangers(folder: &RunFolder) -> Result<(), TrainingError> {
    if !folder.root().exists() || folder.path("manifest.json").exists() {
        return Ok(());
    }
    let begun = folder.path("run.lock").exists();
    let known = |name: &String| {
        files::leftovers::is_leftover(name) || (begun && LAYOUT.contains(&name.as_str()))
    };
    match files::list(folder.root())?.into_iter().find(|name| !known(name)) {
        Some(found) => Err(TrainingError::NotARun { folder: folder.root().to_path_buf(), found }),
        None => Ok(()),
    }
}

/// Deletes the manifest first and writes it last: where it exists, the rest belongs to it.
fn initialise(inputs: &Inputs, folder: &RunFolder) -> Result<(), TrainingError> {
    files::remove_file(&folder.path("manifest.json"))?;
    files::leftovers::remove_leftovers(folder.root());
    for name in LAYOUT.iter().filter(|name| **name != "run.lock") {
        let path = folder.path(name);
        if path.is_dir() { files::remove_folder(&path)? } else { files::remove_file(&path)? }
    }
    for name in ["rollouts", "evaluations", "checkpoints"] {
        files::create_folder(&folder.path(name))?;
    }
    for name in ["metrics.jsonl", "timings.jsonl", "evaluations.jsonl", "sessions.jsonl"] {
        files::write_atomic(&folder.path(name), b"")?;
    }
    files::write_lines(&folder.path(ledger::FILE), &[genesis(inputs)])?;
    files::write_json(&folder.path("experiment.json"), &inputs.experiment)?;
    if !inputs.data.tags.is_empty() {
        files::write_json(&folder.path("tags.json"), &inputs.data.tags)?;
    }
    let environment = environment::describe(inputs.experiment.execution.threads);
    files::write_json(&folder.path("environment.json"), &environment)?;
    Ok(files::write_json(&folder.path("manifest.json"), &inputs.manifest)?)
}

type Resumed = (Option<Loaded>, Vec<EvaluationRecord>);

/// Restores the newest usable checkpoint and the folder at its step; without one the run begins again.
fn resume(
    inputs: &Inputs,
    folder: &RunFolder,
    recorded: u64,
    watch: &mut dyn FnMut(RunEvent),
) -> Result<Resumed, TrainingError> {
    for name in PLACES {
        files::leftovers::remove_partial(&folder.path(name))?;
    }
    let evaluated = audit::intact_evaluations(folder, evaluation::is_of_outcomes)?;
    let steps = folder.checkpoint_steps()?;
    let last = steps.iter().max().copied().unwrap_or(0);
    let text = ResponseText::of_rollouts(&inputs.experiment, &inputs.tokenizer);
    let is_text = |row: &RolloutRow| text.of(&row.tokens) == row.response;
    let sound = Sound::of(folder, &genesis(inputs), last, &is_text)?;
    let mut checkpoint = None;
    let mut warn = |step: u64, fate: String| {
        let path = folder.checkpoint(step);
        watch(RunEvent::Warning(&format!("checkpoint {} is {fate}", path.display())));
    };
    for step in steps.into_iter().rev() {
        // Only evaluations due from the checkpoint on can be made: earlier records cannot be repeated.
        let passed_over = match missing(inputs, &evaluated, step) {
            _ if step > sound.steps => Some(format!(
                "{}; rollout step {} and what follows are made again",
                sound.damage,
                sound.steps + 1
            )),
            Some((set, missing)) => Some(format!(
                "the evaluation of {set} at rollout step {missing} is missing or damaged, and is \
                 made again"
            )),
            None => None,
        };
        if let Some(reason) = passed_over {
            warn(step, format!("passed over: {reason}"));
            files::remove_folder(&folder.checkpoint(step))?;
            continue;
        }
        match usable(folder, step)? {
            Ok(found) => {
                checkpoint = Some(found);
                break;
            }
            Err(reason) => {
                warn(step, format!("refused: {reason}"));
                let aside = folder.path(&format!("checkpoints/{DAMAGED_CHECKPOINT}{step:06}"));
                files::replace_folder(&folder.checkpoint(step), &aside)?;
            }
        }
    }
    if checkpoint.is_none() && recorded > 0 {
        watch(RunEvent::Warning(&format!(
            "{}: no checkpoint is left to go on from; every rollout step is made again",
            folder.root().display()
        )));
    }
    let step = checkpoint.as_ref().map_or(0, |it| it.progress.counters.rollout_steps);
    let evaluated = rewind(inputs, folder, evaluated, step)?;
    // Sessions may have different schedules of checkpoints.
    files::write_json(&folder.path("experiment.json"), &inputs.experiment)?;
    Ok((checkpoint, evaluated))
}

fn genesis(inputs: &Inputs) -> LedgerEntry {
    ledger::genesis(&inputs.manifest, &inputs.experiment)
}

fn missing(inputs: &Inputs, evaluated: &[EvaluationRecord], step: u64) -> Option<(String, u64)> {
    let due = evaluations::due(&inputs.experiment, &inputs.manifest.inputs, step, false);
    let is_recorded = |(set, step): &(String, u64)| {
        evaluated.iter().any(|it| it.set == *set && it.counters.rollout_steps == *step)
    };
    due.into_iter().find(|key| key.1 < step && !is_recorded(key))
}

fn usable(folder: &RunFolder, step: u64) -> Result<Result<Loaded, String>, TrainingError> {
    let found = match checkpoint::load(&folder.checkpoint(step)) {
        Err(error) if files::is_unread(&error) => return Err(error.into()),
        Err(error) => return Ok(Err(error.to_string())),
        Ok(found) => found,
    };
    Ok(match found.progress.counters.rollout_steps {
        counted if counted == step => Ok(found),
        counted => Err(format!("its trainer.json counts {counted} rollout steps")),
    })
}

/// Removes everything after rollout step `step`. Returns the evaluations before the first later one.
fn rewind(
    inputs: &Inputs,
    folder: &RunFolder,
    mut evaluated: Vec<EvaluationRecord>,
    step: u64,
) -> Result<Vec<EvaluationRecord>, TrainingError> {
    let path = folder.path(ledger::FILE);
    let mut chain: Vec<LedgerEntry> = files::complete_lines(&path)?;
    chain.truncate(step as usize + 1);
    if step == 0 {
        chain = vec![genesis(inputs)];
    }
    files::write_lines(&path, &chain)?;
    let path = folder.path("metrics.jsonl");
    let metrics: Vec<StepMetrics> = files::complete_lines(&path)?;
    files::write_lines(&path, &metrics[..metrics.len().min(step as usize)])?;
    let path = folder.path("timings.jsonl");
    let mut timings: Vec<StepTimings> = files::complete_lines(&path)?;
    timings.retain(|line| line.step <= step);
    files::write_lines(&path, &timings)?;
    let on_time = |record: &&EvaluationRecord| record.counters.rollout_steps <= step;
    let count = evaluated.iter().take_while(on_time).count();
    evaluated.truncate(count);
    files::write_lines(&folder.path("evaluations.jsonl"), &evaluated)?;
    remove_unless(folder, "evaluations", |name| {
        let keep = |record: &EvaluationRecord| {
            folder.outcomes(&record.set, record.counters.rollout_steps).ends_with(name)
        };
        evaluated.iter().any(keep)
    })?;
    remove_unless(folder, "rollouts", |name| {
        (1..=step).any(|kept| folder.rollouts(kept).ends_with(name))
    })?;
    files::remove_folder(&folder.path("diverged"))?;
    files::remove_file(&folder.path(UNGRADED))?;
    Ok(evaluated)
}

fn remove_unless(
    folder: &RunFolder,
    inside: &str,
    keep: impl Fn(&str) -> bool,
) -> Result<(), TrainingError> {
    files::create_folder(&folder.path(inside))?;
    for name in files::list(&folder.path(inside))?.iter().filter(|name| !keep(name)) {
        files::remove_file(&folder.path(inside).join(name))?;
    }
    Ok(())
}

/// Warns if machine or build changed where the run may then end with other bits.
fn record_session(
    inputs: &Inputs,
    folder: &RunFolder,
    from_step: u64,
    watch: &mut dyn FnMut(RunEvent),
) -> Result<(), TrainingError> {
    let mut first = folder.environment()?;
    // The other trainer is no fact of this machine.
    first.facts.remove("engine");
    let here = environment::describe(inputs.experiment.execution.threads).facts;
    let value = |facts: &BTreeMap<String, String>, name: &str| {
        facts.get(name).cloned().unwrap_or_else(|| "unknown".to_string())
    };
    let changed: BTreeMap<String, [String; 2]> = environment::differing(&first.facts, &here)
        .into_iter()
        .map(|name| (name.clone(), [value(&first.facts, name), value(&here, name)]))
        .collect();
    let differing: Vec<String> = environment::differing_machine(changed.keys())
        .into_iter()
        .map(|name| format!("{name} was {}, is {}", changed[name][0], changed[name][1]))
        .collect();
    if !differing.is_empty() && !run_folder::is_portable(&inputs.manifest.exactness) {
        watch(RunEvent::Warning(&format!(
            "this session differs from the run's first ({}): the result may differ in its last bits \
             from an uninterrupted run",
            differing.join("; ")
        )));
    }
    let before = files::complete_lines(&folder.path("sessions.jsonl"))?;
    if let Some(told) = other_sources(&first, before, from_step) {
        watch(RunEvent::Warning(&told));
    }
    let started_ms = Some(environment::now_ms());
    let session = Session { from_step, changed, started_ms, ended_ms: None };
    Ok(files::append_line(&folder.path("sessions.jsonl"), &session)?)
}

fn other_sources(first: &Environment, mut before: Vec<Session>, from_step: u64) -> Option<String> {
    before.retain(|session| session.from_step < from_step);
    let others = environment::other_sources(first, &before)?;
    let made = match from_step {
        0 => "began this run".to_string(),
        1 => "made rollout step 1".to_string(),
        _ => format!("made rollout steps 1 to {from_step}"),
    };
    Some(format!(
        "this program has other sources ({}) than the one that {made} ({others}): it need not make the same bits; \
         go on with that one for a run of one program",
        &environment::SOURCES_SHA256[..12]
    ))
}

pub(super) fn close(folder: &RunFolder) -> Result<(), TrainingError> {
    let path = folder.path("sessions.jsonl");
    let mut sessions: Vec<Session> = files::complete_lines(&path)?;
    if let Some(session) = sessions.last_mut() {
        session.ended_ms = Some(environment::now_ms());
    }
    Ok(files::write_lines(&path, &sessions)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_tells_of_other_sources_that_made_steps_that_it_keeps() {
        let fact = |sources: &str| (environment::SOURCES.to_string(), sources.to_string());
        let first = |sources: &str| Environment { facts: [fact(sources)].into() };
        let session = |from_step, here: &str| {
            let changed = [(fact("").0, ["".to_string(), here.to_string()])].into();
            Session { from_step, changed, started_ms: None, ended_ms: None }
        };
        let here = environment::SOURCES_SHA256;
        let told = |first: &Environment, before: &[Session], from_step| {
            other_sources(first, before.to_vec(), from_step).unwrap_or_default()
        };
        let old = Environment { facts: BTreeMap::new() };
        assert_eq!([told(&old, &[], 5), told(&first(here), &[], 5)], ["", ""]);
        let told_of = |from_step| told(&first("0123456789abcdef"), &[], from_step);
        let made = "than the one that made rollout steps 1 to 5 (0123456789ab): it need not";
        assert!(told_of(5).contains(made), "{}", told_of(5));
        assert!(told_of(1).contains("made rollout step 1 (") && told_of(0).contains("began this"));
        let between = [session(3, "another")];
        assert!(told(&first(here), &between, 5).contains("(another)"));
        assert_eq!(told(&first(here), &between, 3), "");
    }
}
