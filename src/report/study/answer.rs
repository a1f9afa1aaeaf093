//! The first screen: the answer with its limits, declared comparisons, the grid and the arms asked
//! about, and lines about causes, gaps, limits and checks.

use crate::report::page::{
    Block, Curves, Figure, Look, Page, Panel, PanelSize, Section, Table, TableCell, row,
};
use crate::report::study::{checking, comparison, context, courses, scores, stability};
use crate::report::text::{self, Unit};
use crate::report::{Context, axes, claims, printed, published, words};
use crate::statistics::aggregates;
use crate::study::{
    Clock, Declared, Direction, FamilyResult, Remark, Why, Word, analysis::SpreadDesign,
    comparisons::Comparison,
};
use std::collections::BTreeSet;

pub fn headline(context: &Context) -> String {
    match context.analysis.families.first().map(|family| family.comparisons.as_slice()) {
        None | Some([]) => {
            "The study declares no comparison, and no arm of its grids is compared with another: \
             there is nothing to answer."
                .to_owned()
        }
        Some([one]) => answer(context, one),
        Some(several) => answers(context, several),
    }
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
    let limits = [
        is_control(context, comparison)
            .then_some("positive control: the settings were tuned for it"),
        (!comparison.registered).then_some("exploratory"),
    ];
    let limits = in_brackets(&text::joined(limits.into_iter().flatten(), "; "));
    let unit = context::unit_of(&declared.metric);
    let percent = if unit == Unit::Share { " %" } else { "" };
    let means = match comparison.means() {
        (Some(mean), Some(other)) => {
            format!(", {} against {}{percent}", unit.show(mean), unit.show(other))
        }
        _ => String::new(),
    };
    let sized = sized(context, comparison, &arm, &reference);
    let clock = at_equal(comparison);
    let first = if matches!(comparison.word, Word::Inconclusive | Word::Equivalent) {
        text::capital(format!("{clock} {sized}").trim_start())
    } else {
        text::capital(&(sized + &clock))
    };
    let others = at_other_clocks(context, comparison);
    let blocks = blocks(context, comparison).unwrap_or_default();
    format!("{first}{blocks}{limits}{others}. Measure: {metric}{means}.")
}

/// `DAPO is 7.6 points worse than GRPO`; a verdict without a size for what has no points.
fn sized(context: &Context, comparison: &Comparison, arm: &str, reference: &str) -> String {
    let is_share = context::unit_of(&comparison.declared.metric) == Unit::Share;
    let (Some(result), true) = (&comparison.result, is_share) else {
        return verdict(comparison.word, arm, true, reference);
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
        Word::NothingToActOn => return verdict(comparison.word, arm, true, reference),
        Word::Inconclusive | Word::NotCompared => {
            let pair = format!("{arm} and {reference}");
            return format!(
                "no difference between {pair} is shown{interval}, and none is excluded"
            );
        }
    };
    let size = Unit::Share.show(result.difference.abs());
    format!("{arm} is {size} points {between} {reference}")
}

fn points(share: f64) -> String {
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
    let higher = comparison.result.as_ref()?.probability_higher?;
    let share = if comparison.shown()? == Direction::Higher { higher } else { 1.0 - higher };
    let all = comparison.arm.iter().map(|run| run.seed).collect::<BTreeSet<_>>().len();
    let count = (share * all as f64).round() as usize;
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
    let reference = if is_common(|a, b| a.reference == b.reference) {
        context.label(&first.declared.reference)
    } else {
        "the row before".to_owned()
    };
    let parts = WORDS.iter().filter_map(|word| {
        let of: Vec<&Comparison> = comparisons.iter().filter(|it| it.word == *word).collect();
        let subject = if of.len() > MOST_NAMED { among(&of) } else { named(context, &of) };
        (!of.is_empty()).then(|| verdict(*word, &subject, of.len() == 1, &reference))
    });
    let parts = text::capital(&text::joined(parts, "; "));
    let status = if first.registered { "" } else { " (exploratory)" };
    let metric = if is_common(|a, b| a.metric == b.metric) {
        format!(": {}", text::visible(&first.declared.metric.words()))
    } else {
        String::new()
    };
    format!("{parts}{status}{metric}.")
}

/// More are counted.
const MOST_NAMED: usize = 6;

fn named(context: &Context, comparisons: &[&Comparison]) -> String {
    let name = |it: &&Comparison| context.label(&it.declared.arm) + &in_brackets(&difference(it));
    text::listed(&comparisons.iter().map(name).collect::<Vec<_>>())
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
    let range = if low <= high {
        format!(" ({} to {})", unit.signed(low), unit.signed(high))
    } else {
        String::new()
    };
    format!("{} arms{range}", comparisons.len())
}

const WORDS: [Word; 8] = [
    Word::Improves,
    Word::Hurts,
    Word::Higher,
    Word::Lower,
    Word::Equivalent,
    Word::Inconclusive,
    Word::NothingToActOn,
    Word::NotCompared,
];

fn verdict(word: Word, subject: &str, is_one: bool, reference: &str) -> String {
    let (improve, is) = if is_one { ("improves", "is") } else { ("improve", "are") };
    match word {
        Word::Improves => format!("{subject} {improve} on {reference}"),
        Word::Hurts => format!("{subject} {is} worse than {reference}"),
        Word::Higher => format!("{subject} {is} higher than {reference}"),
        Word::Lower => format!("{subject} {is} lower than {reference}"),
        Word::Equivalent => format!("{subject} {is} equivalent to {reference} within δ"),
        Word::Inconclusive => {
            format!("no difference from {reference} is shown for {subject}, and none excluded")
        }
        Word::NothingToActOn => {
            format!("{subject} had too little to act on for a verdict against {reference}")
        }
        Word::NotCompared => format!("{subject} could not be compared with {reference}"),
    }
}

fn same_arms(one: &Declared, other: &Declared) -> bool {
    one.arm == other.arm && one.reference == other.reference
}

/// Whether the benchmark was made to show this difference.
fn is_control(context: &Context, primary: &Comparison) -> bool {
    let controls = context.judged.claims.iter().filter(|claim| claim.positive_control.is_some());
    let mut compared =
        controls.flat_map(|claim| &claim.parts).filter_map(|part| part.comparison.as_ref());
    let is_same = |other: &Declared| {
        same_arms(other, &primary.declared) && other.metric == primary.declared.metric
    };
    primary.shown().is_some() && compared.any(|other| is_same(&other.declared))
}

/// What the same arms show where another resource is equal.
fn at_other_clocks(context: &Context, primary: &Comparison) -> String {
    let mut seen = vec![primary.declared.metric.equal_clock(), None];
    let mut parts = String::new();
    let same = context.comparisons().filter(|it| same_arms(&it.declared, &primary.declared));
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

/// What is missing. Limits, status and assumptions of the study are not alerts.
pub fn alerts(context: &Context) -> Vec<String> {
    use Remark::{BaseOfSeed, NoPilot, RecordsChecked, SharedBase, Unregistered};
    let is_elsewhere = |remark: &&Remark| {
        matches!(remark, SharedBase | BaseOfSeed | RecordsChecked | Unregistered | NoPilot)
    };
    let missing = context.analysis.remarks.iter().filter(|remark| !is_elsewhere(remark));
    missing.map(|remark| text::visible(&words::remark(remark))).collect()
}

/// CSS points.
const PICTURE_WIDTH: f64 = 468.0;

/// The first chart of differences as a file; an empty picture without one.
pub fn picture(page: &Page) -> String {
    let blocks = page.sections.iter().flat_map(|section| &section.blocks);
    let panels = blocks.flat_map(|block| match block {
        Block::Figure(figure) => figure.panels.as_slice(),
        _ => &[],
    });
    let differences = panels.filter(|panel| matches!(panel, Panel::Intervals(_)));
    printed::svg(&differences.take(1).cloned().collect::<Vec<_>>(), PICTURE_WIDTH)
}

pub fn section(context: &Context) -> Section {
    let mut blocks: Vec<Block> = figure(context).map(Block::Figure).into_iter().collect();
    blocks.extend(declared(context));
    blocks.push(Block::List(lines(context)));
    Section::new("answer", "The declared comparisons", blocks)
}

/// A longer table is folded: the figure has the same rows.
pub const MOST_OPEN_ROWS: usize = 12;

/// Other families take a row each.
fn declared(context: &Context) -> Vec<Block> {
    let (full, other) = families(context);
    if full.is_empty() {
        return vec![Block::text("No comparison was declared.")];
    }
    let mut before = String::new();
    let mut rows = Vec::new();
    for comparison in full.iter().flat_map(|family| &family.comparisons) {
        let metric = comparison.declared.metric.words();
        let shown = if before == metric { None } else { Some(metric.as_str()) };
        rows.push(comparison_row(context, comparison, shown));
        before = metric;
    }
    let columns = format!(
        "family | comparison | difference # | {} # | above # | p (Holm) # | verdict | why",
        context.level()
    );
    let declaration = &context.analysis.declaration;
    let (of, test) = if declaration.paired {
        ("blocks", "sign-flip test over blocks")
    } else {
        ("pairs of runs", "permutation test")
    };
    let caption = format!(
        "A difference is shown if p, after Holm in the family, is at most {} and the interval lies on one side \
         of 0; arms are equivalent if they differ by less than {} (shaded in the figure), after Holm too; else the comparison \
         is inconclusive. Above: share of the {of} in which the first arm is above. p: {test}. A row without a \
         measure has that of the row above.",
        axes::tick_label(declaration.alpha),
        points(declaration.margin)
    );
    let is_long = rows.len() > MOST_OPEN_ROWS;
    let summary = format!("The {} declared comparisons in numbers", rows.len());
    let table = Block::Table(Table::new(&caption, &columns, rows));
    let table = if is_long { Block::More(summary, vec![table]) } else { table };
    let others = (!other.is_empty()).then(|| Block::Table(others(&other)));
    [table].into_iter().chain(others).collect()
}

fn others(families: &[&FamilyResult]) -> Table {
    let rows = families.iter().map(|family| {
        let count = |words: &[Word]| {
            let counts = words.iter().filter_map(|word| {
                let count = family.comparisons.iter().filter(|it| it.word == *word).count();
                (count > 0).then(|| format!("{count} {}", word.words()))
            });
            text::joined(counts, ", ")
        };
        let shown = count(&[Word::Improves, Word::Hurts, Word::Higher, Word::Lower]);
        let open = count(&[Word::Inconclusive, Word::NothingToActOn, Word::NotCompared]);
        row![
            text::visible(&family.id),
            text::visible(&family.question),
            Look::Strong.of(if shown.is_empty() { "–" } else { &shown }),
            Look::Same.of(count(&[Word::Equivalent])),
            Look::Open.of(open)
        ]
    });
    let caption = "The other families of comparisons, in full in the appendix.";
    Table::new(caption, "family | question | shown | equivalent | not shown", rows)
}

/// Shown in full (the first two families, and those of one comparison), and all others.
fn families<'a>(context: &Context<'a>) -> (Vec<&'a FamilyResult>, Vec<&'a FamilyResult>) {
    let families = &context.analysis.families;
    let (first, rest) = families.split_at(families.len().min(2));
    let (single, other): (Vec<_>, Vec<_>) =
        rest.iter().partition(|family| family.comparisons.len() == 1);
    (first.iter().chain(single).collect(), other)
}

fn comparison_row(
    context: &Context,
    comparison: &Comparison,
    metric: Option<&str>,
) -> Vec<TableCell> {
    let declared = &comparison.declared;
    let metric = metric.map_or(String::new(), |words| format!(": {}", text::visible(words)));
    let [difference, interval, above] = comparison::estimate(comparison);
    row![
        text::visible(&comparison.family),
        context.pair(&declared.arm, &declared.reference) + &metric,
        difference,
        interval,
        above,
        TableCell::shown(comparison.result.as_ref().map(|it| it.adjusted_p), text::p_value),
        context::word(comparison),
        Look::Quiet.of(decided_by(context, comparison))
    ]
}

/// The rules that an inconclusive comparison failed, or met for equivalence; empty for what is shown.
fn decided_by(context: &Context, comparison: &Comparison) -> String {
    let declaration = &context.analysis.declaration;
    let first = match (&comparison.why, &comparison.result) {
        (Why::Shown { .. }, _) => return String::new(),
        (Why::Equivalent { margin, .. }, _) => return format!("inside ±{}", points(*margin)),
        (Why::NotShown { .. }, Some(result)) if result.p <= declaration.alpha => {
            format!("p {} alone, not in the family", text::p_value(result.p))
        }
        (Why::NotShown { .. }, _) => format!("p above {}", declaration.alpha),
        (why, _) => text::visible(&words::why(why)),
    };
    if comparison.declared.metric.is_avg_at_k() && comparison.result.is_some() {
        return format!("{first}; not inside ±{}", points(declaration.margin));
    }
    first
}

/// Differences beside the learning curves of the arms asked about.
fn figure(context: &Context) -> Option<Figure> {
    let (of, differences) = differences(context)?;
    let differences = scores::differences(context, differences);
    let is_published = differences.rows.iter().any(|row| row.published.is_some());
    let mut panels = vec![Panel::Intervals(differences)];
    let mut legend = Vec::new();
    let arms = arms_asked_about(context);
    if !arms.is_empty() {
        for clock in [Clock::Updates, Clock::GeneratedTokens] {
            let curves = learning(context, &arms, clock);
            legend = courses::legend(&curves.lines);
            panels.push(Panel::Curves(curves));
        }
    }
    let hollow = if is_published && context.is_embedded() {
        ", hollow the paper\u{2019}s step (another task and model)"
    } else {
        ""
    };
    Some(Figure {
        id: "answer-figure".to_owned(),
        caption: format!(
            "Left: {of}, each arm against its row, {} intervals over training runs{hollow}. Right: mean \
             over the runs of an arm, and its interval.",
            context.level()
        ),
        legend,
        panels,
        ..Figure::default()
    })
}

/// What the first figure compares, in words, and the comparisons; `None` for a study without grids.
pub fn differences<'a>(context: &Context<'a>) -> Option<(String, Vec<&'a Comparison>)> {
    let grid = context.analysis.grids.first()?;
    let (full, _) = families(context);
    let declared = full.into_iter().flat_map(|family| &family.comparisons);
    let is_share = |it: &&Comparison| context::unit_of(&it.declared.metric) == Unit::Share;
    let declared: Vec<&Comparison> = declared.filter(is_share).collect();
    if declared.is_empty() {
        return Some((text::visible(&grid.name), grid.differences.iter().collect()));
    }
    Some(("what was declared".to_owned(), declared))
}

/// More curves in a panel cannot be told apart.
const MOST_CURVES: usize = 4;

pub fn arms_asked_about<'a>(context: &Context<'a>) -> Vec<&'a str> {
    let mut arms = Vec::new();
    let comparisons = context.analysis.families.iter().take(1).flat_map(|it| &it.comparisons);
    for declared in comparisons.map(|comparison| &comparison.declared) {
        for arm in [declared.arm.as_str(), &declared.reference] {
            if !arms.contains(&arm) {
                arms.push(arm);
            }
        }
    }
    arms.truncate(MOST_CURVES);
    arms
}

pub fn learning(context: &Context, arms: &[&str], clock: Clock) -> Curves {
    let set = text::visible(&context.analysis.declaration.curve_set);
    Curves {
        title: format!("avg@k on {set}, %, over {}", clock.words()),
        x: clock.words().to_owned(),
        unit: "%".to_owned(),
        size: PanelSize::Low,
        lines: courses::mean_scores(context, arms.iter().copied(), clock),
        ..Curves::default()
    }
}

fn lines(context: &Context) -> Vec<String> {
    let mut lines = vec![
        format!("Not shown: {}", not_shown(context)),
        format!("Limits: {}", limits(context)),
        format!("Check it: {}", check(context)),
    ];
    if let Some(collapsed) = stability::collapsed(context) {
        lines.insert(1, format!("Unstable: {collapsed}"));
    }
    let claims = claims::headline(context.judged);
    if !claims.is_empty() {
        lines.insert(1, format!("The paper\u{2019}s claims, here: {claims}."));
    }
    lines
}

fn not_shown(context: &Context) -> String {
    let all = context.comparisons().count();
    let open: Vec<&Comparison> =
        context.comparisons().filter(|it| it.word == Word::Inconclusive).collect();
    let count = if open.is_empty() {
        format!("none of {all} comparisons is inconclusive")
    } else {
        format!("{} of {all} comparisons are inconclusive", open.len())
    };
    let smallest = open.iter().filter_map(|it| Some(it.result.as_ref()?.smallest_p));
    let few = smallest.reduce(f64::min).filter(|p| *p > context.analysis.declaration.alpha);
    let few = few.map_or(String::new(), |p| {
        format!("; so few runs show nothing: their smallest p is {}", text::p_value(p))
    });
    format!("{count}{}{few}.", detectable(context).unwrap_or_default())
}

fn detectable(context: &Context) -> Option<String> {
    let spread = context.analysis.spread.as_ref()?;
    let points = |effect: f64| format!("{} points", Unit::Share.show(effect));
    let observed = points(spread.observed_effect?);
    let declared = spread.registered_effect;
    let declared =
        declared.map_or(String::new(), |effect| format!(" (declared: {})", points(effect)));
    let spread_of = match spread.design {
        SpreadDesign::IndependentRuns => "with the spread seen",
        SpreadDesign::Blocks => "with the spread seen within blocks",
    };
    Some(format!("; {spread_of}, one comparison detects {observed}{declared}"))
}

fn limits(context: &Context) -> String {
    let embedded =
        if context.is_embedded() { format!("{}; ", published::EMBEDDED) } else { String::new() };
    let base = match context.base_policies() {
        0 | 1 => "all runs start from one base checkpoint".to_owned(),
        several => format!("runs start from {several} base checkpoints"),
    };
    format!("{embedded}{base}.")
}

fn check(context: &Context) -> String {
    let cells = context.counted_cells();
    let cell = checking::example(&cells).map_or(String::new(), |cell| {
        let minutes = text::minutes(cell.wall_seconds);
        format!(" ({minutes} for the cheapest; commands in the appendix)")
    });
    format!(
        "dapo verify . checks the records and this report against each other; only training a cell \
         again shows that its run took place{cell}."
    )
}
