//! Checks that the fields of a record agree with each other and with its experiment. A forger can
//! recompute every digest, but must keep what a run binds together. Of a failed run only identity
//! and shape are checked.

use crate::algorithm::{AtCap, DynamicSampling};
use crate::experiment::{Experiment, validate};
use crate::policy::checkpoint::weights;
use crate::records::ledger;
use crate::study::cell::{FORMAT, numbers};
use crate::study::{Cell, CellEnding, CellEvaluation};
use crate::task::data::mini_aime;
use crate::training::run::{evaluations, inputs};
use std::collections::{BTreeMap, BTreeSet};

pub const RECORDS: [&str; 3] = ["metrics.jsonl", "evaluations.jsonl", ledger::FILE];

pub fn check(cell: &Cell) -> Result<(), String> {
    if cell.format != FORMAT {
        return Err(format!("format {} is not {FORMAT}, the one this build reads", cell.format));
    }
    if cell.record_sha256 != cell.digest() {
        return Err("its digest does not fit its content: it was edited or damaged".into());
    }
    identity(cell)?;
    read_files(cell)?;
    shape(cell)?;
    if cell.ending == CellEnding::Failed {
        return match &cell.ledger_head {
            None => Ok(()),
            Some(_) => Err("the run failed and has a ledger head".into()),
        };
    }
    digests(cell)?;
    ending(cell)?;
    numbers::steps(cell)?;
    schedule(cell)?;
    for evaluation in &cell.evaluations {
        clocks(cell, evaluation)
            .and_then(|()| numbers::scores(cell, evaluation))
            .map_err(|reason| format!("{} {reason}", place(evaluation)))?;
    }
    Ok(())
}

fn place(evaluation: &CellEvaluation) -> String {
    let step = evaluation.counters.rollout_steps;
    format!("the evaluation of `{}` at rollout step {step}", evaluation.set)
}

/// What names the run fits the experiment.
pub(super) fn identity(cell: &Cell) -> Result<(), String> {
    let Cell { experiment, inputs: digests, .. } = cell;
    if let Some(problem) = validate::problems(experiment).into_iter().next() {
        return Err(format!("no run can have its `experiment`: {problem}"));
    }
    let exactness = inputs::exactness(experiment);
    for (holds, reason) in [
        (
            cell.arm_sha256 == experiment.arm_sha256(),
            "`arm_sha256` is not the hash of `experiment`".to_string(),
        ),
        (
            cell.seed == experiment.execution.seed,
            "`seed` is not the seed of `experiment`".to_string(),
        ),
        (
            cell.exactness == exactness,
            format!("`exactness` is not {exactness}, which its `experiment` gives"),
        ),
        (
            cell.run_key == inputs::run_key(experiment, digests),
            "`run_key` is not that of `experiment` and `inputs`".to_string(),
        ),
    ] {
        if !holds {
            return Err(reason);
        }
    }
    Ok(())
}

/// The record has a digest of everything that its run read.
fn read_files(cell: &Cell) -> Result<(), String> {
    let has = |name: &String| cell.inputs.contains_key(name);
    let base = |name: &str| format!("base/{name}");
    let data = |set: &str| format!("data/{set}");
    let wanted = [data(mini_aime::TRAIN), base("config.json"), base("tokenizer.json")];
    let wanted = wanted.into_iter().chain(cell.problems.keys().map(|set| data(set)));
    if let Some(name) = wanted.into_iter().find(|name| !has(name)) {
        return Err(format!("`inputs` has no digest of {name}"));
    }
    if !has(&base(weights::SINGLE)) && !has(&base(weights::INDEX)) {
        return Err("`inputs` has no digest of the base policy's weights".into());
    }
    match cell.inputs.iter().find(|(_, digest)| !is_digest(digest)) {
        Some((name, _)) => Err(format!("`inputs` has no SHA-256 of {name}")),
        None => Ok(()),
    }
}

/// Every column has a value for each step, every evaluation an outcome for each problem and sample.
fn shape(cell: &Cell) -> Result<(), String> {
    let steps = cell.counters.len();
    for (name, values) in &cell.metrics {
        if values.len() != steps {
            let found = values.len();
            return Err(format!("metric `{name}` has {found} values for {steps} steps"));
        }
    }
    for evaluation in &cell.evaluations {
        let set = &evaluation.set;
        let Some(problems) = cell.problems.get(set) else {
            return Err(format!("set `{set}` has no problems"));
        };
        if evaluation.samples == 0 || problems.count == 0 {
            return Err(format!("set `{set}` was evaluated without problems or samples"));
        }
        let expected = problems.count.checked_mul(evaluation.samples);
        if expected != Some(evaluation.outcomes.len() as u64) {
            let (bits, k) = (evaluation.outcomes.len(), evaluation.samples);
            return Err(format!(
                "set `{set}` has {bits} outcomes for {} problems with {k} samples each",
                problems.count
            ));
        }
    }
    Ok(())
}

/// A run that ended by itself has a ledger head and digests, each a SHA-256.
fn digests(cell: &Cell) -> Result<(), String> {
    if !cell.ledger_head.as_deref().is_some_and(is_digest) {
        return Err("`ledger_head` is no SHA-256, and the run did not fail".into());
    }
    // A run may diverge before its first checkpoint.
    let weights = (cell.ending != CellEnding::Diverged).then_some(weights::SINGLE);
    let wanted = RECORDS.into_iter().chain(weights);
    if let Some(name) = wanted.into_iter().find(|name| !cell.digests.contains_key(*name)) {
        return Err(format!("`digests` has none of {name}"));
    }
    let tables = cell.evaluations.iter().map(|it| (&it.set, &it.outcomes_sha256));
    let sets = cell.problems.iter().map(|(set, ids)| (set, &ids.sha256));
    match cell.digests.iter().chain(tables).chain(sets).find(|(_, digest)| !is_digest(digest)) {
        Some((name, _)) => Err(format!("the digest of {name} is no SHA-256")),
        None => Ok(()),
    }
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn ending(cell: &Cell) -> Result<(), String> {
    let (done, planned) = (cell.counters.len() as u64, cell.experiment.training.rollout_steps);
    let fits = match cell.ending {
        CellEnding::Finished => done == planned,
        CellEnding::Saturated => done < planned && saturates(&cell.experiment).is_some(),
        CellEnding::Diverged | CellEnding::Failed => done < planned,
    };
    match fits {
        true => Ok(()),
        false => Err(format!(
            "a run of {planned} rollout steps cannot have ended so ({:?}) with {done} of them",
            cell.ending
        )),
    }
}

/// Rounds after which a step without anything to train on ends the run.
fn saturates(experiment: &Experiment) -> Option<u64> {
    match experiment.dapo.dynamic_sampling {
        DynamicSampling::Resample { max_rounds, at_cap: AtCap::Train, .. } if max_rounds > 0 => {
            Some(u64::from(max_rounds))
        }
        _ => None,
    }
}

/// Every due evaluation stands once, in the order of the rollout steps.
fn schedule(cell: &Cell) -> Result<(), String> {
    let steps = cell.counters.len() as u64;
    let complete = cell.ending != CellEnding::Diverged;
    let due = evaluations::due(&cell.experiment, &cell.inputs, steps, complete);
    let mut found = BTreeSet::new();
    let mut last = 0;
    for evaluation in &cell.evaluations {
        let step = evaluation.counters.rollout_steps;
        let key = (evaluation.set.clone(), step);
        let wrong = match step {
            _ if !due.contains(&key) => Some("is none of this run's"),
            _ if !found.insert(key) => Some("stands twice"),
            _ => (step < last).then_some("stands after a later one"),
        };
        if let Some(wrong) = wrong {
            return Err(format!("{} {wrong}", place(evaluation)));
        }
        last = step;
    }
    match due.difference(&found).next() {
        Some((set, step)) => {
            Err(format!("the evaluation of `{set}` at rollout step {step} is missing"))
        }
        None => Ok(()),
    }
}

/// An evaluation has its rollout step's clocks and number of generated rollouts.
fn clocks(cell: &Cell, evaluation: &CellEvaluation) -> Result<(), String> {
    let found = evaluation.counters;
    let step = found.rollout_steps;
    let at = |step: u64| cell.counters.get(step.checked_sub(1)? as usize).copied();
    let expected = at(step).unwrap_or_default();
    // Earlier builds counted the rounds of the step that found nothing.
    let end = cell.ending == CellEnding::Saturated && step == cell.counters.len() as u64;
    let added = if end { saturates(&cell.experiment).unwrap_or(0) } else { 0 };
    let most = expected.generation_rounds.saturating_add(added);
    let rounds = expected.generation_rounds..=most;
    if !rounds.contains(&found.generation_rounds) || found.updates != expected.updates {
        return Err("has not the clocks of that step".into());
    }
    let rollouts = numbers::generated(&cell.experiment, found);
    if evaluation.generated_rollouts != rollouts {
        return Err(format!(
            "says that {} rollouts were generated by then; the clocks say {rollouts}",
            evaluation.generated_rollouts
        ));
    }
    let samples: &BTreeMap<String, u64> = &cell.experiment.evaluation.samples;
    match samples.get(&evaluation.set) {
        Some(k) if *k == evaluation.samples => Ok(()),
        _ => Err(format!("has {} samples, which is not the experiment's", evaluation.samples)),
    }
}
