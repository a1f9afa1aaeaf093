//! Finds the undamaged records of a run; a session continues only from these.

use crate::base::{files, workers};
use crate::records::ledger::{self, LedgerEntry};
use crate::records::{Broken, EvaluationRecord, RolloutRow, RunFolder, StepMetrics, tables};
use crate::task::Tokenizer;
use crate::training::TrainingError;
use crate::training::run::{evaluations, inputs::Inputs};
use std::path::Path;

pub(super) fn genesis(inputs: &Inputs) -> LedgerEntry {
    ledger::genesis(&inputs.manifest, &inputs.experiment)
}

/// The number of rollout steps up to `last` whose records agree with the ledger, and what is wrong
/// with the next one.
pub(super) fn sound(
    inputs: &Inputs,
    folder: &RunFolder,
    last: u64,
) -> Result<(u64, Option<String>), TrainingError> {
    let path = folder.path(ledger::FILE);
    let mut chain: Vec<LedgerEntry> = files::complete_lines(&path)?;
    chain.truncate(usize::try_from(last).unwrap_or(usize::MAX).saturating_add(1));
    let (chained, mut damage) = match ledger::check_chain(&chain) {
        Ok(_) if chain[0] != genesis(inputs) => {
            (0, Some(format!("{}: its first line is not that of this run", path.display())))
        }
        // A ledger that ends early is not damaged; later steps count as not recorded.
        Ok(steps) => (steps, None),
        Err(broken) => {
            let line = match broken {
                Broken::Empty => 1,
                Broken::Head { line } | Broken::Place { line, .. } => line,
            };
            ((line as u64).saturating_sub(2), Some(format!("{}: {broken}", path.display())))
        }
    };
    let metrics: Vec<StepMetrics> = files::complete_lines(&folder.path("metrics.jsonl"))?;
    let steps: Vec<u64> = (1..=chained.min(last)).collect();
    let tokenizer = &inputs.tokenizer;
    let look = |(): &(), &step: &u64| {
        damaged(tokenizer, folder, &chain[step as usize], metrics.get(step as usize - 1))
    };
    let found = workers::map(&steps, || (), look);
    let mut sound = steps.len() as u64;
    if let Some((step, reason)) = steps.iter().zip(found).find_map(|(step, it)| Some((step, it?))) {
        (sound, damage) = (step - 1, Some(reason));
    }
    let damage = damage.unwrap_or_else(|| format!("{} ends too early", path.display()));
    let again = format!("{damage}; rollout step {} and what follows are made again", sound + 1);
    Ok((sound, (sound < last).then_some(again)))
}

/// What is wrong with the records of this line's rollout step.
fn damaged(
    tokenizer: &Tokenizer,
    folder: &RunFolder,
    entry: &LedgerEntry,
    metrics: Option<&StepMetrics>,
) -> Option<String> {
    let step = entry.step;
    let differs = |path: &Path, component: &str| {
        let path = path.display();
        Some(format!("{path} is not what the ledger has of rollout step {step} ({component})"))
    };
    if metrics.is_none_or(|line| !entry.binds(line)) {
        return differs(&folder.path("metrics.jsonl"), "metrics");
    }
    let path = folder.rollouts(step);
    let rows = match tables::read_rollouts(&path) {
        Ok(rows) => rows,
        Err(error) => return Some(format!("of rollout step {step}: {error}")),
    };
    if let Some(name) = entry.unlike(&rows).first() {
        return differs(&path, name);
    }
    // The ledger has a digest of the tokens, which determine the text.
    let is_text = |row: &RolloutRow| tokenizer.decode(&row.tokens) == row.response;
    if rows.iter().all(is_text) { None } else { differs(&path, "response") }
}

/// Evaluations before the first one whose outcomes are not as recorded.
pub(super) fn standing(folder: &RunFolder) -> Result<Vec<EvaluationRecord>, TrainingError> {
    let stands = |record: &EvaluationRecord| {
        let path = folder.recorded_outcomes(&record.set, record.counters.rollout_steps);
        let found = path.and_then(|path| files::sha256_file(&path));
        found.is_ok_and(|digest| digest == record.outcomes_sha256)
    };
    let mut evaluated: Vec<EvaluationRecord> =
        files::complete_lines(&folder.path("evaluations.jsonl"))?;
    let count = evaluated.iter().take_while(|record| stands(record)).count();
    evaluated.truncate(count);
    Ok(evaluated)
}

/// Due before rollout step `step`.
pub(super) fn missing(
    inputs: &Inputs,
    evaluated: &[EvaluationRecord],
    step: u64,
) -> Option<(String, u64)> {
    let due = evaluations::due(&inputs.experiment, &inputs.manifest.inputs, step, false);
    let is_recorded = |(set, step): &(String, u64)| {
        evaluated.iter().any(|it| it.set == *set && it.counters.rollout_steps == *step)
    };
    due.into_iter().find(|key| key.1 < step && !is_recorded(key))
}
