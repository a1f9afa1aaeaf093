//! What the paper's own curves and tables say of a claim: `golden/paper/evidence.json`, which
//! `golden/paper/evidence.py` computes. Each curve and row is of one run.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::LazyLock;

/// A question to the paper's figures and tables. Its form is that of `golden/paper/evidence.py`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct PaperCheck(Value);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PaperEvidence {
    #[serde(skip_serializing)]
    pub words: String,
    /// The number that decides, in `unit`.
    pub value: f64,
    pub unit: String,
    pub agrees: bool,
    /// One run, its grid, its definition.
    #[serde(skip_serializing)]
    pub remark: String,
}

#[derive(Deserialize)]
struct Entry {
    check: PaperCheck,
    #[serde(flatten)]
    evidence: PaperEvidence,
}

static EVIDENCE: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../golden/paper/evidence.json"))
        .expect("golden/paper/evidence.json holds evidence")
});

impl PaperCheck {
    pub fn evidence(&self) -> Option<&'static PaperEvidence> {
        EVIDENCE.iter().find(|entry| entry.check == *self).map(|entry| &entry.evidence)
    }
}
