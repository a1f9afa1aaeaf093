//! Everything that was computed of a study's records, without a sentence.

use crate::study::claims::evidence;
use crate::study::{Analysis, Claims, Judged, analysis, collection::Study};
use serde::Serialize;

/// In a study's folder.
pub const FILE: &str = "report.json";

const SCHEMA: &str = "dapo-study-report/5";

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StudyFacts {
    pub schema: &'static str,
    /// Shares are in [0, 1].
    pub analysis: Analysis,
    pub claims: Judged,
}

/// Analyses a study and judges it by the claims.
pub fn of(study: &Study, claims: &Claims) -> StudyFacts {
    let analysis = analysis::analyse(study);
    let claims = evidence::judge(study, &analysis, claims);
    StudyFacts { schema: SCHEMA, analysis, claims }
}
