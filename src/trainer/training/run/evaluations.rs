//! The evaluations of a run, each made once.

use crate::base::files;
use crate::experiment::{Experiment, sets};
use crate::records::tables;
use crate::training::run::{RunEvent, RunInProgress};
use crate::training::{Protocol, TrainingError, evaluation, evaluation::Set};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

impl RunInProgress<'_> {
    /// Returns false when the session was asked to stop before a set.
    pub(super) fn evaluate(
        &mut self,
        is_end: bool,
        watch: &mut dyn FnMut(RunEvent),
    ) -> Result<bool, TrainingError> {
        let (inputs, counters) = (self.inputs, self.stepper.counters());
        let step = counters.rollout_steps;
        for (name, problems) in inputs.data.evaluated() {
            let key = (name.to_string(), step);
            let is_due = inputs.experiment.evaluation.is_due(name, step, is_end);
            if !is_due || self.evaluated.contains(&key) {
                continue;
            }
            if (self.stop)() {
                return Ok(false);
            }
            tracing::debug!(set = name, step, "evaluation");
            let started = Instant::now();
            let set = Set { name, problems, samples: inputs.samples(name)? };
            let (model, grader) = (self.stepper.model()?, inputs.grader_of(name));
            let protocol = Protocol::of_set(&inputs.experiment, name);
            let how = (&protocol, grader);
            let outcomes =
                evaluation::outcomes(&model, &inputs.tokenizer, how, set, |done, total| {
                    watch(RunEvent::Evaluating(name, done, total));
                })?;
            let folder = self.held()?;
            let path = folder.outcomes(name, step);
            tables::write_outcomes(&path, &outcomes)?;
            let record = evaluation::record(name, counters, &outcomes, files::sha256_file(&path)?)?;
            files::append_line(&folder.path("evaluations.jsonl"), &record)?;
            watch(RunEvent::Evaluated(&record));
            if let Some(told) = evaluation::unanswered(&protocol, set, &outcomes) {
                watch(RunEvent::Warning(&told));
            }
            self.evaluated.push(key);
            self.record_seconds("evaluation", started)?;
        }
        Ok(true)
    }
}

/// Set and step, for `steps` rollout steps. `inputs` are the manifest's; `complete`: every set was due at the end.
pub fn due(
    experiment: &Experiment,
    inputs: &BTreeMap<String, String>,
    steps: u64,
    complete: bool,
) -> BTreeSet<(String, u64)> {
    let names = inputs.keys().filter_map(|name| name.strip_prefix("data/"));
    let of_set = |set: &str| {
        let due = |step: &u64| experiment.evaluation.is_due(set, *step, complete && *step == steps);
        let keys = (0..=steps).filter(due).map(|step| (set.to_string(), step));
        keys.collect::<Vec<_>>()
    };
    names.filter(|set| *set != sets::TRAIN).flat_map(of_set).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleFault {
    #[error("is not one of this run's")]
    NotDue,
    #[error("occurs twice")]
    Twice,
    #[error("comes after a later one")]
    Late,
    #[error("is missing")]
    Missing,
}

/// Records that are not on schedule, in their order, then those that are missing. `due`: [`due`].
pub fn schedule_faults(
    mut due: BTreeSet<(String, u64)>,
    recorded: impl Iterator<Item = (String, u64)>,
) -> Vec<((String, u64), ScheduleFault)> {
    let (mut faults, mut seen, mut last) = (Vec::new(), BTreeSet::new(), 0);
    for key in recorded {
        let step = key.1;
        let fault = match () {
            () if !seen.insert(key.clone()) => Some(ScheduleFault::Twice),
            () if !due.remove(&key) => Some(ScheduleFault::NotDue),
            () => (step < last).then_some(ScheduleFault::Late),
        };
        faults.extend(fault.map(|fault| (key, fault)));
        last = step;
    }
    faults.extend(due.into_iter().map(|key| (key, ScheduleFault::Missing)));
    faults
}
