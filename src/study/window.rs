//! Parts of a run, and how the values of a part become one number.

use crate::statistics::{correlation, estimators};
use crate::study::cell::numbers::ensure;
use serde::{Deserialize, Serialize};

/// Rollout steps whose middle, as a share of all steps of the run, is in [`from_share`, `to_share`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetricWindow {
    /// In [0, 1).
    pub from_share: f64,
    /// In (0, 1].
    pub to_share: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reduce {
    Mean,
    Sum,
    Minimum,
    Maximum,
    /// Least squares, per rollout step.
    Slope,
}

impl MetricWindow {
    pub fn check(&self) -> Result<(), String> {
        let Self { from_share, to_share } = *self;
        let fine = (0.0..1.0).contains(&from_share) && from_share < to_share && to_share <= 1.0;
        let range = "0 <= from_share < to_share <= 1";
        ensure(fine, format_args!("window {from_share} to {to_share} must satisfy {range}"))
    }

    /// (index, value) pairs; steps without a value are left out.
    pub fn values(&self, all: &[Option<f64>]) -> Vec<(f64, f64)> {
        let steps = all.len() as f64;
        let inside = |index: usize| {
            let middle = (index as f64 + 0.5) / steps;
            middle >= self.from_share && middle < self.to_share
        };
        let entries = all.iter().enumerate().filter(|(index, _)| inside(*index));
        entries.filter_map(|(index, value)| Some((index as f64, (*value)?))).collect()
    }

    /// `the last 25 %`, `the first 20 %` or `20 % to 60 %`.
    pub fn words(&self) -> String {
        match (self.from_share, self.to_share) {
            (0.0, 1.0) => "all rollout steps".to_string(),
            (from, 1.0) => format!("last {} % of the steps", percent(1.0 - from)),
            (0.0, to) => format!("first {} % of the steps", percent(to)),
            (from, to) => format!("{} to {} % of the steps", percent(from), percent(to)),
        }
    }
}

/// Whether a value is above this share of a whole. The share is rounded: a value at its edge is not.
pub fn is_above(value: f64, share: f64, whole: f64) -> bool {
    estimators::beyond_rounding(value - share * whole, whole) > 0.0
}

/// To a thousandth of a percent: 0.125 is 12.5.
pub fn percent(share: f64) -> f64 {
    (share * 100_000.0).round() / 1000.0
}

impl Reduce {
    /// Reduces (index, value) pairs; `None` without pairs, or for a slope without spread.
    pub fn of(self, values: &[(f64, f64)]) -> Option<f64> {
        let ys = || values.iter().map(|(_, y)| *y);
        let count = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        match self {
            Self::Mean => Some(ys().sum::<f64>() / count),
            Self::Sum => Some(ys().sum()),
            Self::Minimum => ys().reduce(f64::min),
            Self::Maximum => ys().reduce(f64::max),
            Self::Slope => correlation::slope(values),
        }
    }

    pub fn words(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Sum => "sum",
            Self::Minimum => "minimum",
            Self::Maximum => "maximum",
            Self::Slope => "slope",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_at_the_edge_of_a_share_is_not_above_it() {
        for (at, share, budget) in [(2.0, 1.0 - 0.8, 10.0), (29.0, 0.29, 100.0), (5.0, 0.5, 10.0)] {
            assert!(!is_above(at, share, budget) && is_above(at + 1e-6, share, budget), "{share}");
        }
    }
}
