//! A run's stored responses graded again: outcomes are what the verifier says of the text that is
//! stored beside them.

use crate::records::RunFolder;
use crate::records::tables::{self, Outcome};
use crate::study::Cell;
use crate::study::cell::Error;
use crate::task::reward;

/// What grading the responses of a run again found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Graded {
    /// Responses that were graded.
    pub responses: u64,
    /// Evaluations that they are of.
    pub evaluations: u64,
    /// Responses whose stored outcome or prediction is another, `set, rollout step, problem,
    /// sample: what differs`.
    pub differences: Vec<String>,
}

/// Grades the stored responses of every evaluation of a record, with the verifier of its arm.
///
/// # Errors
/// A table of outcomes that is missing or malformed.
pub fn again(folder: &RunFolder, cell: &Cell) -> Result<Graded, Error> {
    let mut graded = Graded::default();
    for evaluation in &cell.evaluations {
        let (set, step) = (&evaluation.set, evaluation.counters.rollout_steps);
        let rows = tables::read_outcomes(&folder.recorded_outcomes(set, step)?)?;
        graded.evaluations += 1;
        graded.responses += rows.len() as u64;
        let place = |row: &Outcome| {
            format!("{set}, rollout step {step}, problem {}, sample {}", row.problem, row.sample)
        };
        for row in &rows {
            let grade = reward::grade(&row.response, &row.answer, cell.experiment.reward.verifier);
            if grade.is_correct != row.is_correct || grade.prediction != row.prediction {
                graded.differences.push(format!(
                    "{}: stored {} with prediction {:?}, graded {} with {:?}",
                    place(row),
                    correctness(row.is_correct),
                    row.prediction,
                    correctness(grade.is_correct),
                    grade.prediction
                ));
            }
        }
    }
    Ok(graded)
}

fn correctness(is_correct: bool) -> &'static str {
    if is_correct { "correct" } else { "wrong" }
}
