//! Grades a run's stored responses again and compares the outcomes.

use crate::records::{RunFolder, tables};
use crate::study::{Cell, StudyError};
use crate::task::reward;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegradedResponses {
    pub responses: u64,
    pub evaluations: u64,
    /// `set, rollout step, problem, sample: what differs`.
    pub differences: Vec<String>,
}

/// `None` where a program graded every set: it is not started.
pub fn again(folder: &RunFolder, cell: &Cell) -> Result<Option<RegradedResponses>, StudyError> {
    let mut graded = RegradedResponses::default();
    for evaluation in &cell.evaluations {
        let (set, step) = (&evaluation.set, evaluation.counters.rollout_steps);
        let Some(rule) = cell.experiment.grading_of(set).rule() else { continue };
        let rows = tables::read_outcomes(&folder.recorded_outcomes(set, step)?)?;
        graded.evaluations += 1;
        graded.responses += rows.len() as u64;
        for row in &rows {
            let grade = reward::grade(&row.response, &row.answer, rule);
            if grade.is_correct != row.is_correct || grade.prediction != row.prediction {
                graded.differences.push(format!(
                    "{set}, rollout step {step}, problem {}, sample {}: stored {} with prediction {:?}, graded {} \
                     with {:?}",
                    row.problem,
                    row.sample,
                    correctness(row.is_correct),
                    row.prediction,
                    correctness(grade.is_correct),
                    grade.prediction
                ));
            }
        }
    }
    Ok((graded.evaluations > 0).then_some(graded))
}

fn correctness(is_correct: bool) -> &'static str {
    if is_correct { "correct" } else { "wrong" }
}
