//! Two arms compared at the declared endpoint, and what a gate says of a difference.

use crate::base::visible;
use crate::statistics::{Estimate, Interval, accuracy::FEWEST_PROBLEMS, estimators};
use crate::study::collection::Study;
use crate::study::comparison::{ALPHA, RunComparison};
use crate::study::comparisons::{self, Comparison};
use crate::study::declaration;
use crate::study::{
    Cell, Declared, Direction, Metric, StudyError, Ties, TrackedComparison, Why, Word, analysis,
};
use serde::Serialize;
use std::cell::LazyCell;
use std::path::Path;

/// What is refused.
#[derive(Debug, Clone, Copy)]
pub struct Gate {
    /// Better is refused, too.
    pub either_way: bool,
    /// A share that counts as no difference; `None` asks for a shown difference alone.
    pub margin: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum GateVerdict {
    Passed,
    // The interval reaches beyond the margin; two one-sided tests at α show that B − A lies within it.
    Equivalent,
    Refused(Interval),
    RefusedTimes { is_worse: bool, medians_b_a: (Option<f64>, Option<f64>), p: f64 },
    Undecided(Undecided),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Undecided {
    FewProblems { problems: usize },
    FewRuns(FewRuns),
    NoIntervalOfRuns { pairs: Option<usize>, others: bool },
    NoInterval,
    EqualProblems,
    EqualRuns,
    // The interval neither excludes the margin nor lies beyond it.
    Wide { low: f64, high: f64 },
    NotCompared(Why),
    OtherUnits,
    LevelMissed,
    NotFinite,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FewRuns {
    /// After Holm, were no p of the family smaller.
    pub smallest_p: f64,
    pub family_size: usize,
    pub ties: Option<Ties>,
}

/// B − A, or arm − reference, as a share.
struct Difference {
    interval: Option<Interval>,
    p: f64,
    alpha: f64,
    equivalent_within: Option<f64>,
    pairs: Option<(usize, bool)>,
    has_worse_pair: bool,
}

impl Difference {
    fn of(interval: Option<Interval>, p: f64) -> Self {
        Self {
            interval,
            p,
            alpha: ALPHA,
            equivalent_within: None,
            pairs: None,
            has_worse_pair: true,
        }
    }
}

impl FewRuns {
    fn alone(smallest_p: f64) -> Self {
        Self { smallest_p, family_size: 1, ties: None }
    }

    fn smallest_p_without_ties(&self) -> f64 {
        let flips = |blocks: usize| (1u64 << blocks.min(60)) as f64;
        let of_blocks = |it: Ties| 2.0 * self.family_size as f64 / flips(it.blocks);
        self.ties.map_or(self.smallest_p, of_blocks)
    }
}

impl Gate {
    /// Several runs a side: the run is the unit. One run: problems are another draw.
    pub fn of_sides(self, sides: &RunComparison) -> GateVerdict {
        if let Some(runs) = &sides.between_runs {
            if self.margin.is_some() && are_equal(sides.a.by_run.iter().chain(&sides.b.by_run)) {
                return GateVerdict::Undecided(Undecided::EqualRuns);
            }
            let test = &runs.permutation;
            let difference = Difference::of(runs.welch.interval, test.p);
            return self.of_runs(&difference, FewRuns::alone(test.smallest_p));
        }
        let problems = sides.changes.len();
        if problems < FEWEST_PROBLEMS {
            return GateVerdict::Undecided(Undecided::FewProblems { problems });
        }
        let paired = &sides.paired;
        if paired.changes_alike() && (self.either_way || paired.difference < 0.0) {
            return GateVerdict::Undecided(Undecided::EqualProblems);
        }
        self.verdict(&Difference::of(paired.uncertainties[1].interval, paired.sign_flip.p))
    }

    pub fn of_arms(self, study: &Study, comparison: &Comparison) -> GateVerdict {
        let Some(result) = comparison.result.as_ref().filter(|_| comparison.is_judged()) else {
            return GateVerdict::Undecided(Undecided::NotCompared(comparison.why.clone()));
        };
        let alpha = study.declaration.alpha;
        let (interval, p) = (result.interval, result.adjusted_p);
        let (family_size, ties) = (comparison.family_size, comparison.ties());
        let smallest_p = (result.smallest_p * family_size as f64).min(1.0);
        let least = FewRuns { smallest_p, family_size, ties };
        let equivalent_within = result.equivalent_within(alpha);
        let differences = comparisons::block_differences(comparison);
        let pairs = comparison.paired.then_some((differences.len(), false));
        let has_worse_pair = differences.iter().any(|(_, difference)| *difference < 0.0);
        let difference =
            Difference { interval, p, alpha, equivalent_within, pairs, has_worse_pair };
        self.of_runs(&difference, least)
    }

    pub fn of_tracked(self, tracked: &TrackedComparison) -> GateVerdict {
        if tracked.other_units {
            return GateVerdict::Undecided(Undecided::OtherUnits);
        }
        if tracked.is_level_missed() {
            return GateVerdict::Undecided(Undecided::LevelMissed);
        }
        let Some(estimate) = &tracked.estimate else {
            return GateVerdict::Undecided(Undecided::FewRuns(FewRuns::alone(1.0)));
        };
        let Estimate { interval, p, smallest_p, difference, medians, .. } = *estimate;
        if self.margin.is_some() && are_equal(tracked.runs.iter().map(|run| &run.value)) {
            return GateVerdict::Undecided(Undecided::EqualRuns);
        }
        // The test alone decides a time.
        let time = Interval { low: difference, high: difference, level: 0.0 };
        let interval = interval.or(medians.map(|_| time));
        let equivalent_within = estimate.equivalent_within(ALPHA);
        let others = !tracked.without_partner.is_empty();
        let differences = tracked.gains_of_pairs();
        let pairs = tracked.paired.then_some((tracked.runs.len() / 2, others));
        let has_worse_pair = differences.iter().any(|difference| *difference < 0.0);
        let difference = Difference::of(interval, p);
        let difference = Difference { equivalent_within, pairs, has_worse_pair, ..difference };
        let least = FewRuns { ties: Ties::of(&differences), ..FewRuns::alone(smallest_p) };
        match (self.of_runs(&difference, least), medians) {
            (GateVerdict::Refused(Interval { high, .. }), Some(medians)) => {
                GateVerdict::RefusedTimes { is_worse: high < 0.0, medians_b_a: medians, p }
            }
            (verdict, _) => verdict,
        }
    }

    fn of_runs(self, difference: &Difference, least: FewRuns) -> GateVerdict {
        // Equal blocks have no sign to flip; their interval is a point. The interval decides a margin.
        let is_equal = difference.interval.is_some_and(|it| it.level > 0.0 && it.low == it.high);
        // Holm lets a p of a later rank be below the smallest of the first.
        let smallest_p = least.smallest_p.min(difference.p);
        let can_be_shown = smallest_p <= difference.alpha || is_equal || self.margin.is_some();
        if !can_be_shown {
            let has_few_blocks = least.smallest_p_without_ties() > difference.alpha;
            let may_be_refused = self.either_way || difference.has_worse_pair || has_few_blocks;
            let undecided = GateVerdict::Undecided(Undecided::FewRuns(least));
            return if may_be_refused { undecided } else { GateVerdict::Passed };
        }
        if difference.interval.is_none() {
            let (pairs, others) = difference.pairs.unzip();
            let others = others.unwrap_or_default();
            return GateVerdict::Undecided(Undecided::NoIntervalOfRuns { pairs, others });
        }
        self.verdict(difference)
    }

    fn verdict(self, difference: &Difference) -> GateVerdict {
        let Some(interval @ Interval { low, high, .. }) = difference.interval else {
            return match self.margin {
                Some(_) => GateVerdict::Undecided(Undecided::NoInterval),
                None => GateVerdict::Passed,
            };
        };
        if !(low.is_finite() && high.is_finite() && difference.p.is_finite()) {
            return GateVerdict::Undecided(Undecided::NotFinite);
        }
        let margin = self.margin.unwrap_or(0.0);
        let is_beyond = high < -margin || self.either_way && low > margin;
        let is_within = low > -margin && (!self.either_way || high < margin);
        let is_equivalent =
            difference.equivalent_within.is_some_and(|within| within <= margin * (1.0 + 1e-12));
        if is_beyond && difference.p <= difference.alpha {
            GateVerdict::Refused(interval)
        } else if self.margin.is_none() || is_within {
            GateVerdict::Passed
        } else if is_equivalent {
            GateVerdict::Equivalent
        } else {
            GateVerdict::Undecided(Undecided::Wide { low, high })
        }
    }
}

fn are_equal<'a>(mut values: impl Iterator<Item = &'a f64>) -> bool {
    let first = values.next();
    values.all(|value| first.is_some_and(|first| estimators::difference(*first, *value) == 0.0))
}

#[derive(Serialize)]
pub struct ArmsCompared {
    #[serde(flatten)]
    pub comparison: Comparison,
    pub beside: Vec<Comparison>,
    /// None where nothing is declared.
    #[serde(skip)]
    pub families: Vec<String>,
}

impl ArmsCompared {
    pub fn decides(&self) -> Option<String> {
        let is_declared = |it: &&Comparison| self.families.contains(&it.family);
        let others = self.beside.iter().filter(is_declared).count();
        let are_others = match others {
            0 => String::new(),
            1 => "; 1 other comparison of this pair is declared".to_owned(),
            more => format!("; {more} other comparisons of this pair are declared"),
        };
        let Declared { id, metric, .. } = &self.comparison.declared;
        let own = match [&self.comparison].into_iter().find(is_declared) {
            Some(it) => format!("{}/{id}: ", it.family),
            None if others > 0 => String::new(),
            None => return None,
        };
        Some(visible::message(&format!("decided by {own}{}{are_others}", metric.words())))
    }
}

/// The endpoint is that declared of these arms, in either order, else of the study, else the primary set at the end.
/// What the report compares, declared or as a row, has its p. Errors: an arm that the study in `folder` does not have.
pub fn arms(
    study: &Study,
    folder: &Path,
    [arm, reference]: [&str; 2],
) -> Result<ArmsCompared, StudyError> {
    let known: Vec<String> = study.arms().map(|(id, _)| id).collect();
    let mut known: Vec<&str> = known.iter().map(String::as_str).collect();
    let pools = study.declaration.pool_ids();
    if [arm, reference].iter().any(|name| declaration::names_pool(name)) {
        known.extend(pools.iter().map(String::as_str));
    }
    let named = study.ids_of_names(&known, &[arm, reference]);
    let named = named.map_err(|reason| StudyError::invalid(folder, reason))?;
    let (arm, reference) = (named[0][0].to_owned(), named[1][0].to_owned());
    let identity = |id: &str| study.arm(id).map(|arm| &arm.arm_sha256);
    let are_arms = identity(&arm).is_some();
    if arm == reference || are_arms && identity(&arm) == identity(&reference) {
        let reason = format!("{arm} and {reference} are the same runs: name two arms that differ");
        return Err(StudyError::invalid(folder, reason));
    }
    let families = comparisons::families(study);
    let all = || families.iter().flat_map(|family| &family.comparisons);
    let runs = |id: &str| -> Vec<*const Cell> {
        study.cells_of(id).into_iter().map(std::ptr::from_ref).collect()
    };
    let is_arm = |id: &str, arm: &str| id == arm || !runs(id).is_empty() && runs(id) == runs(arm);
    let own = |it: &Comparison| {
        let sides = [&it.declared.arm, &it.declared.reference];
        let is_of = |one, other| is_arm(sides[0], one) && is_arm(sides[1], other);
        let turned = || is_of(&reference, &arm).then(|| swapped(it.clone()));
        if is_of(&arm, &reference) { Some(it.clone()) } else { turned() }
    };
    let mut beside: Vec<Comparison> = all().filter_map(own).collect();
    let pool = [&arm, &reference].into_iter().find(|id| study.declaration.pool(id).is_some());
    if let Some(pool) = pool.filter(|_| beside.is_empty()) {
        let reason = of_pool(pool, all());
        return Err(StudyError::invalid(folder, reason));
    }
    let last = Metric::last_score(&study.declaration.primary_set);
    let is_declared = study.is_declared();
    let is_endpoint = |metric: &Metric| {
        if is_declared { metric.is_score() } else { *metric == last }
    };
    let rows = LazyCell::new(|| {
        let of_grid = |grid| analysis::differences(study, grid, &families);
        study.grids.iter().flat_map(of_grid).filter_map(|row| own(&row)).collect::<Vec<_>>()
    });
    let exploratory = |metric: &Metric| {
        if let Some(row) = rows.iter().find(|row| row.declared.metric == *metric) {
            return row.clone();
        }
        let (id, metric, direction) = ("compare".to_string(), metric.clone(), Direction::Higher);
        let (arm, reference) = (arm.clone(), reference.clone());
        let declared = Declared { id, arm, reference, metric, direction };
        let alone = comparisons::exploratory(study, "compare", vec![declared]).remove(0);
        Comparison { is_of_no_family: true, ..alone }
    };
    let endpoint = beside.iter().position(|it| is_endpoint(&it.declared.metric));
    let comparison = match endpoint.or(pool.map(|_| 0)) {
        Some(place) => beside.remove(place),
        None => {
            let mut metrics = all().map(|it| &it.declared.metric);
            exploratory(metrics.find(|it| is_endpoint(it)).unwrap_or(&last))
        }
    };
    let has_last = || [&comparison].into_iter().chain(&beside).any(|it| it.declared.metric == last);
    if pool.is_none() && !has_last() {
        beside.push(exploratory(&last));
    }
    let families = if is_declared { families } else { Vec::new() };
    let families = families.into_iter().map(|family| family.id).collect();
    Ok(ArmsCompared { comparison, beside, families })
}

fn of_pool<'a>(pool: &str, declared: impl Iterator<Item = &'a Comparison>) -> String {
    let is_of = |it: &&Comparison| it.declared.arm == pool || it.declared.reference == pool;
    let shown = |it: &Comparison| {
        let Declared { id, arm, reference, .. } = &it.declared;
        format!("{}/{id} ({arm} against {reference})", it.family)
    };
    let declared: Vec<String> = declared.filter(is_of).map(shown).collect();
    let where_it_is = match &declared[..] {
        [] => "and no comparison of the declaration has it".to_owned(),
        declared => format!("as in {}; `dapo report` shows these", declared.join(", ")),
    };
    format!(
        "{pool} is a pool: it is compared only where the declaration compares it, {where_it_is}"
    )
}

fn swapped(mut it: Comparison) -> Comparison {
    use std::mem::swap;
    swap(&mut it.arm, &mut it.reference);
    swap(&mut it.declared.arm, &mut it.declared.reference);
    it.arms_of_sides.reverse();
    it.declared.direction = match it.declared.direction {
        Direction::Higher => Direction::Lower,
        Direction::Lower => Direction::Higher,
    };
    it.word = match it.word {
        Word::Improves => Word::Hurts,
        Word::Hurts => Word::Improves,
        Word::Higher => Word::Lower,
        Word::Lower => Word::Higher,
        same => same,
    };
    if let Why::TooFewRuns { arm, reference, .. } = &mut it.why {
        swap(arm, reference);
    }
    if let Some(result) = &mut it.result {
        result.difference = 0.0 - result.difference;
        let turned = |it: Interval| Interval { low: 0.0 - it.high, high: 0.0 - it.low, ..it };
        result.interval = result.interval.map(turned);
        result.probability_higher = result.probability_higher.map(|share| 1.0 - share);
        result.medians = result.medians.map(|(arm, reference)| (reference, arm));
        if let Some(tests) = &mut result.equivalence {
            tests.difference = 0.0 - tests.difference;
        }
    }
    it
}
