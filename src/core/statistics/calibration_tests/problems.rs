//! Calibration where the unit is the problem: one checkpoint, or two on the same problems.

use crate::base::rng::Stream;
use crate::statistics::calibration_tests::worlds::{self, SPREADS, Spread};
use crate::statistics::calibration_tests::{Row, simulate};
use crate::statistics::distributions::t_quantile;
use crate::statistics::{Uncertainty, accuracy, paired};

/// Flips of one test: the rule that counts the observed one holds for any number.
const FLIPS: u64 = 1_000;

/// Problems and samples of each: AIME's, the embedded sets', and fewer.
const SIZES: [(usize, u64); 5] = [(10, 32), (20, 32), (30, 32), (64, 4), (256, 8)];

pub(super) fn rows(replicates: u64, add: &mut impl FnMut(Vec<Row>)) {
    for (n, k) in SIZES {
        for spread in SPREADS {
            add(one_checkpoint(replicates, spread, n, k));
        }
    }
    let large = [Spread::BetaHalf, Spread::NearlySolved];
    for (n, k, spreads) in [(30, 32, &SPREADS[..]), (256, 8, &large)] {
        for &spread in spreads {
            for change in [Change::None, Change::Redrawn, Change::Solved] {
                add(two_checkpoints(replicates, spread, change, n, k));
            }
        }
    }
}

/// Of each interval whether it, offered or not, contains the truth, and whether it is offered.
fn contain(answers: &[Uncertainty], centre: f64, n: usize, truths: [f64; 2]) -> [(bool, bool); 2] {
    let degrees = [accuracy::MANY, (n - 1) as f64];
    [0, 1].map(|index| {
        let (answer, t) = (&answers[index], t_quantile(0.975, degrees[index]));
        let width = t * answer.standard_error.unwrap_or(0.0);
        ((centre - truths[index]).abs() <= width, answer.interval.is_some())
    })
}

fn one_checkpoint(replicates: u64, spread: Spread, n: usize, k: u64) -> Vec<Row> {
    let (scenario, size) = (format!("{spread:?}"), format!("n = {n}, k = {k}"));
    let name = format!("one checkpoint, {scenario}, {size}");
    simulate(["decoding", "problems"], replicates, [&name, &scenario, &size], |draw| {
        let problems = spread.problems(draw, n);
        let outcomes = worlds::evaluate(draw, &problems, k);
        let got = accuracy::accuracy(&[outcomes], 0.95).expect("a simulated evaluation is one");
        let here = problems.iter().sum::<f64>() / n as f64;
        contain(&got.uncertainties, got.avg_at_k, n, [here, spread.mean()])
    })
}

/// How the second checkpoint differs from the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// The same chance on every problem.
    None,
    /// Three problems in ten have a new chance from the same spread: no difference on average.
    Redrawn,
    /// Three problems in ten are solved.
    Solved,
}

impl Change {
    fn apply(self, draw: &mut Stream, spread: Spread, p: f64) -> f64 {
        match self {
            Self::None => p,
            _ if draw.below(10) >= 3 => p,
            Self::Redrawn => spread.problem(draw),
            Self::Solved => 0.99,
        }
    }

    /// The difference over all problems that could be drawn.
    fn truth(self, spread: Spread) -> f64 {
        match self {
            Self::None | Self::Redrawn => 0.0,
            Self::Solved => 0.3 * (0.99 - spread.mean()),
        }
    }
}

fn two_checkpoints(replicates: u64, spread: Spread, change: Change, n: usize, k: u64) -> Vec<Row> {
    let (scenario, size) = (format!("{spread:?}, change {change:?}"), format!("n = {n}, k = {k}"));
    let name = format!("two checkpoints, {scenario}, {size}");
    let promises = ["paired-decoding", "paired-problems", "sign-flip"];
    let mut rows = simulate(promises, replicates, [&name, &scenario, &size], |draw| {
        let before = spread.problems(draw, n);
        let after: Vec<f64> = before.iter().map(|p| change.apply(draw, spread, *p)).collect();
        let here = after.iter().zip(&before).map(|(b, a)| b - a).sum::<f64>() / n as f64;
        let [a, b] = [&before, &after].map(|problems| worlds::evaluate(draw, problems, k));
        let got = paired::paired_up_to(&[a], &[b], 0.95, FLIPS).expect("both sides are");
        let truths = [here, change.truth(spread)];
        let [decoding, problems] = contain(&got.uncertainties, got.difference, n, truths);
        [decoding, problems, (got.sign_flip.p <= 0.05, true)]
    });
    if change == Change::Solved {
        rows.truncate(2);
    }
    rows
}
