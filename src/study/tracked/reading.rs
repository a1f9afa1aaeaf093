//! What a run is read as: its metric on the clock, the places that count, and one number of them.

use crate::base::visible;
use crate::experiment::diagnose;
use crate::records::tables::csv_rows;
use crate::records::tracked::{self, CLOCKS, Replaced, SECONDS, TIMES};
use crate::records::{TrackedCurve, TrackedNotes, TrackedRun};
use crate::statistics::estimators;
use crate::study::tracked::sides::{listed, prefix};
use crate::study::{StudyError, TrackedOptions, TrackedValue, curves, window};

pub struct OnClock {
    pub points: TrackedCurve,
    pub notes: TrackedNotes,
}

/// What of all runs counts: up to the budget, which the shortest run sets, and from `from` where a window is asked for.
pub struct Extent<'a> {
    options: &'a TrackedOptions,
    pub budget: f64,
    pub shortest: String,
    from: f64,
    /// The places at which all runs are read; else they are read on the lines through their own points.
    pub places: Option<Vec<f64>>,
}

impl<'a> Extent<'a> {
    pub fn of(runs: &[&TrackedRun], read: &[OnClock], options: &'a TrackedOptions) -> Self {
        let last = |points: &TrackedCurve| points.last().map(|(at, _)| *at);
        let ends = runs.iter().zip(read).filter_map(|(run, read)| Some((last(&read.points)?, run)));
        let shortest = ends.min_by(|one, other| one.0.total_cmp(&other.0));
        let (end, shortest) =
            shortest.map_or((0.0, String::new()), |(at, run)| (at, run.name.clone()));
        let places =
            shared_places(read, end).filter(|places| counts_enough(places, read, end, options));
        let budget = places.as_ref().and_then(|places| places.last().copied()).unwrap_or(end);
        let starts = read.iter().filter_map(|read| Some(read.points.first()?.0));
        let begun = starts.fold(0.0, f64::max);
        let from = options.window.map_or(0.0, |share| budget - share * budget);
        let from = if places.is_none() { begun.max(from) } else { from };
        Extent { options, budget, shortest, from, places }
    }

    /// `None` without a window or without shared places.
    pub fn places_in_window(&self) -> Option<usize> {
        self.options.window?;
        let places = self.places.as_deref()?.iter();
        Some(places.filter(|at| in_window(**at, self.budget, self.options)).count())
    }

    /// The run as one number. Errors: it is not finite.
    pub fn value(
        &self,
        side: char,
        run: &TrackedRun,
        metric: &str,
        read: OnClock,
    ) -> Result<TrackedValue, StudyError> {
        let OnClock { mut points, notes } = read;
        let end = points.last().map_or(self.budget, |(at, _)| *at);
        let within = points.partition_point(|(at, _)| *at <= self.budget);
        let counted: TrackedCurve =
            points[..within].iter().filter(|(at, _)| self.has(*at)).copied().collect();
        let (value, reached) = if let Some(level) = self.options.to_level {
            let line = &points[..points.len().min(within + 1)];
            let (time, reached) =
                self.time_to(level, if self.places.is_none() { line } else { &counted });
            (time, Some(reached))
        } else {
            let used = self.used(&points, within, &counted);
            let value = self.summary(used);
            if !value.is_finite() {
                let reason = format!(
                    "{}{}; without this run its side would look better{}",
                    prefix(run),
                    self.why_not_finite(used),
                    not_evaluated(&points)
                );
                return Err(StudyError::invalid(&run.path, reason));
            }
            (value, None)
        };
        points.truncate(within);
        let unread = run.unread.get(metric).cloned().unwrap_or_default();
        Ok(TrackedValue {
            side,
            run: run.name.clone(),
            seed: run.seed,
            value,
            reached,
            end,
            unread: unread.nulls + unread.texts,
            texts: unread.texts,
            first_text: unread.first_text,
            not_finite: points.iter().filter(|(_, value)| !value.is_finite()).count(),
            left_out: within - counted.len(),
            points,
            notes,
        })
    }

    fn has(&self, at: f64) -> bool {
        let is_place =
            |places: &[f64]| places.binary_search_by(|place| place.total_cmp(&at)).is_ok();
        self.places.as_deref().is_none_or(is_place)
    }

    /// The points that the run's number is made of; on a line, with those around the edges.
    fn used<'p>(
        &self,
        points: &'p [(f64, f64)],
        within: usize,
        counted: &'p [(f64, f64)],
    ) -> &'p [(f64, f64)] {
        let around = |first: usize| &points[first.saturating_sub(1)..points.len().min(within + 1)];
        if let Some(share) = self.options.window {
            let is_before = |at: f64| !window::is_above(at, 1.0 - share, self.budget);
            let first = counted.partition_point(|(at, _)| is_before(*at));
            let is_empty = first == counted.len();
            if self.places.is_none() && !is_empty { around(first) } else { &counted[first..] }
        } else if counted.last().is_some_and(|(at, _)| *at == self.budget) {
            &counted[counted.len() - 1..]
        } else {
            around(within)
        }
    }

    fn summary(&self, used: &[(f64, f64)]) -> f64 {
        let value = match self.options.window {
            _ if used.is_empty() => None,
            Some(_) if self.places.is_none() => {
                curves::mean_between(used, (self.from, self.budget))
            }
            Some(_) => {
                let values = used.iter().map(|(_, value)| *value);
                Some(estimators::mean(&values.collect::<Vec<f64>>()))
            }
            None => curves::interpolated(used, self.budget),
        };
        value.unwrap_or(f64::NAN)
    }

    /// When the level is reached first, and whether it is; else the budget.
    fn time_to(&self, level: f64, read: &[(f64, f64)]) -> (f64, bool) {
        let sign = if self.options.lower_is_better { -1.0 } else { 1.0 };
        let is_there =
            |value: f64| value.is_finite() && estimators::reaches(sign * value, sign * level);
        let crossed = |last: usize| {
            let steep = [last.checked_sub(1)?, last].map(|it| (sign * read[it].1, read[it].0));
            curves::interpolated(&steep, sign * level).filter(|at| at.is_finite())
        };
        let first = read.iter().position(|(_, value)| is_there(*value));
        let first = first.map(|first| {
            let crossed = self.places.is_none().then(|| crossed(first)).flatten();
            crossed.unwrap_or(read[first].0)
        });
        let first = first.filter(|at| *at <= self.budget);
        (first.unwrap_or(self.budget), first.is_some())
    }

    fn why_not_finite(&self, used: &[(f64, f64)]) -> String {
        let (Self { from, budget, .. }, at) = (self, &self.options.at);
        match used.iter().find(|(_, value)| !value.is_finite()) {
            Some((place, value)) if self.options.window.is_some() => format!(
                "its value at {place} {at} is {value}, in the window from {from} to {budget} {at}"
            ),
            Some((place, value)) => format!(
                "its value at {place} {at} is {value}, which counts at the budget of {budget} {at}"
            ),
            None => format!("it has no point from {from} to {budget} {at}"),
        }
    }
}

fn not_evaluated(points: &TrackedCurve) -> String {
    let count = points.iter().filter(|(_, value)| value.is_nan()).count();
    let all = points.len();
    let advice = format!(
        "; {count} of {all} points are NaN: if that means not evaluated, leave their rows out"
    );
    if count > 1 { advice } else { String::new() }
}

const SHOWN: usize = 8;

/// The named metric, or the only one that all runs have.
pub fn metric(runs: &[&TrackedRun], options: &TrackedOptions) -> Result<String, StudyError> {
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
                check_has_no_numbers_as_text(run, wanted)?;
                let text = run.unread[wanted].first_text.as_deref().unwrap_or("null");
                let text = visible::shortened(text, 40);
                let reason =
                    format!("--metric {wanted}: it has no number; its values are `{text}`");
                return Err(StudyError::invalid(&run.path, reason));
            }
            let nearest = diagnose::nearest(wanted, names);
            let nearest = nearest.map_or(String::new(), |name| format!("did you mean `{name}`? "));
            let listed = listed(names);
            let asked = options.metric.as_ref().map(|name| format!("--metric {name}"));
            let reason = if names.is_empty() {
                let asked = asked.map_or(String::new(), |asked| asked + ": ");
                format!("{asked}no metric is in all runs: {}", metrics_of_each(runs))
            } else {
                let asked = asked.unwrap_or_else(|| "name one with --metric".to_string());
                format!("{asked}: {nearest}the metrics of all runs are {listed}")
            };
            let others = || runs.iter().find(|run| !run.curves.keys().eq(runs[0].curves.keys()));
            let place = without.filter(|_| options.metric.is_some()).or_else(others);
            Err(StudyError::invalid(&place.unwrap_or(&runs[0]).path, reason))
        }
    }
}

fn metrics_of_each(runs: &[&TrackedRun]) -> String {
    let mut lists: Vec<(String, &str)> = Vec::new();
    for run in runs {
        let all = run.curves.keys();
        let more = all.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let list = listed(all.take(SHOWN)) + &more;
        if lists.iter().all(|(other, _)| *other != list) {
            lists.push((list, &run.name));
        }
    }
    let shown = lists.iter().take(SHOWN).map(|(list, name)| format!("{name} has {list}"));
    shown.collect::<Vec<String>>().join("; ")
}

fn check_has_no_numbers_as_text(run: &TrackedRun, column: &str) -> Result<(), StudyError> {
    let first = run.unread.get(column).and_then(|unread| unread.first_number.as_ref());
    let Some((line, text)) = first else { return Ok(()) };
    let reason = if text.parse::<f64>().is_ok() {
        format!("`{column}`: expected a number, got the text {text:?}; write it without quotes")
    } else {
        csv_rows::no_number(column, text)
    };
    Err(csv_rows::at(&run.path, *line, format!("{}{reason}", prefix(run))).into())
}

/// Columns of tokens, and whether they are running totals: TRL's are, verl's are of each step.
const TOKENS: [(&str, bool); 3] =
    [("num_tokens", true), ("train/num_tokens", true), ("perf/total_num_tokens", false)];

/// The metric over the clock. A point stands at the clock's last reading up to its step: before the first one at 0 of a
/// sum, and nowhere of a running total.
pub fn on_clock(run: &TrackedRun, metric: &str, at: &str) -> Result<OnClock, StudyError> {
    let refuse = |reason: String| Err(StudyError::invalid(&run.path, reason));
    check_has_no_numbers_as_text(run, metric)?;
    let replaced = run.replaced.get(metric);
    if let Some((several, all)) = replaced.map(Replaced::several_and_all_steps)
        && several > 1
        && 2 * several > all
    {
        return refuse(format!(
            "{}`{metric}` has several values at {several} of {all} steps, as of several runs in one file: name each run \
             in a column `run`, or keep one line of a step (of a resumed run the later one)",
            prefix(run)
        ));
    }
    let replaced = replaced.map_or(0, |it| it.points);
    let mut notes = TrackedNotes { replaced, has_times: false, ..run.notes };
    if at == "steps" {
        return Ok(OnClock { points: run.curves[metric].clone(), notes });
    }
    let is_asked = |name: &str| at == "tokens" && run.curves.contains_key(name) || at == name;
    let tokens = TOKENS.iter().find(|(name, _)| is_asked(name));
    let (column, is_total) = tokens.copied().unwrap_or((at, true));
    let wall = run.seconds.get(metric).filter(|_| at == SECONDS);
    let Some(mut clock) = wall.or_else(|| run.curves.get(column)).cloned() else {
        if run.unread.contains_key(column) {
            check_has_no_numbers_as_text(run, column)?;
            let what = "its values are text, such as `10,000`, or null: write digits alone";
            return refuse(format!("{}--at {at}: {what}", prefix(run)));
        }
        let wall = (!run.seconds.is_empty()).then(|| SECONDS.to_string());
        let names = listed(run.curves.keys().chain(&wall));
        let what = format!("{}--at {at}: no such column", prefix(run));
        return refuse(format!("{what}; a running total among these can be named: {names}"));
    };
    check_has_no_numbers_as_text(run, column)?;
    if !is_total {
        let due = (0_u32..).map(|count| clock[0].0.min(1.0) + f64::from(count));
        let steps = clock.iter().map(|(step, _)| *step).chain([f64::INFINITY]);
        let missing = due.zip(steps).find(|(due, step)| due != step).map(|(due, _)| due);
        let last = run.curves[metric].last().map_or(0.0, |(step, _)| *step);
        if let Some(missing) = missing.filter(|missing| *missing <= last) {
            return refuse(format!(
                "{}--at {at} sums `{column}` of every step, and step {missing} is missing (the first one is {}): name a \
                 column that has a running total, or compare with --at steps",
                prefix(run),
                clock[0].0
            ));
        }
    }
    notes.has_times = TIMES.contains(&column) || wall.is_some() && run.notes.has_times;
    let is_seconds = at == SECONDS || CLOCKS.contains(&column);
    notes.longest_gap_seconds = is_seconds.then(|| longest_gap(&clock)).flatten();
    let (first, last) = (clock[0].1, clock.last().map_or(clock[0].1, |it| it.1));
    if !notes.has_times && is_total && first >= 1e9 && first > 100.0 * (last - first) {
        return refuse(format!(
            "{}--at {at}: `{column}` begins at {first} and grows by {} alone, as a time of day, and no running total: \
             name a column that counts from the run's start, or call seconds since 1970 `_timestamp`, which \
             --at seconds reads",
            prefix(run),
            last - first
        ));
    }
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
    Ok(OnClock { points: curve[notes.before_clock..].iter().map(point).collect(), notes })
}

fn longest_gap(clock: &TrackedCurve) -> Option<u64> {
    let mut gaps: Vec<f64> = clock.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    gaps.sort_by(f64::total_cmp);
    let (longest, usual) = (*gaps.last()?, gaps[gaps.len() / 2]);
    let all = gaps.iter().sum::<f64>();
    (usual > 0.0 && longest > 20.0 * usual && longest > 0.05 * all).then_some(longest as u64)
}

/// The places up to `end` that all runs have; `None` where most of the budget would be lost.
fn shared_places(read: &[OnClock], end: f64) -> Option<Vec<f64>> {
    let has = |read: &OnClock, place: f64| {
        read.points.binary_search_by(|(at, _)| at.total_cmp(&place)).is_ok()
    };
    let mut places: Vec<f64> = read[0].points.iter().map(|(at, _)| *at).collect();
    places.retain(|place| *place <= end && read.iter().all(|read| has(read, *place)));
    places.last().is_some_and(|last| 2.0 * last >= end).then_some(places)
}

fn in_window(at: f64, budget: f64, options: &TrackedOptions) -> bool {
    let share = options.window.unwrap_or(1.0);
    at <= budget && window::is_above(at, 1.0 - share, budget)
}

fn counts_enough(places: &[f64], read: &[OnClock], end: f64, options: &TrackedOptions) -> bool {
    let budget = places.last().copied().unwrap_or(end);
    let count = |read: &OnClock, budget| {
        read.points.iter().filter(|(at, _)| in_window(*at, budget, options)).count()
    };
    options.window.is_none()
        || places.iter().filter(|at| in_window(**at, budget, options)).count() > 1
        || read.iter().all(|read| count(read, budget) < 2)
        || read.iter().any(|read| count(read, end) == 0)
}
