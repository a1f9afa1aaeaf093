//! Calibration where the unit is the training run.

use crate::base::rng::Stream;
use crate::statistics::calibration_tests::worlds::{self, Runs, SPREADS, Spread};
use crate::statistics::calibration_tests::{Measure, Row, simulate};
use crate::statistics::equivalence::EquivalenceVerdict;
use crate::statistics::{
    Design, Measured, TimeToEvent, Verdict, between, comparison, equivalence, time_to_level,
};

const DESIGN: Design =
    Design { level: 0.95, alpha: 0.05, family_size: 1, power: 0.8, sigma: None, margin: None };

/// Points by which methods differ where equivalence is asked for.
const MARGIN: f64 = 0.1;

/// The benchmark of a simulated run: AIME's size.
const PROBLEMS: usize = 30;
const SAMPLES: u64 = 32;

pub(super) fn rows(replicates: u64, add: &mut impl FnMut(Vec<Row>)) {
    let two_modes = [Spread::BetaHalf, Spread::NearlySolved].map(|spread| (spread, Runs::TwoModes));
    let like = SPREADS.map(|spread| (spread, Runs::OneMode));
    for runs in [3, 4, 5, 8, 10] {
        // Ten runs a side have 184,756 splits: fewer worlds.
        let like = if runs == 10 { &like[1..2] } else { &like[..] };
        for (spread, shape) in like.iter().chain(&two_modes) {
            add(scores(replicates, *spread, [(*shape, 0.1); 2], runs));
        }
        let unlike = [(Runs::OneMode, 0.1), (Runs::OneMode, 0.3)];
        add(scores(replicates, Spread::BetaHalf, unlike, runs));
        let unlike = [(Runs::OneMode, 0.1), (Runs::TwoModes, 0.1)];
        add(scores(replicates, Spread::BetaHalf, unlike, runs));
    }
    for runs in [5, 8] {
        add(scores(replicates, Spread::BetaHalf, [(Runs::RareCollapse, 0.1); 2], runs));
        let one = [(Runs::OneMode, 0.02), (Runs::RareCollapse, 0.1)];
        add(scores(replicates, Spread::BetaHalf, one, runs));
        add(blocks(replicates, one, runs));
    }
    for runs in [3, 5, 8, 10] {
        let ends = if runs == 10 { &[40.0][..] } else { &[15.0, 40.0, 100.0] };
        for &end in ends {
            add(times(replicates, end, runs));
        }
    }
    for runs in [5, 8, 10] {
        for shape in [Runs::OneMode, Runs::TwoModes] {
            add(margins(replicates, shape, runs));
        }
        if runs < 10 {
            add(detectable(replicates, runs));
            add(families(replicates, runs));
        }
    }
    for count in [5, 8, 10] {
        for shape in [Runs::OneMode, Runs::TwoModes] {
            add(blocks(replicates, [(shape, 0.2); 2], count));
        }
    }
}

/// Scores of runs of one method on fixed problems.
fn sample(draw: &mut Stream, p: &[f64], (shape, size): (Runs, f64), runs: usize) -> Vec<f64> {
    (0..runs)
        .map(|_| {
            let z = shape.effect(draw, size);
            worlds::run_score(draw, p, SAMPLES, z)
        })
        .collect()
}

fn named((shape, size): (Runs, f64)) -> String {
    match shape {
        Runs::OneMode => format!("{shape:?} {size}"),
        _ => format!("{shape:?}"),
    }
}

/// Two methods whose runs have the same mean.
fn scores(replicates: u64, spread: Spread, sides: [(Runs, f64); 2], runs: usize) -> Vec<Row> {
    let unlike = sides[0] != sides[1];
    let [a, b] = sides.map(named);
    let scenario =
        if unlike { format!("{spread:?}, {a} against {b}") } else { format!("{spread:?}, {a}") };
    let size = format!("S = {runs}");
    let promises = ["t-interval", "welch", "permutation", "words"];
    let name = format!("scores, {scenario}, {size}");
    let mut rows = simulate(promises, replicates, [&name, &scenario, &size], |draw| {
        let p = spread.problems(draw, PROBLEMS);
        let truth = p.iter().sum::<f64>() / PROBLEMS as f64;
        let [a, b] = sides.map(|side| sample(draw, &p, side, runs));
        let interval = between::any_t_interval(&b, 0.95).expect("runs have scores");
        let t = (interval.contains(truth), between::t_interval(&b, 0.95).is_ok());
        let interval = between::any_welch_interval(&a, &b, 0.95).expect("runs have scores");
        let estimate = comparison::estimate(&Measured::Runs(a, b), &DESIGN);
        let estimate = estimate.expect("runs have scores");
        let word = matches!(estimate.verdict(0.05), Verdict::Improves | Verdict::Hurts);
        let welch = (interval.contains(0.0), estimate.interval.is_some());
        [t, welch, (estimate.p <= 0.05, true), (word, true)]
    });
    for row in &mut rows {
        row.outside_question = match row.promise.measure {
            // Means are equal and distributions are not: the test's own hypothesis is false.
            Measure::FalseRejections => unlike,
            _ => sides.iter().any(|(shape, _)| *shape == Runs::RareCollapse),
        };
    }
    rows
}

/// Times to a level: exponential with mean 20, seen at evaluations every 5, until `end`.
fn times(replicates: u64, end: f64, runs: usize) -> Vec<Row> {
    let reached = 100.0 * (1.0 - libm::exp(-end / 20.0));
    let (scenario, size) =
        (format!("{reached:.0} % of runs reach the level"), format!("S = {runs}"));
    let name = format!("times, {end}, {size}");
    let mut rows =
        simulate(["log-rank", "chi-square"], replicates, [&name, &scenario, &size], |draw| {
            let mut time = |_| {
                let time = (-20.0 * libm::log(1.0 - draw.uniform()) / 5.0).ceil() * 5.0;
                TimeToEvent { time: time.min(end), reached: time <= end }
            };
            let [a, b] = [0, 1].map(|_| (0..runs).map(&mut time).collect::<Vec<TimeToEvent>>());
            let test = time_to_level::log_rank(&a, &b).expect("times are positive");
            [(test.permutation.p <= 0.05, true), (test.chi_square_p <= 0.05, true)]
        });
    rows[1].outside_question = true;
    rows
}

/// Two methods that differ by exactly the margin.
fn margins(replicates: u64, shape: Runs, runs: usize) -> Vec<Row> {
    let (scenario, size) = (format!("BetaHalf, {shape:?}"), format!("S = {runs}"));
    let name = format!("margins, {scenario}, {size}");
    simulate(["tost"], replicates, [&name, &scenario, &size], |draw| {
        let p = Spread::BetaHalf.problems(draw, PROBLEMS);
        let [a, b] = [0.0, MARGIN].map(|more| {
            let scores = sample(draw, &p, (shape, 0.2), runs).into_iter();
            scores.map(|score| score + more).collect::<Vec<f64>>()
        });
        let tests = equivalence::equivalence(&a, &b, 0.05, MARGIN).expect("runs have scores");
        [(tests.verdict == EquivalenceVerdict::Reproduced, true)]
    })
}

/// Pairs of runs from a base policy of their own, whose score differs between blocks far more than within.
fn blocks(replicates: u64, sides: [(Runs, f64); 2], count: usize) -> Vec<Row> {
    let unlike = sides[0] != sides[1];
    let shapes = match sides {
        [a, b] if unlike => format!("{} against {}", named(a), named(b)),
        [(shape, _), _] => format!("{shape:?}"),
    };
    let (scenario, size) = (format!("blocks, {shapes}"), format!("{count} blocks"));
    let name = format!("blocks, {scenario}, {size}");
    let promises = ["block-interval", "sign-flips", "block-tost"];
    let mut rows = simulate(promises, replicates, [&name, &scenario, &size], |draw| {
        let difference = |_| {
            let p = Spread::BetaHalf.problems(draw, PROBLEMS);
            let pair = sides.map(|side| sample(draw, &p, side, 1)[0]);
            pair[1] - pair[0]
        };
        let differences: Vec<f64> = (0..count).map(difference).collect();
        let shifted: Vec<f64> = differences.iter().map(|score| score + MARGIN).collect();
        let estimate = comparison::estimate(&Measured::Blocks(differences), &DESIGN);
        let estimate = estimate.expect("blocks have differences");
        let tests =
            equivalence::of_blocks(&shifted, 0.05, MARGIN).expect("blocks have differences");
        let contains = estimate.interval.is_some_and(|interval| interval.contains(0.0));
        [
            (contains, estimate.interval.is_some()),
            (estimate.p <= 0.05, true),
            (tests.verdict == EquivalenceVerdict::Reproduced, true),
        ]
    });
    rows.iter_mut().for_each(|row| row.outside_question = unlike);
    rows
}

/// Normal runs that differ by the detectable effect.
fn detectable(replicates: u64, runs: usize) -> Vec<Row> {
    let size = format!("S = {runs}");
    let effect = between::minimum_detectable_effect(1.0, runs, runs, 0.05, 0.8);
    let names = [&format!("detectable, {size}"), "normal runs, sigma known", &size];
    simulate(["detectable"], replicates, names, |draw| {
        let [a, b] = [0.0, effect].map(|more| normals(draw, runs, more));
        let test = between::permutation_test(&a, &b).expect("runs have scores");
        [(test.p <= 0.05, true)]
    })
}

/// Five arms without effect against the same reference runs.
fn families(replicates: u64, runs: usize) -> Vec<Row> {
    let size = format!("S = {runs}");
    let names = [&format!("families, {size}"), "normal runs", &size];
    simulate(["family"], replicates, names, |draw| {
        let reference = normals(draw, runs, 0.0);
        let p = [0; 5].map(|_| {
            let arm = normals(draw, runs, 0.0);
            between::permutation_test(&reference, &arm).expect("runs have scores").p
        });
        [(between::holm(&p).iter().any(|p| *p <= 0.05), true)]
    })
}

fn normals(draw: &mut Stream, runs: usize, mean: f64) -> Vec<f64> {
    (0..runs).map(|_| draw.normals().0 + mean).collect()
}
