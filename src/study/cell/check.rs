//! Checks that a record's fields agree with each other and with its experiment. A forger can recompute
//! every digest, but must keep what a run binds together. Failed runs: only identity and shape.

use crate::algorithm::{AtCap, DynamicSampling};
use crate::base::files;
use crate::experiment::{Experiment, sets, validate};
use crate::policy::checkpoint::weights;
use crate::records::{Counters, audit::RECORDS, run_folder::THIRTY_YEARS_SECONDS};
use crate::study::cell::numbers::{self, ensure};
use crate::study::{Cell, CellEnding, CellEvaluation, cell::FORMAT};
use crate::training::run::{evaluations, inputs};

const MOST_TEXT_BYTES: usize = 1024;

pub fn check(cell: &Cell) -> Result<(), String> {
    let format = cell.format;
    let reason = format_args!("format {format} is not {FORMAT}, the one this build reads");
    ensure(format == FORMAT, reason)?;
    let reason = "its digest does not fit its content: it was edited or damaged";
    ensure(cell.record_sha256 == cell.digest(), reason)?;
    identity(cell)?;
    read_files(cell)?;
    let seconds = cell.wall_seconds;
    let possible = 0.0..THIRTY_YEARS_SECONDS;
    ensure(possible.contains(&seconds), format_args!("`wall_seconds` cannot be {seconds:?}"))?;
    let steps = &cell.step_seconds;
    let are_seconds = steps.iter().all(|seconds| possible.contains(seconds));
    let is_whole = steps.is_empty() || steps.len() == cell.counters.len();
    ensure(are_seconds && is_whole, "`step_seconds` are not those of its rollout steps")?;
    let free =
        [&cell.name, &cell.reason, &cell.harness].into_iter().chain(cell.environment.values());
    let fits = free.map(String::len).all(|length| length <= MOST_TEXT_BYTES);
    ensure(fits, format_args!("a text in it is longer than {MOST_TEXT_BYTES} bytes"))?;
    shape(cell)?;
    if cell.ending == CellEnding::Failed {
        return ensure(cell.ledger_head.is_none(), "the run failed and has a ledger head");
    }
    digests(cell)?;
    ending(cell)?;
    numbers::steps(cell)?;
    schedule(cell)?;
    for evaluation in &cell.evaluations {
        let place = place(&evaluation.set, evaluation.counters.rollout_steps);
        clocks(cell, evaluation)
            .and_then(|()| numbers::scores(cell, evaluation))
            .map_err(|reason| format!("{place} {reason}"))?;
    }
    Ok(())
}

fn place(set: &str, step: u64) -> String {
    format!("the evaluation of `{set}` at rollout step {step}")
}

pub(super) fn identity(cell: &Cell) -> Result<(), String> {
    let Cell { experiment, inputs: digests, .. } = cell;
    if let Some(problem) = validate::problems(experiment).into_iter().next() {
        return Err(format!("its `experiment` is not valid: {problem}"));
    }
    let (arm, seed) = (experiment.arm_sha256(), experiment.execution.seed);
    ensure(cell.arm_sha256 == arm, "`arm_sha256` is not the hash of `experiment`")?;
    ensure(cell.seed == seed, "`seed` is not the seed of `experiment`")?;
    let levels = inputs::levels(experiment);
    let named = levels.join(" or ");
    let reason = format_args!("`exactness` is not {named}, which its `experiment` gives");
    ensure(levels.contains(&cell.exactness.as_str()), reason)?;
    let key = inputs::run_key(experiment, digests);
    ensure(cell.run_key == key, "`run_key` is not that of `experiment` and `inputs`")
}

fn read_files(cell: &Cell) -> Result<(), String> {
    let has = |name: &String| cell.inputs.contains_key(name);
    let base = |name: &str| format!("base/{name}");
    let data = |set: &str| format!("data/{set}");
    let wanted = [data(sets::TRAIN), base("config.json"), base("tokenizer.json")];
    let wanted = wanted.into_iter().chain(cell.problems.keys().map(|set| data(set)));
    if let Some(name) = wanted.into_iter().find(|name| !has(name)) {
        return Err(format!("`inputs` has no digest of {name}"));
    }
    let weighs = has(&base(weights::SINGLE)) || has(&base(weights::INDEX));
    ensure(weighs, "`inputs` has no digest of the base policy's weights")?;
    match inputs::impossible(&cell.inputs, &cell.experiment) {
        Some(name) => Err(format!("no run has the input {name:?} with this digest")),
        None => Ok(()),
    }
}

fn shape(cell: &Cell) -> Result<(), String> {
    let steps = cell.counters.len();
    for (name, values) in &cell.metrics {
        let count = values.len();
        let reason = format_args!("metric `{name}` has {count} values for {steps} steps");
        ensure(count == steps, reason)?;
    }
    for evaluation in &cell.evaluations {
        let set = &evaluation.set;
        let Some(problems) = cell.problems.get(set) else {
            return Err(format!("set `{set}` has no problems"));
        };
        let (count, k, bits) = (problems.count, evaluation.samples, evaluation.outcomes.len());
        if problems.tags.values().flatten().any(|place| *place as u64 >= count) {
            return Err(format!("set `{set}` has a tag of a problem that it does not have"));
        }
        let reason = format_args!("set `{set}` was evaluated without problems or samples");
        ensure(k > 0 && count > 0, reason)?;
        let reason = format_args!(
            "set `{set}` has {bits} outcomes for {count} problems with {k} samples each"
        );
        ensure(count.checked_mul(k) == Some(bits as u64), reason)?;
    }
    Ok(())
}

fn digests(cell: &Cell) -> Result<(), String> {
    let head = cell.ledger_head.as_deref().is_some_and(files::is_sha256);
    ensure(head, "`ledger_head` is no SHA-256, and the run did not fail")?;
    // A run may diverge before its first checkpoint.
    let weights = (cell.ending != CellEnding::Diverged).then_some(weights::SINGLE);
    let wanted = RECORDS.into_iter().chain(weights);
    if let Some(name) = wanted.into_iter().find(|name| !cell.digests.contains_key(*name)) {
        return Err(format!("`digests` has none of {name}"));
    }
    let tables = cell.evaluations.iter().map(|it| (&it.set, &it.outcomes_sha256));
    let sets = cell.problems.iter().map(|(set, ids)| (set, &ids.sha256));
    match cell
        .digests
        .iter()
        .chain(tables)
        .chain(sets)
        .find(|(_, digest)| !files::is_sha256(digest))
    {
        Some((name, _)) => Err(format!("the digest of {name} is no SHA-256")),
        None => Ok(()),
    }
}

fn ending(cell: &Cell) -> Result<(), String> {
    let (done, planned) = (cell.counters.len() as u64, cell.experiment.training.rollout_steps);
    let fits = match cell.ending {
        CellEnding::Finished => done == planned,
        CellEnding::Saturated | CellEnding::Stalled => {
            done < planned && saturates(&cell.experiment)
        }
        CellEnding::Diverged | CellEnding::Failed => done < planned,
    };
    let how = cell.ending;
    let reason = format_args!(
        "a run of {planned} rollout steps cannot have ended so ({how:?}) with {done} of them"
    );
    ensure(fits, reason)
}

fn saturates(experiment: &Experiment) -> bool {
    let sampling = experiment.dapo.dynamic_sampling;
    matches!(sampling, DynamicSampling::Resample { max_rounds: 1.., at_cap: AtCap::Train, .. })
}

fn schedule(cell: &Cell) -> Result<(), String> {
    let steps = cell.counters.len() as u64;
    let complete = cell.ending != CellEnding::Diverged;
    let due = evaluations::due(&cell.experiment, &cell.inputs, steps, complete);
    let recorded = cell.evaluations.iter().map(|it| (it.set.clone(), it.counters.rollout_steps));
    match evaluations::schedule_faults(due, recorded).first() {
        Some(((set, step), fault)) => Err(format!("{} {fault}", place(set, *step))),
        None => Ok(()),
    }
}

/// An evaluation has its rollout step's clocks and number of generated rollouts.
fn clocks(cell: &Cell, evaluation: &CellEvaluation) -> Result<(), String> {
    let found = evaluation.counters;
    let step = found.rollout_steps;
    let at = |step: u64| cell.counters.get(step.checked_sub(1)? as usize).copied();
    let expected = at(step).unwrap_or_default();
    let clocks = |it: Counters| (it.updates, it.generation_rounds);
    let on_time = clocks(found) == clocks(expected);
    ensure(on_time, "has other updates or rounds than that step")?;
    let CellEvaluation { set, generated_rollouts: stated, samples, .. } = evaluation;
    let by_step = cell.metric(numbers::GENERATED);
    let rollouts = numbers::generated(&cell.experiment, found, by_step);
    let reason = format_args!(
        "says that {stated} rollouts were generated by then; the clocks say {rollouts}"
    );
    ensure(*stated == rollouts, reason)?;
    let known = cell.experiment.evaluation.samples.get(set);
    let reason = format_args!("has {samples} samples, which is not the experiment's");
    ensure(known == Some(samples), reason)
}
