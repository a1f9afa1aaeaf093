//! Facts about this machine, and checks of arithmetic: where one fails, the machine's numbers cannot be relied on.

pub mod exact_test;

use crate::base::{Purpose, files, rng::stream};
use crate::records::environment;
use serde::Serialize;
use std::collections::BTreeMap;
use std::hint::black_box;
use tch::{Kind, Tensor};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Examination {
    pub schema: &'static str,
    /// As in a run's records, with the set variables of [`environment::PINS`].
    pub facts: BTreeMap<String, String>,
    pub checks: Vec<SelfCheck>,
}

pub fn examine() -> Examination {
    let checks = vec![
        denormals(),
        rounding(),
        known_values(),
        portable_functions(),
        random_streams(),
        exact_test::exact_arithmetic(),
    ];
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

/// Small gradients and moments may be denormal; processor and LibTorch must keep them.
fn denormals() -> SelfCheck {
    let mut wrong = Vec::new();
    let mut expect = |what: &str, kept: bool| {
        wrong.extend((!kept).then(|| format!("{what} are flushed to zero")));
    };
    expect("f32 denormals in Rust", black_box(f32::MIN_POSITIVE) * black_box(0.25) > 0.0);
    expect("f64 denormals in Rust", black_box(f64::MIN_POSITIVE) * black_box(0.25) > 0.0);
    let smallest = [(Kind::Float, f64::from(f32::MIN_POSITIVE)), (Kind::Double, f64::MIN_POSITIVE)];
    for (kind, smallest) in smallest {
        let options = (kind, tch::Device::Cpu);
        let tiny = Tensor::full([67], smallest, options);
        expect(&format!("{kind:?} results of LibTorch"), all_positive(&(&tiny * 0.25)));
        let denormal = &tiny * 0.25;
        expect(&format!("{kind:?} operands of LibTorch"), all_positive(&(&denormal * 4.0)));
        // Kernels depend on the number of rows.
        for rows in [1, 4, 64] {
            let x = Tensor::full([rows, 64], smallest, options);
            let weight = Tensor::full([48, 64], 1.0 / 1024.0, options);
            let product = x.linear::<Tensor>(&weight, None);
            expect(&format!("{kind:?} products of {rows} rows"), all_positive(&product));
        }
    }
    SelfCheck::of("denormals are kept", wrong)
}

fn all_positive(x: &Tensor) -> bool {
    let flat = x.to_kind(Kind::Double).contiguous().view([-1]);
    Vec::<f64>::try_from(&flat).is_ok_and(|values| values.iter().all(|value| *value > 0.0))
}

/// Checks rounding to nearest, ties to even, in Rust and LibTorch, f32 and f64.
fn rounding() -> SelfCheck {
    let mut wrong = Vec::new();
    let half = f64::EPSILON / 2.0;
    // (a, b, a + b): ties go to even, larger values away from the tie.
    let cases = [
        (1.0, half, 1.0),
        (1.0 + f64::EPSILON, half, 1.0 + 2.0 * f64::EPSILON),
        (1.0, half * (1.0 + f64::EPSILON), 1.0 + f64::EPSILON),
        (-1.0, -half, -1.0),
    ];
    for (a, b, sum) in cases {
        if black_box(a) + black_box(b) != sum {
            wrong.push(format!("{a:e} + {b:e} is not {sum:e} in Rust"));
        }
        let sums = Tensor::from_slice(&[a; 9]) + Tensor::from_slice(&[b; 9]);
        if !is_filled(&sums, sum, 9) {
            wrong.push(format!("{a:e} + {b:e} is not {sum:e} in LibTorch"));
        }
    }
    // 1 + 2⁻²⁴ is a tie of the cast to f32.
    let tie = 1.0 + f64::from(f32::EPSILON) / 2.0;
    let cast = Tensor::from_slice(&[tie; 9]).to_kind(Kind::Float);
    if Vec::<f32>::try_from(&cast).ok() != Some(vec![1.0; 9]) || black_box(tie) as f32 != 1.0 {
        wrong.push("a cast from f64 to f32 does not round to nearest even".to_string());
    }
    SelfCheck::of("rounding is to nearest, ties to even", wrong)
}

fn is_filled(values: &Tensor, expected: f64, count: usize) -> bool {
    Vec::<f64>::try_from(values).is_ok_and(|values| values == vec![expected; count])
}

/// Division and Rust's square root are correctly rounded (IEEE 754). LibTorch's square root is MKL's on longer vectors:
/// of a million f64 roots 0.8 % were one unit off on one processor, 1.3 % with `MKL_CBWR=AVX2`.
fn known_values() -> SelfCheck {
    const THIRD: u64 = 0x3fd5_5555_5555_5555;
    const ROOT: u64 = 0x3ff6_a09e_667f_3bcd;
    let thirds = Tensor::from_slice(&[1.0f64; 999]) / Tensor::from_slice(&[3.0f64; 999]);
    let held = [
        ("1 / 3 has other bits in LibTorch", is_filled(&thirds, f64::from_bits(THIRD), 999)),
        ("1 / 3 has other bits in Rust", (black_box(1.0f64) / black_box(3.0)).to_bits() == THIRD),
        ("√2 has other bits in Rust", black_box(2.0f64).sqrt().to_bits() == ROOT),
    ];
    let wrong = held.into_iter().filter(|(_, held)| !held).map(|(what, _)| what.to_string());
    SelfCheck::of("division, and Rust's square root, are correctly rounded", wrong.collect())
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
    fn flushed_denormals_are_noticed() {
        assert!(!all_positive(&Tensor::from_slice(&[1.0f32, 0.0])));
        assert!(all_positive(&Tensor::from_slice(&[1e-45f32])));
    }

    #[test]
    fn one_other_bit_breaks_a_pin() {
        assert!(!pinned("x", &files::sha256(&[0]), &[1]).held);
        assert!(pinned("x", &files::sha256(&[0]), &[0]).held);
    }
}
