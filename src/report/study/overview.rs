//! The first screen: the question, the answer, and every verdict.

use crate::report::study::page::{Block, Column, Section, Table};
use crate::report::study::{claims, comparison, context, power};
use crate::report::{Context, TableCell, Tile, text};
use crate::study::comparisons::Comparison;
use crate::study::{At, Declared, FamilyResult, Metric, Word};

/// The comparison that the study was made for: the first one of the first family.
fn primary<'a>(context: &Context<'a>) -> Option<&'a Comparison> {
    context.analysis.families.first()?.comparisons.first()
}

/// The answer to the study's question.
pub fn headline(context: &Context) -> String {
    let Some(comparison) = primary(context) else {
        return "The study declares no comparison, and no arm of its grids is compared with another: \
                there is nothing to answer."
            .to_owned();
    };
    let declared = &comparison.declared;
    let (arm, reference) = (context.label(&declared.arm), context.label(&declared.reference));
    let metric = text::visible(&comparison.metric_words);
    let Some(result) = &comparison.result else {
        return format!(
            "Not known: {arm} could not be compared with {reference} ({metric}): {}.",
            text::visible(&comparison.reason)
        );
    };
    let unit = context::unit_of(&declared.metric);
    let (mean, other) = comparison.means();
    let means = match (mean, other) {
        (Some(mean), Some(other)) => {
            format!(", {} against {}{}", unit.show(mean), unit.show(other), suffix(unit))
        }
        _ => String::new(),
    };
    let interval = result.interval.as_ref().map_or(String::new(), |interval| {
        format!(", {} interval {}", context.level(), unit.interval(interval))
    });
    let verdict = match comparison.word {
        Word::Improves => format!("{arm} improves on {reference}"),
        Word::Hurts => format!("{arm} is worse than {reference}"),
        Word::Higher => format!("{arm} is higher than {reference}"),
        Word::Lower => format!("{arm} is lower than {reference}"),
        Word::Equivalent => format!("{arm} and {reference} are equivalent within δ"),
        Word::Inconclusive | Word::NotCompared => {
            let reason = text::visible(&comparison.reason);
            format!(
                "Inconclusive: no effect of {arm} against {reference} is shown, and none excluded \
                 ({reason})"
            )
        }
    };
    let qualified = qualification(context, comparison);
    let exploratory =
        if comparison.registered { "" } else { " Exploratory: nothing was registered." };
    format!(
        "{verdict}: {metric}{means}, difference {}{interval}, permutation p = {} ({} after Holm) over \
         {} and {} training runs.{qualified}{exploratory}",
        unit.signed(result.difference),
        context::p_value(result.p),
        context::p_value(result.adjusted_p),
        comparison.arm.len(),
        comparison.reference.len()
    )
}

/// What keeps a shown difference from being a discovery: the benchmark was made to show it, or
/// nothing is shown once the arms have generated the same number of rollouts.
fn qualification(context: &Context, primary: &Comparison) -> String {
    let declared = &primary.declared;
    let same =
        |other: &Declared| other.arm == declared.arm && other.reference == declared.reference;
    let controls = context.judged.claims.iter().filter(|claim| claim.positive_control.is_some());
    let is_control = controls.flat_map(|claim| &claim.parts).any(|part| {
        part.comparison
            .as_ref()
            .is_some_and(|it| same(&it.declared) && it.declared.metric == declared.metric)
    });
    let control = (is_control && primary.shown().is_some()).then(|| {
        let (arm, reference) = (context.label(&declared.arm), context.label(&declared.reference));
        format!("the difference between {arm} and {reference} is a positive control")
    });
    let all = context.analysis.families.iter().flat_map(|family| &family.comparisons);
    let equal = all.filter(|it| !std::ptr::eq(*it, primary)).find(|it| {
        let at = &it.declared.metric;
        same(&it.declared) && matches!(at, Metric::Evaluation { at: At::EqualRollouts, .. })
    });
    let equal = equal.map(|comparison| {
        let unit = context::unit_of(&comparison.declared.metric);
        let numbers = comparison.result.as_ref().map_or(String::new(), |result| {
            let p = context::p_value(result.p);
            format!(" ({}, p = {p})", unit.signed(result.difference))
        });
        let said = match comparison.word {
            Word::Inconclusive => "no difference is shown",
            Word::NotCompared => "nothing could be compared",
            word => word.words(),
        };
        format!("{said} at equal generated rollouts{numbers}")
    });
    let said: Vec<String> = control.into_iter().chain(equal).collect();
    match said.is_empty() {
        true => String::new(),
        false => format!(" {}", power::capital(&said.join(", and "))),
    }
}

fn suffix(unit: context::Unit) -> &'static str {
    match unit {
        context::Unit::Share => " %",
        context::Unit::Plain => "",
    }
}

/// What a reader must know before any verdict.
pub fn alerts(context: &Context) -> Vec<String> {
    // That the base is shared holds of every study: it stands with the assumptions.
    let remarks = context.analysis.remarks.iter();
    remarks
        .filter(|remark| *remark != crate::study::collection::SHARED_BASE)
        .map(|remark| text::visible(remark))
        .collect()
}

/// The few numbers that a reader looks for first.
pub fn tiles(context: &Context) -> Vec<Tile> {
    let mut tiles = Vec::new();
    if let Some(comparison) = primary(context)
        && let Some(result) = &comparison.result
    {
        let unit = context::unit_of(&comparison.declared.metric);
        let points = if unit == context::Unit::Share { " points" } else { "" };
        tiles.push(Tile {
            label: format!(
                "{} − {}",
                context.label(&comparison.declared.arm),
                context.label(&comparison.declared.reference)
            ),
            value: format!("{}{points}", unit.signed(result.difference)),
            note: result.interval.as_ref().map_or("no interval".to_owned(), |interval| {
                format!("{}, other training runs: {}", context.level(), unit.interval(interval))
            }),
        });
    }
    let all = || context.analysis.families.iter().flat_map(|family| &family.comparisons);
    let shown = all().filter(|comparison| comparison.shown().is_some()).count();
    let open = all().filter(|comparison| comparison.word == Word::Inconclusive).count();
    tiles.push(Tile {
        label: "comparisons with an effect shown".to_owned(),
        value: format!("{shown} of {}", all().count()),
        note: format!("{open} inconclusive; Holm within each family"),
    });
    let arms: usize = context.analysis.grids.iter().map(|grid| grid.arms.len()).sum();
    let cells = context.counted_cells();
    let grids = context::counted(context.analysis.grids.len(), "grid", "grids");
    tiles.push(Tile {
        label: "training runs that count".to_owned(),
        value: text::grouped(cells.len() as u64),
        note: format!("{} in {grids}", context::counted(arms, "arm", "arms")),
    });
    let heads = cells.iter().filter(|cell| cell.ledger_head.is_some()).count();
    let exact = cells.iter().filter(|cell| cell.exactness == "exact").count();
    tiles.push(Tile {
        label: "runs that can be checked bit for bit".to_owned(),
        value: format!("{} of {}", exact.min(heads), cells.len()),
        note: format!("{heads} with a ledger head, {exact} exact"),
    });
    tiles
}

/// Every family in a line, and the primary one in full.
pub fn section(context: &Context) -> Section {
    let mut blocks = Vec::new();
    let families = &context.analysis.families;
    match families.first() {
        Some(first) => {
            let others = families.iter().skip(1);
            let rows = first.comparisons.iter().map(|it| comparison_row(context, first, it));
            blocks.push(Block::Table(Table {
                caption:
                    "Verdicts on the comparisons between training runs: the first family one by \
                          one, then every other family in a line."
                        .into(),
                columns: vec![
                    Column::text("family"),
                    Column::text("question"),
                    Column::number("difference"),
                    Column::number(format!("{} interval", context.level())),
                    Column::number("p (Holm)"),
                    Column::text("verdict"),
                ],
                rows: rows.chain(others.map(family_row)).collect(),
            }));
        }
        None => blocks.push(Block::Text("No comparison was declared.".into())),
    }
    // The alerts above say of a study on other data that its claims are not tested.
    if !context.judged.claims.is_empty() {
        blocks.push(Block::Table(claims::verdicts(context)));
    }
    Section { id: "verdicts".into(), title: "Verdicts".into(), blocks }
}

fn comparison_row(
    context: &Context,
    family: &FamilyResult,
    comparison: &Comparison,
) -> Vec<TableCell> {
    let unit = context::unit_of(&comparison.declared.metric);
    let result = comparison.result.as_ref();
    let missing = || TableCell::missing("–");
    vec![
        TableCell::plain(text::visible(&family.id)),
        TableCell::plain(format!(
            "{} against {}: {}",
            context.label(&comparison.declared.arm),
            context.label(&comparison.declared.reference),
            text::visible(&comparison.metric_words)
        )),
        result.map_or_else(missing, |result| {
            TableCell::value(unit.signed(result.difference), [result.difference])
        }),
        context::interval_cell(unit, result.and_then(|result| result.interval.as_ref()), "–"),
        result.map_or_else(missing, |result| {
            TableCell::value(context::p_value(result.adjusted_p), [result.adjusted_p])
        }),
        comparison::word(comparison),
    ]
}

/// Counts of the words of a family.
fn family_row(family: &FamilyResult) -> Vec<TableCell> {
    let words = [
        Word::Improves,
        Word::Hurts,
        Word::Higher,
        Word::Lower,
        Word::Equivalent,
        Word::Inconclusive,
        Word::NotCompared,
    ];
    let counts: Vec<String> = words
        .into_iter()
        .filter_map(|word| {
            let count = family.comparisons.iter().filter(|it| it.word == word).count();
            (count > 0).then(|| format!("{} {count}", word.words()))
        })
        .collect();
    let least = family
        .comparisons
        .iter()
        .filter_map(|it| Some(it.result.as_ref()?.adjusted_p))
        .reduce(f64::min);
    vec![
        TableCell::plain(text::visible(&family.id)),
        TableCell::plain(format!(
            "{} ({})",
            text::visible(&family.question),
            context::counted(family.comparisons.len(), "comparison", "comparisons")
        )),
        TableCell::missing("–"),
        TableCell::missing("–"),
        least.map_or(TableCell::missing("–"), |least| {
            TableCell::value(format!("smallest {}", context::p_value(least)), [least])
        }),
        TableCell::plain(counts.join(", ")),
    ]
}
