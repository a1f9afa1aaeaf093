//! Two sides of runs that other programs tracked. The unit is the run, and a run is one number: its metric at the
//! end of the budget that all runs spend, the mean of its last part, or the time to a level.

use crate::base::{files, visible};
use crate::experiment::diagnose;
use crate::records::tracked::{self, SECONDS, TIMES};
use crate::records::{TrackedCurve, TrackedNotes, TrackedRun};
use crate::statistics::{
    Design, Estimate, Measured, TimeToEvent, Verdict, between, comparison, estimators,
    needed as runs_needed,
};
use crate::study::{Needed, StudyError, curves, needed, window};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;

pub const FORMAT: u64 = 1;

/// Curves declare none.
const ALPHA: f64 = 0.05;
const POWER: f64 = 0.8;

#[derive(Debug, Clone, Default, PartialEq, Serialize, clap::Args)]
pub struct TrackedOptions {
    /// The metric of the curves.
    #[arg(long, value_name = "NAME", requires = "curves")]
    pub metric: Option<String>,
    /// What the budget of curves counts: steps, tokens, seconds, or a column that has a running total. Seconds count
    /// from a run's start, or from its first logged point where the file has times of day. The budget
    /// is the last place up to the smallest end of a run at which all runs have a value, or else that end; what comes
    /// after it does not count.
    #[arg(long, value_name = "CLOCK", default_value = "steps", requires = "curves")]
    pub at: String,
    /// Compare the mean over this last share of the budget, such as 0.2: of the points at the places that all runs
    /// have or, where one place at most would count and a run has more, of the line through a run's own points, from
    /// where all runs have begun. Default: the value at the budget.
    #[arg(long, value_name = "SHARE", conflicts_with = "to_level", requires = "curves")]
    pub window: Option<f64>,
    /// Compare when the curves, as --window reads them, reach this value for the first time.
    #[arg(long, value_name = "VALUE", conflicts_with = "margin", requires = "curves")]
    pub to_level: Option<f64>,
    /// Of --curves and --runs: a lower value is better, as of a loss.
    #[arg(long)]
    pub lower_is_better: bool,
    /// Of --curves and --runs: compare all runs, and not the pairs of seeds that each side has once.
    #[arg(long)]
    pub unpaired: bool,
    /// Of --curves and --runs: a side within 0 and 1 and one far above have one unit, and are no shares and percent.
    #[arg(long)]
    pub same_unit: bool,
}

/// A run as one number.
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

pub type TrackedSide = (Vec<TrackedRun>, BTreeSet<String>);

/// The runs of some files. `FILE:TEXT` is the run of the file with this name, else those that have the text in their
/// names, as words if there are any, and of a table with a row a run those of the arm with this name.
pub fn side(paths: &[String], options: &TrackedOptions) -> Result<TrackedSide, StudyError> {
    let (mut runs, mut others) = TrackedSide::default();
    let mut known: BTreeSet<(String, String)> = BTreeSet::new();
    for path in paths {
        let (file, part) = file_and_part(path);
        let (chosen, other) = named(file, part, tracked::read(Path::new(file), &options.at)?)?;
        others.extend(other);
        let state = files::state(Path::new(file))?;
        for run in chosen.iter().filter(|run| run.notes.format != tracked::TABLE) {
            if !known.insert((state.clone(), prefix(run))) {
                let reason = format!("{}given twice; a run counts once", prefix(run));
                return Err(StudyError::invalid(file, reason));
            }
        }
        runs.extend(chosen);
    }
    Ok((runs, others))
}

/// The runs of an arm of a table with a row a run.
pub fn arm(table: &str, name: &str) -> Result<TrackedSide, StudyError> {
    named(table, name, tracked::read_table(Path::new(table))?)
}

fn named(file: &str, part: &str, runs: Vec<TrackedRun>) -> Result<TrackedSide, StudyError> {
    let names: BTreeSet<String> = runs.iter().map(|run| run.name.clone()).collect();
    let is_table = runs.iter().any(|run| run.notes.format == tracked::TABLE);
    let plain = |name: &str| name.split_whitespace().collect::<String>().to_lowercase();
    let near = names.iter().find(|name| *name != part && plain(name) == plain(part));
    if let Some(near) = near.filter(|_| is_table && names.contains(part)) {
        let reason = format!(
            "arms `{part}` and `{near}` differ in capitals or blanks alone: write one name in all rows of an arm"
        );
        return Err(StudyError::invalid(file, reason));
    }
    let is_column = |name: &str| part.strip_prefix(name).is_some_and(|it| it.starts_with(" - "));
    let rules: [&dyn Fn(&str) -> bool; 3] = [
        &|name| name == part || !is_table && is_column(name),
        &|name| !is_table && has_words(name, part),
        &|name| !is_table && name.contains(part),
    ];
    let Some(rule) = rules.into_iter().find(|rule| names.iter().any(|name| rule(name))) else {
        let reason = format!("no run is called {part:?}; there are {}", listed(&names));
        return Err(StudyError::invalid(file, reason));
    };
    let is_other = |name: &String| !rule(name) && (is_table || plain(name).contains(&plain(part)));
    let others = names.iter().filter(|name| is_other(name)).cloned().collect();
    Ok((runs.into_iter().filter(|run| rule(&run.name)).collect(), others))
}

fn has_words(name: &str, text: &str) -> bool {
    let is_inside = |one: &str, next: &str| {
        let ends = one.chars().next_back().zip(next.chars().next());
        ends.is_some_and(|(one, next)| one.is_alphanumeric() && next.is_alphanumeric())
    };
    !text.is_empty()
        && name.match_indices(text).any(|(at, _)| {
            !is_inside(&name[..at], text) && !is_inside(text, &name[at + text.len()..])
        })
}

impl TrackedComparison {
    pub fn beside(mut self, [a, b]: [BTreeSet<String>; 2]) -> Self {
        self.not_compared = a.into_iter().chain(b).collect();
        let left_out = self.without_partner.iter().map(|it| &it.run);
        self.runs.iter().map(|it| &it.run).chain(left_out).for_each(|run| {
            self.not_compared.remove(run);
        });
        self
    }
}

/// The run's name in a message that begins with its file.
fn prefix(run: &TrackedRun) -> String {
    if Path::new(&run.name) == run.path { String::new() } else { format!("{}: ", run.name) }
}

/// Names of arms may have colons, too.
fn file_and_part(path: &str) -> (&str, &str) {
    let is_there = |file: &str| Path::new(file).exists();
    let parts = || path.match_indices(':').map(|(at, _)| (&path[..at], &path[at + 1..]));
    let whole = (path, "");
    if is_there(path) {
        return whole;
    }
    parts().find(|(file, _)| is_there(file)).or_else(|| path.rsplit_once(':')).unwrap_or(whole)
}

/// Errors: a metric or clock that a run lacks, a window without a point, a value that is not finite.
pub fn compare(
    a: &[TrackedRun],
    b: &[TrackedRun],
    options: &TrackedOptions,
    (level, margin): (f64, Option<f64>),
) -> Result<TrackedComparison, StudyError> {
    let has_partner = |run: &TrackedRun| {
        let is_once =
            |side: &[TrackedRun]| side.iter().filter(|it| it.seed == run.seed).count() == 1;
        run.seed.is_some() && is_once(a) && is_once(b)
    };
    let may_pair = !options.unpaired && options.to_level.is_none();
    let paired = may_pair && a.iter().any(has_partner);
    let counts = |run: &&TrackedRun| !paired || has_partner(run);
    let [(a, alone), (b, others)]: [(Vec<&TrackedRun>, Vec<&TrackedRun>); 2] =
        [a, b].map(|side| side.iter().partition(counts));
    let without_partner = [('A', alone), ('B', others)].into_iter().flat_map(|(side, runs)| {
        let (run, seed) = (|run: &TrackedRun| run.name.clone(), |run: &TrackedRun| run.seed);
        runs.into_iter().map(move |it| WithoutPartner { side, run: run(it), seed: seed(it) })
    });
    let all: Vec<&TrackedRun> = a.iter().chain(&b).copied().collect();
    let metric = metric(&all, options)?;
    let read = all.iter().map(|run| on_clock(run, &metric, &options.at));
    let read = read.collect::<Result<Vec<(TrackedCurve, TrackedNotes)>, StudyError>>()?;
    let (read, notes): (Vec<TrackedCurve>, Vec<TrackedNotes>) = read.into_iter().unzip();
    let ends = read.iter().zip(&all).filter_map(|(points, run)| Some((points.last()?.0, run)));
    let shortest = ends.min_by(|one, other| one.0.total_cmp(&other.0));
    let (end, shortest) = shortest.map_or((0.0, ""), |(at, run)| (at, run.name.as_str()));
    let places =
        shared_places(&read, end).filter(|places| counts_enough(places, &read, (end, options)));
    let budget = places.as_ref().and_then(|places| places.last().copied()).unwrap_or(end);
    let begun = read.iter().filter_map(|points| Some(points.first()?.0)).fold(0.0, f64::max);
    let from = options.window.map_or(0.0, |share| budget - share * budget);
    let from = if places.is_none() { begun.max(from) } else { from };
    let is_table = |run: &&&TrackedRun| run.notes.format == tracked::TABLE;
    let ignored = all.iter().filter(is_table).flat_map(|run| run.unread.keys().cloned()).collect();
    let sides = a.iter().map(|_| 'A').chain(b.iter().map(|_| 'B'));
    let runs = sides.zip(all.iter().zip(read.into_iter().zip(notes)));
    let runs = runs.map(|(side, (run, read))| {
        of_run(side, (run, &metric), read, (from, budget, places.as_deref()), options)
    });
    let mut runs = runs.collect::<Result<Vec<TrackedValue>, StudyError>>()?;
    runs.sort_by_key(|run| (run.side, run.seed));
    let sides = runs.split_at(a.len());
    let may_differ = options.to_level.is_none() && !options.same_unit;
    let other_units = may_differ && (are_shares(sides.0, sides.1) || are_shares(sides.1, sides.0));
    let measured = measured(sides, paired, options.lower_is_better);
    let fewest = a.len().min(b.len());
    let sigma = match &measured {
        Measured::Runs(a, b) if fewest >= between::FEWEST_RUNS => between::pooled_deviation(a, b),
        _ => None,
    };
    let design = Design { level, alpha: ALPHA, family_size: 1, power: POWER, sigma, margin };
    let estimate = (fewest > 1).then(|| comparison::estimate(&measured, &design)).transpose()?;
    let estimate = estimate.map(|estimate| with_detectable(estimate, &measured, &design));
    let verdict = estimate.as_ref().map(|estimate| estimate.verdict(ALPHA));
    let is_open = matches!(verdict, Some(Verdict::Inconclusive { .. }));
    let open = estimate.as_ref().filter(|_| is_open);
    let needed = open.and_then(|estimate| needed::of_estimate(&measured, estimate, ALPHA, POWER));
    // Runs with a standard deviation of 1.
    let unit = || vec![0.0, std::f64::consts::SQRT_2];
    let unit = Measured::Runs(unit(), unit());
    let by_difference = |it| (it, runs_needed::for_difference(&unit, it, ALPHA, POWER));
    let sizes = [2.0, 1.0, 0.5].into_iter().filter(|_| fewest < 2);
    Ok(TrackedComparison {
        format: FORMAT,
        metric,
        asked: options.clone(),
        budget: (budget, shortest.to_string()),
        same_places: places.is_some(),
        places_in_window: options
            .window
            .and(places.as_deref())
            .map(|it| it.iter().filter(|at| in_window(**at, budget, options)).count()),
        ignored,
        not_compared: BTreeSet::new(),
        runs,
        paired,
        without_partner: without_partner.collect(),
        other_units,
        is_same: measured.is_same(),
        estimate,
        verdict,
        needed,
        needed_by_difference: sizes.map(by_difference).collect(),
    })
}

fn with_detectable(estimate: Estimate, measured: &Measured, design: &Design) -> Estimate {
    match measured {
        Measured::Blocks(differences) if estimate.interval.is_some() => {
            let effect = comparison::detectable_of_blocks(differences, design);
            Estimate { minimum_detectable_effect: effect, ..estimate }
        }
        _ => estimate,
    }
}

/// The named metric, or the only one that all runs have.
fn metric(runs: &[&TrackedRun], options: &TrackedOptions) -> Result<String, StudyError> {
    let mut names: Vec<String> = runs[0].curves.keys().cloned().collect();
    let is_clock = |name: &str| name == SECONDS || name == options.at;
    names.retain(|name| !is_clock(name) && runs.iter().all(|it| it.curves.contains_key(name)));
    match (options.metric.as_deref(), &names[..]) {
        (Some(wanted), names) if names.iter().any(|name| name == wanted) => Ok(wanted.to_string()),
        (None, [only]) => Ok(only.clone()),
        (wanted, names) => {
            let wanted = wanted.unwrap_or_default();
            let without = runs.iter().find(|run| !run.curves.contains_key(wanted));
            let is_unread = |run: &&&TrackedRun| {
                run.notes.format != tracked::TABLE && run.unread.contains_key(wanted)
            };
            if let Some(run) = without.filter(is_unread) {
                let reason =
                    format!("--metric {wanted}: its values are text, such as `45 %`, or null");
                return Err(StudyError::invalid(&run.path, reason));
            }
            let nearest = diagnose::nearest(wanted, names);
            let nearest = nearest.map_or(String::new(), |name| format!("did you mean `{name}`? "));
            let listed = listed(names);
            let reason =
                format!("--metric {wanted}: {nearest}the metrics of all runs are {listed}");
            Err(StudyError::invalid(&without.unwrap_or(&runs[0]).path, reason))
        }
    }
}

fn listed<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names = names.into_iter().map(|name| format!("`{}`", visible::shortened(name, 80)));
    names.collect::<Vec<_>>().join(", ")
}

/// Columns of tokens, and whether they are running totals: TRL's are, verl's are of each step.
const TOKENS: [(&str, bool); 3] =
    [("num_tokens", true), ("train/num_tokens", true), ("perf/total_num_tokens", false)];

/// The metric over the clock. A point stands at the clock's last reading up to its step: before the first one at 0 of a
/// sum, and nowhere of a running total.
fn on_clock(
    run: &TrackedRun,
    metric: &str,
    at: &str,
) -> Result<(TrackedCurve, TrackedNotes), StudyError> {
    let refuse = |reason: String| Err(StudyError::invalid(&run.path, reason));
    let replaced = run.replaced.get(metric).copied().unwrap_or(0);
    let mut notes = TrackedNotes { replaced, has_times: false, ..run.notes };
    if at == "steps" {
        return Ok((run.curves[metric].clone(), notes));
    }
    let tokens = TOKENS.iter().find(|(name, _)| at == "tokens" && run.curves.contains_key(*name));
    let (column, is_total) = tokens.copied().unwrap_or((at, true));
    let wall = run.seconds.get(metric).filter(|_| at == SECONDS);
    let Some(mut clock) = wall.or_else(|| run.curves.get(column)).cloned() else {
        let wall = (!run.seconds.is_empty()).then(|| SECONDS.to_string());
        let names = listed(run.curves.keys().chain(&wall));
        let what = format!("{}--at {at}: no such column", prefix(run));
        return refuse(format!("{what}; a running total among these can be named: {names}"));
    };
    notes.has_times = TIMES.contains(&column) || wall.is_some() && run.notes.has_times;
    let starts = run.seconds.values().filter_map(|clock| Some(clock.first()?.1));
    let start = starts.filter(|_| wall.is_some()).reduce(f64::min).unwrap_or(clock[0].1);
    let mut total = if notes.has_times { -start } else { 0.0 };
    for (_, reading) in &mut clock {
        *reading += total;
        total = if is_total { total } else { *reading };
    }
    if !clock.is_sorted_by(|one, next| one.1 <= next.1) {
        return refuse(format!("--at {at}: `{column}` falls, so that it is no running total"));
    }
    let curve = &run.curves[metric];
    let before = curve.partition_point(|(step, _)| *step < clock[0].0);
    notes.before_clock = if is_total { before } else { 0 };
    let point = |(step, value): &(f64, f64)| {
        let readings = clock.partition_point(|(at, _)| at <= step);
        (readings.checked_sub(1).map_or(0.0, |last| clock[last].1), *value)
    };
    Ok((curve[notes.before_clock..].iter().map(point).collect(), notes))
}

/// The places that all runs have, up to the last of the run that is read least far before `end`: a curve that is read
/// further is further on. `None` where another run lacks that place, or most of the budget would be lost.
fn shared_places(read: &[TrackedCurve], end: f64) -> Option<Vec<f64>> {
    let last = |points: &TrackedCurve| points.iter().rfind(|(at, _)| *at <= end).map(|(at, _)| *at);
    let least = read.iter().filter_map(last).reduce(f64::min)?;
    let has = |points: &TrackedCurve, place: f64| {
        points.binary_search_by(|(at, _)| at.total_cmp(&place)).is_ok()
    };
    let mut places: Vec<f64> = read[0].iter().map(|(at, _)| *at).collect();
    places.retain(|place| *place <= least && read.iter().all(|points| has(points, *place)));
    (places.last() == Some(&least) && 2.0 * least >= end).then_some(places)
}

fn in_window(at: f64, budget: f64, options: &TrackedOptions) -> bool {
    let share = options.window.unwrap_or(1.0);
    at <= budget && window::is_above(at, 1.0 - share, budget)
}

fn counts_enough(
    places: &[f64],
    read: &[TrackedCurve],
    (end, options): (f64, &TrackedOptions),
) -> bool {
    let budget = places.last().copied().unwrap_or(end);
    let count = |points: &TrackedCurve, budget| {
        points.iter().filter(|(at, _)| in_window(*at, budget, options)).count()
    };
    options.window.is_none()
        || places.iter().filter(|at| in_window(**at, budget, options)).count() > 1
        || read.iter().all(|points| count(points, budget) < 2)
        || read.iter().any(|points| count(points, end) == 0)
}

fn of_run(
    side: char,
    (run, metric): (&TrackedRun, &str),
    (mut points, notes): (TrackedCurve, TrackedNotes),
    (from, budget, places): (f64, f64, Option<&[f64]>),
    options: &TrackedOptions,
) -> Result<TrackedValue, StudyError> {
    let end = points.last().map_or(budget, |(at, _)| *at);
    let within = points.partition_point(|(at, _)| *at <= budget);
    let counts = |at: f64| {
        places.is_none_or(|places| places.binary_search_by(|it| it.total_cmp(&at)).is_ok())
    };
    let mut counted: TrackedCurve = points[..within].to_vec();
    counted.retain(|(at, _)| counts(*at));
    let left_out = within - counted.len();
    let around = |first: usize| &points[first.saturating_sub(1)..points.len().min(within + 1)];
    let used: &[(f64, f64)] = if let Some(share) = options.window {
        let is_before = |at: f64| !window::is_above(at, 1.0 - share, budget);
        let first = counted.partition_point(|(at, _)| is_before(*at));
        let is_empty = first == counted.len();
        if places.is_none() && !is_empty { around(first) } else { &counted[first..] }
    } else if counted.last().is_some_and(|(at, _)| *at == budget) {
        &counted[counted.len() - 1..]
    } else {
        around(within)
    };
    let mut value = match options.window {
        _ if used.is_empty() => f64::NAN,
        Some(_) if places.is_none() => {
            curves::mean_between(used, (from, budget)).unwrap_or(f64::NAN)
        }
        Some(_) => estimators::mean(&used.iter().map(|(_, value)| *value).collect::<Vec<f64>>()),
        None => curves::interpolated(used, budget).unwrap_or(f64::NAN),
    };
    let mut reached = None;
    if let Some(level) = options.to_level {
        let sign = if options.lower_is_better { -1.0 } else { 1.0 };
        let is_there =
            |value: f64| value.is_finite() && estimators::reaches(sign * value, sign * level);
        let read: &[(f64, f64)] = if places.is_none() { around(0) } else { &counted };
        let crossed = |last: usize| {
            let steep = [last.checked_sub(1)?, last].map(|it| (sign * read[it].1, read[it].0));
            curves::interpolated(&steep, sign * level).filter(|at| at.is_finite())
        };
        let first = read.iter().position(|(_, value)| is_there(*value));
        let first = first.map(|first| {
            let crossed = places.is_none().then(|| crossed(first)).flatten();
            crossed.unwrap_or(read[first].0)
        });
        let first = first.filter(|at| *at <= budget);
        (value, reached) = (first.unwrap_or(budget), Some(first.is_some()));
    }
    if !value.is_finite() {
        let at = &options.at;
        let what = match used.iter().find(|(_, value)| !value.is_finite()) {
            Some((place, value)) if options.window.is_some() => {
                format!(
                    "its value at {place} {at} is {value}, in the window from {from} to {budget} {at}"
                )
            }
            Some((place, value)) => {
                format!(
                    "its value at {place} {at} is {value}, which counts at the budget of {budget} {at}"
                )
            }
            None => format!("it has no point from {from} to {budget} {at}"),
        };
        let reason = format!("{}{what}; without this run its side would look better", prefix(run));
        return Err(StudyError::invalid(&run.path, reason));
    }
    points.truncate(within);
    Ok(TrackedValue {
        side,
        run: run.name.clone(),
        seed: run.seed,
        value,
        reached,
        end,
        unread: run.unread.get(metric).copied().unwrap_or(0),
        not_finite: points.iter().filter(|(_, value)| !value.is_finite()).count(),
        points,
        left_out,
        notes,
    })
}

fn are_shares(shares: &[TrackedValue], others: &[TrackedValue]) -> bool {
    let values = |runs: &[TrackedValue]| runs.iter().map(|it| it.value).collect::<Vec<f64>>();
    let (shares, others) = (values(shares), values(others));
    shares.iter().all(|value| (0.0..=1.0).contains(value))
        && others.iter().all(|value| *value > 1.0)
        && estimators::mean(&others) >= 10.0 * estimators::mean(&shares)
}

/// A higher value of these is better.
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
mod tests {
    use super::*;
    use crate::study::gate::{Gate, GateVerdict, Undecided};

    fn options() -> TrackedOptions {
        TrackedOptions { at: "steps".to_string(), ..TrackedOptions::default() }
    }

    fn judged<const N: usize>(
        values: [(f64, f64); N],
        unpaired: bool,
        limits: (f64, Option<f64>),
    ) -> TrackedComparison {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let rows = values.iter().enumerate();
        let rows = rows.map(|(seed, (a, b))| format!("a,{seed},{a}\nb,{seed},{b}\n"));
        let text = format!("arm,seed,value\n{}", rows.collect::<String>());
        files::write_atomic(&path, text.as_bytes()).unwrap();
        let [a, b] = ["a", "b"].map(|name| arm(&path.to_string_lossy(), name).unwrap().0);
        compare(&a, &b, &TrackedOptions { unpaired, ..options() }, limits).unwrap()
    }

    /// Differences of mean 0 whose standard deviation is √(8/7).
    const ALTERNATING: [(f64, f64); 8] = [
        (0.0, 1.0),
        (0.0, -1.0),
        (0.0, 1.0),
        (0.0, -1.0),
        (0.0, 1.0),
        (0.0, -1.0),
        (0.0, 1.0),
        (0.0, -1.0),
    ];

    #[test]
    fn values_that_rounding_alone_tells_apart_are_equal() {
        for unpaired in [false, true] {
            let compared = judged([(0.52, 0.5200000000000001); 6], unpaired, (0.95, None));
            let estimate = compared.estimate.as_ref().unwrap();
            assert_eq!((estimate.difference, estimate.p), (0.0, 1.0));
            let gate = Gate { either_way: true, margin: None };
            assert_eq!(gate.of_tracked(&compared), GateVerdict::Passed);
        }
    }

    #[test]
    fn what_could_have_been_found_is_known_of_blocks_too_and_takes_the_interval() {
        let found = |unpaired, level| {
            let verdict = judged(ALTERNATING, unpaired, (level, None)).verdict.unwrap();
            let Verdict::Inconclusive { could_have_detected } = verdict else {
                panic!("{verdict:?}")
            };
            could_have_detected.unwrap()
        };
        let expected = between::minimum_detectable_effect_of_blocks(1.0, 8, 0.05, 0.8);
        assert!((found(false, 0.95) / (8.0f64 / 7.0).sqrt() - expected).abs() < 1e-9);
        assert!(
            [false, true].iter().all(|unpaired| found(*unpaired, 0.99) > found(*unpaired, 0.95))
        );
    }

    #[test]
    fn blocks_that_are_needed_are_more_than_those_that_did_not_suffice() {
        let needed = |b: [f64; 6]| judged(b.map(|b| (0.0, b)), false, (0.95, None)).needed.unwrap();
        // A tie has no sign: five signs show nothing.
        let tied = needed([0.0, 0.11, 0.1, 0.12, 0.13, 0.1]);
        assert_eq!(tied, Needed::AboutForSeen { count: 8, blocks: true, power: POWER });
        // The t test would need six; the flips of these six do not show it.
        let one_other = needed([1.0, 1.0, 1.0, 1.0, 1.0, -0.1]);
        assert_eq!(one_other, Needed::MoreThanForSeen { count: 6, blocks: true });
    }

    #[test]
    fn a_gate_passes_what_is_shown_to_be_equivalent_within_its_margin() {
        // Half widths: 0.72 of the interval of 90 %, 0.89 of that of 95 %.
        for (either_way, unpaired) in [(false, false), (true, false), (false, true), (true, true)] {
            let gated = |margin| {
                let compared = judged(ALTERNATING, unpaired, (0.95, Some(margin)));
                let gate = Gate { either_way, margin: Some(margin) };
                (compared.verdict.unwrap(), gate.of_tracked(&compared))
            };
            assert!(matches!(gated(0.7).1, GateVerdict::Undecided(Undecided::Wide { .. })));
            assert_eq!(gated(0.8), (Verdict::Equivalent { within: 0.8 }, GateVerdict::Equivalent));
            assert_eq!(gated(0.9), (Verdict::Equivalent { within: 0.9 }, GateVerdict::Passed));
        }
    }

    fn of_text(name: &str, text: &str, options: &TrackedOptions) -> TrackedComparison {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        files::write_atomic(&path, text.as_bytes()).unwrap();
        let (runs, _) = side(&[path.to_string_lossy().into_owned()], options).unwrap();
        compare(&runs, &runs, options, (0.95, None)).unwrap()
    }

    #[test]
    fn seconds_since_the_start_stay_and_times_of_day_count_from_the_first() {
        let on = |text: &str, at: &str| {
            let options = TrackedOptions { at: at.to_string(), ..options() };
            let compared = of_text("c.csv", text, &options);
            let run = compared.runs[0].clone();
            (run.points, run.notes.has_times)
        };
        for clock in ["_runtime", "Relative Time (Process)", "Relative Time (Wall)", "seconds"] {
            let text = format!("step,{clock},acc\n10,100,0.1\n20,160,0.2\n");
            let expected = (vec![(100.0, 0.1), (160.0, 0.2)], false);
            assert_eq!((on(&text, SECONDS), on(&text, clock)), (expected.clone(), expected));
        }
        for clock in TIMES {
            let text = format!("step,{clock},loss,acc\n5,1700000000,3,\n10,1700000040,2,0.1\n");
            let expected = (vec![(40.0, 0.1)], true);
            let on = |at: &str| {
                let metric = Some("acc".to_string());
                let options = TrackedOptions { at: at.to_string(), metric, ..options() };
                let run = of_text("c.csv", &text, &options).runs[0].clone();
                (run.points, run.notes.has_times)
            };
            assert_eq!((on(SECONDS), on(clock)), (expected.clone(), expected));
        }
        let both = "step,Wall time,_runtime,acc\n10,1700000000,100,0.1\n";
        assert_eq!(on(both, SECONDS), (vec![(100.0, 0.1)], false));
    }

    #[test]
    fn points_before_a_clocks_first_reading_are_at_0_of_a_sum_and_counted_of_a_total() {
        let on_tokens = |column: &str| {
            let line = |step: u64, rest: &str| format!("{{\"step\": {step}, {rest}}}\n");
            let logged = format!("\"{column}\": 100, \"acc\": 0.2");
            let text = [line(0, "\"acc\": 0.1"), line(1, &logged), line(2, &logged)].concat();
            let (at, metric) = ("tokens".to_string(), Some("acc".to_string()));
            let run = of_text("c.jsonl", &text, &TrackedOptions { at, metric, ..options() });
            let run = run.runs[0].clone();
            (run.points, run.notes.before_clock)
        };
        let summed = vec![(0.0, 0.1), (100.0, 0.2), (200.0, 0.2)];
        assert_eq!(on_tokens("perf/total_num_tokens"), (summed, 0));
        assert_eq!(on_tokens("num_tokens"), (vec![(100.0, 0.2), (100.0, 0.2)], 1));
    }

    #[test]
    fn what_is_not_finite_reaches_no_level_and_is_counted() {
        let to_level = TrackedOptions { to_level: Some(0.5), ..options() };
        let text = "step,acc\n1,inf\n2,NaN\n3,0.6\n";
        let run = of_text("c.csv", text, &to_level).runs[0].clone();
        assert_eq!((run.value, run.reached, run.not_finite), (3.0, Some(true), 2));
    }

    #[test]
    fn identical_runs_need_no_more_of_them() {
        for unpaired in [false, true] {
            let compared = judged([(0.5, 0.5); 6], unpaired, (0.95, None));
            assert!(compared.is_same && compared.needed.is_none(), "{compared:?}");
        }
        let alternating = judged(ALTERNATING, false, (0.95, None));
        assert!(!alternating.is_same && alternating.needed.is_some());
    }

    #[test]
    fn a_line_is_read_alike_wherever_it_has_its_points() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str, places: &[u64]| {
            let runs = (1..=6).map(|seed| {
                let path = folder.path().join(format!("{name}-s{seed}.csv"));
                let rows = places.iter().map(|at| format!("{at},{}\n", (at + seed) as f64 / 100.0));
                let text = format!("step,acc\n{}", rows.collect::<String>());
                files::write_atomic(&path, text.as_bytes()).unwrap();
                path.to_string_lossy().into_owned()
            });
            side(&runs.collect::<Vec<String>>(), &options()).unwrap().0
        };
        for b in [&[0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100][..], &[25, 60, 93, 120]] {
            let (a, b) = (read("a", &[0, 45, 95]), read("b", b));
            for (window, to_level) in [(0.2, None), (0.9, None), (1.0, None), (1.0, Some(0.92))] {
                let window = Some(window).filter(|_| to_level.is_none());
                let options = TrackedOptions { window, to_level, ..options() };
                let compared = compare(&a, &b, &options, (0.95, None)).unwrap();
                assert!(!compared.same_places);
                let [a, b] = [0, 6].map(|first| &compared.runs[first..first + 6]);
                for (a, b) in a.iter().zip(b) {
                    assert!((a.value - b.value).abs() < 1e-9, "{options:?}: {a:?} {b:?}");
                    assert_eq!(a.reached, b.reached);
                }
                let gate = Gate { either_way: true, margin: None };
                assert_eq!(gate.of_tracked(&compared), GateVerdict::Passed);
            }
        }
    }

    #[test]
    fn a_window_and_a_level_end_at_their_edge() {
        let rows: String = (1..=10).map(|step| format!("{step},{step}.00000000000001\n")).collect();
        let text = format!("step,acc\n{rows}");
        let value = |options| of_text("c.csv", &text, &options).runs[0].value;
        // 3 to 10, and not 2.
        assert!((value(TrackedOptions { window: Some(0.8), ..options() }) - 6.5).abs() < 1e-9);
        let to_level = Some(1.0);
        let lower = TrackedOptions { to_level, lower_is_better: true, ..options() };
        assert_eq!(value(lower), 1.0);
    }
}
