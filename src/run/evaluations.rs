//! The evaluations of a run, each made once.

use crate::data::mini_aime;
use crate::eval;
use crate::eval::Set;
use crate::files;
use crate::model::qwen2::Qwen2;
use crate::run::Error;
use crate::run::Event;
use crate::run::Run;
use crate::run::inputs::Inputs;
use crate::run_folder::Counters;
use crate::run_folder::EvaluationRecord;
use crate::run_folder::RunFolder;
use crate::tables;
use std::time::Instant;

impl Run<'_> {
    /// The development set, once for each step.
    pub(super) fn evaluate_dev(&mut self, watch: &mut dyn FnMut(Event)) -> Result<(), Error> {
        let samples = self.inputs.samples(mini_aime::DEV)?;
        let set = Set { name: mini_aime::DEV, problems: &self.inputs.data.dev, samples };
        let counters = self.trainer.counters();
        self.evaluate(None, set, counters, watch)
    }

    /// The final sets, for the base policy and for the trained one; false when the session was
    /// asked to stop.
    pub(super) fn evaluate_tests(&mut self, watch: &mut dyn FnMut(Event)) -> Result<bool, Error> {
        let base = self.inputs.base_policy()?;
        let counters = self.trainer.counters();
        let inputs = self.inputs;
        for (name, problems) in &inputs.data.tests {
            let set = Set { name, problems, samples: inputs.samples(name)? };
            let mut policies = vec![(Some(&base), Counters::default())];
            if counters.rollout_steps > 0 {
                policies.push((None, counters));
            }
            for (model, when) in policies {
                if (self.stop)() {
                    return Ok(false);
                }
                self.evaluate(model, set, when, watch)?;
            }
        }
        Ok(true)
    }

    /// Evaluates a policy, the trained one unless another is given, unless that is recorded.
    fn evaluate(
        &mut self,
        model: Option<&Qwen2>,
        set: Set,
        counters: Counters,
        watch: &mut dyn FnMut(Event),
    ) -> Result<(), Error> {
        let key = (set.name.to_string(), counters.rollout_steps);
        if self.evaluated.contains(&key) {
            return Ok(());
        }
        tracing::debug!(set = set.name, step = key.1, "evaluation");
        let started = Instant::now();
        let model = model.unwrap_or(self.trainer.policy().model());
        evaluate_into(self.inputs, self.folder, model, set, (key.1, counters), watch)?;
        self.evaluated.push(key);
        self.record_seconds("evaluation", started)
    }
}

/// Evaluates a policy on a set, keeps every outcome, and appends the record.
///
/// # Errors
/// A problem that cannot be served, or a file that cannot be written.
pub fn evaluate_into(
    inputs: &Inputs,
    folder: &RunFolder,
    model: &Qwen2,
    set: Set,
    (step, counters): (u64, Counters),
    watch: &mut dyn FnMut(Event),
) -> Result<EvaluationRecord, Error> {
    let outcomes =
        eval::outcomes(model, &inputs.tokenizer, &inputs.experiment, set, |done, total| {
            watch(Event::Evaluating(set.name, done, total));
        })?;
    let path = folder.outcomes(set.name, step);
    tables::write_outcomes(&path, &outcomes)?;
    let record = eval::record(set, counters, &outcomes, files::sha256_file(&path)?)?;
    files::append_line(&folder.path("evaluations.jsonl"), &record)?;
    watch(Event::Evaluated(&record));
    Ok(record)
}
