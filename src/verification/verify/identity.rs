//! Checks the run's identity: experiment, manifest, run key, and the ledger's chain.

use crate::base::files;
use crate::experiment::{Experiment, compare::differing_keys, validate};
use crate::records::ledger::{self, Kind, LedgerEntry};
use crate::records::{
    Counters, Ending, EvaluationRecord, Manifest, Outcome, RunFolder, StepMetrics, ending,
};
use crate::training::run::inputs;
use crate::verification::verify::{Check, Extent, stays_inside};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;

#[derive(Debug)]
pub struct VerifiedRecords {
    /// Already validated.
    pub experiment: Experiment,
    pub manifest: Manifest,
    pub metrics: Vec<StepMetrics>,
    pub ledger: Vec<LedgerEntry>,
    /// Names of sets are plain.
    pub evaluations: Vec<EvaluationRecord>,
    pub outcome: Option<Outcome>,
}

impl VerifiedRecords {
    pub fn steps(&self) -> u64 {
        self.metrics.len() as u64
    }

    /// Stopped, killed, or still at work.
    pub fn is_unfinished(&self) -> bool {
        self.outcome.is_none()
    }

    pub fn extent(&self) -> Extent {
        let ending = self.outcome.as_ref().map(|outcome| outcome.ending);
        Extent {
            steps: self.steps(),
            evaluations: self.evaluations.len() as u64,
            ends_early: ending.is_some_and(|ending| ending != Ending::Finished),
            imported: !self.experiment.engine.is_native(),
            unfinished: self.is_unfinished(),
            ..Extent::default()
        }
    }

    pub fn line(&self, step: u64) -> Option<&StepMetrics> {
        self.metrics.iter().find(|line| line.step == step)
    }

    /// All 0 for step 0; `None` if not recorded.
    pub fn counters(&self, step: u64) -> Option<Counters> {
        match step {
            0 => Some(Counters::default()),
            _ => self.line(step).map(|line| line.counters),
        }
    }

    /// The last one.
    pub fn head(&self) -> &str {
        self.ledger.last().map(|entry| entry.head.as_str()).unwrap_or_default()
    }

    pub fn step(&self, step: u64) -> Option<&LedgerEntry> {
        self.ledger.get(step as usize).filter(|entry| entry.kind == Kind::RolloutStep)
    }

    pub fn component(&self, step: u64, name: &str) -> Option<&String> {
        self.step(step)?.components.get(name)
    }
}

/// `None` where nothing can be checked.
pub fn read(folder: &RunFolder) -> (Check, Option<VerifiedRecords>) {
    let mut check = Check::new("records");
    let experiment = check.read("experiment.json", folder.experiment());
    let manifest = check.read("manifest.json", folder.manifest());
    let is_ended = folder.path("outcome.json").exists();
    let mut metrics: Option<Vec<StepMetrics>> = lines(&mut check, folder, "metrics.jsonl");
    let mut ledger: Option<Vec<LedgerEntry>> = lines(&mut check, folder, ledger::FILE);
    let mut evaluations: Option<Vec<EvaluationRecord>> =
        lines(&mut check, folder, "evaluations.jsonl");
    let outcome = if is_ended {
        check.read("outcome.json", folder.outcome()).map(Some)
    } else {
        let lines = (metrics.as_mut(), ledger.as_mut(), evaluations.as_mut());
        if let (Some(metrics), Some(ledger), Some(evaluations)) = lines {
            keep_whole_steps(&mut check, folder, metrics, ledger, evaluations);
        }
        Some(None)
    };
    for problem in experiment.iter().flat_map(validate::problems) {
        check.mismatch("experiment.json", format!("no run can have it: {problem}"));
    }
    for record in evaluations.iter().flatten() {
        if !stays_inside(&record.set) || record.set.contains('/') {
            let place = format!("evaluations.jsonl, set {}", record.set);
            check.mismatch(place, "the path of its outcomes leaves the folder");
        }
    }
    let wrong = metrics.iter().flatten().zip(1..).find(|(line, step)| line.step != *step);
    if let Some((line, step)) = wrong {
        check.mismatch(format!("metrics.jsonl, line {step}"), format!("is of step {}", line.step));
    }
    let check = check.compared("6 files of records can be read");
    if check.failed() {
        return (check, None);
    }
    let records = (|| {
        let (experiment, manifest) = (experiment?, manifest?);
        let (metrics, ledger, evaluations) = (metrics?, ledger?, evaluations?);
        Some(VerifiedRecords {
            experiment,
            manifest,
            metrics,
            ledger,
            evaluations,
            outcome: outcome?,
        })
    })();
    (check, records)
}

/// An unfinished run has the lines before the first incomplete one.
fn lines<T: DeserializeOwned>(check: &mut Check, folder: &RunFolder, name: &str) -> Option<Vec<T>> {
    let is_ended = folder.path("outcome.json").exists();
    let read = folder.inside(name).and_then(|path| {
        if is_ended { files::read_lines(&path) } else { files::complete_lines(&path) }
    });
    check.read(name, read)
}

/// In an unfinished run only rollout steps with table, metrics and ledger line count: a killed
/// process leaves the last one half written, and a resumed session rewinds to its checkpoint.
fn keep_whole_steps(
    check: &mut Check,
    folder: &RunFolder,
    metrics: &mut Vec<StepMetrics>,
    ledger: &mut Vec<LedgerEntry>,
    evaluations: &mut Vec<EvaluationRecord>,
) {
    let chained = ledger.iter().filter(|entry| entry.kind == Kind::RolloutStep).count();
    let recorded = metrics.len().min(chained) as u64;
    let whole = (1..=recorded).take_while(|step| folder.rollouts(*step).exists()).count() as u64;
    metrics.truncate(whole as usize);
    ledger.retain(|entry| entry.kind != Kind::End && entry.step <= whole);
    evaluations.retain(|record| record.counters.rollout_steps <= whole);
    check.inconclusive(
        "outcome.json",
        format!(
            "is missing: the run is unfinished. Its first {whole} rollout steps are checked, \
             what follows them is not. Resume it (dapo train EXPERIMENT --out FOLDER --resume)"
        ),
    );
}

pub fn identity(records: &VerifiedRecords) -> Check {
    let mut check = Check::new("identity");
    let VerifiedRecords { experiment, manifest, .. } = records;
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
    if manifest.harness != env!("CARGO_PKG_VERSION") {
        let what = format!(
            "the run is of version {}, this is {}: what follows may differ for that reason",
            manifest.harness,
            env!("CARGO_PKG_VERSION")
        );
        check.inconclusive(place("harness"), what);
    }
    check.compared("arm hash, name, seed and run key computed again from experiment.json")
}

pub fn ledger(records: &VerifiedRecords) -> Check {
    let mut check = Check::new("ledger");
    let at = |line: usize| format!("{}, line {line}", ledger::FILE);
    let entries = &records.ledger;
    match ledger::check_chain(entries) {
        Ok(steps) => check.equal("ledger.jsonl, rollout steps", steps, records.steps()),
        Err(broken) => check.mismatch(ledger::FILE, broken),
    }
    let genesis = ledger::genesis(&records.manifest, &records.experiment);
    let first = entries.first().map(|entry| &entry.components);
    different(&mut check, &at(1), first, &genesis.components);
    let expected: BTreeSet<&str> = ledger::STEP_COMPONENTS.into();
    // Another trainer's steps have tables and metrics, and weights where it wrote them.
    let absent = |name: &str| {
        let shown = ["old_log_probs", "gradients", "weights", "moments"];
        !records.experiment.engine.is_native() && shown.contains(&name)
    };
    for (entry, line) in entries.iter().zip(1..).filter(|(it, _)| it.kind == Kind::RolloutStep) {
        let names: BTreeSet<&str> = entry.components.keys().map(String::as_str).collect();
        for name in names.symmetric_difference(&expected).filter(|name| !absent(name)) {
            check.mismatch(at(line), format!("component {name} is missing or unknown"));
        }
    }
    for line in &records.metrics {
        let place = format!("step {}, component metrics", line.step);
        match records.component(line.step, "metrics") {
            Some(written) if *written == ledger::metrics(line) => {}
            _ => check.mismatch(place, "the line of metrics.jsonl is not the one in the ledger"),
        }
    }
    let end = entries.last().filter(|entry| entry.kind == Kind::End);
    match &records.outcome {
        Some(outcome) => {
            let components = ledger::end(&records.evaluations, outcome);
            different(&mut check, &at(entries.len()), end.map(|it| &it.components), &components);
            ending(&mut check, records, outcome);
        }
        None => check.inconclusive("ledger.jsonl", "has no end: the run is not finished"),
    }
    check.compared(format!(
        "{} lines: chain, genesis, metrics and end computed again",
        entries.len()
    ))
}

fn different(
    check: &mut Check,
    place: &str,
    found: Option<&ledger::Components>,
    expected: &ledger::Components,
) {
    let Some(found) = found else {
        return check.mismatch(place, "is missing");
    };
    for name in differing_keys(found, expected) {
        let shown = |digest: Option<&String>| digest.map_or("missing".to_string(), String::clone);
        let (found, expected) = (shown(found.get(name)), shown(expected.get(name)));
        check.mismatch(
            format!("{place}, component {name}"),
            format!("is {found}, from the records follows {expected}"),
        );
    }
}

/// Clocks of the last step, and fields of the ending and the format.
fn ending(check: &mut Check, records: &VerifiedRecords, outcome: &Outcome) {
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
