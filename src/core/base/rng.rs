//! Stateless randomness: a uniform is a function of what it is for, never of what was drawn before. Batch order, refill
//! rounds and resume points cannot change a draw, and arms share random numbers. torch's generator is never used.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

/// What a stream is for. Names are part of the key: renaming one changes every draw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Order of the training problems in one epoch; ids: (epoch).
    DataOrder,
    /// Tokens of a training rollout; ids: (step, problem, attempt, sample).
    Rollout,
    /// Tokens of an evaluation response; ids: (evaluation set, problem, sample).
    Evaluation,
    /// Tokens sampled by `dapo model generate`; ids: (prompt line, sample).
    Generate,
    /// Order of groups within one rollout step; ids: (step, epoch).
    MiniBatchOrder,
    /// Tokens that a method chooses among; ids: (step, update).
    TokenChoice,
    /// Initial weights; ids: (tensor name).
    Initialisation,
    /// The embedded benchmark's problems; ids: (set, index, attempt).
    Problems,
    /// Pretraining's and tuning's choice of problem and style; ids: (stage, update, row).
    Pretraining,
    /// What a plan's probe samples before a run; ids: (kind, …).
    Plan,
    /// Rollout steps that a verification executes again, under the reviewer's seed.
    Challenge,
    /// Points of the doctor's pinned functions and streams; its name is part of their pinned bits.
    Fingerprint,
    /// Random splits, sign flips and bootstrap draws of a statistic; ids: (method, …).
    Resampling,
    /// Simulated outcomes on which a statistic is calibrated; ids: (scenario, replicate).
    Simulation,
}

impl Purpose {
    fn name(self) -> &'static str {
        match self {
            Self::DataOrder => "data-order",
            Self::Rollout => "rollout",
            Self::Evaluation => "evaluation",
            Self::Generate => "generate",
            Self::MiniBatchOrder => "mini-batch-order",
            Self::TokenChoice => "token-choice",
            Self::Initialisation => "initialisation",
            Self::Problems => "problems",
            Self::Pretraining => "pretraining",
            Self::Plan => "plan",
            Self::Challenge => "challenge",
            Self::Fingerprint => "fingerprint",
            Self::Resampling => "resampling",
            Self::Simulation => "simulation",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Id<'a> {
    Number(u64),
    Name(&'a str),
}

impl From<u64> for Id<'_> {
    fn from(number: u64) -> Self {
        Id::Number(number)
    }
}

impl<'a> From<&'a str> for Id<'a> {
    fn from(name: &'a str) -> Self {
        Id::Name(name)
    }
}

/// A sequence of uniforms; draw `t` is the uniform for index `t` (for rollouts: token `t`).
#[derive(Debug, Clone)]
pub struct Stream(ChaCha8Rng);

/// ChaCha8 keyed with the SHA-256 of (run seed, purpose, ids) in a length-prefixed encoding: no two keys share one.
pub fn stream(run_seed: u64, purpose: Purpose, ids: &[Id]) -> Stream {
    let mut hash = Sha256::new();
    let mut part = |tag: u8, bytes: &[u8]| {
        hash.update([tag]);
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(b's', &run_seed.to_le_bytes());
    part(b'p', purpose.name().as_bytes());
    for id in ids {
        match id {
            Id::Number(number) => part(b'n', &number.to_le_bytes()),
            Id::Name(name) => part(b't', name.as_bytes()),
        }
    }
    Stream(ChaCha8Rng::from_seed(hash.finalize().into()))
}

impl Stream {
    /// The next uniform in [0, 1): 53 random bits times 2⁻⁵³, exact in f64.
    pub fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A uniform integer in [0, `bound`), without modulo bias (Lemire's rejection).
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "an empty range has no members");
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let wide = u128::from(self.0.next_u64()) * u128::from(bound);
            if wide as u64 >= threshold {
                return (wide >> 64) as u64;
            }
        }
    }

    /// Two independent standard normals (Box–Muller with the portable `libm`).
    pub fn normals(&mut self) -> (f64, f64) {
        let radius = (-2.0 * libm::log(1.0 - self.uniform())).sqrt();
        let angle = 2.0 * std::f64::consts::PI * self.uniform();
        (radius * libm::cos(angle), radius * libm::sin(angle))
    }

    /// Fisher–Yates, from the end.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_depends_on_its_key_alone() {
        let key = [Id::from(3), Id::from("train/17"), Id::from(0), Id::from(5)];
        let first: Vec<f64> = {
            let mut s = stream(7, Purpose::Rollout, &key);
            (0..5).map(|_| s.uniform()).collect()
        };
        stream(7, Purpose::Evaluation, &key).uniform();
        let mut again = stream(7, Purpose::Rollout, &key);
        assert_eq!(first, (0..5).map(|_| again.uniform()).collect::<Vec<_>>());
        for other in [
            stream(8, Purpose::Rollout, &key),
            stream(7, Purpose::Evaluation, &key),
            stream(7, Purpose::Rollout, &key[..3]),
        ] {
            let mut other = other;
            assert_ne!(first[0], other.uniform());
        }
    }

    #[test]
    fn names_and_numbers_with_equal_bytes_are_different_keys() {
        let mut number = stream(1, Purpose::Rollout, &[Id::from(0x3131_3131_3131_3131)]);
        let mut name = stream(1, Purpose::Rollout, &[Id::from("11111111")]);
        assert_ne!(number.uniform(), name.uniform());
    }

    #[test]
    fn the_first_draws_are_pinned() {
        // A change here changes every run: it is a new version of every result.
        let mut s = stream(1, Purpose::Rollout, &[Id::from(2), Id::from("p")]);
        let draws = [s.uniform(), s.uniform()];
        insta::assert_debug_snapshot!(draws);
    }

    #[test]
    fn uniforms_lie_in_the_half_open_unit_interval_with_mean_one_half() {
        let mut s = stream(5, Purpose::DataOrder, &[]);
        let draws: Vec<f64> = (0..20_000).map(|_| s.uniform()).collect();
        assert!(draws.iter().all(|u| (0.0..1.0).contains(u)));
        let mean = draws.iter().sum::<f64>() / 20_000.0;
        // Six standard errors of a uniform's mean: false alarm below 1e-8.
        assert!((mean - 0.5).abs() < 6.0 * (1.0 / 12.0f64).sqrt() / 20_000f64.sqrt());
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        let mut items: Vec<u32> = (0..100).collect();
        stream(9, Purpose::DataOrder, &[]).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
