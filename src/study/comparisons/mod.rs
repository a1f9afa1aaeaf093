//! Comparisons between arms; the unit is the run, or the block of runs of one seed. Each has a
//! permutation test, an interval, and a p that Holm adjusts within its family.

mod judgement;

use crate::base::workers;
use crate::statistics::{
    Equivalence, Interval, TimeToEvent, aggregates, between, equivalence, estimators, time_to_level,
};
use crate::study::collection::Study;
use crate::study::{
    Cell, Declared, DeclaredFamily, Direction, Metric, NoValue, Why, WithoutValue, arms, metric,
};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FamilyResult {
    pub id: String,
    pub question: String,
    pub comparisons: Vec<Comparison>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    pub family: String,
    pub declared: Declared,
    /// A registered declaration has it.
    pub registered: bool,
    /// By seed.
    pub arm: Vec<RunValue>,
    /// By seed.
    pub reference: Vec<RunValue>,
    pub without_value: Vec<WithoutValue>,
    /// Both arms' runs have the same outcomes in every evaluation.
    pub identical_seeds: Vec<u64>,
    pub common_seeds: u64,
    pub budget: Option<u64>,
    pub result: Option<TestResult>,
    pub word: Word,
    pub why: Why,
    /// A family that must be shown first was not.
    #[serde(skip)]
    pub is_closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RunValue {
    pub seed: u64,
    /// In the unit of the metric; shares in [0, 1].
    pub value: f64,
    /// A time to a level that was not reached.
    pub censored: bool,
}

/// Differences are arm − reference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TestResult {
    /// Difference of means (paired: over blocks); for times to a level observed minus expected
    /// arrivals of the arm (positive if it arrives earlier).
    pub difference: f64,
    /// Welch's, or t over blocks; `None` for times to a level, which may be censored.
    pub interval: Option<Interval>,
    /// Two-sided permutation p of the difference of means, or of log-rank scores.
    pub p: f64,
    /// Share of pairs of runs (paired: of blocks) in which the arm is higher; ties count ½. `None`
    /// for times to a level. It decides nothing.
    pub probability_higher: Option<f64>,
    /// By Holm, within the family.
    pub adjusted_p: f64,
    pub smallest_p: f64,
    pub splits: u64,
    pub exact: bool,
    /// The true difference that the declared power finds at α / (family size) with the pilot's σ.
    /// avg@k only; it decides nothing.
    pub minimum_detectable_effect: Option<f64>,
    /// Pooled over both sides, or of the blocks' differences. avg@k only.
    pub observed_sigma: Option<f64>,
    /// From the observed σ.
    pub observed_detectable_effect: Option<f64>,
    /// Two one-sided tests against δ. avg@k only.
    pub equivalence: Option<Equivalence>,
    /// Kaplan–Meier medians of arm and reference; inner `None` where more than half never reached it.
    pub medians: Option<(Option<f64>, Option<f64>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    Improves,
    Hurts,
    /// The metric is no score.
    Higher,
    /// The metric is no score.
    Lower,
    Equivalent,
    /// No effect is shown, and none is excluded.
    Inconclusive,
    NotCompared,
}

impl Word {
    pub fn words(self) -> &'static str {
        match self {
            Self::Improves => "improves",
            Self::Hurts => "hurts",
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Equivalent => "equivalent",
            Self::Inconclusive => "inconclusive",
            Self::NotCompared => "not compared",
        }
    }
}

impl Comparison {
    pub fn shown(&self) -> Option<Direction> {
        let sign = self.result.as_ref()?.difference;
        // The statistic is positive where the arm is earlier, that is, where its time is lower.
        let higher = (sign > 0.0) != self.declared.metric.is_time();
        let shown = matches!(self.word, Word::Improves | Word::Hurts | Word::Higher | Word::Lower);
        shown.then_some(if higher { Direction::Higher } else { Direction::Lower })
    }

    pub fn means(&self) -> (Option<f64>, Option<f64>) {
        let mean = |values: &[RunValue]| {
            let sum: f64 = values.iter().map(|run| run.value).sum();
            (!values.is_empty()).then(|| sum / values.len() as f64)
        };
        (mean(&self.arm), mean(&self.reference))
    }
}

pub fn families(study: &Study) -> Vec<FamilyResult> {
    let declaration = &study.declaration;
    let mut made: Vec<FamilyResult> = Vec::new();
    for declared in &declaration.families {
        let mut result = family(study, declared, declaration.registered);
        let open = made.iter().find(|before| {
            let mut shown = before.comparisons.iter().map(|it| it.shown().is_some());
            declared.after.contains(&before.id) && !shown.all(|shown| shown)
        });
        if let Some(before) = open {
            result.comparisons.iter_mut().for_each(|it| judgement::close(it, &before.id));
        }
        made.push(result);
    }
    made
}

/// A comparison that cannot be tested counts with p = 1, so that leaving an arm out never makes the
/// others easier.
pub fn family(study: &Study, family: &DeclaredFamily, registered: bool) -> FamilyResult {
    let size = family.comparisons.len();
    let mut comparisons: Vec<Comparison> = workers::on_all_cores(&family.comparisons, |declared| {
        tested(study, &family.id, declared, size, registered)
    });
    let p: Vec<f64> =
        comparisons.iter().map(|it| it.result.as_ref().map_or(1.0, |result| result.p)).collect();
    for (comparison, adjusted) in comparisons.iter_mut().zip(between::holm(&p)) {
        if let Some(result) = &mut comparison.result {
            result.adjusted_p = adjusted;
        }
        judgement::judge(study, comparison, size);
    }
    FamilyResult { id: family.id.clone(), question: family.question.clone(), comparisons }
}

fn tested(
    study: &Study,
    family: &str,
    declared: &Declared,
    size: usize,
    registered: bool,
) -> Comparison {
    let mut comparison = Comparison {
        family: family.to_string(),
        declared: declared.clone(),
        registered,
        arm: Vec::new(),
        reference: Vec::new(),
        without_value: Vec::new(),
        identical_seeds: Vec::new(),
        common_seeds: 0,
        budget: None,
        result: None,
        word: Word::NotCompared,
        // The judgement replaces this where there is a result.
        why: Why::TooFewRuns { arm: 0, reference: 0, without_value: None },
        is_closed: false,
    };
    if let Err(why) = fill(study, &mut comparison, size) {
        comparison.why = why;
    }
    comparison
}

fn fill(study: &Study, comparison: &mut Comparison, size: usize) -> Result<(), Why> {
    let Declared { arm, reference, metric, .. } = comparison.declared.clone();
    for id in [&arm, &reference] {
        if let Some(absence) = study.absence(id) {
            return Err(Why::Absent { absence });
        }
    }
    let (cells, others) = (study.cells_of(&arm), study.cells_of(&reference));
    let both = cells
        .iter()
        .filter_map(|cell| Some((*cell, *others.iter().find(|other| other.seed == cell.seed)?)));
    let both: Vec<(&Cell, &Cell)> = both.collect();
    comparison.common_seeds = both.len() as u64;
    let same = |cell: &Cell, other: &Cell| cell.outcomes(|_| true) == other.outcomes(|_| true);
    let identical = both.into_iter().filter(|(cell, other)| same(cell, other));
    comparison.identical_seeds = identical.map(|(cell, _)| cell.seed).collect();
    comparable(&metric, &cells, &others)?;
    let both: Vec<&Cell> = cells.iter().chain(&others).copied().collect();
    comparison.budget = metric.equal_clock().and_then(|clock| arms::common_budget(&both, clock));
    let budget = comparison.budget;
    let mut without = Vec::new();
    let mut values = |id: &str, cells: &[&Cell]| -> Vec<RunValue> {
        let mut found = Vec::new();
        for cell in cells {
            match run_value(cell, &metric, budget) {
                Ok(value) => found.push(value),
                Err(why) => {
                    without.push(WithoutValue { arm: id.to_string(), seed: cell.seed, why });
                }
            }
        }
        found
    };
    comparison.arm = values(&arm, &cells);
    comparison.reference = values(&reference, &others);
    comparison.without_value = without;
    // A run that diverged before its test sets is the worst of its arm.
    let without_value = comparison.without_value.first().cloned();
    if let Some(run) = without_value.clone().filter(|_| metric.is_score()) {
        return Err(Why::RunWithoutScore { run });
    }
    let (runs, others) = (&comparison.arm, &comparison.reference);
    if runs.len() < 2 || others.len() < 2 {
        let (arm, reference) = (runs.len(), others.len());
        return Err(Why::TooFewRuns { arm, reference, without_value });
    }
    let result = match (metric.is_time(), study.declaration.paired) {
        (true, _) => times(others, runs),
        (false, false) => means(study, &metric, others, runs, size),
        (false, true) => blocks(study, comparison),
    };
    comparison.result = Some(result.map_err(|message| Why::CannotBeTested { message })?);
    Ok(())
}

fn run_value(cell: &Cell, metric: &Metric, budget: Option<u64>) -> Result<RunValue, NoValue> {
    let censored = match metric {
        Metric::TimeToLevel { set, level, clock } => {
            !metric::time_to_level(cell, set, *level, *clock)?.reached
        }
        _ => false,
    };
    Ok(RunValue { seed: cell.seed, value: metric.value(cell, budget)?, censored })
}

/// Needs the same problems, number of samples and harness version.
fn comparable(metric: &Metric, arm: &[&Cell], reference: &[&Cell]) -> Result<(), Why> {
    let all = || reference.iter().chain(arm);
    let Some(first) = all().next() else { return Ok(()) };
    if let Some(other) = all().find(|cell| cell.harness != first.harness) {
        let (first, other) = (first.harness.clone(), other.harness.clone());
        return Err(Why::MixedHarnesses { first, other });
    }
    let (Metric::Evaluation { set, .. }
    | Metric::EvaluationMean { set, .. }
    | Metric::TimeToLevel { set, .. }) = metric
    else {
        return Ok(());
    };
    let problems = |cell: &Cell| {
        let ids = cell.problems.get(set).map(|ids| (ids.count, ids.sha256.clone()));
        ids.zip(cell.last_evaluation(set).map(|evaluation| evaluation.samples))
    };
    let mut known = all().filter_map(|cell| problems(cell));
    let Some(one) = known.next() else { return Ok(()) };
    let is_same = known.all(|other| other == one);
    if is_same { Ok(()) } else { Err(Why::OtherProblems { set: set.clone() }) }
}

fn means(
    study: &Study,
    metric: &Metric,
    reference: &[RunValue],
    arm: &[RunValue],
    size: usize,
) -> Result<TestResult, String> {
    let declaration = &study.declaration;
    let values = |runs: &[RunValue]| runs.iter().map(|run| run.value).collect::<Vec<f64>>();
    let (a, b) = (values(reference), values(arm));
    let welch = between::welch(&a, &b, declaration.level).map_err(|error| error.to_string())?;
    let test = between::permutation_test(&a, &b).map_err(|error| error.to_string())?;
    let pilot = declaration.pilot.as_ref().filter(|_| metric.is_avg_at_k());
    let alpha = declaration.alpha / size.max(1) as f64;
    let observed = between::pooled_deviation(&a, &b).filter(|_| metric.is_avg_at_k());
    let detectable = |sigma: f64| {
        let (n_a, n_b) = (a.len(), b.len());
        let effect = between::minimum_detectable_effect(sigma, n_a, n_b, alpha, declaration.power);
        Some(effect).filter(|effect| effect.is_finite())
    };
    let margin = metric.is_avg_at_k().then_some(declaration.margin);
    let equivalence =
        margin.and_then(|margin| equivalence::equivalence(&a, &b, declaration.alpha, margin).ok());
    Ok(TestResult {
        difference: welch.difference,
        interval: welch.interval,
        probability_higher: aggregates::probability_of_improvement(&a, &b).ok(),
        p: test.p,
        adjusted_p: test.p,
        smallest_p: test.smallest_p,
        splits: test.splits,
        exact: test.exact,
        minimum_detectable_effect: pilot.and_then(|pilot| detectable(pilot.sigma)),
        observed_sigma: observed,
        observed_detectable_effect: observed.and_then(detectable),
        equivalence,
        medians: None,
    })
}

/// Only blocks in which every arm of the side has a run.
fn by_block(runs: &[RunValue]) -> BTreeMap<u64, f64> {
    let mut blocks: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for run in runs {
        blocks.entry(run.seed).or_default().push(run.value);
    }
    let whole = blocks.values().map(Vec::len).max().unwrap_or(0);
    blocks.retain(|_, values| values.len() == whole);
    blocks.into_iter().map(|(seed, values)| (seed, estimators::mean(&values))).collect()
}

pub fn blocks_of(comparison: &Comparison) -> Vec<(f64, f64)> {
    let (arm, reference) = (by_block(&comparison.arm), by_block(&comparison.reference));
    arm.iter().filter_map(|(seed, value)| Some((*value, *reference.get(seed)?))).collect()
}

/// Sign-flip test, t interval and t test of equivalence.
fn blocks(study: &Study, comparison: &Comparison) -> Result<TestResult, String> {
    let declaration = &study.declaration;
    let both = blocks_of(comparison);
    let differences: Vec<f64> = both.iter().map(|(arm, reference)| arm - reference).collect();
    let found =
        between::blocks(&differences, declaration.level).map_err(|error| error.to_string())?;
    let higher = |(arm, reference): &(f64, f64)| match arm.total_cmp(reference) {
        Ordering::Greater => 1.0,
        Ordering::Equal => 0.5,
        Ordering::Less => 0.0,
    };
    let margin = comparison.declared.metric.is_avg_at_k().then_some(declaration.margin);
    let equivalence = margin
        .and_then(|margin| equivalence::of_blocks(&differences, declaration.alpha, margin).ok());
    Ok(TestResult {
        difference: found.difference,
        interval: found.interval,
        probability_higher: Some(both.iter().map(higher).sum::<f64>() / both.len() as f64),
        p: found.test.p,
        adjusted_p: found.test.p,
        smallest_p: found.test.smallest_p,
        splits: found.test.splits,
        exact: found.test.exact,
        minimum_detectable_effect: None,
        observed_sigma: Some(found.deviation).filter(|_| margin.is_some()),
        observed_detectable_effect: None,
        equivalence,
        medians: None,
    })
}

fn times(reference: &[RunValue], arm: &[RunValue]) -> Result<TestResult, String> {
    let events = |runs: &[RunValue]| -> Vec<TimeToEvent> {
        runs.iter().map(|run| TimeToEvent { time: run.value, reached: !run.censored }).collect()
    };
    let (a, b) = (events(reference), events(arm));
    let test = time_to_level::log_rank(&a, &b).map_err(|error| error.to_string())?;
    let median = |runs: &[TimeToEvent]| time_to_level::median_time(runs).ok().flatten();
    Ok(TestResult {
        difference: test.observed_minus_expected,
        interval: None,
        probability_higher: None,
        p: test.permutation.p,
        adjusted_p: test.permutation.p,
        smallest_p: test.permutation.smallest_p,
        splits: test.permutation.splits,
        exact: test.permutation.exact,
        minimum_detectable_effect: None,
        observed_sigma: None,
        observed_detectable_effect: None,
        equivalence: None,
        medians: Some((median(&b), median(&a))),
    })
}
