//! What one cell computes: updates of pretraining from random weights, a short run of the
//! experiment on its base policy, its evaluations; and the digests of all that.

use crate::exactness::Size;
use dapo::base::{files, workers};
use dapo::experiment::Experiment;
use dapo::numerics::native::orders;
use dapo::numerics::vectorised;
use dapo::policy::checkpoint;
use dapo::records::ledger::{self, Kind};
use dapo::records::{Components, RunFolder, Tensors, tables};
use dapo::training::run::inputs::{self, Inputs};
use dapo::training::run::{self, RunEvent};
use dapo::training::{Recipe, RunEnded, TrainingError, Unfinished, pretraining};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A cell that cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Pretraining, or the run.
    #[error(transparent)]
    Training(#[from] TrainingError),
    /// A file.
    #[error(transparent)]
    File(#[from] files::FileError),
    /// A table of problems.
    #[error(transparent)]
    Table(#[from] tables::TableError),
}

/// What a cell computed. All of it is SHA-256, hexadecimal, but the counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Digests {
    /// Weights after the updates of pretraining; absent where they were not asked for.
    pub pretrained_weights: Option<String>,
    /// The ledger's components of each rollout step.
    pub rollout_steps: Vec<Components>,
    /// The components of the ledger's last line: evaluations and ending.
    pub end: Components,
    /// The ledger's last head, which binds everything.
    pub head: String,
    /// Generation rounds of the run, refill rounds included.
    pub generation_rounds: u64,
    /// Rollout step that the run was resumed after, where it was.
    pub resumed_after: Option<u64>,
    /// Sums that were compared in three orders, where that was asked for.
    pub sums_compared: u64,
    /// Instruction set of the loops that are chosen at run time.
    pub instructions: String,
}

/// What a cell is asked to do.
#[derive(Debug, Clone)]
pub struct Work {
    /// The run, with its arithmetic and its execution.
    pub experiment: Experiment,
    /// Pretraining; `None` to leave it out.
    pub recipe: Option<Recipe>,
    /// How much of both.
    pub size: Size,
    /// Computes every sum again reversed and shuffled, and panics where one differs.
    pub check_orders: bool,
}

/// Does the work in this process, in the folder, and resumes what an earlier process left there.
/// `saved` hears of each checkpoint.
///
/// # Errors
/// See [`Error`].
///
/// # Panics
/// When a sum that is to be compared differs.
pub fn run(work: Work, folder: &RunFolder, saved: &mut dyn FnMut(u64)) -> Result<Digests, Error> {
    let Work { mut experiment, recipe, size, check_orders } = work;
    workers::set_count(experiment.execution.threads);
    size.cut_experiment(&mut experiment);
    let problems = folder.root().with_extension("problems");
    size.cut_problems(&mut experiment, &problems)?;
    let inputs = inputs::prepare(experiment)?;
    let before = orders::check(check_orders);
    let pretrained_weights = match recipe {
        Some(recipe) => Some(pretrained(size.cut_recipe(recipe), &inputs)?),
        None => None,
    };
    let mut resumed_after = None;
    let ended =
        run::run(&inputs, folder, Unfinished::Resume, &|| false, &mut |event| match event {
            RunEvent::Saved(step) => saved(step),
            RunEvent::Resumed(step) => resumed_after = Some(step),
            _ => {}
        })?;
    let sums_compared = orders::check(false) - before;
    let generation_rounds = match ended {
        RunEnded::Finished(outcome) => outcome.counters.generation_rounds,
        RunEnded::Stopped(_) => unreachable!("nobody asks the run to stop"),
    };
    let entries = folder.ledger()?;
    let head = entries.last().map(|entry| entry.head.clone()).unwrap_or_default();
    let (mut rollout_steps, mut end) = (Vec::new(), Components::new());
    for entry in entries {
        match entry.kind {
            Kind::Genesis => {}
            Kind::RolloutStep => rollout_steps.push(entry.components),
            Kind::End => end = entry.components,
        }
    }
    let instructions = vectorised::chosen().name().to_string();
    Ok(Digests {
        pretrained_weights,
        rollout_steps,
        end,
        head,
        generation_rounds,
        resumed_after,
        sums_compared,
        instructions,
    })
}

/// The digest of the weights that the recipe makes.
fn pretrained(recipe: Recipe, inputs: &Inputs) -> Result<String, Error> {
    let solutions = recipe.solutions(Path::new("")).map_err(TrainingError::from)?;
    let model = pretraining::pretrain(&recipe, &*solutions, &inputs.tokenizer, |_| {})?;
    let weights: Tensors =
        checkpoint::values(&model).into_iter().map(|(name, (_, values))| (name, values)).collect();
    Ok(ledger::tensors(&weights))
}
