//! Facts about this machine, and checks of arithmetic: where one fails, the machine's numbers cannot be relied on.

pub mod exact_test;

use crate::base::{Purpose, files, rng::stream};
use crate::records::environment;
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
    let checks = vec![portable_functions(), random_streams(), exact_test::exact_arithmetic()];
    // Threads are a run's setting; each operation uses one.
    Examination { schema: "dapo-doctor/2", facts: environment::describe(1).facts, checks }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SelfCheck {
    pub name: String,
    pub held: bool,
    pub detail: String,
}

impl SelfCheck {
    pub fn of(name: &str, wrong: Vec<String>) -> Self {
        let detail = if wrong.is_empty() { "as expected".to_string() } else { wrong.join("; ") };
        Self { name: name.to_string(), held: wrong.is_empty(), detail }
    }
}

/// SHA-256 of exp, log and sin of the `libm` crate at 3,000 points.
const PORTABLE_FUNCTIONS: &str = "197613ddd964a4c61b19fa77bbf2cf0abf00832bd663fdebcf1c6146c7062628";

fn portable_functions() -> SelfCheck {
    let mut draws = stream(1, Purpose::Fingerprint, &[]);
    let mut bytes = Vec::new();
    for _ in 0..1000 {
        let x = 40.0 * (draws.uniform() - 0.5);
        for value in [libm::exp(x), libm::log(x.abs() + 1e-9), libm::sin(x)] {
            bytes.extend(value.to_le_bytes());
        }
    }
    pinned("exp, log and sin have their pinned bits", PORTABLE_FUNCTIONS, &bytes)
}

/// SHA-256 of 1,000 uniforms.
const RANDOM_STREAMS: &str = "cfd53ec6556860b2bf6f633978e0cf785239828a228a6003689aaa476caab651";

fn random_streams() -> SelfCheck {
    let mut draws = stream(2, Purpose::Fingerprint, &[]);
    let bytes: Vec<u8> = (0..1000).flat_map(|_| draws.uniform().to_le_bytes()).collect();
    pinned("random streams have their pinned bits", RANDOM_STREAMS, &bytes)
}

fn pinned(name: &str, expected: &str, bytes: &[u8]) -> SelfCheck {
    let found = files::sha256(bytes);
    let wrong = (found != expected).then(|| format!("SHA-256 {found}, expected {expected}"));
    SelfCheck::of(name, wrong.into_iter().collect())
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

    #[test]
    fn a_check_with_a_finding_fails_and_says_what() {
        let check = SelfCheck::of("x", vec!["a".to_string(), "b".to_string()]);
        assert!(!check.held && check.detail == "a; b");
        assert!(SelfCheck::of("x", Vec::new()).held);
    }

    #[test]
    fn one_other_bit_breaks_a_pin() {
        assert!(!pinned("x", &files::sha256(&[0]), &[1]).held);
        assert!(pinned("x", &files::sha256(&[0]), &[0]).held);
    }
}
