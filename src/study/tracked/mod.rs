//! Two sides of runs that other programs tracked. The unit is the run, and a run is one number: its metric at the
//! end of the budget that all runs spend, the mean of its last part, or the time to a level.

mod reading;
pub mod sides;

use crate::records::{TrackedCurve, TrackedNotes, TrackedRun, tracked};
use crate::statistics::{
    Estimate, Measured, TimeToEvent, Verdict, estimators, needed as runs_needed,
};
use crate::study::comparison::{ALPHA, POWER, estimate_alone};
use crate::study::tracked::reading::{Extent, OnClock};
use crate::study::{Needed, StudyError, needed};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

pub const FORMAT: u64 = 1;

#[derive(Debug, Clone, Default, PartialEq, Serialize, clap::Args)]
pub struct TrackedOptions {
    /// The metric of the curves.
    #[arg(long, value_name = "NAME", requires = "curves")]
    pub metric: Option<String>,
    /// What the budget of curves counts: steps, tokens, seconds, or a column that has a running total. Seconds count
    /// from a run's start, or from its first logged point where the file has times of day. The budget
    /// is the last place up to the smallest end of a run at which all runs have a value, or else (and where that place is
    /// in the first half) that end; what comes after it does not count.
    #[arg(long, value_name = "CLOCK", default_value = "steps", requires = "curves")]
    pub at: String,
    /// Compare the mean over this last share of the budget, such as 0.2: of the points at the places that all runs
    /// have or, where one place at most would count and a run has more, of the line through a run's own points, from
    /// where all runs have begun. Default: the value at the budget.
    #[arg(long, value_name = "SHARE", value_parser = share, conflicts_with = "to_level", requires = "curves")]
    pub window: Option<f64>,
    /// Compare when the curves reach this value for the first time: at places that all runs have, or on their lines.
    #[arg(long, value_name = "VALUE", conflicts_with = "margin", requires = "curves")]
    pub to_level: Option<f64>,
    /// Of --curves and --runs: a lower value is better, as of a loss.
    #[arg(long)]
    pub lower_is_better: bool,
    /// Of --curves and --runs: compare all runs, and not the pairs of seeds that each side has once.
    #[arg(long)]
    pub unpaired: bool,
    /// Of --curves and --runs: runs within 0 and 1 and runs far above have one unit, and are no shares and percent.
    #[arg(long)]
    pub same_unit: bool,
}

/// Errors: what is no number, such as a number of percent.
pub fn share(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "expected a share, such as 0.2 for 20 %".to_string())
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrackedValue {
    /// A is the reference.
    pub side: char,
    pub run: String,
    pub seed: Option<u64>,
    /// Of a time: when the level was reached, or the budget.
    pub value: f64,
    pub reached: Option<bool>,
    /// The last point on the clock; what lies after the budget does not count.
    pub end: f64,
    /// Values of the metric that are `null` or text, which are no points.
    pub unread: usize,
    /// Those of them that are text without a digit, and the first of these.
    pub texts: usize,
    pub first_text: Option<String>,
    /// Points up to the budget that are NaN or infinite; they reach no level.
    pub not_finite: usize,
    /// Up to the budget, over the clock.
    pub points: TrackedCurve,
    /// Points up to the budget that do not count, because another run has none at their places.
    pub left_out: usize,
    #[serde(flatten)]
    pub notes: TrackedNotes,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrackedComparison {
    pub format: u64,
    pub metric: String,
    pub asked: TrackedOptions,
    /// On the clock, and the run that ends first.
    pub budget: (f64, String),
    /// All runs are read at the same places; else on the lines through their own points.
    pub same_places: bool,
    pub places_in_window: Option<usize>,
    pub ignored: BTreeSet<String>,
    /// Other arms of the tables, and other runs that have the text of `FILE:TEXT` in their names.
    pub not_compared: BTreeSet<String>,
    /// Where `FILE:TEXT` takes runs of several names: the side's names without seeds.
    pub several_names: BTreeMap<char, BTreeSet<String>>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub differing_columns: BTreeMap<String, [String; 2]>,
    pub runs: Vec<TrackedValue>,
    pub paired: bool,
    pub without_partner: Vec<WithoutPartner>,
    pub other_units: bool,
    /// No run differs from its partner; without pairs, both sides have the same values.
    pub is_same: bool,
    /// By how much b is better. `None` with one run on a side.
    pub estimate: Option<Estimate>,
    pub verdict: Option<Verdict>,
    pub needed: Option<Needed>,
    /// With one run a side: differences in standard deviations between runs, and the runs a side that would show them.
    pub needed_by_difference: Vec<(f64, Option<usize>)>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WithoutPartner {
    pub side: char,
    pub run: String,
    pub seed: Option<u64>,
}

impl TrackedComparison {
    pub fn gains_of_pairs(&self) -> Vec<f64> {
        let sides = self.runs.split_at(self.runs.len() / 2);
        match self.paired.then(|| measured(sides, true, self.asked.lower_is_better)) {
            Some(Measured::Blocks(differences)) => differences,
            _ => Vec::new(),
        }
    }

    pub fn is_level_missed(&self) -> bool {
        is_level_missed(&self.runs, &self.asked)
    }

    pub fn beside(mut self, [a, b]: [BTreeSet<String>; 2]) -> Self {
        self.not_compared = a.into_iter().chain(b).collect();
        let left_out = self.without_partner.iter().map(|it| &it.run);
        self.runs.iter().map(|it| &it.run).chain(left_out).for_each(|run| {
            self.not_compared.remove(run);
        });
        self
    }

    pub fn of_names(mut self, [a, b]: [BTreeSet<String>; 2]) -> Self {
        self.several_names = [('A', a), ('B', b)].into();
        self.several_names.retain(|_, names| names.len() > 1);
        self
    }
}

/// Errors: a metric or clock that a run lacks, a window without a point, a value, level or margin that shows nothing.
pub fn compare(
    a: &[TrackedRun],
    b: &[TrackedRun],
    options: &TrackedOptions,
    (level, margin): (f64, Option<f64>),
) -> Result<TrackedComparison, StudyError> {
    let paired = may_pair(a, b, options);
    let counts = |run: &&TrackedRun| !paired || has_partner(run, a, b);
    let [(a, alone), (b, others)]: [(Vec<&TrackedRun>, Vec<&TrackedRun>); 2] =
        [a, b].map(|side| side.iter().partition(counts));
    let without_partner = [('A', alone), ('B', others)].into_iter().flat_map(|(side, runs)| {
        runs.into_iter().map(move |it| WithoutPartner { side, run: it.name.clone(), seed: it.seed })
    });
    let differing_columns = tracked::table::differing(&a, &b)?;
    let all: Vec<&TrackedRun> = a.iter().chain(&b).copied().collect();
    let metric = reading::metric(&all, options)?;
    let read = all.iter().map(|run| reading::on_clock(run, &metric, &options.at));
    let read = read.collect::<Result<Vec<OnClock>, StudyError>>()?;
    let extent = Extent::of(&all, &read, options);
    let is_table = |run: &&&TrackedRun| run.notes.format == tracked::TABLE;
    let ignored = all.iter().filter(is_table).flat_map(|run| run.unread.keys().cloned()).collect();
    let sides = a.iter().map(|_| 'A').chain(b.iter().map(|_| 'B'));
    let runs = sides.zip(all.iter().zip(read));
    let runs = runs.map(|(side, (run, read))| extent.value(side, run, &metric, read));
    let mut runs = runs.collect::<Result<Vec<TrackedValue>, StudyError>>()?;
    runs.sort_by_key(|run| (run.side, run.seed));
    let sides = runs.split_at(a.len());
    let may_differ = options.to_level.is_none() && !options.same_unit;
    let other_units = may_differ && have_other_units(&runs);
    check_limits(&runs, options, margin)?;
    let measured = measured(sides, paired, options.lower_is_better);
    let fewest = a.len().min(b.len());
    let is_missed = is_level_missed(&runs, options);
    let estimate =
        (fewest > 1 && !is_missed).then(|| estimate_alone(&measured, level, margin)).transpose()?;
    let verdict = estimate.as_ref().map(|estimate| estimate.verdict(ALPHA));
    let is_open = matches!(verdict, Some(Verdict::Inconclusive { .. }));
    let open = estimate.as_ref().filter(|_| is_open);
    let needed = open.and_then(|estimate| needed::of_estimate(&measured, estimate, ALPHA, POWER));
    let places_in_window = extent.places_in_window();
    Ok(TrackedComparison {
        format: FORMAT,
        metric,
        asked: options.clone(),
        budget: (extent.budget, extent.shortest),
        same_places: extent.places.is_some(),
        places_in_window,
        ignored,
        not_compared: BTreeSet::new(),
        several_names: BTreeMap::new(),
        differing_columns,
        runs,
        paired,
        without_partner: without_partner.collect(),
        other_units,
        is_same: !is_missed && measured.is_same(),
        estimate,
        verdict,
        needed,
        needed_by_difference: if fewest < 2 { needed_by_difference() } else { Vec::new() },
    })
}

/// Times to a level are compared as two groups.
fn may_pair(a: &[TrackedRun], b: &[TrackedRun], options: &TrackedOptions) -> bool {
    let may = !options.unpaired && options.to_level.is_none();
    may && a.iter().any(|run| has_partner(run, a, b))
}

/// Each side has the run's seed once.
fn has_partner(run: &TrackedRun, a: &[TrackedRun], b: &[TrackedRun]) -> bool {
    let is_once = |side: &[TrackedRun]| side.iter().filter(|it| it.seed == run.seed).count() == 1;
    run.seed.is_some() && is_once(a) && is_once(b)
}

/// Of runs with a standard deviation of 1.
fn needed_by_difference() -> Vec<(f64, Option<usize>)> {
    let unit = || vec![0.0, std::f64::consts::SQRT_2];
    let unit = Measured::Runs(unit(), unit());
    let needed = |size| (size, runs_needed::for_difference(&unit, size, ALPHA, POWER));
    [2.0, 1.0, 0.5].into_iter().map(needed).collect()
}

fn is_level_missed(runs: &[TrackedValue], options: &TrackedOptions) -> bool {
    options.to_level.is_some() && runs.iter().all(|run| run.reached == Some(false))
}

fn have_other_units(runs: &[TrackedValue]) -> bool {
    let values = runs.iter().map(|it| it.value).filter(|value| *value != 0.0);
    let (shares, others): (Vec<f64>, Vec<f64>) = values.partition(|value| *value <= 1.0);
    let are_apart = |(share, other): (&f64, &f64)| *other >= 5.0 * share;
    let pairs = || shares.iter().flat_map(|share| others.iter().map(move |other| (share, other)));
    let is_hundredfold = |(share, other): (&f64, &f64)| (30.0..300.0).contains(&(other / share));
    shares.iter().all(|share| *share > 0.0)
        && pairs().next().is_some()
        && (pairs().all(are_apart) || pairs().any(is_hundredfold))
}

fn check_limits(
    runs: &[TrackedValue],
    options: &TrackedOptions,
    margin: Option<f64>,
) -> Result<(), StudyError> {
    let refuse = |run: &TrackedValue, reason: String| Err(StudyError::invalid(&run.run, reason));
    let are_shares = runs.iter().all(|it| (0.0..=1.0).contains(&it.value));
    if let Some(margin) = margin.filter(|margin| *margin >= 1.0 && are_shares) {
        let share = margin / 100.0;
        let reason = format!(
            "--margin {margin}: the unit of the metric is a share, as all values lie within 0 and 1: {margin} points are \
             {share}"
        );
        return refuse(&runs[0], reason);
    }
    let begins_there = |run: &&TrackedValue| {
        run.reached == Some(true) && run.points.first().is_none_or(|(at, _)| run.value <= *at)
    };
    let earliest = runs.iter().map(|run| run.value).fold(f64::INFINITY, f64::min);
    let open = runs.iter().filter(begins_there).find(|run| run.value > earliest);
    if let Some((run, level)) = open.zip(options.to_level) {
        let lower = if runs.iter().all(|run| begins_there(&run)) && !options.lower_is_better {
            " (all runs do: where a lower value is better, add --lower-is-better)"
        } else {
            ""
        };
        let reason = format!(
            "it is at --to-level {level} at its first point, {} {}, and may have been before{lower}: name a level that it \
             reaches later, or a log from the start",
            run.value, options.at
        );
        return refuse(run, reason);
    }
    Ok(())
}

fn measured((a, b): (&[TrackedValue], &[TrackedValue]), paired: bool, is_lower: bool) -> Measured {
    let times = [a, b].map(|runs| -> Vec<TimeToEvent> {
        let time = |reached, time| TimeToEvent { time, reached };
        runs.iter().filter_map(|run| Some(time(run.reached?, run.value))).collect()
    });
    let sign = if is_lower { -1.0 } else { 1.0 };
    let [before, after] = [a, b].map(|runs| runs.iter().map(|it| sign * it.value).collect());
    let (before, after): (Vec<f64>, Vec<f64>) = (before, after);
    match times {
        [a, b] if !a.is_empty() => Measured::Times(a, b),
        _ if paired => {
            let pairs = before.iter().zip(&after);
            Measured::Blocks(pairs.map(|(a, b)| estimators::difference(*a, *b)).collect())
        }
        _ => Measured::Runs(before, after),
    }
}

#[cfg(test)]
mod tests;
