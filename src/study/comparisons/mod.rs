//! Comparisons between arms; the unit is the run, or the block of runs of one seed. Each has a
//! permutation test, an interval, and a p that Holm adjusts within its family.

mod doses;
mod judgement;

use crate::base::workers;
use crate::experiment::{Experiment, Sampling, SetSettings};
use crate::statistics::{Design, Estimate, Measured, TimeToEvent, between, comparison, estimators};
use crate::study::collection::Study;
use crate::study::{
    Cell, Declaration, Declared, DeclaredFamily, Direction, Metric, NoValue, Ties, Untestable, Why,
    WithoutValue, arms, contrast, metric,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

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
    pub registered: bool,
    /// By seed.
    pub arm: Vec<RunValue>,
    pub reference: Vec<RunValue>,
    pub without_value: Vec<WithoutValue>,
    /// Both arms' runs have the same outcomes in every evaluation.
    pub identical_seeds: Vec<u64>,
    pub common_seeds: u64,
    pub budget: Option<u64>,
    /// Of an interaction of k factors 2^(k−1): the difference is the difference of differences divided by it, and so is δ.
    #[serde(skip_serializing_if = "is_one")]
    pub contrast_divisor: u64,
    /// Of arm − reference, in the unit of the metric.
    pub result: Option<Estimate>,
    pub word: Word,
    pub why: Why,
    #[serde(skip)]
    pub is_of_no_family: bool,
    #[serde(skip)]
    pub paired: bool,
    /// Arms that a whole block has of either side: those of a pool, else 1.
    #[serde(skip)]
    pub arms_of_sides: [usize; 2],
    /// Keys by which the runs were not all evaluated alike: a difference may be theirs, not that of training.
    #[serde(skip)]
    pub evaluated_apart: BTreeSet<String>,
    /// Comparisons of its family, itself among them.
    #[serde(skip)]
    pub family_size: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RunValue {
    pub seed: u64,
    /// In the unit of the metric; shares in [0, 1].
    pub value: f64,
    /// A time to a level that was not reached.
    pub censored: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    Improves,
    Hurts,
    /// As [`Self::Lower`]: the metric is no score.
    Higher,
    Lower,
    Equivalent,
    Inconclusive,
    /// What tells the arms apart acted on less than was declared.
    NothingToActOn,
    NotCompared,
}

fn is_one(divisor: &u64) -> bool {
    *divisor == 1
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
            Self::NothingToActOn => "nothing to act on",
            Self::NotCompared => "not compared",
        }
    }
}

impl Comparison {
    /// Its word follows from its own numbers.
    pub fn is_judged(&self) -> bool {
        !matches!(self.word, Word::NotCompared | Word::NothingToActOn)
            && !matches!(self.why, Why::Closed { .. })
    }

    /// Of the same arms and metric, whatever its family and name.
    pub fn is_of(&self, row: &Declared) -> bool {
        let Declared { arm, reference, metric, .. } = &self.declared;
        (arm, reference, metric) == (&row.arm, &row.reference, &row.metric)
    }

    pub fn shown(&self) -> Option<Direction> {
        let sign = self.result.as_ref()?.difference;
        // The statistic is positive where the arm is earlier, that is, where its time is lower.
        let higher = (sign > 0.0) != self.declared.metric.is_time();
        let shown = matches!(self.word, Word::Improves | Word::Hurts | Word::Higher | Word::Lower);
        shown.then_some(if higher { Direction::Higher } else { Direction::Lower })
    }

    /// Over the runs that count: of blocks, those that both sides have whole.
    pub fn means(&self) -> (Option<f64>, Option<f64>) {
        let blocks: Vec<u64> = block_differences(self).into_iter().map(|(seed, _)| seed).collect();
        let counts = |run: &&RunValue| !self.paired || blocks.contains(&run.seed);
        let mean = |runs: &[RunValue]| {
            let values: Vec<f64> = runs.iter().filter(counts).map(|run| run.value).collect();
            (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
        };
        (mean(&self.arm), mean(&self.reference))
    }

    /// `None` where blocks are not what is tested, or where all of them differ.
    pub fn ties(&self) -> Option<Ties> {
        if !self.paired || self.declared.metric.is_time() {
            return None;
        }
        Ties::of(&Vec::from_iter(block_differences(self).into_iter().map(|(_, it)| it)))
    }
}

pub fn families(study: &Study) -> Vec<FamilyResult> {
    let mut families: Vec<FamilyResult> = Vec::new();
    for declared in &study.declaration.families {
        let mut result = family(study, declared, study.is_registered());
        let open = families.iter().find(|before| {
            let is_shown = before.comparisons.iter().all(|it| it.shown().is_some());
            declared.after.contains(&before.id) && !is_shown
        });
        if let Some(before) = open {
            result.comparisons.iter_mut().for_each(|it| judgement::close(it, &before.id));
        }
        families.push(result);
    }
    families
}

/// Comparisons that nobody declared, adjusted among themselves.
pub fn exploratory(study: &Study, id: &str, comparisons: Vec<Declared>) -> Vec<Comparison> {
    let (id, question) = (id.to_string(), String::new());
    let family = DeclaredFamily { id, question, after: Vec::new(), comparisons };
    self::family(study, &family, false).comparisons
}

/// A comparison that cannot be tested counts with p = 1, so that leaving an arm out never makes the others easier.
fn family(study: &Study, family: &DeclaredFamily, registered: bool) -> FamilyResult {
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
    }
    adjust_equivalence(&mut comparisons);
    for comparison in &mut comparisons {
        judgement::judge(study, comparison);
    }
    FamilyResult { id: family.id.clone(), question: family.question.clone(), comparisons }
}

/// Of a family's comparisons that δ is about; one that cannot be tested counts with p = 1 here too.
fn adjust_equivalence(comparisons: &mut [Comparison]) {
    let about: Vec<&mut Comparison> =
        comparisons.iter_mut().filter(|it| it.declared.metric.is_avg_at_k()).collect();
    let p = |it: &&mut Comparison| it.result.as_ref().and_then(|it| it.adjusted_equivalence_p);
    let adjusted = between::holm(&about.iter().map(|it| p(it).unwrap_or(1.0)).collect::<Vec<_>>());
    for (comparison, adjusted) in about.into_iter().zip(adjusted) {
        if let Some(result) = comparison.result.as_mut().filter(|it| it.equivalence.is_some()) {
            result.adjusted_equivalence_p = Some(adjusted);
        }
    }
}

fn tested(
    study: &Study,
    family: &str,
    declared: &Declared,
    family_size: usize,
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
        contrast_divisor: contrast::divisor(study, declared),
        result: None,
        word: Word::NotCompared,
        // The judgement replaces this where there is a result.
        why: Why::TooFewRuns { arm: 0, reference: 0, without_value: None },
        is_of_no_family: false,
        paired: study.declaration.paired,
        arms_of_sides: [&declared.arm, &declared.reference]
            .map(|id| study.declaration.arms_of(id).len()),
        evaluated_apart: BTreeSet::new(),
        family_size,
    };
    if let Err(why) = fill(study, &mut comparison) {
        comparison.why = why;
    }
    comparison
}

fn fill(study: &Study, comparison: &mut Comparison) -> Result<(), Why> {
    let repeated = study.declaration.repeated_arm(&comparison.declared, |id| study.arm(id));
    if let Some(message) = repeated {
        return Err(Why::CannotBeTested(Untestable { message }));
    }
    let Declared { arm, reference, metric, .. } = comparison.declared.clone();
    for id in [&arm, &reference] {
        if let Some(absence) = study.absence(id) {
            return Err(Why::Absent { absence });
        }
    }
    let (cells, others) = (study.cells_of(&arm), study.cells_of(&reference));
    for cell in &cells {
        let Some(other) = others.iter().find(|other| other.seed == cell.seed) else { continue };
        comparison.common_seeds += 1;
        if cell.outcomes(|_| true) == other.outcomes(|_| true) {
            comparison.identical_seeds.push(cell.seed);
        }
    }
    comparable(&metric, &cells, &others)?;
    let all: Vec<&Cell> = cells.iter().chain(&others).copied().collect();
    let sets = metric.sets().iter();
    comparison.evaluated_apart = sets.flat_map(|set| evaluated_apart(set, &all)).collect();
    comparison.budget = metric.equal_clock().and_then(|clock| arms::common_budget(&all, clock));
    let budget = |_: &Cell| comparison.budget;
    let (runs, without) = run_values(&arm, &cells, &metric, &budget);
    let (reference_runs, others_without) = run_values(&reference, &others, &metric, &budget);
    (comparison.arm, comparison.reference) = (runs, reference_runs);
    comparison.without_value = [without, others_without].concat();
    // A run that diverged before its test sets is the worst of its arm.
    let without_value = comparison.without_value.first().cloned();
    if let Some(run) = without_value.clone().filter(|_| metric.is_score()) {
        return Err(Why::RunWithoutScore { run });
    }
    let (arm, reference) = (comparison.arm.len(), comparison.reference.len());
    if arm < 2 || reference < 2 {
        return Err(Why::TooFewRuns { arm, reference, without_value });
    }
    let mut runs = comparison.arm.iter().chain(&comparison.reference);
    if metric.is_time() && runs.all(|run| !run.censored && run.value == 0.0) {
        let message = format!(
            "all {} runs have the level before the first step: choose a higher one",
            arm + reference
        );
        return Err(Why::CannotBeTested(Untestable { message }));
    }
    let mut design = design(&study.declaration, &metric, comparison.family_size);
    design.margin = design.margin.map(|margin| margin / comparison.contrast_divisor as f64);
    let result = comparison::estimate(&measured(study, comparison), &design);
    let untestable = result.map_err(|error| Untestable { message: error.to_string() });
    comparison.result = Some(untestable.map_err(Why::CannotBeTested)?);
    Ok(())
}

/// The comparison of other values, by itself.
pub fn again(
    study: &Study,
    comparison: &Comparison,
    arm: Vec<RunValue>,
    reference: Vec<RunValue>,
) -> Option<Estimate> {
    let design = design(&study.declaration, &comparison.declared.metric, 1);
    let comparison = Comparison { arm, reference, ..comparison.clone() };
    if comparison.arm.len() < 2 || comparison.reference.len() < 2 {
        return None;
    }
    comparison::estimate(&measured(study, &comparison), &design).ok()
}

/// `budget` is the reading of the metric's clock at which a run counts.
pub fn run_values(
    arm: &str,
    cells: &[&Cell],
    metric: &Metric,
    budget: &dyn Fn(&Cell) -> Option<u64>,
) -> (Vec<RunValue>, Vec<WithoutValue>) {
    let (mut runs, mut without_value) = (Vec::new(), Vec::new());
    for cell in cells {
        match run_value(cell, metric, budget(cell)) {
            Ok(run) => runs.push(run),
            Err(why) => {
                let (arm, seed) = (arm.to_string(), cell.seed);
                without_value.push(WithoutValue { arm, seed, why });
            }
        }
    }
    (runs, without_value)
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
    let is_same = |set: &String| {
        let problems = |cell: &&Cell| {
            let ids = cell.problems.get(set).map(|ids| (ids.count, ids.sha256.clone()));
            ids.zip(cell.last_evaluation(set).map(|evaluation| evaluation.samples))
        };
        let mut known = all().filter_map(problems);
        known.next().is_none_or(|one| known.all(|other| other == one))
    };
    match metric.sets().iter().find(|set| !is_same(set)) {
        Some(set) => Err(Why::OtherProblems { set: set.clone() }),
        None => Ok(()),
    }
}

fn evaluated_apart(set: &str, cells: &[&Cell]) -> Vec<String> {
    let experiments = || cells.iter().map(|cell| &cell.experiment);
    let Some(first) = experiments().next() else { return Vec::new() };
    let sampling = |it: &Experiment| {
        let Sampling { temperature, top_p, top_k, .. } = it.sampling_of(set);
        (temperature, top_p, top_k)
    };
    let has_own = |is_stated: fn(&SetSettings) -> bool| {
        experiments().any(|it| it.evaluation.sets.get(set).is_some_and(is_stated))
    };
    let key = |of_all: &str, own: &str, is_own| {
        if is_own { format!("evaluation.sets.{set}.{own}") } else { of_all.to_string() }
    };
    let mut keys = Vec::new();
    if experiments().any(|it| sampling(it) != sampling(first)) {
        keys.push(key("evaluation.sampling", "sampling", has_own(|own| own.sampling.is_some())));
    }
    if experiments().any(|it| it.grading_of(set).of_arm() != first.grading_of(set).of_arm()) {
        keys.push(key("reward.verifier", "verifier", has_own(|own| own.verifier.is_some())));
    }
    if experiments().any(|it| it.evaluation_stop() != first.evaluation_stop()) {
        keys.push("evaluation.stop".to_string());
    }
    keys
}

fn design(declaration: &Declaration, metric: &Metric, family_size: usize) -> Design {
    let is_avg_at_k = metric.is_avg_at_k();
    let pilot = declaration.pilot.as_ref().filter(|_| is_avg_at_k);
    Design {
        level: declaration.level,
        alpha: declaration.alpha,
        family_size,
        power: declaration.power,
        sigma: pilot.map(|pilot| pilot.sigma),
        margin: is_avg_at_k.then_some(declaration.margin),
    }
}

pub fn measured(study: &Study, comparison: &Comparison) -> Measured {
    let Comparison { arm, reference, declared, .. } = comparison;
    if declared.metric.is_time() {
        Measured::Times(times(reference), times(arm))
    } else if study.declaration.paired {
        Measured::Blocks(block_differences(comparison).into_iter().map(|(_, it)| it).collect())
    } else {
        Measured::Runs(values(reference), values(arm))
    }
}

/// Seed and arm − reference of each block that both have whole.
pub fn block_differences(comparison: &Comparison) -> Vec<(u64, f64)> {
    let [arms, references] = comparison.arms_of_sides;
    let (arm, reference) =
        (by_block(&comparison.arm, arms), by_block(&comparison.reference, references));
    let difference = |(seed, value): (&u64, &f64)| {
        Some((*seed, estimators::difference(*reference.get(seed)?, *value)))
    };
    arm.iter().filter_map(difference).collect()
}

fn values(runs: &[RunValue]) -> Vec<f64> {
    runs.iter().map(|run| run.value).collect()
}

fn times(runs: &[RunValue]) -> Vec<TimeToEvent> {
    runs.iter().map(|run| TimeToEvent { time: run.value, reached: !run.censored }).collect()
}

/// Only blocks in which each of the side's `arms` has a run.
fn by_block(runs: &[RunValue], arms: usize) -> BTreeMap<u64, f64> {
    let mut blocks: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for run in runs {
        blocks.entry(run.seed).or_default().push(run.value);
    }
    blocks.retain(|_, values| values.len() == arms);
    blocks.into_iter().map(|(seed, values)| (seed, estimators::mean(&values))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::grid::file;

    #[test]
    fn one_arm_under_two_names_is_not_compared_with_itself() {
        let load = |name| file::load(&file::find(name).unwrap()).unwrap().grid;
        let mut study = Study::new(["ladder", "add-one"].map(load).to_vec(), Vec::new(), None);
        let declared = &mut study.declaration.families[0].comparisons;
        for (at, reference) in ["add-one/grpo", "add-one/clip-higher"].into_iter().enumerate() {
            declared[at].arm = "ladder/grpo".to_string();
            declared[at].reference = reference.to_string();
        }
        let family = &families(&study)[0].comparisons;
        let Why::CannotBeTested(why) = &family[0].why else { panic!("{:?}", family[0].why) };
        assert!(why.message.contains("`ladder/grpo` and as `add-one/grpo`"), "{}", why.message);
        assert!(matches!(family[1].why, Why::Absent { .. }), "{:?}", family[1].why);
    }
}
