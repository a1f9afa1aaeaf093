//! Bytes of a run's tables, written into a scratch folder where the run will write.

use crate::algorithm::{Group, ScoredRollout};
use crate::base::files;
use crate::records::tables::{self, OutcomeRecord};
use crate::training::run::rows::rollout_rows;
use crate::training::{TrainingError, step::Step};
use std::path::Path;

/// Bytes of the groups as a table of rollouts and as a table of outcomes.
///
/// # Errors
/// A folder that cannot be written.
pub fn measure(groups: &[Group<ScoredRollout>], folder: &Path) -> Result<[f64; 2], TrainingError> {
    let scratch = files::scratch_folder(folder)?;
    let [rollouts, evaluated] = ["rollouts", "outcomes"].map(|name| scratch.path().join(name));
    tables::write_rollouts(&rollouts, &rollout_rows(&step(groups.to_vec())))?;
    tables::write_outcomes(&evaluated, &outcomes(groups.to_vec()))?;
    Ok([files::size_bytes(&rollouts)? as f64, files::size_bytes(&evaluated)? as f64])
}

fn step(groups: Vec<Group<ScoredRollout>>) -> Step {
    let trained = groups
        .iter()
        .enumerate()
        .map(|(index, group)| (index, vec![1.0 / 3.0; group.rollouts.len()]))
        .collect();
    Step { groups, trained, ..Step::default() }
}

fn outcomes(groups: Vec<Group<ScoredRollout>>) -> Vec<OutcomeRecord> {
    let mut outcomes = Vec::new();
    for group in groups {
        for (sample, scored) in group.rollouts.into_iter().enumerate() {
            outcomes.push(OutcomeRecord {
                problem: group.prompt.problem.id.clone(),
                sample: sample as u32,
                is_correct: scored.is_correct,
                response_tokens: scored.rollout.tokens.len() as u32,
                truncated: scored.rollout.truncated(),
                prediction: scored.prediction,
                answer: group.prompt.problem.answer.clone(),
                response: scored.rollout.text,
            });
        }
    }
    outcomes
}
