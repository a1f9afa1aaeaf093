//! The answer in words: which arm is better than which, by how much, at which equal resource.

use crate::report::study::context;
use crate::report::text::{self, Unit};
use crate::report::{Context, axes, words};
use crate::statistics::aggregates;
use crate::study::{Declared, Direction, Word, comparisons, comparisons::Comparison};
use std::collections::BTreeMap;

pub fn headline(context: &Context) -> String {
    match context.analysis.families.first().map(|family| family.comparisons.as_slice()) {
        None | Some([]) => {
            "The study declares no comparison, and no arm of its grids is compared with another: \
             there is nothing to answer."
                .to_owned()
        }
        Some([first, others @ ..]) if are_clocks_of(first, others) => {
            answers_of_families(context, first)
        }
        Some(several) => answers(context, several),
    }
}

/// Whether the others compare the same arms by the same score, each where another resource is equal.
fn are_clocks_of(first: &Comparison, others: &[Comparison]) -> bool {
    let score_and_clock = |comparison: &Comparison| {
        let metric = &comparison.declared.metric;
        metric.is_score().then(|| metric.equal_clock()).flatten()
    };
    let mut clocks = vec![score_and_clock(first)];
    others.iter().all(|other| {
        let clock = score_and_clock(other);
        let is_new = clock.is_some() && !clocks.contains(&clock);
        clocks.push(clock);
        is_new
            && is_same_but_for_the_clock(first, other)
            && same_arms(&first.declared, &other.declared)
    })
}

/// The primary answer, and that of each other family that asks the same of arms of another grid: by its question.
fn answers_of_families(context: &Context, primary: &Comparison) -> String {
    let labels =
        |it: &Comparison| [&it.declared.arm, &it.declared.reference].map(|id| context.label(id));
    let families = context.analysis.families.iter();
    let asked: Vec<(&str, &Comparison)> = families
        .filter_map(|family| Some((family.question.as_str(), family.comparisons.first()?)))
        .filter(|(_, first)| labels(first) == labels(primary) && first.declared.metric.is_score())
        .filter(|(_, it)| it.declared.metric.statistic() == primary.declared.metric.statistic())
        .collect();
    let are_of_grids =
        asked.iter().all(|(_, first)| !context.in_grid(&first.declared.arm).is_empty());
    if asked.len() < 2 || !are_of_grids || asked.len() > MOST_NAMED {
        return answer(context, primary);
    }
    let told = asked.into_iter().map(|(question, first)| {
        format!("{}: {}", text::visible(question), finding(context, first))
    });
    let primary_set = std::slice::from_ref(&context.analysis.declaration.primary_set);
    let measure = (primary.declared.metric.sets() == primary_set)
        .then(|| format!("Measure: {}.", context.score_name()));
    text::joined(told.chain(measure), " ")
}

fn answer(context: &Context, comparison: &Comparison) -> String {
    let declared = &comparison.declared;
    let (arm, reference) = (context.label(&declared.arm), context.label(&declared.reference));
    let metric = text::visible(&declared.metric.words());
    if comparison.result.is_none() {
        return format!(
            "Not known: {arm} could not be compared with {reference} ({metric}): {}.",
            text::visible(&words::why(&comparison.why))
        );
    }
    let unit = context::unit_of(&declared.metric);
    let percent = if unit == Unit::Share { " %" } else { "" };
    let means = match comparison.means() {
        (Some(mean), Some(other)) => {
            format!(", {} against {}{percent}", unit.show(mean), unit.show(other))
        }
        _ => String::new(),
    };
    format!("{} Measure: {metric}{means}.", text::capital(&finding(context, comparison)))
}

/// What is shown, and what the same arms show on other clocks.
fn finding(context: &Context, comparison: &Comparison) -> String {
    let declared = &comparison.declared;
    let (arm, reference) = (context.label(&declared.arm), context.label(&declared.reference));
    let limits = [
        is_control(context, comparison)
            .then_some("positive control: the settings were tuned for it"),
        (!comparison.registered).then_some("exploratory"),
    ];
    let limits = in_brackets(&text::joined(limits.into_iter().flatten(), "; "));
    let sized = sized(context, comparison, &arm, &reference);
    let clock = at_equal(comparison);
    let first = if matches!(comparison.word, Word::Inconclusive | Word::Equivalent) {
        format!("{clock} {sized}").trim_start().to_owned()
    } else {
        sized + &clock
    };
    let others = at_other_clocks(context, comparison);
    let blocks = blocks(context, comparison).unwrap_or_default();
    format!("{first}{blocks}{limits}{others}.")
}

/// `DAPO is 7.6 points worse than GRPO`; a verdict without a size for what has no points.
fn sized(context: &Context, comparison: &Comparison, arm: &str, reference: &str) -> String {
    let is_share = context::unit_of(&comparison.declared.metric) == Unit::Share;
    let without_size = || verdict(context, comparison.word, arm, true, reference);
    let Some(result) = comparison.result.as_ref().filter(|_| is_share) else {
        return without_size();
    };
    let interval = in_brackets(&with_interval(comparison));
    let between = match comparison.word {
        Word::Improves => "better than",
        Word::Hurts => "worse than",
        Word::Higher => "above",
        Word::Lower => "below",
        Word::Equivalent => {
            let margin = points(context.analysis.declaration.margin);
            return format!("{arm} and {reference} differ by less than {margin}{interval}");
        }
        Word::NothingToActOn => return without_size(),
        Word::Inconclusive | Word::NotCompared => {
            return format!(
                "no difference between {arm} and {reference} is shown{interval}, nor that they are equivalent"
            );
        }
    };
    let size = Unit::Share.show(result.difference.abs());
    format!("{arm} is {size} points {between} {reference}")
}

pub fn points(share: f64) -> String {
    format!("{} points", axes::tick_label(100.0 * share))
}

/// `+1.4 [−2.8, 5.6]`.
fn with_interval(comparison: &Comparison) -> String {
    let unit = context::unit_of(&comparison.declared.metric);
    let interval = comparison.result.as_ref().and_then(|result| result.interval.as_ref());
    let interval = interval.map_or(String::new(), |it| format!(" {}", unit.interval(it)));
    difference(comparison) + &interval
}

/// ` at equal generated tokens`; empty for a last evaluation.
fn at_equal(comparison: &Comparison) -> String {
    let clock = comparison.declared.metric.equal_clock();
    clock.map_or(String::new(), |clock| format!(" at equal {}", clock.words()))
}

/// `, in all 8 blocks`, where a difference is shown between blocks.
fn blocks(context: &Context, comparison: &Comparison) -> Option<String> {
    let is_higher = comparison.shown()? == Direction::Higher;
    let differences = comparisons::block_differences(comparison);
    // A block without a difference is none of these.
    let is_so = |it: &&(u64, f64)| if is_higher { it.1 > 0.0 } else { it.1 < 0.0 };
    let (count, all) = (differences.iter().filter(is_so).count(), differences.len());
    let of = if count == all { format!("all {all}") } else { format!("{count} of {all}") };
    let is_paired = context.analysis.declaration.paired && !comparison.declared.metric.is_time();
    is_paired.then(|| format!(", in {of} blocks"))
}

fn in_brackets(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" ({text})") }
}

/// Arms that differ from their references, and arms that do not.
fn answers(context: &Context, comparisons: &[Comparison]) -> String {
    let first = &comparisons[0];
    let is_common = |is_same: fn(&Declared, &Declared) -> bool| {
        comparisons.iter().all(|it| is_same(&it.declared, &first.declared))
    };
    let common = is_common(|a, b| a.reference == b.reference)
        .then(|| context.label(&first.declared.reference));
    let reference = |is_one: bool| {
        let own = if is_one { "its reference" } else { "their references" };
        common.clone().unwrap_or_else(|| own.to_owned())
    };
    let mut by_word: BTreeMap<Word, Vec<&Comparison>> = BTreeMap::new();
    for comparison in comparisons {
        by_word.entry(comparison.word).or_default().push(comparison);
    }
    let parts = by_word.into_iter().map(|(word, of)| {
        let subject =
            if of.len() > MOST_NAMED { among(&of) } else { named(context, &of, comparisons) };
        let is_one = of.len() == 1;
        verdict(context, word, &subject, is_one, &reference(is_one))
    });
    let parts = text::capital(&text::joined(parts, "; "));
    let status = if first.registered { "" } else { " (exploratory)" };
    let metric = is_common(|a, b| a.metric == b.metric)
        .then(|| format!(": {}", text::visible(&first.declared.metric.words())));
    format!("{parts}{status}{}.", metric.unwrap_or_default())
}

/// More are counted.
const MOST_NAMED: usize = 6;

/// `DAPO (+3.1)`, with what tells its measure from those of `all`.
fn named(context: &Context, comparisons: &[&Comparison], all: &[Comparison]) -> String {
    let name = |it: &&Comparison| {
        let measured = difference(it) + &measure_among(it, all);
        context.label(&it.declared.arm) + &in_brackets(measured.trim_start_matches([',', ' ']))
    };
    text::listed(comparisons.iter().map(name))
}

/// Empty where all are of one measure; ` at equal generated tokens` where nothing but the resource that is equal
/// differs; else `, pass@k on test, last evaluation`.
pub fn measure_among<'a>(
    comparison: &Comparison,
    all: impl IntoIterator<Item = &'a Comparison>,
) -> String {
    let metric = &comparison.declared.metric;
    let others = all.into_iter().filter(|it| it.declared.metric != *metric).collect::<Vec<_>>();
    if others.is_empty() {
        String::new()
    } else if others.iter().all(|it| is_same_but_for_the_clock(comparison, it)) {
        at_equal(comparison)
    } else {
        format!(", {}", text::visible(&metric.words()))
    }
}

/// `+3.1`; empty where nothing was tested.
fn difference(comparison: &Comparison) -> String {
    let unit = context::unit_of(&comparison.declared.metric);
    let result = comparison.result.as_ref();
    result.map_or(String::new(), |result| unit.signed(result.difference))
}

fn among(comparisons: &[&Comparison]) -> String {
    let unit = context::unit_of(&comparisons[0].declared.metric);
    let all = comparisons.iter().filter_map(|it| Some(it.result.as_ref()?.difference));
    let (low, high) = aggregates::range(all);
    let range = (low <= high).then(|| format!(" ({} to {})", unit.signed(low), unit.signed(high)));
    format!("{} arms{}", comparisons.len(), range.unwrap_or_default())
}

fn verdict(context: &Context, word: Word, subject: &str, is_one: bool, reference: &str) -> String {
    let (improve, is) = if is_one { ("improves", "is") } else { ("improve", "are") };
    match word {
        Word::Improves => format!("{subject} {improve} on {reference}"),
        Word::Hurts => format!("{subject} {is} worse than {reference}"),
        Word::Higher => format!("{subject} {is} higher than {reference}"),
        Word::Lower => format!("{subject} {is} lower than {reference}"),
        Word::Equivalent => {
            let margin = points(context.analysis.declaration.margin);
            format!("{subject} {is} equivalent to {reference} within {margin}")
        }
        Word::Inconclusive => {
            format!("for {subject}, the comparison with {reference} is inconclusive")
        }
        Word::NothingToActOn => {
            format!("{subject} had too little to act on for a verdict against {reference}")
        }
        Word::NotCompared => format!("{subject} could not be compared with {reference}"),
    }
}

fn is_same_but_for_the_clock(one: &Comparison, other: &Comparison) -> bool {
    one.declared.metric.is_same_but_for_the_clock(&other.declared.metric)
}

fn same_arms(one: &Declared, other: &Declared) -> bool {
    one.arm == other.arm && one.reference == other.reference
}

/// Whether the benchmark was made to show this difference.
fn is_control(context: &Context, primary: &Comparison) -> bool {
    let controls = context.judged.claims.iter().filter(|claim| claim.positive_control.is_some());
    let mut compared =
        controls.flat_map(|claim| &claim.parts).filter_map(|part| part.comparison.as_ref());
    primary.shown().is_some() && compared.any(|other| other.is_of(&primary.declared))
}

fn at_other_clocks(context: &Context, primary: &Comparison) -> String {
    let mut seen = vec![primary.declared.metric.equal_clock(), None];
    let mut parts = String::new();
    let same = context.comparisons().filter(|it| {
        same_arms(&it.declared, &primary.declared) && is_same_but_for_the_clock(primary, it)
    });
    for other in same.filter(|it| it.declared.metric.is_score() && it.result.is_some()) {
        let clock = other.declared.metric.equal_clock();
        if seen.contains(&clock) {
            continue;
        }
        seen.push(clock);
        let verdict = match other.word {
            Word::Improves => "it is better",
            Word::Hurts => "it is worse",
            Word::Equivalent => "it is equivalent",
            Word::NothingToActOn => "it had too little to act on",
            _ => "no difference is shown",
        };
        let interval = in_brackets(&with_interval(other));
        parts += &format!(";{} {verdict}{interval}", at_equal(other));
    }
    parts
}
