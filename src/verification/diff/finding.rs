//! What of a component differs: the first place, how many, and the largest.

use crate::verification::diff::ulps::Value;
use serde::{Serialize, Serializer};

/// Where in a file a value stands, from the outside in: problem, sample, token, …
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Place(pub Vec<(&'static str, String)>);

impl Place {
    /// `problem train/00012, sample 3`.
    pub fn text(&self) -> String {
        let parts: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{name} {value}")).collect();
        parts.join(", ")
    }
}

impl Serialize for Place {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// One value in both runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pair {
    /// Where it stands.
    pub at: Place,
    /// In the first run.
    pub a: Value,
    /// In the second run.
    pub b: Value,
    /// Floats of their type from one to the other; `None` for what is no number.
    pub ulps: Option<u64>,
}

/// What differs in a component, or why that cannot be said.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Name in the ledger: `tokens`, `weights`, `metrics`, …
    pub component: String,
    /// The file that shows it, by its path in a run folder.
    pub file: Option<String>,
    /// The first value that differs, in the order of the file.
    pub first: Option<Pair>,
    /// The values furthest apart, by |a − b|; for floats only.
    pub largest: Option<Pair>,
    /// How many values differ.
    pub differing: u64,
    /// How many were compared.
    pub compared: u64,
    /// What they are: `tokens`, `elements`.
    pub unit: &'static str,
    /// What a reader must know beside it.
    pub remark: Option<String>,
}

impl Finding {
    /// A difference that no file shows.
    pub fn unseen(component: &str, remark: String) -> Self {
        let mut finding = Tally::new(component, None, "values").finding;
        finding.remark = Some(remark);
        finding
    }
}

/// Compares values one after the other.
#[derive(Debug)]
pub struct Tally {
    finding: Finding,
    largest_gap: f64,
}

impl Tally {
    /// Nothing compared yet. `unit` is what one value is called, in the plural.
    pub fn new(component: &str, file: Option<&str>, unit: &'static str) -> Self {
        let finding = Finding {
            component: component.to_string(),
            file: file.map(str::to_string),
            first: None,
            largest: None,
            differing: 0,
            compared: 0,
            unit,
            remark: None,
        };
        Self { finding, largest_gap: -1.0 }
    }

    /// Compares one value by its bits; `at` is asked only where it has to be told.
    pub fn compare(&mut self, a: Value, b: Value, at: impl FnOnce() -> Place) {
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
        let ulps = a.ulps(&b);
        let pair = Pair { at: at(), a, b, ulps };
        if let Some(gap) = gap {
            self.largest_gap = gap;
            self.finding.largest = Some(pair.clone());
        }
        if is_first {
            self.finding.first = Some(pair);
        }
    }

    /// The finding, unless nothing differed.
    pub fn finish(self) -> Option<Finding> {
        (self.finding.differing > 0).then_some(self.finding)
    }
}
