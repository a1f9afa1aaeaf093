//! Several runs: grids, records, comparisons, claims. Only [`ablate`] and [`cell`] touch a trainer.

pub mod error;
pub mod cell;
pub mod effect_checks;
pub mod paper;
pub mod window;
pub mod ablate;
pub mod comparison;
pub mod crosscheck;
pub mod clock;
pub mod why;
pub mod metric;
pub mod declaration;
pub mod membership;
pub mod collection;
pub mod arms;
pub mod curves;
pub mod stability;
pub mod levels;
pub mod problems;
pub mod contrast;
pub mod comparisons;
pub mod needed;
pub mod sensitivity;
pub mod analysis;
pub mod tracked;
pub mod gate;
pub mod claims;
pub mod facts;

pub use crate::study::ablate::jobs::Job;
pub use crate::study::ablate::process::ProcessEnded;
pub use crate::study::ablate::schedule::ScheduleProgress;
pub use crate::study::analysis::{Analysis, GridSummary};
pub use crate::study::arms::{ArmSummary, OverSets, SeedScore};
pub use crate::study::cell::{Cell, CellEnding, CellEvaluation, CellOutcomes, ProblemIds};
pub use crate::study::claims::published::{PaperCheck, PaperEvidence};
pub use crate::study::claims::results::{
    AcrossRunsResult, ClaimResult, ClaimVerdict, Judged, LevelResult, PartResult,
};
pub use crate::study::claims::{Claim, ClaimRule, Claims};
pub use crate::study::clock::Clock;
pub use crate::study::comparisons::{FamilyResult, RunValue, Word};
pub use crate::study::curves::Series;
pub use crate::study::declaration::{Declaration, Declared, DeclaredFamily, Direction};
pub use crate::study::effect_checks::{Effects, NamedWarning};
pub use crate::study::error::StudyError;
pub use crate::study::facts::StudyFacts;
pub use crate::study::levels::ArmTimes;
pub use crate::study::membership::Excluded;
pub use crate::study::metric::{At, Metric, Statistic};
pub use crate::study::problems::{Matrix, PairedChange};
pub use crate::study::tracked::{TrackedComparison, TrackedOptions, TrackedValue};
pub use crate::study::why::{
    Absence, DoseBelow, DosesBelow, Needed, NoValue, NotShown, PartWhy, Remark, RunsCannotShow,
    Ties, Untestable, Why, WithoutValue,
};
pub use crate::study::window::{MetricWindow, Reduce};
