//! Experiment files, their identity, grids of them, and the facts about every key. A default that
//! can move a number is never here (those are in `experiments/base.toml`).

pub mod error;
pub mod place;
pub mod shipped;
pub mod sources;
pub mod grading;
pub mod config;
pub mod compare;
pub mod diagnose;
pub mod sets;
pub mod programs;
pub mod validate;
pub mod extends;
pub mod named;
pub mod grid;
pub mod starter;
pub mod bases;
pub mod usage;

pub use crate::experiment::compare::Publication;
pub use crate::experiment::config::{
    ChainsVariant, Data, Engine, Evaluation, Execution, Experiment, LogProbsOver, MiniAimeVariant,
    MiniBatchOrder, NonFinite, Optimizer, PromptExample, PromptSettings, PromptTemplate,
    RecordsSettings, Reward, RolloutSettings, SamplerWeights, Sampling, SetSettings, Training,
    WarmUp, WarmUpStart,
};
pub use crate::experiment::error::ExperimentError;
pub use crate::experiment::extends::Chain;
pub use crate::experiment::grading::{Grading, MATH_VERIFY, ProgramKind, RewardProgram, Verifier};
pub use crate::experiment::grid::text::Keys;
pub use crate::experiment::grid::{Arm, Grid, PaperRow};
pub use crate::experiment::place::{Device, Memory, Place, WeightKind};
pub use crate::experiment::starter::{Starter, StarterFiles};
pub use crate::experiment::usage::KeyUsage;
