//! Why a run cannot begin or go on.

use crate::base::files;
use crate::experiment::place;
use crate::numerics::exact;
use crate::policy::{PlaceError, checkpoint};
use crate::records::tables;
use crate::task::TaskError;
use crate::training::{evaluation, step, update};
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    File(#[from] files::FileError),
    #[error(transparent)]
    Table(#[from] tables::TableError),
    #[error(transparent)]
    Task(#[from] TaskError),
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::CheckpointError),
    #[error(
        "problem {problem}: its prompt has {tokens} tokens; with rollout.max_response_tokens ({response}) that exceeds the model's {positions} positions"
    )]
    Positions {
        problem: String,
        tokens: usize,
        /// L_max.
        response: u64,
        /// `max_position_embeddings`.
        positions: i64,
    },
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(
        "numerics = \"exact\" is f32 on the processor, and {device} in {weights} was asked for"
    )]
    ExactElsewhere { device: place::Device, weights: place::WeightKind },
    #[error(transparent)]
    Exact(#[from] exact::ExactError),
    #[error(transparent)]
    Evaluation(#[from] evaluation::EvaluationError),
    #[error(transparent)]
    Step(#[from] step::StepError),
    #[error("a trial update of the base policy: {0}")]
    TrialUpdate(#[source] update::UpdateError),
    #[error("evaluation.samples has no entry for the set {set}; it has {}", known.join(", "))]
    Samples { set: String, known: Vec<String> },
    #[error(
        "{} is not empty and holds no run ({found} is in it); choose another --out", folder.display()
    )]
    NotARun { folder: PathBuf, found: String },
    #[error(
        "{} holds another run (key {found}, this one is {wanted}); choose another --out or remove it", folder.display()
    )]
    OtherRun { folder: PathBuf, found: String, wanted: String },
    #[error(
        "{} holds an unfinished run ({recorded} of {planned} rollout steps are recorded); \
         --resume goes on with it, --restart deletes it and begins again", folder.display()
    )]
    Unfinished { folder: PathBuf, recorded: u64, planned: u64 },
    #[error("{} is in use by another process", folder.display())]
    InUse { folder: PathBuf },
    #[error(
        "{}/run.lock was removed or replaced, so that another process may have begun; nothing \
         further was written, and --resume goes on when no process works here", folder.display()
    )]
    LockLost { folder: PathBuf },
}
