//! What training did on the way: the largest ratios, KL and gradients, falls of accuracy, rounds at the cap, and runs
//! that collapsed. It decides nothing: a run with a score counts in every comparison.

use crate::algorithm::DynamicSampling;
use crate::statistics::estimators;
use crate::study::{Cell, CellEnding, CellEvaluation, collection::Study, window};
use serde::Serialize;
use std::collections::BTreeSet;

/// From one evaluation to the next, as a share.
pub const FALL: f64 = 0.10;
/// Below the highest accuracy so far, as a share of all problems, and as a part of that accuracy. Chosen after the first
/// five studies were read: both say that no noise of their test sets looks like this.
pub const COLLAPSE_SHARE: f64 = 0.25;
pub const COLLAPSE_PART: f64 = 0.40;
/// A policy that never had [`COLLAPSE_SHARE`] to lose collapsed where so little of its highest accuracy is left, by more
/// than so many standard errors of the two evaluations (over problems).
pub const COLLAPSE_LEFT: f64 = 0.25;
pub const COLLAPSE_ERRORS: f64 = 3.0;
pub const HIGH_RATIO: f64 = 10.0;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmStability {
    pub arm: String,
    pub runs: u64,
    /// Of the loss, over all updates of all runs: π_θ over π_old of a token, or what the arm's method has in its place.
    pub ratio: Option<Largest>,
    /// Runs with a ratio above [`HIGH_RATIO`].
    pub high_ratios: u64,
    /// Largest of a rollout step's means.
    pub kl: Option<Largest>,
    /// Before clipping.
    pub gradient_norm: Option<Largest>,
    /// Rollout steps that drew as many rounds as they may, of all; `None` without a cap.
    pub at_cap: Option<(u64, u64)>,
    pub falls: Vec<Fall>,
    pub collapsed: Vec<Collapse>,
    /// Seeds whose loss or gradient was NaN or infinite.
    pub not_finite: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Largest {
    pub value: f64,
    pub seed: u64,
}

/// Accuracy on the curve set, shares of 1, that fell by more than [`FALL`] up to the evaluation after this step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Fall {
    pub seed: u64,
    pub rollout_step: u64,
    pub before: f64,
    pub after: f64,
}

/// Accuracy more than [`COLLAPSE_SHARE`] and more than [`COLLAPSE_PART`] below the highest before it, or less than
/// [`COLLAPSE_LEFT`] of it beyond [`COLLAPSE_ERRORS`], whether or not it comes back.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Collapse {
    pub seed: u64,
    pub highest: f64,
    pub lowest: f64,
    pub last: f64,
}

/// Every arm once, under its first name.
pub fn of(study: &Study) -> Vec<ArmStability> {
    let mut known = BTreeSet::new();
    let arms = study.arms().filter(|(_, arm)| known.insert(&arm.arm_sha256));
    arms.map(|(id, _)| of_arm(study, id)).collect()
}

fn of_arm(study: &Study, arm: String) -> ArmStability {
    let cells = study.cells_of(&arm);
    let is_high = |ratio: Largest| ratio.value > HIGH_RATIO;
    let high = |cell: &&&Cell| largest(&[cell], "loss/ratio_max").is_some_and(is_high);
    let not_finite = cells.iter().filter(|cell| cell.ending == CellEnding::Diverged);
    let courses: Vec<_> = cells.iter().map(|cell| (cell.seed, course(study, cell))).collect();
    ArmStability {
        runs: cells.len() as u64,
        ratio: largest(&cells, "loss/ratio_max"),
        high_ratios: cells.iter().filter(high).count() as u64,
        kl: largest(&cells, "loss/approx_kl"),
        gradient_norm: largest(&cells, "optimizer/gradient_norm_max"),
        at_cap: at_cap(&cells),
        falls: courses.iter().flat_map(|(seed, course)| falls(*seed, course)).collect(),
        collapsed: courses.iter().filter_map(|(seed, course)| collapse(*seed, course)).collect(),
        not_finite: not_finite.map(|cell| cell.seed).collect(),
        arm,
    }
}

fn largest(cells: &[&Cell], metric: &str) -> Option<Largest> {
    let values = cells.iter().flat_map(|cell| {
        let values = cell.metric(metric).unwrap_or_default().iter().flatten();
        values.map(|value| Largest { value: *value, seed: cell.seed })
    });
    values.reduce(|most, next| if next.value > most.value { next } else { most })
}

fn at_cap(cells: &[&Cell]) -> Option<(u64, u64)> {
    let experiment = &cells.first()?.experiment;
    let DynamicSampling::Resample { max_rounds, .. } = experiment.dapo.dynamic_sampling else {
        return None;
    };
    let rounds = cells.iter().flat_map(|cell| cell.metric("rollout/rounds").unwrap_or_default());
    let rounds: Vec<f64> = rounds.flatten().copied().collect();
    let at = rounds.iter().filter(|count| **count >= f64::from(max_rounds)).count();
    (max_rounds > 0).then_some((at as u64, rounds.len() as u64))
}

/// On the curve set.
#[derive(Debug, Clone, Copy)]
struct Evaluated {
    rollout_step: u64,
    accuracy: f64,
    /// Over problems.
    standard_error: f64,
}

fn course(study: &Study, cell: &Cell) -> Vec<Evaluated> {
    let evaluations = cell.evaluations_of(&study.declaration.curve_set);
    let mut course: Vec<Evaluated> = evaluations.map(evaluated).collect();
    course.sort_by_key(|it| it.rollout_step);
    course
}

fn evaluated(evaluation: &CellEvaluation) -> Evaluated {
    let counts = evaluation.counts();
    Evaluated {
        rollout_step: evaluation.counters.rollout_steps,
        accuracy: evaluation.avg_at_k(),
        standard_error: if counts.is_empty() {
            0.0
        } else {
            estimators::standard_error_new_problems(&counts)
        },
    }
}

fn falls(seed: u64, course: &[Evaluated]) -> Vec<Fall> {
    let is_fall =
        |pair: &&[Evaluated]| window::is_above(pair[0].accuracy - pair[1].accuracy, FALL, 1.0);
    let fall = |pair: &[Evaluated]| {
        let Evaluated { rollout_step, accuracy: after, .. } = pair[1];
        Fall { seed, rollout_step, before: pair[0].accuracy, after }
    };
    course.windows(2).filter(is_fall).map(fall).collect()
}

fn collapse(seed: u64, course: &[Evaluated]) -> Option<Collapse> {
    let last = course.last()?.accuracy;
    let mut highest = *course.first()?;
    let mut deepest: Option<Collapse> = None;
    for now in course {
        if now.accuracy > highest.accuracy {
            highest = *now;
        }
        let lost = highest.accuracy - now.accuracy;
        let is_deeper = deepest.is_none_or(|it| lost > it.highest - it.lowest);
        if is_deeper && is_collapsed(&highest, now) {
            let (highest, lowest) = (highest.accuracy, now.accuracy);
            deepest = Some(Collapse { seed, highest, lowest, last });
        }
    }
    deepest
}

fn is_collapsed(highest: &Evaluated, now: &Evaluated) -> bool {
    let lost = highest.accuracy - now.accuracy;
    let is_lost = |share: f64| window::is_above(lost, share, highest.accuracy);
    let by_points = window::is_above(lost, COLLAPSE_SHARE, 1.0) && is_lost(COLLAPSE_PART);
    let [before, after] = [highest, now].map(|it| it.standard_error * it.standard_error);
    let little_is_left = is_lost(1.0 - COLLAPSE_LEFT);
    by_points || little_is_left && window::is_above(lost, COLLAPSE_ERRORS, (before + after).sqrt())
}

/// Blocks in which a run of these arms or pools collapsed or was not finite.
pub fn collapsed_seeds(study: &Study, ids: &[&str]) -> Vec<u64> {
    let cells = ids.iter().flat_map(|id| study.cells_of(id));
    let collapsed = cells.filter(|cell| {
        let course = course(study, cell);
        cell.ending == CellEnding::Diverged || collapse(cell.seed, &course).is_some()
    });
    let seeds: BTreeSet<u64> = collapsed.map(|cell| cell.seed).collect();
    seeds.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Counts;

    /// Of 64 problems with one sample each.
    fn course(correct: &[u64]) -> Vec<Evaluated> {
        let at = |(step, correct): (usize, &u64)| {
            let counts: Vec<Counts> = (0..64)
                .map(|problem| Counts { correct: u64::from(problem < *correct), samples: 1 })
                .collect();
            Evaluated {
                rollout_step: step as u64,
                accuracy: estimators::avg_at_k(&counts),
                standard_error: estimators::standard_error_new_problems(&counts),
            }
        };
        correct.iter().enumerate().map(at).collect()
    }

    #[test]
    fn a_policy_with_less_than_25_points_can_collapse() {
        for correct in [[12, 15, 1], [10, 13, 0]] {
            let deepest = collapse(7, &course(&correct)).unwrap();
            assert_eq!((deepest.seed, deepest.highest), (7, correct[1] as f64 / 64.0));
            assert_eq!((deepest.lowest, deepest.last), (correct[2] as f64 / 64.0, deepest.lowest));
        }
        // As much is left as a quarter, and what is noise of a set so small.
        assert_eq!(collapse(7, &course(&[16, 4])), None);
        assert_eq!(collapse(7, &course(&[5, 0])), None);
    }

    #[test]
    fn what_is_lost_is_compared_with_its_limit_beyond_rounding() {
        let course = |accuracies: [f64; 2]| {
            accuracies.map(|accuracy| Evaluated { rollout_step: 1, accuracy, standard_error: 1.0 })
        };
        for (before, after) in [(0.4, 0.3), (0.7, 0.6), (0.3, 0.2), (1.0, 0.9)] {
            assert!(falls(7, &course([before, after])).is_empty(), "{before} {after}");
            assert_eq!(falls(7, &course([before, after - 1e-6])).len(), 1, "{before} {after}");
        }
        for (before, after) in [(0.4, 0.15), (0.6, 0.35), (0.55, 0.3), (0.7, 0.42)] {
            assert_eq!(collapse(7, &course([before, after])), None, "{before} {after}");
            assert!(collapse(7, &course([before, after - 1e-6])).is_some(), "{before} {after}");
        }
    }

    #[test]
    fn a_fall_of_25_points_and_of_40_percent_is_a_collapse_as_before() {
        let deepest = collapse(7, &course(&[20, 40, 20, 30])).unwrap();
        assert_eq!((deepest.highest, deepest.lowest), (40.0 / 64.0, 20.0 / 64.0));
        assert_eq!(deepest.last, 30.0 / 64.0);
        assert_eq!(collapse(7, &course(&[60, 40])), None);
        assert_eq!(collapse(7, &[]), None);
    }
}
