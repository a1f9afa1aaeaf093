//! Simulated evaluations and training runs whose truth is known.

use crate::base::Purpose;
use crate::base::rng::{self, Id, Stream};
use crate::statistics::Counts;
use serde::{Deserialize, Serialize};

/// How the success probabilities of a benchmark's problems are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// Beta(0.3, 0.3): most problems are nearly always or nearly never solved.
    BetaThreeTenths,
    BetaHalf,
    Uniform,
    /// 0.005 or 0.995, with equal chance.
    SaturatedBothEnds,
    /// 0.99 for nine problems in ten, uniform for the tenth: a benchmark that is nearly solved.
    NearlySolved,
}

/// How runs of one method differ from each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runs {
    /// Normal effects of training, twice as large as decoding noise or so.
    OneMode,
    /// Half of the runs find a better style and half do not.
    TwoModes,
    RareCollapse,
}

pub const SPREADS: [Spread; 5] = [
    Spread::BetaThreeTenths,
    Spread::BetaHalf,
    Spread::Uniform,
    Spread::SaturatedBothEnds,
    Spread::NearlySolved,
];

/// The stream of one replicate of one scenario: it depends on their names alone, so that a
/// subset of replicates is a prefix of all of them.
pub fn stream(scenario: &str, replicate: u64) -> Stream {
    rng::stream(0, Purpose::Simulation, &[Id::from(scenario), Id::from(replicate)])
}

impl Spread {
    pub fn problem(self, draw: &mut Stream) -> f64 {
        match self {
            Self::BetaThreeTenths => beta(draw, 0.3),
            // The arcsine law.
            Self::BetaHalf => {
                let sine = libm::sin(0.5 * std::f64::consts::PI * draw.uniform());
                sine * sine
            }
            Self::Uniform => draw.uniform(),
            Self::SaturatedBothEnds => [0.005, 0.995][draw.below(2) as usize],
            Self::NearlySolved if draw.below(10) == 0 => draw.uniform(),
            Self::NearlySolved => 0.99,
        }
    }

    pub fn problems(self, draw: &mut Stream, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.problem(draw)).collect()
    }

    pub fn mean(self) -> f64 {
        match self {
            Self::NearlySolved => 0.9 * 0.99 + 0.1 * 0.5,
            _ => 0.5,
        }
    }
}

/// Jöhnk's generator of Beta(a, a), for a below 1.
fn beta(draw: &mut Stream, a: f64) -> f64 {
    loop {
        let x = libm::pow(draw.uniform(), 1.0 / a);
        let y = libm::pow(draw.uniform(), 1.0 / a);
        if x + y <= 1.0 && x + y > 0.0 {
            return x / (x + y);
        }
    }
}

impl Runs {
    /// z of one run, with mean 0 and |z| ≤ 1: the run solves problem i with probability
    /// p_i + z · min(p_i, 1 − p_i), whose mean over runs is p_i. `size` scales the effect of
    /// training for runs of one mode.
    pub fn effect(self, draw: &mut Stream, size: f64) -> f64 {
        match self {
            Self::OneMode => (size * draw.normals().0).clamp(-1.0, 1.0),
            Self::TwoModes => {
                let mode = if draw.below(2) == 0 { -0.5 } else { 0.5 };
                (mode + 0.05 * draw.normals().0).clamp(-1.0, 1.0)
            }
            Self::RareCollapse => {
                let mode = if draw.below(10) == 0 { -0.9 } else { 0.1 };
                (mode + (0.02 * draw.normals().0).clamp(-0.1, 0.1)).clamp(-1.0, 1.0)
            }
        }
    }
}

/// One evaluation: `samples` responses to each problem.
pub fn evaluate(draw: &mut Stream, problems: &[f64], samples: u64) -> Vec<Counts> {
    let count = |p: &f64| Counts {
        correct: (0..samples).filter(|_| draw.uniform() < *p).count() as u64,
        samples,
    };
    problems.iter().map(count).collect()
}

/// avg@k of one run with effect z on fixed problems.
pub fn run_score(draw: &mut Stream, problems: &[f64], samples: u64, z: f64) -> f64 {
    let correct: usize = problems
        .iter()
        .map(|p| {
            let p = p + z * p.min(1.0 - p);
            (0..samples).filter(|_| draw.uniform() < p).count()
        })
        .sum();
    correct as f64 / (samples * problems.len() as u64) as f64
}
