//! Checks `diverged/`, which only a diverged run has. [`crate::verification::verify::replay`]
//! executes the step.

use crate::base::files;
use crate::policy::checkpoint;
use crate::records::{DivergenceRecord, Ending, Outcome, tables};
use crate::verification::Waiting;
use crate::verification::verify::weights::EarlierWeights;
use crate::verification::verify::{Check, VerifySubject, checkpoints, steps, steps::StepTable};

pub const RECORD: &str = "diverged/divergence.json";
pub const ROLLOUTS: &str = "diverged/rollouts.parquet";
pub const CHECKPOINT: &str = "diverged/checkpoint";

pub fn check(subject: VerifySubject, waiting: &Waiting) -> Check {
    let VerifySubject { records, entries, .. } = subject;
    let mut check = Check::new("ending");
    let Some(outcome) = &records.outcome else {
        check.inconclusive("outcome.json", "is missing: the run is not finished");
        return check.compared("nothing");
    };
    if outcome.ending != Ending::Diverged {
        if entries.folders.contains("diverged") {
            check.mismatch("diverged", "is there, and the run did not diverge");
        }
        return check.compared("the run did not diverge");
    }
    let trainer = format!("{CHECKPOINT}/trainer.json");
    for name in [RECORD, ROLLOUTS, &trainer] {
        if !entries.files.contains(name) {
            check.mismatch(name, "is missing, and the run is said to have diverged");
        }
    }
    if !check.failed() {
        record(&mut check, subject, outcome, waiting);
        policy(&mut check, subject, outcome);
    }
    check.compared("diverged/: record, rollouts and policy of the step that was not finite")
}

/// Record and rollouts must agree with outcome, seed and each other.
fn record(check: &mut Check, subject: VerifySubject, outcome: &Outcome, waiting: &Waiting) {
    let VerifySubject { folder, records, .. } = subject;
    let step = records.steps() + 1;
    let record = check.read(RECORD, files::read_json::<DivergenceRecord>(&folder.path(RECORD)));
    let rows = check.read(ROLLOUTS, tables::read_rollouts(&folder.path(ROLLOUTS)));
    let (Some(record), Some(rows)) = (record, rows) else { return };
    check.equal(format!("{RECORD}, step"), record.step, step);
    if (&record.not_finite, &record.reason) != (&outcome.not_finite, &outcome.reason) {
        check.mismatch(RECORD, "does not name the value that outcome.json names");
    }
    let table = StepTable { name: ROLLOUTS, rows: &rows, step };
    let Some((groups, carried)) = table.groups(check, subject, waiting) else { return };
    // A failure in sampling ends a round early, before training.
    let is_sampling = rows.iter().all(|row| !row.trained) && record.metrics.is_empty();
    if !is_sampling && let Some(made) = table.made(check, &groups, carried, records) {
        steps::compare(check, RECORD, &record.metrics, &made.metrics, &records.experiment);
    }
}

/// Checks the policy before the failed update: the ledger binds it before a step's first update.
fn policy(check: &mut Check, subject: VerifySubject, outcome: &Outcome) {
    let records = subject.records;
    let Some(loaded) = checkpoints::opened(check, subject, CHECKPOINT) else { return };
    let place = format!("{CHECKPOINT}/trainer.json, counters");
    check.same_counters(place, loaded.progress.counters, outcome.counters);
    let last = records.steps();
    let weights = EarlierWeights::after(last, outcome.counters.updates, &loaded.model);
    if let Some(base) = EarlierWeights::base(check, subject.local) {
        base.reach(check, &weights, CHECKPOINT, records);
    }
    if last > 0
        && records.counters(last).is_some_and(|it| it.updates == outcome.counters.updates)
        && records.component(last, "weights") != Some(&checkpoint::weights_sha256(&loaded.model))
    {
        check.mismatch(CHECKPOINT, format!("its weights are not those of step {last}"));
    }
}
