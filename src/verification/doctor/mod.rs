//! Examines this machine: facts, settings that reach numbers, checks of the arithmetic, and a
//! numeric fingerprint (digests of the results of LibTorch's f32 operations). Hosts with the same
//! fingerprint may be expected to agree under `fast` arithmetic (exact-here); where two differ, the
//! operations are named. Under `exact` arithmetic the fingerprint must not matter.

pub mod exact_test;
pub mod probes;
pub mod self_checks;

use crate::experiment::compare::differing_keys;
use crate::records::environment;
use crate::verification::{Fingerprint, SelfCheck};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const SCHEMA: &str = "dapo-doctor/1";

/// Instruction sets by which LibTorch, MKL and oneDNN choose kernels, with Linux's names.
const FLAGS: [&str; 13] = [
    "sse4_1",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "avx_vnni",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512_vnni",
    "avx512_bf16",
    "amx_tile",
    "amx_bf16",
];

/// The observed or documented effect of each variable of [`environment::PINS`] on this program's
/// numbers under `fast` arithmetic; empty: none, because LibTorch runs each operation on one thread
/// here, or because no operation was seen to change.
const EFFECTS: [(&str, &str); 10] = [
    ("ATEN_CPU_CAPABILITY", "softmax, log-softmax, silu, sigmoid, norms"),
    ("DAPO_INSTRUCTIONS", ""),
    ("MKL_CBWR", "matrix products, exp, log, tanh, erf, sqrt"),
    ("MKL_DYNAMIC", ""),
    ("MKL_ENABLE_INSTRUCTIONS", ""),
    ("MKL_NUM_THREADS", ""),
    ("OMP_DYNAMIC", ""),
    ("OMP_NUM_THREADS", ""),
    ("ONEDNN_DEFAULT_FPMATH_MODE", "f32 products, which it may compute in bf16"),
    ("ONEDNN_MAX_CPU_ISA", "gelu, bf16 products"),
];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Examination {
    pub schema: String,
    /// As a run records them.
    pub facts: BTreeMap<String, String>,
    /// Instruction set → whether the processor reports it.
    pub cpu_flags: BTreeMap<String, bool>,
    pub pins: Vec<Pin>,
    pub fingerprint: Fingerprint,
    pub checks: Vec<SelfCheck>,
}

/// An environment variable that chooses kernels or threads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pin {
    pub name: String,
    pub value: Option<String>,
    /// Empty: nothing known.
    pub changes_under_fast: String,
    /// Always false.
    pub changes_under_exact: bool,
}

pub fn examine() -> Examination {
    let flags = environment::cpu_flags();
    let has = |flag: &str| flags.iter().any(|found| found == flag);
    let pin = |(name, effect): (&str, &str)| Pin {
        name: name.to_string(),
        value: std::env::var(name).ok(),
        changes_under_fast: effect.to_string(),
        changes_under_exact: false,
    };
    let fingerprint = probes::fingerprint();
    let mut checks = self_checks::self_checks();
    checks.push(self_checks::repeated(&fingerprint, &probes::fingerprint()));
    Examination {
        schema: SCHEMA.to_string(),
        // Threads are a setting of a run; each operation runs on one.
        facts: environment::describe(1).facts,
        cpu_flags: FLAGS.iter().map(|flag| (flag.to_string(), has(flag))).collect(),
        pins: EFFECTS.into_iter().map(pin).collect(),
        fingerprint,
        checks,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DoctorComparison {
    /// Operations with other bits, or that only one side knows.
    pub operations: Vec<String>,
    pub compared: usize,
    /// Fact, flag or pin → here and there.
    pub facts: BTreeMap<String, [String; 2]>,
}

impl DoctorComparison {
    /// Whether runs under `fast` arithmetic may be expected to end with the same bits.
    pub fn agrees(&self) -> bool {
        self.operations.is_empty() && self.compared > 0
    }
}

pub fn compare(here: &Examination, there: &Examination) -> DoctorComparison {
    let (ours, theirs) = (&here.fingerprint.operations, &there.fingerprint.operations);
    let operations: Vec<String> = differing_keys(ours, theirs).into_iter().cloned().collect();
    let compared = ours.keys().filter(|name| theirs.contains_key(*name)).count();
    let facts_of = |it: &Examination| -> BTreeMap<String, String> {
        let flags = it.cpu_flags.iter().map(|(name, has)| (name.clone(), has.to_string()));
        let pins = it.pins.iter().map(|pin| {
            (pin.name.clone(), pin.value.clone().unwrap_or_else(|| "not set".to_string()))
        });
        it.facts.clone().into_iter().chain(flags).chain(pins).collect()
    };
    let (ours, theirs) = (facts_of(here), facts_of(there));
    let unknown = || "not known".to_string();
    let facts = differing_keys(&ours, &theirs)
        .into_iter()
        .map(|name| {
            let value =
                |of: &BTreeMap<String, String>| of.get(name).cloned().unwrap_or_else(unknown);
            (name.clone(), [value(&ours), value(&theirs)])
        })
        .collect();
    DoctorComparison { operations, compared, facts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pin_that_a_run_records_is_explained() {
        let explained: Vec<&str> = EFFECTS.iter().map(|(name, _)| *name).collect();
        assert_eq!(explained, environment::PINS);
    }

    #[test]
    fn a_changed_operation_and_a_changed_fact_are_named() {
        let here = examine();
        let same = compare(&here, &here.clone());
        assert!(same.agrees() && same.facts.is_empty() && same.compared > 30);
        let mut there = here.clone();
        there.fingerprint.operations.insert("silu".to_string(), "0".repeat(64));
        there.fingerprint.operations.remove("exp");
        there.facts.insert("cpu".to_string(), "another".to_string());
        there.pins[0].value = Some("avx2".to_string());
        let found = compare(&here, &there);
        assert!(!found.agrees());
        assert_eq!(found.operations, ["exp", "silu"]);
        assert_eq!(found.compared, same.compared - 1);
        assert_eq!(found.facts["cpu"][1], "another");
        assert_eq!(found.facts["ATEN_CPU_CAPABILITY"][1], "avx2");
        assert_eq!(found.facts.len(), 2);
        there.fingerprint.operations.clear();
        assert!(!compare(&there, &there.clone()).agrees(), "nothing compared is no agreement");
    }

    #[test]
    fn every_self_check_holds_here() {
        for check in examine().checks {
            assert!(check.held, "{}: {}", check.name, check.detail);
        }
    }
}
