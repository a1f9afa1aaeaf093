//! A comparison of runs that other programs tracked, as sections.

use crate::base::visible;
use crate::records::tracked::TABLE;
use crate::report::page::{Block, Section, Table, TableCell, row};
use crate::report::{compared, text, text::Unit, words};
use crate::statistics::{Estimate, PermutationTest, estimators};
use crate::study::{TrackedComparison, TrackedValue, tracked::WithoutPartner};
use std::collections::BTreeSet;

const COURSE: usize = 24;

/// Below this share of the longest run, a budget is told beside the verdict.
const SHORT: f64 = 0.8;

const UNKNOWN: [&str; 5] = [
    "whether both sides had the same data, code, base model and evaluation",
    "whether runs or seeds are left out, and whether a name tells a run's seed",
    "whether points were smoothed or summarised before they were written",
    "who chose metric, budget, window and level, and whether before the runs",
    "collapses rarer than one in so many runs, of which probably none was drawn",
];

pub fn sections(comparison: &TrackedComparison) -> Vec<Section> {
    let title = format!("B against A: {}", text::visible(&comparison.metric));
    let unknown = UNKNOWN.map(str::to_owned).into();
    vec![
        Section::new("result", &title, vec![Block::List(result(comparison))]),
        Section::new("runs", "Runs", vec![Block::Table(table(comparison))]),
        Section::new("reading", "How they were read", vec![Block::List(reading(comparison))]),
        Section::new("unknown", "What these files cannot show", vec![Block::List(unknown)]),
    ]
}

pub const OTHER_UNITS: &str = "some runs lie within 0 and 1 and others far above, as shares beside percent: bring all to one unit or, \
     if they have one, add --same-unit";

pub(super) fn result(comparison: &TrackedComparison) -> Vec<String> {
    let mut lines = judged(comparison);
    lines.extend(comparison.other_units.then(|| format!("Units: {OTHER_UNITS}.")));
    lines.extend(comparison.several_names.iter().map(|(side, names)| {
        let names = text::joined(names.iter().map(|name| text::visible(name)), ", ");
        format!("{side} is of several names: {names}. Where these are several methods, name more of a name.")
    }));
    let differing = comparison.differing_columns.iter().map(|(column, [a, b])| {
        let [column, a, b] = [column, a, b].map(|it| text::visible(&visible::shortened(it, 40)));
        format!("{column} (A {a}, B {b})")
    });
    let differing = text::joined(differing, ", ");
    lines.extend((!differing.is_empty()).then(|| {
        format!("The arms differ in: {differing}. The verdict is of the method and these together.")
    }));
    let alone = comparison.without_partner.iter().map(|WithoutPartner { side, run, seed }| {
        let seed = seed.map_or("without a seed".to_owned(), |seed| format!("seed {seed}"));
        format!("{side} {} {seed}", text::visible(run))
    });
    let alone = text::joined(alone, ", ");
    lines.extend((!alone.is_empty()).then(|| {
        format!(
            "Left out, as their seed is not once on each side: {alone}. --unpaired compares all runs, without pairs."
        )
    }));
    let TrackedComparison { asked, budget: (budget, shortest), runs, .. } = comparison;
    let longest = runs.iter().map(|run| run.end).fold(*budget, f64::max);
    if *budget < SHORT * longest {
        let [clock, shortest] = [&asked.at, shortest].map(|name| text::visible(name));
        let why =
            last_shared(comparison).unwrap_or_else(|| format!("because {shortest} ends there"));
        let first_end = runs.iter().map(|run| run.end).fold(longest, f64::min);
        let advice = if first_end < SHORT * longest {
            "Leave out a run that broke off, and say so"
        } else {
            "Evaluate all runs at the same places"
        };
        lines.push(format!(
            "The budget of all runs is {} {clock}, {why}; the longest run has {}. {advice}.",
            text::number(*budget),
            text::number(longest),
        ));
    }
    lines
}

/// Of a budget at which no run ends.
fn last_shared(comparison: &TrackedComparison) -> Option<String> {
    let (budget, shortest) = &comparison.budget;
    let ends_later = comparison.runs.iter().all(|run| run.end > *budget);
    let shortest = text::visible(shortest);
    ends_later.then(|| format!("the last place that all runs have before {shortest} ends"))
}

fn judged(comparison: &TrackedComparison) -> Vec<String> {
    let mean = |side| {
        let runs = comparison.runs.iter().filter(|run| run.side == side);
        estimators::mean(&runs.map(|run| run.value).collect::<Vec<f64>>())
    };
    if let Some(level) = comparison.asked.to_level.filter(|_| comparison.is_level_missed()) {
        return level_missed(comparison, level);
    }
    let means = format!("A has {}, B {}", text::number(mean('A')), text::number(mean('B')));
    let (Some(estimate), Some(verdict)) = (&comparison.estimate, &comparison.verdict) else {
        let needed = comparison.needed_by_difference.iter().map(|(size, runs)| {
            let runs = runs.map_or("over 1,000".to_owned(), |runs| runs.to_string());
            let many = if *size == 1.0 { "" } else { "s" };
            format!("{runs} if it is {size} standard deviation{many} between runs")
        });
        let needed = text::joined(needed, ", ");
        let why = if comparison.without_partner.is_empty() {
            "one run on a side shows no spread between runs."
        } else {
            "one pair shows no spread: add runs of the seeds that the other side has."
        };
        return vec![
            format!("No verdict: {why}"),
            format!("{means}. Runs a side to show such a difference: {needed}."),
        ];
    };
    let Estimate { difference, interval, p, splits, exact, smallest_p, medians, .. } = *estimate;
    let test = PermutationTest { p, splits, exact, smallest_p };
    let same =
        if comparison.paired { "no run differs from its partner" } else { compared::SAME_VALUES };
    let same = comparison.is_same.then_some(same);
    let words = compared::in_words(verdict, smallest_p, Unit::Plain, same);
    let (name, of) =
        if comparison.paired { ("Sign-flip", "sign flips") } else { ("Permutation", "splits") };
    let test = compared::test(&test, of);
    let interval = interval.map_or("no interval".to_owned(), |interval| {
        format!("{} interval {}", text::level(interval.level), Unit::Plain.interval(&interval))
    });
    let better = match medians {
        Some((b, a)) => {
            let [a, b] = [a, b].map(|it| it.map_or("never".to_owned(), text::number));
            format!("Median time to the level: A {a}, B {b}.")
        }
        None => {
            let lower = comparison.asked.lower_is_better;
            let (better, sign) = if lower { ("lower", "A − B") } else { ("higher", "B − A") };
            let difference = Unit::Plain.signed(difference);
            format!("{means}. {sign}: {difference}, {interval}; {better} is better.")
        }
    };
    let needed = comparison.needed.iter().map(|it| format!("Needed: {}.", words::needed(it)));
    [format!("Verdict, if this is the only comparison: {words}."), better]
        .into_iter()
        .chain([format!("Do the methods differ? {name} test: {test}.")])
        .chain(needed)
        .collect()
}

fn level_missed(comparison: &TrackedComparison, level: f64) -> Vec<String> {
    let values = comparison.runs.iter().flat_map(|run| run.points.iter().map(|(_, value)| *value));
    let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    let (way, most) = if comparison.asked.lower_is_better {
        ("down", values.iter().copied().reduce(f64::min))
    } else {
        ("up", values.iter().copied().reduce(f64::max))
    };
    let most = most.map_or("there is none that is finite".to_owned(), |most| {
        format!("the values within it go {way} to {}", text::number(most))
    });
    let level_shown = text::number(level);
    let mut lines = vec![format!(
        "No verdict: no run reaches the level of {level_shown} within the budget; {most}. Name a level that runs reach."
    )];
    let is_percent = level > 1.0 && values.iter().all(|value| (0.0..=1.0).contains(value));
    lines.extend(is_percent.then(|| {
        let share = text::number(level / 100.0);
        format!("All values lie within 0 and 1: in their unit {level_shown} percent are {share}.")
    }));
    lines
}

fn table(comparison: &TrackedComparison) -> Table {
    let rows = comparison.runs.iter().map(|run| {
        let course: &[(f64, f64)] = if run.notes.format == TABLE { &[] } else { &run.points };
        let read_at = course.last().map(|(at, _)| *at);
        let reached = Some(run.value).filter(|_| run.reached != Some(false));
        row![
            run.side,
            text::visible(&run.run),
            TableCell::shown(run.seed.map(|seed| seed as f64), text::number),
            text::sparkline(course, COURSE),
            TableCell::shown(read_at, text::number),
            TableCell::shown(reached, text::number)
        ]
    });
    let clock = text::visible(&comparison.asked.at);
    Table::new("", &format!("side | run | seed # | course | {clock} # | value #"), rows)
}

fn reading(comparison: &TrackedComparison) -> Vec<String> {
    let TrackedComparison { asked, runs, ignored, not_compared, .. } = comparison;
    let mut formats: Vec<&str> = runs.iter().map(|run| run.notes.format).collect();
    formats.dedup();
    let is_table = formats == [TABLE];
    let better = if asked.lower_is_better { "lower" } else { "higher" };
    let how = match (comparison.paired, asked.to_level, asked.unpaired) {
        (true, ..) => "paired by seed, a block each",
        (_, Some(_), _) => "not paired, as times are not",
        (.., true) => "not paired (--unpaired)",
        _ => "not paired: no seed is once on each side",
    };
    let others = if is_table {
        "Other arms of the table, which are not compared"
    } else {
        "Other runs with this text in their names, which are not compared"
    };
    let named = |what: &str, names: &BTreeSet<String>| {
        let shown = text::joined(names.iter().map(|name| text::visible(name)), ", ");
        (!names.is_empty()).then(|| format!("{what}: {shown}."))
    };
    let all = runs.len();
    let longer = runs.iter().filter(|run| run.end > comparison.budget.0).count();
    let timed = runs.iter().filter(|run| run.notes.has_times).count();
    let lines = [
        Some(format!("Formats: {}.", text::joined(&formats, ", "))),
        Some(format!("A {better} value is taken as better (--lower-is-better).")),
        Some(format!(
            "Runs are {how}. Seeds stand in the table, or in names of runs, files and folders."
        )),
        (!is_table).then(|| budget(comparison)),
        named("Columns from which nothing was read", ignored),
        named(others, not_compared),
        (longer > 0)
            .then(|| format!("{longer} of {all} runs have later points; they do not count.")),
        other_places(comparison),
        (timed > 0).then(|| {
            format!(
                "The files of {timed} of {all} runs have times of day: their seconds count from the first logged point \
                 in the file, of any metric; what was before it is not counted."
            )
        }),
    ];
    let notes = (0..all).flat_map(|place| notes(comparison, place, is_table));
    let notes = of_each_run(&notes.collect::<Vec<_>>(), all);
    lines.into_iter().flatten().chain(notes).collect()
}

fn budget(comparison: &TrackedComparison) -> String {
    let TrackedComparison { asked, budget: (budget, shortest), .. } = comparison;
    let counted = match (asked.window, asked.to_level) {
        (Some(share), _) => {
            let places = comparison.places_in_window.map_or(String::new(), |count| {
                format!(", at {} that all runs have", text::counted(count, "place", "places"))
            });
            format!("means over its last {}{places}", text::percent(share))
        }
        (_, Some(level)) => format!("when {} is reached first; – is never", text::number(level)),
        _ => "the last value within it".to_owned(),
    };
    let [clock, shortest] = [&asked.at, shortest].map(|name| text::visible(name));
    let place = last_shared(comparison).unwrap_or_else(|| format!("where {shortest} ends"));
    format!("Equal budget: {} {clock}, {place}; {counted}.", text::number(*budget))
}

fn notes(comparison: &TrackedComparison, place: usize, is_table: bool) -> Vec<(String, String)> {
    let TrackedComparison { asked, runs, .. } = comparison;
    let run = &runs[place];
    let read = &run.notes;
    let points = |count| text::counted(count, "point", "points");
    let clock = text::visible(&asked.at);
    let reached = asked.to_level.map_or("", |_| ", which reach no level");
    let nulls = run.unread - run.texts;
    let first = text::visible(run.first_text.as_deref().unwrap_or_default());
    let is_same = |other: &&TrackedValue| !is_table && other.points == run.points;
    let same = runs[..place].iter().find(is_same);
    let notes = [
        (read.replaced > 0).then(|| {
            let replaced = points(read.replaced);
            format!("{replaced} replaced by a later line of the same or an earlier step")
        }),
        read.is_sorted
            .then(|| "its rows were not in the order of steps and were sorted".to_owned()),
        (nulls > 0).then(|| format!("values that are null, left out: {nulls}")),
        (run.texts > 0)
            .then(|| format!("values that are text, such as `{first}`, left out: {}", run.texts)),
        (read.before_clock > 0).then(|| {
            let before = points(read.before_clock);
            format!("{before} before the first reading of {clock}, left out")
        }),
        (run.not_finite > 0).then(|| {
            let count = run.not_finite;
            format!("points up to the budget that are NaN or infinite{reached}: {count}")
        }),
        read.is_cut.then(|| "the file ends in the middle of a record".to_owned()),
        read.is_averaged.then(|| {
            let colon = run.run.contains(": ");
            let name = if colon { "; taken for one run, though a group's name has `: `" } else { "" };
            format!("points summarise several steps, or runs (MIN and MAX differ){name}")
        }),
        read.steps_of.map(|[steps, other]| {
            format!("the column {steps} counts its steps, and not {other} (--at {other} takes that)")
        }),
        read.longest_gap_seconds.map(|gap| {
            let gap = text::number(gap as f64);
            format!("its longest gap of {gap} seconds, as of a pause, is many times its usual one and counts as training")
        }),
        same.map(|other| {
            let other = text::visible(&other.run);
            format!("it has the same points as {other}; both count. If one is a copy, leave it out")
        }),
    ];
    notes.into_iter().flatten().map(|note| (text::visible(&run.run), note)).collect()
}

fn of_each_run(sentences: &[(String, String)], runs: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for (run, sentence) in sentences {
        let count = sentences.iter().filter(|it| it.1 == *sentence).count();
        let is_of_all = count == runs && runs > 2;
        let line = format!("{count} of {runs} runs: {sentence}.");
        if !is_of_all {
            lines.push(format!("{run}: {sentence}."));
        } else if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// What it means for values that runs have points at other places.
fn other_places(comparison: &TrackedComparison) -> Option<String> {
    let TrackedComparison { asked, budget: (budget, _), runs, same_places, .. } = comparison;
    let is_last = asked.window.is_none() && asked.to_level.is_none();
    if !same_places && !is_last {
        let advice = "which alone can make a difference; evaluate both sides at the same ones";
        let line = "Each is read on the line through its points.";
        return Some(format!("Runs are read at different places, {advice}. {line}"));
    }
    let has_none = |run: &&TrackedValue| run.points.last().is_none_or(|last| last.0 < *budget);
    let between = runs.iter().filter(has_none).count();
    let alone = runs.iter().filter(|run| run.left_out > 0 && !is_last).count();
    let all = runs.len();
    if *same_places {
        let line = format!(
            "{alone} of {all} runs have points where others have none; those do not count."
        );
        return (alone > 0).then_some(line);
    }
    let theirs = "theirs is on the line between the two around it";
    Some(format!("{between} of {all} runs have no value at the budget; {theirs}."))
}
