//! Algorithm 1 and what it needs: update, evaluation, a run that resumes, the plan. It prints nothing.

pub mod machine;
pub mod error;
pub mod long_prompts;
pub mod evaluation;
pub mod supervised;
pub mod pretraining;
pub mod tuning;
pub mod tuned;
pub mod update;
pub mod effects;
pub mod step;
pub mod trainer;
pub mod run;
pub mod plan;
pub mod starting;
pub mod bench;

pub use crate::training::bench::throughput::{Throughput, ThroughputWorkload};
pub use crate::training::effects::{Metrics, Updates};
pub use crate::training::error::{TrainingError, UpdateError};
pub use crate::training::evaluation::Protocol;
pub use crate::training::plan::phases::Parts;
pub use crate::training::plan::probe::TrialProbe;
pub use crate::training::plan::space::{Disk, PlanMemory};
pub use crate::training::plan::warnings::{Name, Severity, Warning};
pub use crate::training::plan::work::Range;
pub use crate::training::plan::{PlanPrompts, RunPlan};
pub use crate::training::pretraining::Recipe;
pub use crate::training::run::RunEnded;
pub use crate::training::run::session::{Opened, Start, Unfinished};
pub use crate::training::run::stepper::Stepper;
pub use crate::training::step::{Divergence, Phase, Position, StepOutcome};
pub use crate::training::supervised::StageUpdate;
pub use crate::training::trainer::Trainer;
pub use crate::training::tuned::{TuneEvent, TuneRecord};
pub use crate::training::tuning::{TuneEvaluation, TuneRecipe};
pub use crate::training::update::{MiniBatch, Rounding, Updated};
