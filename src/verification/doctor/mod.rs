//! Examines this machine: facts, and checks of the arithmetic that must hold on any machine.

pub mod exact_test;
pub mod self_checks;

use crate::records::environment;
use crate::verification::SelfCheck;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Examination {
    pub schema: &'static str,
    /// As a run records them, with the variables of [`environment::PINS`] that are set.
    pub facts: BTreeMap<String, String>,
    pub checks: Vec<SelfCheck>,
}

pub fn examine() -> Examination {
    Examination {
        schema: "dapo-doctor/2",
        // Threads are a setting of a run; each operation runs on one.
        facts: environment::describe(1).facts,
        checks: self_checks::self_checks(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_self_check_holds_here() {
        for check in examine().checks {
            assert!(check.held, "{}: {}", check.name, check.detail);
        }
    }
}
