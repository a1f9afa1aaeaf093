//! Run folders, ledgers and tables: written from values of a run and read again, files of strangers
//! within limits. Nothing here judges what is read.

pub mod event_file;
pub mod counters;
pub mod ending;
pub mod metrics;
pub mod model_folder;
pub mod run_folder;
pub mod tables;
pub mod tracked;
pub mod environment;
pub mod ledger;
pub mod audit;
pub mod housekeeping;

pub use crate::records::audit::{FolderEntries, RunRecords};
pub use crate::records::counters::Counters;
pub use crate::records::ending::{DivergenceRecord, Ending, NotFinite, Outcome};
pub use crate::records::housekeeping::{Candidate, HousekeepingRules, RunSummary};
pub use crate::records::ledger::{Broken, Components, TensorDigest, Tensors};
pub use crate::records::metrics::{Quantity, RecordedMetric};
pub use crate::records::run_folder::{
    Environment, EvaluationRecord, Manifest, RunFolder, Session, StepMetrics, StepTimings, Tags,
};
pub use crate::records::tables::graded::{ColumnNames, GradedTable};
pub use crate::records::tables::long::{CellKey, EvaluationRow, MetricRow, OutcomeRow};
pub use crate::records::tables::problems::{Index, Message, NamedProblem};
pub use crate::records::tables::{RolloutRow, StoredResponse};
pub use crate::records::tracked::{TrackedCurve, TrackedNotes, TrackedRun};
