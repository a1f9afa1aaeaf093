//! Executes the rollout step in which a run ended early.

use crate::base::files;
use crate::policy::checkpoint;
use crate::records::{DivergenceRecord, Ending, Outcome, tables};
use crate::training::run::rows::rollout_rows;
use crate::training::{Divergence, StepOutcome, Trainer};
use crate::verification::verify::ending::{CHECKPOINT, RECORD, ROLLOUTS};
use crate::verification::verify::{Check, replay::Replayed};

impl Replayed<'_> {
    /// The step after the last recorded one must end the run as recorded.
    pub(super) fn ending(&self, trainer: &mut Trainer, check: &mut Check) {
        let Some(outcome) = &self.records.outcome else { return };
        let step = self.records.steps() + 1;
        let executed = trainer.step(&mut |_| ());
        let again = match &executed {
            Ok(StepOutcome::Trained(_)) => Err("the step trains".to_string()),
            Ok(StepOutcome::Saturated { correct }) => Ok((self.without_gradient(*correct), None)),
            Ok(StepOutcome::Diverged(divergence)) => {
                Ok((Ending::Diverged, Some(divergence.not_finite.clone())))
            }
            Err(error) => Err(format!("the step cannot be executed here: {error}")),
        };
        let format = self.records.experiment.record_format();
        let again = again
            .map(|(ending, not_finite)| Outcome::new(format, ending, not_finite, outcome.counters));
        let fields = |outcome: &Outcome| {
            let Outcome { ending, not_finite, reason, .. } = outcome;
            files::canonical_json_line(&(ending, not_finite, reason))
        };
        if again.as_ref().map(&fields) != Ok(fields(outcome)) {
            let again = again.map_or_else(|why| why, |again| fields(&again));
            let what = format!(
                "says that the run ended in step {step} with {}; executed again: {again}",
                fields(outcome)
            );
            return self.differs(check, "outcome.json, ending".to_string(), what);
        }
        if trainer.counters() != outcome.counters {
            let what = format!("are {:?}, {:?} here", outcome.counters, trainer.counters());
            self.differs(check, "outcome.json, counters".to_string(), what);
        }
        if let Ok(StepOutcome::Diverged(divergence)) = executed {
            self.divergence(trainer, *divergence, check);
        }
    }

    /// Earlier builds say saturated for stalled.
    fn without_gradient(&self, correct: usize) -> Ending {
        match self.records.outcome.as_ref().map(|outcome| outcome.ending) {
            Some(Ending::Saturated) => Ending::Saturated,
            _ => Ending::without_gradient(correct),
        }
    }

    /// `diverged/` must have the step's results.
    fn divergence(&self, trainer: &Trainer, found: Divergence, check: &mut Check) {
        let mut differs = |name: &str| {
            self.differs(check, name.to_string(), "is not what the step gives here".to_string());
        };
        let stored = tables::read_rollouts(&self.folder.path(ROLLOUTS));
        if stored.ok() != Some(rollout_rows(&found.step)) {
            differs(ROLLOUTS);
        }
        let mut metrics = found.step.metrics;
        metrics.retain(|_, value| value.is_finite());
        let record = files::read_json::<DivergenceRecord>(&self.folder.path(RECORD));
        if record.ok().map(|record| record.metrics) != Some(metrics) {
            differs(RECORD);
        }
        let loaded = checkpoint::load(&self.folder.path(CHECKPOINT)).ok();
        let weights = loaded.map(|loaded| checkpoint::weights_sha256(&loaded.model));
        if weights.as_ref() != trainer.policy().components().get("weights") {
            differs(CHECKPOINT);
        }
    }
}
