//! Examines this machine: facts, and checks of the arithmetic that must hold on any machine.

pub mod exact_test;
pub mod self_checks;

use crate::records::environment;
use crate::verification::SelfCheck;
use serde::Serialize;
use std::collections::BTreeMap;

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

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Examination {
    pub schema: &'static str,
    /// As a run records them, with the variables of [`environment::PINS`] that are set.
    pub facts: BTreeMap<String, String>,
    /// Instruction set → whether the processor reports it.
    pub cpu_flags: BTreeMap<String, bool>,
    pub checks: Vec<SelfCheck>,
}

pub fn examine() -> Examination {
    let flags = environment::cpu_flags();
    let has = |flag: &str| flags.iter().any(|found| found == flag);
    Examination {
        schema: "dapo-doctor/2",
        // Threads are a setting of a run; each operation runs on one.
        facts: environment::describe(1).facts,
        cpu_flags: FLAGS.iter().map(|flag| (flag.to_string(), has(flag))).collect(),
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
