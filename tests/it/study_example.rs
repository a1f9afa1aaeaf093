//! A made-up study with the look of a real one: every metric of a real run, seeds that differ,
//! problems of different difficulty. Everything is a function of its arguments.

use crate::study_fixture::{self, ROUND, Shape};
use dapo::base::rng::{Id, stream};
use dapo::base::{Bits, Purpose};
use dapo::experiment::{Arm, Grid};
use dapo::policy::optimizer;
use dapo::study::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// One cell for each arm and seed; arms that stand in several grids have one.
pub fn cells(grids: &[Grid], seeds: &[u64]) -> Vec<Cell> {
    let mut known = BTreeSet::new();
    let arms = grids.iter().flat_map(|grid| &grid.arms);
    let new: Vec<&Arm> = arms.filter(|arm| known.insert(arm.arm_sha256.clone())).collect();
    new.iter().flat_map(|arm| seeds.iter().map(|seed| cell(arm, *seed))).collect()
}

/// A finished run.
pub fn cell(arm: &Arm, seed: u64) -> Cell {
    let dapo = &arm.experiment.dapo;
    let json = serde_json::to_value(dapo).unwrap();
    let resamples = json["dynamic_sampling"]["kind"] == "resample";
    let higher = json["clip"]["high"].as_f64().unwrap() > 0.2;
    let token_mean = json["aggregation"] == "token-mean";
    let soft = json["overlong"]["punishment"]["kind"] == "soft";
    let filter = json["overlong"]["filter"] == true;
    let gains =
        [(resamples, 0.13), (higher, 0.10), (token_mean, 0.03), (soft, 0.05), (filter, 0.04)];
    let gain: f64 = gains.iter().filter(|(on, _)| *on).map(|(_, gain)| gain).sum();
    let luck = 0.05 * (uniform(arm, seed, 0) - 0.5);
    let end = 0.40 + gain + luck;
    let mut cell = study_fixture::cell(arm, seed, &Shape::ending_at(end));
    let rounds: Vec<u64> = (0..study_fixture::STEPS)
        .map(|step| if resamples { 2 + (uniform(arm, seed, 100 + step) * 1.6) as u64 } else { 1 })
        .collect();
    let mut sum = 0;
    for (counters, rounds) in cell.counters.iter_mut().zip(&rounds) {
        sum += rounds;
        counters.generation_rounds = sum;
    }
    for evaluation in &mut cell.evaluations {
        let step = evaluation.counters.rollout_steps;
        if let Some(index) = step.checked_sub(1) {
            evaluation.counters = cell.counters[index as usize];
        }
        let score = course(0.26, end, step as f64 / study_fixture::STEPS as f64);
        let problems = cell.problems[&evaluation.set].count;
        evaluation.generated_rollouts = evaluation.counters.generation_rounds * ROUND;
        // The base policy is the same for every arm.
        let of = if step == 0 { seed } else { key(arm, seed) };
        let mut draws = stream(of, Purpose::Evaluation, &[Id::Number(step), Id::Number(problems)]);
        evaluation.outcomes = (0..problems * evaluation.samples)
            .map(|index| {
                let problem = index / evaluation.samples;
                let hard = 2.4 * (uniform_of(7, problem) - 0.5) * 3.0;
                let chance = 1.0 / (1.0 + (-((score / (1.0 - score)).ln() * 1.6 - hard)).exp());
                draws.uniform() < chance
            })
            .collect::<Bits>();
        let most = |correct: &u64| 2 * correct > evaluation.samples;
        let solved = evaluation.correct().iter().filter(|it| most(it)).count();
        evaluation.cons_at_k = solved as f64 / problems as f64;
    }
    metrics(&mut cell, arm, seed, (higher, end), &rounds);
    let facts = [("cpu", "Intel(R) Xeon(R) Processor"), ("cores", "2"), ("libtorch", "2.11.0")];
    cell.environment = facts.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    cell.wall_seconds = 55.0 + 20.0 * uniform(arm, seed, 1);
    cell.sealed()
}

fn metrics(cell: &mut Cell, arm: &Arm, seed: u64, (higher, end): (bool, f64), rounds: &[u64]) {
    let late = if higher { 0.09 } else { 0.012 };
    let named: [(&str, f64, f64); 12] = [
        ("policy/entropy", 0.19, late),
        ("policy/token_probability_mean", 0.92, 1.0 - late / 2.5),
        ("rollout/response_tokens_mean", 30.0, 40.0 + 60.0 * end),
        ("rollout/reward_mean", -0.55, 2.0 * end - 1.0),
        ("rollout/groups_all_correct_share", 0.02, 0.75 * end),
        ("rollout/groups_useful_share", 0.8, 0.9 - 0.75 * end),
        ("rollout/truncated_share", 0.08, 0.01),
        ("rollout/style_careful_share", 0.01, end * 0.8),
        ("loss/clip_fraction_high", 0.002, if higher { 0.0006 } else { 0.0016 }),
        ("loss/clip_fraction_low", 0.0015, 0.001),
        ("loss/up_clipped_probability_mean", 0.12, 0.3),
        ("optimizer/gradient_norm_mean", 0.4, 0.2),
    ];
    let mut metrics: BTreeMap<String, Vec<Option<f64>>> = BTreeMap::new();
    for (place, (name, first, last)) in named.into_iter().enumerate() {
        let values = (0..study_fixture::STEPS).map(|step| {
            let along = step as f64 / (study_fixture::STEPS - 1) as f64;
            let noise = 1.0 + 0.12 * (uniform(arm, seed, 20_000 + 100 * step + place as u64) - 0.5);
            let value = course(first, last, along);
            let most = if name.ends_with("token_probability_mean") { 1.0 } else { f64::MAX };
            let value = (value * noise).min(most);
            // Rare tokens: not every step has one.
            let rare = name == "loss/up_clipped_probability_mean" && step % 7 == 3;
            (!rare).then(|| format!("{value:.6e}").parse().unwrap())
        });
        metrics.insert(name.to_owned(), values.collect());
    }
    for name in crate::effects::METRICS.split_whitespace() {
        metrics.entry(name.to_owned()).or_insert_with(|| vec![Some(3.0); rounds.len()]);
    }
    bound(&mut metrics, arm, rounds);
    cell.metrics = metrics;
}

/// What the clocks, the experiment and the other metrics decide.
fn bound(metrics: &mut BTreeMap<String, Vec<Option<f64>>>, arm: &Arm, rounds: &[u64]) {
    let of = |name: &str, step: usize| metrics[name][step].unwrap();
    let column = |value: &dyn Fn(usize) -> f64| -> Vec<Option<f64>> {
        (0..rounds.len()).map(|step| format!("{:.8e}", value(step)).parse().ok()).collect()
    };
    let tokens = |step: usize| 12_000.0 + 250.0 * step as f64;
    let clipped = |step| (of("loss/clip_fraction_high", step) * tokens(step)).round();
    let half_useful = |step| 0.5 * of("rollout/groups_useful_share", step);
    let columns = [
        ("rollout/generated_rollouts", column(&|step| (rounds[step] * ROUND) as f64)),
        ("rollout/groups", column(&|step| (rounds[step] * ROUND / 8) as f64)),
        ("train/rollouts", column(&|_| 256.0)),
        ("effect/loss_tokens", column(&tokens)),
        ("effect/dynamic_sampling_batch_filled_share", column(&|_| 1.0)),
        ("effect/dynamic_sampling_refill_rounds", column(&|step| rounds[step] as f64 - 1.0)),
        ("effect/clip_higher_clipped_above_tokens", column(&clipped)),
        ("loss/clip_fraction_high", column(&|step| clipped(step) / tokens(step))),
        (
            "rollout/accuracy",
            column(&|step| of("rollout/groups_all_correct_share", step) + half_useful(step)),
        ),
        (
            "optimizer/learning_rate",
            column(&|step| optimizer::learning_rate(&arm.experiment.optimizer, step as u64)),
        ),
    ];
    for (name, column) in columns {
        metrics.insert(name.to_owned(), column);
    }
}

/// From the first value towards the last, fast at the beginning.
fn course(first: f64, last: f64, along: f64) -> f64 {
    let part = (1.0 - (-3.0 * along).exp()) / (1.0 - (-3.0f64).exp());
    first + (last - first) * part
}

fn uniform(arm: &Arm, seed: u64, place: u64) -> f64 {
    uniform_of(key(arm, seed), place)
}

fn key(arm: &Arm, seed: u64) -> u64 {
    let arm = u64::from_str_radix(&arm.arm_sha256[..8], 16).unwrap();
    arm.wrapping_mul(1_000_003).wrapping_add(seed)
}

fn uniform_of(seed: u64, place: u64) -> f64 {
    stream(seed, Purpose::Generate, &[Id::Number(place)]).uniform()
}
