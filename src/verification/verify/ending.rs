//! How a run ended: `diverged/`, which only a diverged run has, and the step of an early ending, executed again.

use crate::base::files;
use crate::policy::{Loaded, checkpoint};
use crate::records::ending::LAST_WITH_SENTENCES;
use crate::records::{DivergenceRecord, Ending, Outcome, TensorDigest, tables};
use crate::training::run::rows;
use crate::training::{StepOutcome, Trainer};
use crate::verification::Waiting;
use crate::verification::verify::checkpoints::{self, EarlierWeights};
use crate::verification::verify::{Check, VerifySubject, steps, steps::StepTable};

const RECORD: &str = "diverged/divergence.json";
const ROLLOUTS: &str = "diverged/rollouts.parquet";
const CHECKPOINT: &str = "diverged/checkpoint";

pub fn check(subject: VerifySubject, waiting: &Waiting) -> Check {
    let VerifySubject { records, entries, .. } = subject;
    let mut check = Check::new("ending");
    let Some(outcome) = &records.outcome else {
        check.unfinished_as_told();
        return check.compared("nothing: the run is unfinished");
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
    let table = StepTable { name: ROLLOUTS, rows: &rows, step, subject };
    let Some((groups, carried)) = table.groups(check, waiting) else { return };
    // A failure in sampling ends a round early, before training.
    let is_sampling = rows.iter().all(|row| !row.trained) && record.metrics.is_empty();
    if !is_sampling && let Some((_, metrics)) = table.selected(check, &groups, carried) {
        steps::compare(check, RECORD, &record.metrics, &metrics, &records.experiment);
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
    let digest = checkpoint::weights_digest(&loaded.model, TensorDigest::of(&records.experiment));
    let updates = outcome.counters.updates;
    let is_of_last = records.counters(last).is_some_and(|it| it.updates == updates);
    if last > 0 && is_of_last && records.component(last, "weights") != Some(&digest) {
        check.mismatch(CHECKPOINT, format!("its weights are not those of step {last}"));
    }
}

/// Executes the step after the last recorded one, which must end the run as recorded; returns differing places.
pub fn executed_again(
    subject: VerifySubject,
    trainer: &mut Trainer,
) -> Vec<(&'static str, String)> {
    let VerifySubject { folder, records, .. } = subject;
    let Some(outcome) = &records.outcome else { return Vec::new() };
    let step = records.steps() + 1;
    let format = records.experiment.record_format();
    let executed = trainer.step(&mut |_| ());
    let again = match &executed {
        Ok(StepOutcome::Trained(_)) => Err("the step trains".to_string()),
        // Builds of formats 1 to 3 said saturated for stalled.
        Ok(StepOutcome::Saturated { .. })
            if outcome.ending == Ending::Saturated && format <= LAST_WITH_SENTENCES =>
        {
            Ok((Ending::Saturated, None))
        }
        Ok(StepOutcome::Saturated { correct, .. }) => {
            Ok((Ending::without_gradient(*correct), None))
        }
        Ok(StepOutcome::Diverged(divergence)) => {
            Ok((Ending::Diverged, Some(divergence.not_finite.clone())))
        }
        Err(error) => Err(format!("the step cannot be executed here: {error}")),
    };
    let fields = |Outcome { ending, not_finite, reason, .. }: &Outcome| {
        files::canonical_json_line(&(ending, not_finite, reason))
    };
    let stored = fields(outcome);
    let again = again.map(|(ending, not_finite)| {
        fields(&Outcome::new(format, ending, not_finite, outcome.counters))
    });
    if again.as_ref() != Ok(&stored) {
        let again = again.unwrap_or_else(|why| why);
        let what = format!(
            "says that the run ended in step {step} with {stored}; executed again: {again}"
        );
        return vec![("outcome.json, ending", what)];
    }
    let mut differing = Vec::new();
    if trainer.counters() != outcome.counters {
        let what = format!("are {:?}, {:?} here", outcome.counters, trainer.counters());
        differing.push(("outcome.json, counters", what));
    }
    let Ok(StepOutcome::Diverged(divergence)) = executed else { return differing };
    // `diverged/` must have the step's results.
    let step = divergence.step;
    let rows = tables::read_rollouts(&folder.path(ROLLOUTS)).ok();
    let record = files::read_json::<DivergenceRecord>(&folder.path(RECORD)).ok();
    let loaded = checkpoint::load(&folder.path(CHECKPOINT)).ok();
    let how = TensorDigest::of(trainer.experiment());
    let is_policy = loaded.is_some_and(|Loaded { model, optimizer, progress }| {
        let weights = checkpoint::weights_digest(&model, how);
        let moments = checkpoint::moments_digest(&optimizer, how);
        let components = [("weights", weights), ("moments", moments)];
        let components = components.map(|(name, digest)| (name.to_string(), digest));
        trainer.policy().components() == components.into()
            && trainer.policy().moments().updates() == optimizer.updates
            && rows::progress(trainer) == progress
    });
    let rows_again = rows::rollout_rows(&step);
    let mut metrics = step.metrics;
    metrics.retain(|_, value| value.is_finite());
    let agree = [
        (ROLLOUTS, rows == Some(rows_again)),
        (RECORD, record.map(|record| record.metrics) == Some(metrics)),
        (CHECKPOINT, is_policy),
    ];
    let what = || "is not what the step gives here".to_string();
    differing
        .extend(agree.into_iter().filter(|(_, agrees)| !agrees).map(|(name, _)| (name, what())));
    differing
}
