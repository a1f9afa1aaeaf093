use crate::algorithm::dynamic_sampling;
use crate::base::files;
use crate::experiment::place;
use crate::numerics::NumericsError;
use crate::policy::{OptimizerError, PolicyError};
use crate::records::{NotFinite, tables};
use crate::statistics::StatisticsError;
use crate::task::{TaskError, UngradedBatch};
use std::collections::BTreeMap;
use std::path::PathBuf;
use toml::Value;

#[derive(Debug, thiserror::Error)]
pub enum TrainingError {
    #[error(transparent)]
    File(#[from] files::FileError),
    #[error(transparent)]
    Table(#[from] tables::TableError),
    #[error(transparent)]
    Task(#[from] TaskError),
    #[error("{}: {source}", path.display())]
    Problem { path: PathBuf, source: TaskError },
    #[error("there is no {}; `{command}` makes it", path.display())]
    NoBase { path: PathBuf, command: String },
    #[error("{key}: there is no {}; paths in a file start at that file, those of --set at the working folder", path.display())]
    Missing { key: String, path: PathBuf },
    #[error(transparent)]
    Ungraded(#[from] Box<UngradedBatch>),
    #[error(
        "the plan's probe: {0}; `train --no-plan` begins without the probe, and keeps responses that are not graded in a \
         file that dapo data grade reads"
    )]
    UngradedProbe(Box<UngradedBatch>),
    #[error(
        "{batch}; {} keeps the whole batch, which dapo data grade reads, and --resume continues before it",
        kept.display()
    )]
    UngradedKept { batch: Box<UngradedBatch>, kept: PathBuf },
    #[error(transparent)]
    Policy(#[from] PolicyError),
    #[error(transparent)]
    Numerics(#[from] NumericsError),
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
    #[error(
        "numerics = \"exact\" is f32 on the processor, and {device} in {weights} was asked for"
    )]
    ExactElsewhere { device: place::Device, weights: place::WeightKind },
    #[error(
        "evaluation.samples has no entry for the set {set}; it has {}; {}",
        names(known),
        stated_too(set, known)
    )]
    Samples { set: String, known: BTreeMap<String, u64> },
    #[error("evaluation set {set}: {source}")]
    Evaluation { set: String, source: PolicyError },
    #[error("evaluation set {set}: {source}")]
    Statistics { set: String, source: StatisticsError },
    /// Steps count from 1.
    #[error("rollout step {step}: {source}")]
    Generation { step: u64, source: PolicyError },
    #[error("rollout step {step}: {source}")]
    Update { step: u64, source: UpdateError },
    #[error("rollout step {step}: {source}")]
    CapReached { step: u64, source: dynamic_sampling::CapReached },
    #[error("an update that was to be timed: {0}")]
    TimedUpdate(#[from] UpdateError),
    #[error(
        "stage {stage}: a question and its solution are {tokens} tokens together, and the policy's \
         max_position_embeddings is {positions}; lower the stage's max_response_tokens, or take a policy of more positions"
    )]
    SolutionTooLong { stage: String, tokens: usize, positions: i64 },
    #[error("{source}; the finished folder is {}", finished.display())]
    NotMoved { finished: PathBuf, source: Box<Self> },
    #[error("{} {reason}", folder.display())]
    Folder { folder: PathBuf, reason: String },
    /// Updates count from 1.
    #[error(
        "stage {stage}, update {update}: {source}; lower the stage's learning_rate in the recipe, which is {rate:?}"
    )]
    StageDiverged { stage: String, update: u64, rate: f64, source: OptimizerError },
    #[error(
        "{} is not empty and holds no run ({found} is in it); choose another --out", folder.display()
    )]
    NotARun { folder: PathBuf, found: String },
    #[error(
        "{} holds another run, which differs in {differing}; choose another --out or remove it", folder.display()
    )]
    OtherRun { folder: PathBuf, differing: String },
    #[error(
        "{} holds an unfinished run ({recorded} of {planned} rollout steps are recorded); \
         --resume continues with it, --restart deletes it and begins again", folder.display()
    )]
    Unfinished { folder: PathBuf, recorded: u64, planned: u64 },
    #[error(
        "{} holds work of a run, but its {missing} is missing; bring the file back, or --restart deletes the run and \
         begins again", folder.display()
    )]
    Lost { folder: PathBuf, missing: &'static str },
    #[error("{} is in use by another process", folder.display())]
    InUse { folder: PathBuf },
    #[error(
        "{}/run.lock was removed or replaced, so that another process may have begun; nothing \
         further was written, and --resume continues when no process works here", folder.display()
    )]
    LockLost { folder: PathBuf },
    #[error(transparent)]
    OtherTrainer(Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "no group had a useful gradient, so nothing was trained; use dapo.dynamic_sampling.kind = \"none\" or another model"
    )]
    Saturated,
    #[error("stopped as asked")]
    Stopped,
}

fn names(samples: &BTreeMap<String, u64>) -> String {
    if samples.is_empty() {
        return "none".to_string();
    }
    Vec::from_iter(samples.keys().map(String::as_str)).join(", ")
}

fn stated_too(set: &str, samples: &BTreeMap<String, u64>) -> String {
    let stated = samples.iter().map(|(set, count)| (set.as_str(), *count)).chain([(set, 1)]);
    let samples = stated.map(|(set, count)| (set.to_string(), Value::Integer(count as i64)));
    format!("write [evaluation] samples = {}", Value::Table(samples.collect()))
}

/// The update was not made: the weights are those before it.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum UpdateError {
    #[error("the loss is {0}")]
    Loss(f64),
    /// Exact arithmetic, before rounding into the window.
    #[error("a number of the backward pass is not finite")]
    Backward,
    /// A gradient, or an updated weight or moment, is not finite.
    #[error(transparent)]
    Gradient(#[from] OptimizerError),
    /// Too many tokens for exact arithmetic, or memory does not hold one row.
    #[error(transparent)]
    Numerics(#[from] NumericsError),
}

impl UpdateError {
    /// `update` counts from 1 over the run; `None` for errors of other kinds.
    pub fn not_finite(&self, update: u64) -> Option<NotFinite> {
        let not_finite = match self {
            Self::Loss(value) => NotFinite::Loss { update, value: value.to_string() },
            Self::Backward => NotFinite::BackwardPass { update },
            Self::Gradient(error) => match error.clone() {
                OptimizerError::NotFinite { tensor, index: element, count: elements } => {
                    NotFinite::Gradient { update, tensor, element, elements }
                }
                OptimizerError::NormOverflow => NotFinite::GradientNorm { update },
                OptimizerError::Overflow { what, tensor } => {
                    NotFinite::Updated { update, tensor, value: what.to_string() }
                }
                OptimizerError::Products => NotFinite::Products { update },
            },
            Self::Numerics(_) => return None,
        };
        Some(not_finite)
    }
}
