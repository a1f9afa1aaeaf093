use crate::experiment::validate;
use crate::records::audit::{self, DigestFault, Unreadable};
use crate::records::{
    Ending, EvaluationRecord, FolderEntries, Outcome, RunFolder, RunRecords, ending,
};
use crate::report::text;
use crate::training::run::inputs;
use crate::verification::verify::Check;

pub fn folder(entries: &FolderEntries, is_running: bool) -> Check {
    let mut check = Check::new("folder");
    for (path, reason) in &entries.misplaced {
        check.mismatch(path, reason);
    }
    for path in &entries.partial {
        let what = if is_running {
            "is being written or removed"
        } else {
            "was left half written; the run's command with --resume removes it"
        };
        check.inconclusive(path, what);
    }
    for name in vouched_and_gone(entries) {
        let what = "is missing: every run writes it before its first step";
        if entries.files.contains("outcome.json") {
            check.mismatch(name, what);
        } else {
            check.inconclusive(name, what);
        }
    }
    check.compared(format!("{} files against the layout of a run", entries.files.len()))
}

pub fn vouched_and_gone(entries: &FolderEntries) -> Vec<&'static str> {
    let names = ["environment.json", "sessions.jsonl", "timings.jsonl"];
    names.into_iter().filter(|name| !entries.files.contains(*name)).collect()
}

pub fn digests(folder: &RunFolder, entries: &FolderEntries, records: &RunRecords) -> Check {
    let mut check = Check::new("digests");
    let Some(outcome) = &records.outcome else {
        check.unfinished_as_told();
        return check.compared("nothing: the run is unfinished");
    };
    for (name, fault) in audit::digest_faults(folder, entries, outcome) {
        match fault {
            DigestFault::NoCheckpoint => check.inconclusive(name, fault),
            DigestFault::Outside => {
                check.mismatch(format!("outcome.json, digest of {name}"), fault)
            }
            _ => check.mismatch(name, fault),
        }
    }
    let count = text::counted(outcome.digests.len(), "file", "files");
    check.compared(format!("{count} hashed again"))
}

/// `None` where nothing can be checked.
pub fn read(folder: &RunFolder) -> (Check, Option<RunRecords>) {
    let mut check = Check::new("records");
    let read = RunRecords::read(folder);
    let name = read.as_ref().err().map_or("records", |unreadable| unreadable.name);
    let mut records = check.read(name, read);
    records.iter_mut().for_each(|records| examine(&mut check, folder, records));
    let check = check.compared("6 files of records can be read");
    let records = records.filter(|_| !check.failed());
    (check, records)
}

fn examine(check: &mut Check, folder: &RunFolder, records: &mut RunRecords) {
    for Unreadable { name, source } in &records.missing {
        check.mismatch(name, source);
    }
    if records.is_unfinished() {
        records.keep_whole_steps(folder);
        let whole = records.steps();
        let what = format!(
            "is missing: the run is unfinished. Its first {whole} rollout steps are checked, \
             what follows them is not"
        );
        check.inconclusive("outcome.json", what);
    }
    for (timings, line) in folder.timings().unwrap_or_default().iter().zip(1..) {
        if !timings.are_possible() {
            check.mismatch(format!("timings.jsonl, line {line}"), "no clock shows these seconds");
        }
    }
    for problem in validate::problems(&records.experiment) {
        check.mismatch("experiment.json", format!("is not valid: {problem}"));
    }
    for EvaluationRecord { set, .. } in &records.evaluations {
        if set.contains('/') || folder.inside(set).is_err() {
            let place = format!("evaluations.jsonl, set {set}");
            check.mismatch(place, "the path of its outcomes leaves the folder");
        }
    }
    let wrong = records.metrics.iter().zip(1..).find(|(line, step)| line.step != *step);
    if let Some((line, step)) = wrong {
        check.mismatch(format!("metrics.jsonl, line {step}"), format!("is of step {}", line.step));
    }
}

pub fn identity(records: &RunRecords) -> Check {
    let mut check = Check::new("identity");
    let RunRecords { experiment, manifest, .. } = records;
    let place = |key: &str| format!("manifest.json, {key}");
    check.equal(place("arm_sha256"), &manifest.arm_sha256, &experiment.arm_sha256());
    check.equal(place("name"), &manifest.name, &experiment.name);
    check.equal(place("seed"), manifest.seed, experiment.execution.seed);
    let levels = inputs::levels(experiment);
    if !levels.contains(&manifest.exactness.as_str()) {
        check.equal(place("exactness"), &manifest.exactness, &levels.join(" or "));
    }
    if let Some(name) = inputs::impossible(&manifest.inputs, experiment) {
        check.mismatch(place("inputs"), format!("no run has the input {name:?} with this digest"));
    }
    let key = inputs::run_key(experiment, &manifest.inputs);
    check.equal(place("run_key"), &manifest.run_key, &key);
    check.compared("arm hash, name, seed and run key computed again from experiment.json")
}

pub fn ledger(records: &RunRecords) -> Check {
    let mut check = Check::new("ledger");
    for contradiction in records.contradictions() {
        check.mismatch(contradiction.place(), &contradiction);
    }
    let parts = match &records.outcome {
        Some(outcome) => {
            ending(&mut check, records, outcome);
            "chain, genesis, metrics and end"
        }
        None => {
            check.unfinished_as_told();
            "chain, genesis and metrics, but no end,"
        }
    };
    let lines = text::counted(records.ledger.len(), "line", "lines");
    check.compared(format!("{lines}: {parts} computed again"))
}

/// Clocks of the last step, and fields of the ending and the format.
fn ending(check: &mut Check, records: &RunRecords, outcome: &Outcome) {
    let last = records.metrics.last().map(|line| line.counters).unwrap_or_default();
    let place = |name: &str| format!("outcome.json, counters.{name}");
    let clocks = outcome.counters;
    check.equal(place("rollout_steps"), clocks.rollout_steps, last.rollout_steps);
    let planned = records.experiment.training.rollout_steps;
    ending_fields(check, outcome, records.experiment.record_format());
    if outcome.ending == Ending::Finished {
        check.equal(place("rollout_steps"), clocks.rollout_steps, planned);
    } else if clocks.rollout_steps >= planned {
        check.mismatch("outcome.json, ending", "all rollout steps were done");
    }
    // A step that was not finite uses clocks without a record.
    if outcome.ending != Ending::Diverged {
        check.equal(place("updates"), clocks.updates, last.updates);
        let (rounds, last) = (clocks.generation_rounds, last.generation_rounds);
        check.equal(place("generation_rounds"), rounds, last);
    }
}

/// Executing the step of `diverged/` checks the value.
fn ending_fields(check: &mut Check, outcome: &Outcome, format: u64) {
    let diverged = outcome.ending == Ending::Diverged;
    let (not_finite, reason) = ("outcome.json, not_finite", "outcome.json, reason");
    if format > ending::LAST_WITH_SENTENCES {
        if !outcome.reason.is_empty() {
            check.mismatch(reason, format!("format {format} has no such field"));
        }
        if outcome.not_finite.is_some() != diverged {
            check.mismatch(not_finite, "a run has it if, and only if, it diverged");
        }
        return;
    }
    if outcome.not_finite.is_some() {
        check.mismatch(not_finite, format!("format {format} has no such field"));
    }
    let encoded = ending::sentence(outcome.ending, outcome.step(), None);
    let fits =
        if diverged { outcome.reason.starts_with(&encoded) } else { outcome.reason == encoded };
    if !fits {
        check.mismatch(reason, format!("is not what format {format} writes of this ending"));
    }
}
