//! Calibration where the unit is the problem: one checkpoint, or two on the same problems.

use crate::calibration::worlds::{self, SPREADS, Spread};
use crate::calibration::{Promise, Row, Tally};
use dapo::base::rng::Stream;
use dapo::statistics::distributions::t_quantile;
use dapo::statistics::{Uncertainty, accuracy, paired};

const DECODING: Promise =
    Promise::coverage("decoding interval", "avg@k of this checkpoint on these problems");
const PROBLEMS: Promise =
    Promise::coverage("problem interval", "avg@k of this checkpoint on another draw of problems");
const PAIRED_DECODING: Promise = Promise::coverage(
    "paired decoding interval",
    "difference of two checkpoints on these problems",
);
const PAIRED_PROBLEMS: Promise = Promise::coverage(
    "paired problem interval",
    "difference of two checkpoints on another draw of problems",
);
const SIGN_FLIP: Promise =
    Promise::test("sign-flip test", "are two checkpoints equal over another draw of problems?");

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

/// Whether an interval, offered or not, contains the truth.
fn contains(answer: &Uncertainty, centre: f64, t: f64, truth: f64) -> bool {
    let error = answer.standard_error.unwrap_or(0.0);
    (centre - truth).abs() <= t * error
}

fn one_checkpoint(replicates: u64, spread: Spread, n: usize, k: u64) -> Vec<Row> {
    let (scenario, size) = (format!("{spread:?}"), format!("n = {n}, k = {k}"));
    let mut tallies = [Tally::default(); 2];
    let t = [t_quantile(0.975, accuracy::MANY), t_quantile(0.975, (n - 1) as f64)];
    for replicate in 0..replicates {
        let mut draw = worlds::stream(&format!("one checkpoint, {scenario}, {size}"), replicate);
        let problems = spread.problems(&mut draw, n);
        let outcomes = worlds::evaluate(&mut draw, &problems, k);
        let got = accuracy::accuracy(&[outcomes], 0.95).expect("a simulated evaluation is one");
        let here = problems.iter().sum::<f64>() / n as f64;
        for (index, truth) in [here, spread.mean()].into_iter().enumerate() {
            let answer = &got.uncertainties[index];
            let hit = contains(answer, got.avg_at_k, t[index], truth);
            tallies[index].count_offered(hit, answer.interval.is_some());
        }
    }
    let promises = [DECODING, PROBLEMS];
    promises.iter().zip(tallies).map(|(promise, t)| promise.row(&scenario, &size, t)).collect()
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
    /// p of the second checkpoint.
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
    let mut tallies = [Tally::default(); 3];
    let t = [t_quantile(0.975, accuracy::MANY), t_quantile(0.975, (n - 1) as f64)];
    for replicate in 0..replicates {
        let mut draw = worlds::stream(&format!("two checkpoints, {scenario}, {size}"), replicate);
        let before = spread.problems(&mut draw, n);
        let after: Vec<f64> = before.iter().map(|p| change.apply(&mut draw, spread, *p)).collect();
        let here = after.iter().zip(&before).map(|(b, a)| b - a).sum::<f64>() / n as f64;
        let a = worlds::evaluate(&mut draw, &before, k);
        let b = worlds::evaluate(&mut draw, &after, k);
        let got = paired::paired_up_to(&[a], &[b], 0.95, FLIPS).expect("both sides are");
        for (index, truth) in [here, change.truth(spread)].into_iter().enumerate() {
            let answer = &got.uncertainties[index];
            let hit = contains(answer, got.difference, t[index], truth);
            tallies[index].count_offered(hit, answer.interval.is_some());
        }
        tallies[2].count(got.sign_flip.p <= 0.05);
    }
    let promises = [PAIRED_DECODING, PAIRED_PROBLEMS, SIGN_FLIP];
    let rows = promises.iter().zip(tallies).map(|(promise, t)| promise.row(&scenario, &size, t));
    let is_null = change != Change::Solved;
    rows.filter(|row| is_null || row.method != SIGN_FLIP.method).collect()
}
