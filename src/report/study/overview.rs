//! The first screen: the question, the answer, and every verdict.

use crate::report::page::{Block, Section, Table, TableCell, Tile, row};
use crate::report::study::{claims, comparison, context, context::Unit};
use crate::report::{Context, text};
use crate::study::{At, Declared, FamilyResult, Metric, Word, comparisons::Comparison};

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
            let percent = if unit == Unit::Share { " %" } else { "" };
            format!(", {} against {}{percent}", unit.show(mean), unit.show(other))
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
    let equal = context.comparisons().filter(|it| !std::ptr::eq(*it, primary)).find(|it| {
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
        false => format!(" {}", text::capital(&said.join(", and "))),
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
        let points = if unit == Unit::Share { " points" } else { "" };
        let (arm, reference) = (&comparison.declared.arm, &comparison.declared.reference);
        tiles.push(Tile::new(
            format!("{} − {}", context.label(arm), context.label(reference)),
            format!("{}{points}", unit.signed(result.difference)),
            result.interval.as_ref().map_or("no interval".to_owned(), |interval| {
                format!("{}, other training runs: {}", context.level(), unit.interval(interval))
            }),
        ));
    }
    let count = |is: fn(&Comparison) -> bool| context.comparisons().filter(|it| is(it)).count();
    let (shown, all) = (count(|it| it.shown().is_some()), count(|_| true));
    let open = count(|it| it.word == Word::Inconclusive);
    let cells = context.counted_cells();
    let arms = text::counted(context.arms().count(), "arm", "arms");
    let grids = text::counted(context.analysis.grids.len(), "grid", "grids");
    let heads = cells.iter().filter(|cell| cell.ledger_head.is_some()).count();
    let exact = cells.iter().filter(|cell| cell.exactness == "exact").count();
    tiles.extend([
        Tile::new(
            "comparisons with an effect shown",
            format!("{shown} of {all}"),
            format!("{open} inconclusive; Holm within each family"),
        ),
        Tile::new(
            "training runs that count",
            text::grouped(cells.len() as u64),
            format!("{arms} in {grids}"),
        ),
        Tile::new(
            "runs that can be checked bit for bit",
            format!("{} of {}", exact.min(heads), cells.len()),
            format!("{heads} with a ledger head, {exact} exact"),
        ),
    ]);
    tiles
}

/// Every family in a line, and the primary one in full.
pub fn section(context: &Context) -> Section {
    let mut blocks = Vec::new();
    match context.analysis.families.as_slice() {
        [first, others @ ..] => {
            let rows = first.comparisons.iter().map(|it| comparison_row(context, first, it));
            let caption = "Verdicts on the comparisons between training runs: the first family one by \
                           one, then every other family in a line.";
            let level = context.level();
            let columns = format!(
                "family | question | difference # | {level} interval # | p (Holm) # | verdict"
            );
            let rows = rows.chain(others.iter().map(family_row));
            blocks.push(Block::Table(Table::new(caption, &columns, rows)));
        }
        [] => blocks.push(Block::text("No comparison was declared.")),
    }
    // The alerts above say of a study on other data that its claims are not tested.
    if !context.judged.claims.is_empty() {
        blocks.push(Block::Table(claims::verdicts(context)));
    }
    Section::new("verdicts", "Verdicts", blocks)
}

fn comparison_row(
    context: &Context,
    family: &FamilyResult,
    comparison: &Comparison,
) -> Vec<TableCell> {
    let declared = &comparison.declared;
    let unit = context::unit_of(&declared.metric);
    let result = comparison.result.as_ref();
    row![
        text::visible(&family.id),
        format!(
            "{}: {}",
            context.pair(&declared.arm, &declared.reference),
            text::visible(&comparison.metric_words)
        ),
        TableCell::shown(result.map(|it| it.difference), |difference| unit.signed(difference)),
        context::interval_cell(unit, result.and_then(|it| it.interval.as_ref()), "–"),
        TableCell::shown(result.map(|it| it.adjusted_p), context::p_value),
        comparison::word(comparison)
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
    let counts = words.into_iter().filter_map(|word| {
        let count = family.comparisons.iter().filter(|it| it.word == word).count();
        (count > 0).then(|| format!("{} {count}", word.words()))
    });
    let adjusted = family.comparisons.iter().filter_map(|it| Some(it.result.as_ref()?.adjusted_p));
    let size = text::counted(family.comparisons.len(), "comparison", "comparisons");
    row![
        text::visible(&family.id),
        format!("{} ({size})", text::visible(&family.question)),
        TableCell::missing("–"),
        TableCell::missing("–"),
        TableCell::shown(adjusted.reduce(f64::min), |p| format!(
            "smallest {}",
            context::p_value(p)
        )),
        text::joined(counts, ", ")
    ]
}
