//! Other trainers and machines. An arm becomes another trainer's settings, or an error with the
//! key; its outputs become a run folder. Nothing is computed here that a trainer computes.

pub mod demand;
pub mod error;
pub mod process;
pub mod configuration;
pub mod launcher;
pub mod following;
pub mod dump;
pub mod rendered;
pub mod imported;
pub mod trl;
pub mod verl;
pub mod run;
pub mod check;
pub mod audited;

pub use crate::engines::audited::{RunAudit, RunAuditOptions};
pub use crate::engines::demand::{Demand, DemandRefusal, Effective, Setting, Trap, Unread};
pub use crate::engines::dump::DumpedResponse;
pub use crate::engines::error::EngineError;
pub use crate::engines::imported::{Imported, Outputs, ReadStep};
pub use crate::engines::launcher::program::CellProgram;
pub use crate::engines::launcher::{LaunchedJob, Launcher, LauncherState, LauncherStates};
pub use crate::engines::process::Running;
