//! The first screen: the answer with its limits, declared comparisons, the grid and the arms asked
//! about, and lines about causes, gaps, limits and checks.

use crate::report::page::{
    Block, CurveLine, Curves, Figure, Panel, PanelSize, Section, Table, TableCell, row,
};
use crate::report::study::{checking, comparison, context, context::Unit, courses, scores};
use crate::report::{Context, claims as claim_text, published, text, words};
use crate::study::{
    At, Clock, Declared, FamilyResult, Metric, Remark, Series, Statistic, Word,
    comparisons::Comparison, curves,
};

/// More are counted.
const NAMED: usize = 2;

/// The first one of the first family.
fn primary<'a>(context: &Context<'a>) -> Option<&'a Comparison> {
    context.analysis.families.first()?.comparisons.first()
}

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
    let metric = text::visible(&declared.metric.words());
    let Some(result) = &comparison.result else {
        return format!(
            "Not known: {} could not be compared with {} ({metric}): {}.",
            context.label(&declared.arm),
            context.label(&declared.reference),
            text::visible(&words::why(&comparison.why))
        );
    };
    let unit = context::unit_of(&declared.metric);
    let means = match comparison.means() {
        (Some(mean), Some(other)) => {
            let percent = if unit == Unit::Share { " %" } else { "" };
            format!(", {} against {}{percent}", unit.show(mean), unit.show(other))
        }
        _ => format!(", difference {}", unit.signed(result.difference)),
    };
    let arm = context.label(&declared.arm);
    let verdict = said(comparison.word, &arm, true, &context.label(&declared.reference));
    let control = is_control(context, comparison)
        .then(|| "positive control: the settings were tuned for it".to_owned());
    let limits: Vec<String> = control.into_iter().chain(exploratory(comparison)).collect();
    let limits =
        if limits.is_empty() { String::new() } else { format!(" ({})", limits.join("; ")) };
    let equal = at_equal_rollouts(context, comparison)
        .map_or(String::new(), |said| format!("; {said} at equal generated rollouts"));
    format!("{}{limits}: {metric}{means}{equal}.", text::capital(&verdict).trim_end_matches('.'))
}

fn exploratory(comparison: &Comparison) -> Option<String> {
    (!comparison.registered).then(|| "exploratory".to_owned())
}

/// Arms that differ from their references, and arms that do not.
fn answers(context: &Context, comparisons: &[Comparison]) -> String {
    let first = &comparisons[0];
    let same = |of: fn(&Comparison) -> &str| comparisons.iter().all(|it| of(it) == of(first));
    let reference = if same(|it| &it.declared.reference) {
        context.label(&first.declared.reference)
    } else {
        "the row before".to_owned()
    };
    let parts = WORDS.iter().filter_map(|word| {
        let of: Vec<&Comparison> = comparisons.iter().filter(|it| it.word == *word).collect();
        if of.len() > MOST_NAMED {
            return Some(said(*word, &among(&of), false, &reference));
        }
        let arms: Vec<String> = of
            .into_iter()
            .map(|it| {
                let unit = context::unit_of(&it.declared.metric);
                let by = it.result.as_ref().map(|result| unit.signed(result.difference));
                let by = by.map_or(String::new(), |by| format!(" ({by})"));
                context.label(&it.declared.arm) + &by
            })
            .collect();
        (!arms.is_empty()).then(|| said(*word, &text::listed(&arms), arms.len() == 1, &reference))
    });
    let metric = &first.declared.metric;
    let is_common = comparisons.iter().all(|it| it.declared.metric == *metric);
    let metric =
        if is_common { format!(": {}", text::visible(&metric.words())) } else { String::new() };
    let status = exploratory(first).map_or(String::new(), |word| format!(" ({word})"));
    let parts = text::capital(&text::joined(parts, "; "));
    format!("{}{status}{metric}.", parts.trim_end_matches('.'))
}

/// More are counted.
const MOST_NAMED: usize = 6;

fn among(comparisons: &[&Comparison]) -> String {
    let unit = context::unit_of(&comparisons[0].declared.metric);
    let all = comparisons.iter().filter_map(|it| Some(it.result.as_ref()?.difference));
    let (low, high) =
        all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), by| (low.min(by), high.max(by)));
    let range = if low <= high {
        format!(" ({} to {})", unit.signed(low), unit.signed(high))
    } else {
        String::new()
    };
    format!("{} arms{range}", comparisons.len())
}

const WORDS: [Word; 7] = [
    Word::Improves,
    Word::Hurts,
    Word::Higher,
    Word::Lower,
    Word::Equivalent,
    Word::Inconclusive,
    Word::NotCompared,
];

fn said(word: Word, names: &str, is_one: bool, reference: &str) -> String {
    let (improve, is) = if is_one { ("improves", "is") } else { ("improve", "are") };
    match word {
        Word::Improves => format!("{names} {improve} on {reference}"),
        Word::Hurts => format!("{names} {is} worse than {reference}"),
        Word::Higher => format!("{names} {is} higher than {reference}"),
        Word::Lower => format!("{names} {is} lower than {reference}"),
        Word::Equivalent => format!("{names} {is} equivalent to {reference} within δ"),
        Word::Inconclusive => {
            format!("no difference from {reference} is shown for {names}, and none excluded")
        }
        Word::NotCompared => format!("{names} could not be compared with {reference}"),
    }
}

fn same_arms(one: &Declared, other: &Declared) -> bool {
    one.arm == other.arm && one.reference == other.reference
}

/// Whether the benchmark was made to show this difference.
fn is_control(context: &Context, primary: &Comparison) -> bool {
    let controls = context.judged.claims.iter().filter(|claim| claim.positive_control.is_some());
    let mut compared =
        controls.flat_map(|claim| &claim.parts).filter_map(|it| it.comparison.as_ref());
    let same = |other: &Declared| {
        same_arms(other, &primary.declared) && other.metric == primary.declared.metric
    };
    primary.shown().is_some() && compared.any(|other| same(&other.declared))
}

/// The same arms at equal generated rollouts.
fn at_equal_rollouts(context: &Context, primary: &Comparison) -> Option<String> {
    let equal = context.comparisons().filter(|it| !std::ptr::eq(*it, primary)).find(|it| {
        let at = &it.declared.metric;
        same_arms(&it.declared, &primary.declared)
            && matches!(at, Metric::Evaluation { at: At::EqualRollouts, .. })
    })?;
    let unit = context::unit_of(&equal.declared.metric);
    let number = equal
        .result
        .as_ref()
        .map_or(String::new(), |result| format!(" ({})", unit.signed(result.difference)));
    let said = match equal.word {
        Word::Inconclusive => "no difference is shown",
        Word::NotCompared => "nothing could be compared",
        word => word.words(),
    };
    Some(format!("{said}{number}"))
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

pub fn section(context: &Context) -> Section {
    let mut blocks = declared(context);
    blocks.extend(figure(context).map(Block::Figure));
    blocks.push(Block::List(lines(context)));
    Section::new("answer", "The declared comparisons", blocks)
}

/// Shown in full (the first two families, and those of one comparison), and all others.
fn families<'a>(context: &Context<'a>) -> (Vec<&'a FamilyResult>, Vec<&'a FamilyResult>) {
    let (first, rest) = context.analysis.families.split_at(context.analysis.families.len().min(2));
    let (single, other): (Vec<_>, Vec<_>) =
        rest.iter().partition(|family| family.comparisons.len() == 1);
    (first.iter().chain(single).collect(), other)
}

/// Other families take a few words each.
fn declared(context: &Context) -> Vec<Block> {
    let (full, other) = families(context);
    if full.is_empty() {
        return vec![Block::text("No comparison was declared.")];
    }
    let mut before = String::new();
    let rows = full.iter().flat_map(|family| family.comparisons.iter().map(move |it| (family, it)));
    let rows = rows.map(|(family, comparison)| {
        let metric = comparison.declared.metric.words();
        let new = (before != metric).then_some(metric.as_str());
        let row = comparison_row(context, family, comparison, new);
        before = metric;
        row
    });
    let columns = format!(
        "family | comparison | difference # | {} # | above # | p (Holm) # | verdict | status",
        context.level()
    );
    let (of, test) = if context.analysis.declaration.paired {
        ("blocks", "sign-flip test over blocks")
    } else {
        ("pairs of runs", "permutation test")
    };
    let caption = format!(
        "Above: share of the {of} in which the first arm is above. p: {test}, after Holm in the family. A row \
         that names no measure has that of the row before."
    );
    let table = Block::Table(Table::new(&caption, &columns, rows));
    let others = text::joined(other.into_iter().map(in_words), "; ");
    let others = (!others.is_empty())
        .then(|| Block::Text(format!("Other families (in full in the appendix): {others}.")));
    [table].into_iter().chain(others).collect()
}

fn comparison_row(
    context: &Context,
    family: &FamilyResult,
    comparison: &Comparison,
    metric: Option<&str>,
) -> Vec<TableCell> {
    let declared = &comparison.declared;
    let metric = metric.map_or(String::new(), |words| format!(": {}", text::visible(words)));
    let unit = context::unit_of(&declared.metric);
    let result = comparison.result.as_ref();
    row![
        text::visible(&family.id),
        context.pair(&declared.arm, &declared.reference) + &metric,
        TableCell::shown(result.map(|it| it.difference), |difference| unit.signed(difference)),
        context::interval_cell(unit, result.and_then(|it| it.interval.as_ref()), "–"),
        TableCell::shown(result.and_then(|it| it.probability_higher), text::percent),
        TableCell::shown(result.map(|it| it.adjusted_p), context::p_value),
        comparison::word(comparison),
        context::status(comparison.registered)
    ]
}

fn in_words(family: &FamilyResult) -> String {
    let counts = WORDS.into_iter().filter_map(|word| {
        let count = family.comparisons.iter().filter(|it| it.word == word).count();
        (count > 0).then(|| format!("{count} {}", word.words()))
    });
    format!("{}: {}", text::visible(&family.id), text::joined(counts, ", "))
}

/// Differences beside the learning curves of the arms asked about: declared scores where some are
/// of pools or means of evaluations, else the first grid's.
fn figure(context: &Context) -> Option<Figure> {
    let grid = context.analysis.grids.first()?;
    let is_of_scores = |it: &&Comparison| context::unit_of(&it.declared.metric) == Unit::Share;
    let (full, _) = families(context);
    let declared = full.into_iter().flat_map(|family| &family.comparisons).filter(is_of_scores);
    let declared: Vec<&Comparison> = declared.collect();
    let no_grid_has = |it: &&Comparison| {
        matches!(it.declared.metric, Metric::EvaluationMean { .. })
            || context.analysis.declaration.pool(&it.declared.arm).is_some()
    };
    let (of, differences) = if declared.iter().any(no_grid_has) {
        ("what was declared".to_owned(), declared)
    } else {
        (text::visible(&grid.name), grid.differences.iter().collect())
    };
    let mut panels = Vec::new();
    if !differences.is_empty() {
        panels.push(Panel::Intervals(scores::differences(context, differences)));
    }
    let mut legend = Vec::new();
    let arms = arms_asked_about(context);
    if !arms.is_empty() {
        for clock in [Clock::Updates, Clock::GeneratedTokens] {
            let curves = learning(context, &arms, clock);
            legend = courses::legend(&curves.lines);
            panels.push(Panel::Curves(curves));
        }
    }
    let published = grid.arms.iter().any(|arm| arm.paper.is_some());
    let hollow = if published && comparison::embedded(context) {
        ", hollow the paper\u{2019}s step (another task and model)"
    } else {
        ""
    };
    Some(Figure {
        id: "answer-figure".to_owned(),
        title: String::new(),
        caption: format!(
            "Left: {of}, each arm against its row, {} intervals over training runs{hollow}. Right: mean \
             over the runs of an arm, and its interval.",
            context.level()
        ),
        legend,
        panels,
        numbers: Table::new("", "", []),
    })
}

fn arms_asked_about<'a>(context: &Context<'a>) -> Vec<&'a String> {
    let mut arms = Vec::new();
    let comparisons = context.analysis.families.iter().take(1).flat_map(|it| &it.comparisons);
    for declared in comparisons.map(|comparison| &comparison.declared) {
        for arm in [&declared.arm, &declared.reference] {
            if !arms.contains(&arm) {
                arms.push(arm);
            }
        }
    }
    arms.truncate(MOST_CURVES);
    arms
}

/// More curves in a panel cannot be told apart.
const MOST_CURVES: usize = 4;

/// Mean and interval of the curve set's score.
fn learning(context: &Context, arms: &[&String], clock: Clock) -> Curves {
    let set = &context.analysis.declaration.curve_set;
    let series = Series::Evaluation { set: set.clone(), statistic: Statistic::AvgAtK };
    let line = |id: &String| {
        let curve = curves::curve(context.study, id, &series, clock);
        let mut line = courses::line(&curve, context.label(id), context.style(id), 100.0);
        line.runs.clear();
        line.band = courses::interval_band(&curve, 100.0);
        line
    };
    let lines: Vec<CurveLine> = arms.iter().copied().map(line).collect();
    Curves {
        title: format!("avg@k on {}, %, over {}", text::visible(set), clock.words()),
        x: clock.words().to_owned(),
        unit: "%".to_owned(),
        size: PanelSize::Low,
        lines: lines.into_iter().filter(|line| !line.centre.is_empty()).collect(),
        ..Curves::default()
    }
}

fn lines(context: &Context) -> Vec<String> {
    [
        Some(format!("The largest steps that are shown: {}", steps(context))),
        Some(format!("Not shown: {}", not_shown(context))),
        claims(context),
        Some(format!("Limits: {}", limits(context))),
        Some(format!("Check it: {}", check(context))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The largest shown differences of the primary metric, declared or not, in grids with a primary arm.
fn steps(context: &Context) -> String {
    let hash = |id: &String| context.arm(id).map(|arm| arm.arm_sha256.as_str());
    let pair = |declared: &Declared| {
        let mut pair = [hash(&declared.arm), hash(&declared.reference)];
        pair.sort_unstable();
        pair
    };
    let Some(primary) = primary(context).map(|it| &it.declared) else {
        return "nothing was declared.".to_owned();
    };
    let asked = pair(primary);
    let grids = context.analysis.grids.iter().flat_map(|grid| &grid.differences);
    let mut steps: Vec<&Comparison> = context.comparisons().chain(grids).collect();
    steps.retain(|it| {
        let of = pair(&it.declared);
        let [arm, reference] =
            [&it.declared.arm, &it.declared.reference].map(|id| id.split('/').next());
        let is_a_step = of != asked && arm == reference && of.iter().any(|arm| asked.contains(arm));
        is_a_step && it.shown().is_some() && it.declared.metric == primary.metric
    });
    let size = |it: &Comparison| it.result.as_ref().map_or(0.0, |it| it.difference.abs());
    steps.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let mut named = Vec::new();
    let mut seen = Vec::new();
    for step in steps {
        let Some(result) = step.result.as_ref().filter(|_| !seen.contains(&pair(&step.declared)))
        else {
            continue;
        };
        seen.push(pair(&step.declared));
        let unit = context::unit_of(&step.declared.metric);
        let arms = context.pair(&step.declared.arm, &step.declared.reference);
        named.push(format!("{arms} ({})", unit.signed(result.difference)));
    }
    named.truncate(NAMED);
    if named.is_empty() {
        "none from these arms.".to_owned()
    } else {
        format!("{}.", named.join("; "))
    }
}

fn not_shown(context: &Context) -> String {
    let open: Vec<&Comparison> =
        context.comparisons().filter(|it| it.word == Word::Inconclusive).collect();
    let all = context.comparisons().count();
    let spread = context.analysis.spread.as_ref();
    let points = |effect: f64| format!("{} points", Unit::Share.show(effect));
    let effect = spread.and_then(|it| it.observed_effect).map(|observed| {
        let registered = spread.and_then(|it| it.registered_effect);
        let declared =
            registered.map_or(String::new(), |it| format!(" (declared: {})", points(it)));
        format!("; with the spread seen, one comparison detects {}{declared}", points(observed))
    });
    let effect = effect.unwrap_or_default();
    let smallest = open.iter().filter_map(|it| Some(it.result.as_ref()?.smallest_p));
    let few = smallest.reduce(f64::min).filter(|p| *p > context.analysis.declaration.alpha);
    let few = few.map(|p| {
        format!("; so few runs show nothing: their smallest p is {}", context::p_value(p))
    });
    let effect = effect + &few.unwrap_or_default();
    if open.is_empty() {
        format!("none of {all} comparisons is inconclusive{effect}.")
    } else {
        format!("{} of {all} comparisons are inconclusive{effect}.", open.len())
    }
}

fn claims(context: &Context) -> Option<String> {
    let counts = claim_text::counts(context.judged);
    let counts = counts.into_iter().filter(|(_, count)| *count > 0);
    let words = text::joined(counts.map(|(word, count)| format!("{count} {}", word.words())), ", ");
    (!words.is_empty()).then(|| format!("The paper\u{2019}s claims, here: {words}."))
}

fn limits(context: &Context) -> String {
    let embedded = comparison::embedded(context).then(|| format!("{}; ", published::EMBEDDED));
    let base = match context.base_policies() {
        0 | 1 => "all runs start from one base checkpoint".to_owned(),
        several => format!("runs start from {several} base checkpoints"),
    };
    format!("{}{base}.", embedded.unwrap_or_default())
}

fn check(context: &Context) -> String {
    let cells = context.counted_cells();
    let cell = checking::example(&cells).map_or(String::new(), |cell| {
        let minutes = checking::minutes(cell.wall_seconds);
        format!(" ({minutes} for the cheapest; commands in the appendix)")
    });
    format!(
        "dapo verify . holds the records and this report against each other; only training a cell \
         again shows that its run took place{cell}."
    )
}
