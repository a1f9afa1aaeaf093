//! The first screen: the answer with its limits, declared comparisons, the grid and the arms asked
//! about, and lines about causes, gaps, limits and checks.

use crate::report::page::{
    Block, Curves, Figure, Panel, PanelSize, Section, Table, TableCell, row,
};
use crate::report::study::{checking, comparison, context, courses, scores};
use crate::report::text::{self, Unit};
use crate::report::{Context, claims, published, words};
use crate::statistics::aggregates;
use crate::study::{
    At, Clock, Declared, FamilyResult, Metric, Remark, Word, comparisons::Comparison,
};

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
    let Some(result) = &comparison.result else {
        return format!(
            "Not known: {arm} could not be compared with {reference} ({metric}): {}.",
            text::visible(&words::why(&comparison.why))
        );
    };
    let unit = context::unit_of(&declared.metric);
    let means = match comparison.means() {
        (Some(mean), Some(other)) => {
            let percent = if unit == Unit::Share { " %" } else { "" };
            format!("{} against {}{percent}", unit.show(mean), unit.show(other))
        }
        _ => format!("difference {}", unit.signed(result.difference)),
    };
    let limits = [
        is_control(context, comparison)
            .then_some("positive control: the settings were tuned for it"),
        (!comparison.registered).then_some("exploratory"),
    ];
    let limits = in_brackets(&text::joined(limits.into_iter().flatten(), "; "));
    let equal = at_equal_rollouts(context, comparison)
        .map_or(String::new(), |verdict| format!("; {verdict} at equal generated rollouts"));
    let verdict = text::capital(&verdict(comparison.word, &arm, true, &reference));
    format!("{verdict}{limits}: {metric}, {means}{equal}.")
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

const WORDS: [Word; 7] = [
    Word::Improves,
    Word::Hurts,
    Word::Higher,
    Word::Lower,
    Word::Equivalent,
    Word::Inconclusive,
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

/// What the same arms show at equal generated rollouts.
fn at_equal_rollouts(context: &Context, primary: &Comparison) -> Option<String> {
    let equal = context.comparisons().filter(|it| !std::ptr::eq(*it, primary)).find(|it| {
        same_arms(&it.declared, &primary.declared)
            && matches!(it.declared.metric, Metric::Evaluation { at: At::EqualRollouts, .. })
    })?;
    let verdict = match equal.word {
        Word::Inconclusive => "no difference is shown",
        Word::NotCompared => "nothing could be compared",
        word => word.words(),
    };
    Some(verdict.to_owned() + &in_brackets(&difference(equal)))
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

/// Other families take a few words each.
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
         without a measure has that of the row above."
    );
    let table = Block::Table(Table::new(&caption, &columns, rows));
    let others = text::joined(other.into_iter().map(counted), "; ");
    let others = (!others.is_empty())
        .then(|| Block::Text(format!("Other families (in full in the appendix): {others}.")));
    [table].into_iter().chain(others).collect()
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
        comparison::word(comparison),
        context::status(comparison.registered)
    ]
}

fn counted(family: &FamilyResult) -> String {
    let counts = WORDS.into_iter().filter_map(|word| {
        let count = family.comparisons.iter().filter(|it| it.word == word).count();
        (count > 0).then(|| format!("{count} {}", word.words()))
    });
    format!("{}: {}", text::visible(&family.id), text::joined(counts, ", "))
}

/// Differences beside the learning curves of the arms asked about.
fn figure(context: &Context) -> Option<Figure> {
    let grid = context.analysis.grids.first()?;
    let (of, differences) = match declared_scores(context) {
        Some(declared) => ("what was declared".to_owned(), declared),
        None => (text::visible(&grid.name), grid.differences.iter().collect()),
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
    let is_published = grid.arms.iter().any(|arm| arm.paper.is_some());
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

/// Where some are of pools or means of evaluations, which no grid has.
fn declared_scores<'a>(context: &Context<'a>) -> Option<Vec<&'a Comparison>> {
    let (full, _) = families(context);
    let declared = full.into_iter().flat_map(|family| &family.comparisons);
    let declared: Vec<&Comparison> =
        declared.filter(|it| context::unit_of(&it.declared.metric) == Unit::Share).collect();
    let no_grid_has = |it: &&Comparison| {
        matches!(it.declared.metric, Metric::EvaluationMean { .. })
            || context.analysis.declaration.pool(&it.declared.arm).is_some()
    };
    declared.iter().any(no_grid_has).then_some(declared)
}

/// More curves in a panel cannot be told apart.
const MOST_CURVES: usize = 4;

fn arms_asked_about<'a>(context: &Context<'a>) -> Vec<&'a str> {
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

fn learning(context: &Context, arms: &[&str], clock: Clock) -> Curves {
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
        format!("The largest steps that are shown: {}", steps(context)),
        format!("Not shown: {}", not_shown(context)),
        format!("Limits: {}", limits(context)),
        format!("Check it: {}", check(context)),
    ];
    let claims = claims::headline(context.judged);
    if !claims.is_empty() {
        lines.insert(2, format!("The paper\u{2019}s claims, here: {claims}."));
    }
    lines
}

/// More are counted.
const MOST_STEPS: usize = 2;

/// The largest shown differences of the primary metric, declared or not, in grids with a primary arm.
fn steps(context: &Context) -> String {
    let primary = context.analysis.families.first().and_then(|it| it.comparisons.first());
    let Some(primary) = primary.map(|it| &it.declared) else {
        return "nothing was declared.".to_owned();
    };
    let asked = hashes(context, primary);
    let grids = context.analysis.grids.iter().flat_map(|grid| &grid.differences);
    let mut steps: Vec<&Comparison> = context.comparisons().chain(grids).collect();
    steps.retain(|it| {
        let of = hashes(context, &it.declared);
        let [arm, reference] =
            [&it.declared.arm, &it.declared.reference].map(|id| id.split('/').next());
        let is_a_step = of != asked && arm == reference && of.iter().any(|arm| asked.contains(arm));
        is_a_step && it.shown().is_some() && it.declared.metric == primary.metric
    });
    let size = |it: &Comparison| it.result.as_ref().map_or(0.0, |it| it.difference.abs());
    steps.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let mut seen = Vec::new();
    steps.retain(|step| {
        let pair = hashes(context, &step.declared);
        let is_new = !seen.contains(&pair);
        seen.push(pair);
        is_new
    });
    let named = steps.iter().take(MOST_STEPS).map(|step| {
        let Declared { arm, reference, .. } = &step.declared;
        context.pair(arm, reference) + &in_brackets(&difference(step))
    });
    let named = text::joined(named, "; ");
    if named.is_empty() { "none from these arms.".to_owned() } else { format!("{named}.") }
}

/// Several grids may share an arm.
fn hashes<'a>(context: &Context<'a>, declared: &Declared) -> [Option<&'a str>; 2] {
    let ids = [&declared.arm, &declared.reference];
    let mut pair = ids.map(|id| context.arm(id).map(|arm| arm.arm_sha256.as_str()));
    pair.sort_unstable();
    pair
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
    Some(format!("; with the spread seen, one comparison detects {observed}{declared}"))
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
