//! Checks files by the digests of `trainer.json`; weights, moments, clocks and carried groups by ledger and tables.

use crate::base::files;
use crate::policy::optimizer::{self, OptimizerTensors};
use crate::policy::{Loaded, Qwen2, checkpoint};
use crate::records::{
    Ending, FolderEntries, RolloutRow, RunFolder, RunRecords, StepMetrics, TensorDigest,
};
use crate::report::text;
use crate::training::trainer;
use crate::verification::Waiting;
use crate::verification::verify::{Check, VerifySubject, inputs, inputs::Local, steps};
use serde_json::Value;
use std::collections::BTreeSet;

/// Returns the steps of correct checkpoints.
pub fn check(subject: VerifySubject, waiting: &Waiting) -> (Check, BTreeSet<u64>) {
    let VerifySubject { records, entries, .. } = subject;
    let mut check = Check::new("checkpoints");
    let mut kept = BTreeSet::new();
    let steps = entries.steps("checkpoints/step-", "/trainer.json");
    for name in entries.folders.iter().filter(|name| name.starts_with("checkpoints/")) {
        if !entries.files.contains(&format!("{name}/trainer.json")) {
            check.half_done(records, format!("{name}/trainer.json"), "is missing");
        }
    }
    let mut before = EarlierWeights::base(&mut check, subject.local);
    for &step in &steps {
        if records.is_unfinished() && step > records.steps() {
            let name = format!("checkpoints/step-{step:06}");
            check.half_done(records, name, "is of no recorded step");
        } else if one(&mut check, subject, waiting, step, &mut before) {
            kept.insert(step);
        }
    }
    let last = records.steps();
    let ending = records.outcome.as_ref().map(|outcome| outcome.ending);
    // `diverged/` has a diverged run's policy before the failed update.
    let is_kept = ending.is_some_and(|ending| ending != Ending::Diverged);
    if is_kept && !steps.contains(&last) {
        let what = "is missing: the last weights cannot be compared with the ledger";
        check.inconclusive(format!("checkpoints/step-{last:06}"), what);
    }
    let count = text::counted(steps.len(), "checkpoint", "checkpoints");
    (check.compared(format!("{count}: files, weights, moments, clocks, carried groups")), kept)
}

/// `before`: the weights of the checkpoint before, or of the base policy.
fn one(
    check: &mut Check,
    subject: VerifySubject,
    waiting: &Waiting,
    step: u64,
    before: &mut Option<EarlierWeights>,
) -> bool {
    let records = subject.records;
    let name = format!("checkpoints/step-{step:06}");
    let findings = check.all_findings();
    let loaded = opened(check, subject, &name);
    let Some(Loaded { model, optimizer, progress }) = loaded else { return false };
    let place = |key: &str| format!("{name}/trainer.json, {key}");
    let expected = records.counters(step).unwrap_or_default();
    if records.counters(step).is_none() {
        check.mismatch(&name, "is of no recorded step");
    } else {
        let per_round = trainer::prompts_per_round(&records.experiment);
        let drawn = expected.generation_rounds.saturating_mul(per_round);
        check.same_counters(place("counters, against metrics.jsonl"), progress.counters, expected);
        check.equal(place("prompts_drawn"), progress.prompts_drawn, drawn);
    }
    let imported = !records.experiment.engine.is_native();
    let updates = if imported { 0 } else { expected_updates(records, step) };
    check.equal(place("optimizer_updates"), optimizer.updates, updates);
    let is_waiting = |group: usize, row: &RolloutRow| {
        !row.trained && row.advantage.to_bits() == 0 && row.group as usize == group
    };
    let mut carried = progress.carried.chunk_by(|a, b| a.group == b.group).enumerate();
    if !carried.all(|(group, rows)| rows.iter().all(|row| is_waiting(group, row))) {
        let what = "its rows do not have the groups in order, untrained and without advantages";
        check.mismatch(format!("{name}/carried.parquet"), what);
    }
    if step == 0 {
        let moments = [&optimizer.first_moments, &optimizer.second_moments];
        let is_zero = |moments: &OptimizerTensors| moments.values().flatten().all(|it| *it == 0.0);
        if !moments.into_iter().all(is_zero) || !progress.carried.is_empty() {
            check.mismatch(&name, "has moments or waiting groups before the first step");
        }
        match before {
            Some(base) if base.values != checkpoint::values(&model) => {
                check.mismatch(&name, "its weights are not the base policy's");
            }
            Some(_) => {}
            None => check.inconclusive(&name, "its weights cannot be held against a base policy"),
        }
    } else {
        let how = TensorDigest::of(&records.experiment);
        let weights = checkpoint::weights_digest(&model, how);
        let moments = checkpoint::moments_digest(&optimizer, how);
        for (component, digest) in [("weights", weights), ("moments", moments)] {
            let unknown = imported && component == "moments";
            if !unknown && records.component(step, component) != Some(&digest) {
                let what = format!("the ledger's component {component} of step {step} is another");
                check.mismatch(&name, what);
            }
        }
        match waiting.get(&step) {
            Some(groups) if *groups == steps::groups(&progress.carried) => {}
            Some(_) => {
                let what = "its groups are not those that waited after the step";
                check.mismatch(format!("{name}/carried.parquet"), what);
            }
            None => check.inconclusive(&name, "what waited after the step is unknown"),
        }
        let weights = EarlierWeights::after(step, expected.updates, &model);
        if let Some(before) = &before {
            before.reach(check, &weights, &name, records);
        }
        *before = Some(weights);
    }
    findings == check.all_findings()
}

/// Requires the digests of `trainer.json`; base policy files have the manifest's.
pub fn opened(check: &mut Check, subject: VerifySubject, name: &str) -> Option<Loaded> {
    let VerifySubject { folder, records, entries, .. } = subject;
    // Loading joins these names to the folder, so they are checked first.
    if !named_files(check, folder, entries, name) {
        return None;
    }
    for companion in checkpoint::COMPANIONS {
        if !inputs::is_kept(records, &folder.path(name), companion) {
            check.mismatch(format!("{name}/{companion}"), "is not the base policy's file");
        }
    }
    let loaded = check.read(name, checkpoint::load(&folder.path(name)))?;
    for file in checkpoint::TENSORS {
        let place = format!("{name}/{file}");
        if entries.files.contains(&place) {
            let is_written = checkpoint::has_written_header(&folder.path(&place));
            if check.read(&place, is_written) == Some(false) {
                let what = "its header is not the one that a run writes for these tensors: it has other metadata, \
                            fields, types or blanks";
                check.mismatch(place, what);
            }
        }
    }
    Some(loaded)
}

/// `trainer.json` must name exactly the plain files of its folder.
fn named_files(check: &mut Check, folder: &RunFolder, entries: &FolderEntries, name: &str) -> bool {
    let place = format!("{name}/trainer.json");
    let read: Result<Value, files::FileError> = files::read_json(&folder.path(&place));
    let Some(value) = check.read(&place, read) else { return false };
    let Some(digests) = value.get("sha256").and_then(Value::as_object) else {
        check.mismatch(place, "has no digests");
        return false;
    };
    let before = check.all_findings();
    for file in digests.keys() {
        if file.contains('/') || folder.inside(&format!("{name}/{file}")).is_err() {
            check.mismatch(format!("{place}, digest of {file}"), "the path leaves the checkpoint");
        } else if !entries.files.contains(&format!("{name}/{file}")) {
            check.mismatch(format!("{name}/{file}"), "is missing");
        }
    }
    let inside = format!("{name}/");
    for file in entries.files.iter().filter_map(|path| path.strip_prefix(&inside)) {
        if file != "trainer.json" && !digests.contains_key(file) {
            let what = "trainer.json has no digest of it: it was added";
            check.mismatch(format!("{name}/{file}"), what);
        }
    }
    before == check.all_findings()
}

/// Updates of AdamW: those that were not left out.
fn expected_updates(records: &RunRecords, step: u64) -> u64 {
    let lines = records.metrics.iter().filter(|line| line.step <= step);
    let skipped = |line: &StepMetrics| line.metrics.get("optimizer/skipped_updates").copied();
    let left_out: f64 = lines.clone().filter_map(skipped).sum();
    lines.map(|line| line.counters.updates).max().unwrap_or(0).saturating_sub(left_out as u64)
}

/// Whether AdamW can have made later weights from these (step 0: the base policy's), without execution: an update moves
/// each weight by a few learning rates at most, and some at all.
#[derive(Debug)]
pub struct EarlierWeights {
    step: u64,
    updates: u64,
    values: checkpoint::CheckpointValues,
}

impl EarlierWeights {
    pub fn base(check: &mut Check, local: &Local) -> Option<Self> {
        let model = check.read("base policy", checkpoint::load_model(local.base.as_ref()?))?;
        Some(Self::after(0, 0, &model))
    }

    pub fn after(step: u64, updates: u64, model: &Qwen2) -> Self {
        Self { step, updates, values: checkpoint::values(model) }
    }

    fn name(&self) -> String {
        match self.step {
            0 => "the base policy".to_string(),
            step => format!("step {step}"),
        }
    }

    /// Bounds are known only for this harness's f32 arithmetic.
    pub fn reach(&self, check: &mut Check, later: &Self, place: &str, records: &RunRecords) {
        let experiment = &records.experiment;
        for (name, (_, values)) in &later.values {
            let before = self.values.get(name).map(|(_, before)| before);
            let Some(before) = before.filter(|before| before.len() == values.len()) else {
                let what = format!("{name} does not have the shape of {}", self.name());
                return check.mismatch(place, what);
            };
            let is_zero = |values: &[f32]| values.iter().all(|value| *value == 0.0);
            if is_zero(values) && !is_zero(before) {
                return check.mismatch(place, format!("{name} is zero everywhere"));
            }
        }
        if !experiment.engine.is_native() || experiment.execution.weights.is_some() {
            return;
        }
        let is_between = |line: &&StepMetrics| self.step < line.step && line.step <= later.step;
        let between = || records.metrics.iter().filter(is_between);
        let rate = |steps_before| optimizer::learning_rate(&experiment.optimizer, steps_before);
        let clocks = between().map(|line| (line.step - 1, line.counters.updates));
        let mut updates_before = self.updates;
        let mut rates = Vec::new();
        // A step that was not finite has updates, but no line.
        for (steps_before, updates) in clocks.chain([(later.step, later.updates)]) {
            let more = updates.saturating_sub(updates_before) as usize;
            // Other checks find an impossible count.
            let more = more.min(MOST_UPDATES - rates.len());
            rates.extend(std::iter::repeat_n(rate(steps_before), more));
            updates_before = updates;
        }
        let reach = optimizer::UpdateReach::of(&experiment.optimizer, self.updates, &rates);
        let moved = self.values.iter().flat_map(|(name, (_, before))| {
            let after = &later.values[name].1;
            before.iter().zip(after).map(move |(before, after)| (name, *before, *after))
        });
        let mut is_same = true;
        for (name, before, after) in moved {
            is_same &= before.to_bits() == after.to_bits();
            let most = reach.from(f64::from(before));
            if (f64::from(after) - f64::from(before)).abs() > most {
                let what = format!(
                    "a weight of {name} is {after}, at {} it was {before}: {} updates of AdamW \
                     move it by {most:.2e} at most",
                    self.name(),
                    rates.len()
                );
                return check.mismatch(place, what);
            }
        }
        let norm = |line: &StepMetrics| line.metrics.get("optimizer/gradient_norm_mean").copied();
        let has_gradient = between().any(|line| {
            rate(line.step - 1) >= LEAST_RATE && norm(line).is_some_and(|norm| norm >= LEAST_NORM)
        });
        if is_same && has_gradient {
            let what = format!(
                "its weights are those of {}, though updates with gradients lie between",
                self.name()
            );
            check.mismatch(place, what);
        }
    }
}

const MOST_UPDATES: usize = 10_000_000;

/// Rounding could hide smaller updates.
const LEAST_RATE: f64 = 1e-7;
const LEAST_NORM: f64 = 1e-3;
