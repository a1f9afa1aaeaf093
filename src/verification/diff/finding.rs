//! What differs in a component: the first place, how many values, and the largest difference.

use crate::report::text::joined;
use crate::verification::diff::ulps::Value;
use serde::{Serialize, Serializer};

/// From the outside in: problem, sample, token, …
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiffPlace(pub Vec<(&'static str, String)>);

impl DiffPlace {
    pub fn within(mut self, name: &'static str, value: impl ToString) -> Self {
        self.0.push((name, value.to_string()));
        self
    }

    pub fn text(&self) -> String {
        joined(self.0.iter().map(|(name, value)| format!("{name} {value}")), ", ")
    }
}

impl Serialize for DiffPlace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    pub at: DiffPlace,
    pub a: Value,
    pub b: Value,
    /// Only of two floats of one type.
    pub ulps: Option<u64>,
}

/// Or why differences are unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DiffFinding {
    /// As in the ledger: `tokens`, `weights`, `metrics`, …
    pub component: String,
    pub file: Option<String>,
    pub first: Option<Pair>,
    /// Has the largest |a − b|; only for floats.
    pub largest: Option<Pair>,
    pub differing: u64,
    pub compared: u64,
    /// Such as `tokens` or `elements`.
    pub unit: &'static str,
    pub remark: Option<String>,
}

impl DiffFinding {
    pub fn unseen(component: &str, remark: String) -> Self {
        let (component, remark) = (component.to_string(), Some(remark));
        Self { component, unit: "values", remark, ..Self::default() }
    }
}

#[derive(Debug)]
pub struct DiffTally {
    finding: DiffFinding,
    largest_gap: f64,
}

impl DiffTally {
    pub fn new(component: &str, file: &str, unit: &'static str) -> Self {
        let (component, file) = (component.to_string(), Some(file.to_string()));
        let finding = DiffFinding { component, file, unit, ..DiffFinding::default() };
        Self { finding, largest_gap: -1.0 }
    }

    /// Compares bits; calls `at` only for a pair that is kept.
    pub fn compare(&mut self, a: Value, b: Value, at: impl FnOnce() -> DiffPlace) {
        self.finding.compared += 1;
        if a.same(&b) {
            return;
        }
        self.finding.differing += 1;
        let is_first = self.finding.first.is_none();
        let gap = a.gap(&b).filter(|gap| *gap > self.largest_gap);
        if !is_first && gap.is_none() {
            return;
        }
        let pair = Pair { at: at(), ulps: a.ulps(&b), a, b };
        if let Some(gap) = gap {
            self.largest_gap = gap;
            self.finding.largest = Some(pair.clone());
        }
        if is_first {
            self.finding.first = Some(pair);
        }
    }

    pub fn finish(self) -> Option<DiffFinding> {
        (self.finding.differing > 0).then_some(self.finding)
    }
}
