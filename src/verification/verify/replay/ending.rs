//! The rollout step in which a run ended early, executed again.

use crate::base::files;
use crate::policy::checkpoint;
use crate::records::{DivergenceRecord, Ending, tables};
use crate::training::run::rows::rollout_rows;
use crate::training::{Divergence, StepOutcome, Trainer, run};
use crate::verification::verify::ending::{CHECKPOINT, RECORD, ROLLOUTS};
use crate::verification::verify::{Check, replay::Replayed};

impl Replayed<'_> {
    /// Executes the step after the last recorded one, which must end the run as the outcome says.
    pub(super) fn ending(&self, trainer: &mut Trainer, check: &mut Check) {
        let Some(outcome) = &self.records.outcome else { return };
        let step = self.records.steps() + 1;
        let made = trainer.step(&mut |_| ());
        let (ending, found) = match &made {
            Ok(StepOutcome::Trained(_)) => (None, "it trains".to_string()),
            // A run of an earlier build is called saturated where this one says stalled.
            Ok(StepOutcome::Saturated { correct }) => {
                let (ending, reason) = match outcome.ending {
                    Ending::Saturated => (Ending::Saturated, run::saturated(step)),
                    _ => run::without_gradient(step, *correct),
                };
                (Some(ending), reason)
            }
            Ok(StepOutcome::Diverged(divergence)) => {
                (Some(Ending::Diverged), run::diverged(step, &divergence.source))
            }
            Err(error) => (None, format!("it cannot be made here: {error}")),
        };
        if ending != Some(outcome.ending) || found != outcome.reason {
            let what = format!(
                "says that the run ended in step {step} ({}); executed again: {found}",
                outcome.reason
            );
            return self.differs(check, "outcome.json, ending".to_string(), what);
        }
        if trainer.counters() != outcome.counters {
            let what = format!("are {:?}, {:?} here", outcome.counters, trainer.counters());
            self.differs(check, "outcome.json, counters".to_string(), what);
        }
        if let Ok(StepOutcome::Diverged(divergence)) = made {
            self.divergence(trainer, *divergence, check);
        }
    }

    /// `diverged/` must hold what the step gives.
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
