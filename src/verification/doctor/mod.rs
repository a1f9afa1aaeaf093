//! Facts about this machine, and checks of arithmetic that must hold on any machine.

pub mod exact_test;
pub mod self_checks;

use crate::records::environment;
use crate::verification::SelfCheck;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Examination {
    pub schema: &'static str,
    /// As in a run's records, with the set variables of [`environment::PINS`].
    pub facts: BTreeMap<String, String>,
    pub checks: Vec<SelfCheck>,
}

pub fn examine() -> Examination {
    Examination {
        schema: "dapo-doctor/2",
        // Threads are a run's setting; each operation uses one.
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
