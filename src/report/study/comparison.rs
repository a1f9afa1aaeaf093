//! Every comparison in full, and every run's scores.

use crate::report::page::{Block, Look, Section, Table, TableCell, row};
use crate::report::text::{self, Unit};
use crate::report::{Context, published, study::context, study::scores, words};
use crate::statistics::{Estimate, estimators};
use crate::study::{ArmSummary, Cell, GridSummary, comparisons::Comparison};

pub fn section(context: &Context) -> Section {
    let mut blocks = vec![Block::text(published::comparability(context.is_embedded()))];
    blocks.extend(context.analysis.grids.iter().flat_map(|grid| grid_blocks(context, grid)));
    Section::new("comparison", "Every training run, and every comparison", blocks)
}

fn grid_blocks(context: &Context, grid: &GridSummary) -> Vec<Block> {
    let name = text::visible(&grid.name);
    let caption = format!("{name}: each row against the row that it is compared with, in full");
    let blocks = [
        Block::Heading(name),
        Block::Figure(scores::scores(context, grid)),
        Block::Folded(comparisons(context, caption, &grid.differences)),
        Block::Folded(scores::details(context, grid)),
    ];
    blocks.into_iter().chain(by_tag(context, grid).map(Block::Folded)).collect()
}

/// Seeds in which an arm changed nothing.
pub fn same_outcomes(comparison: &Comparison) -> Option<String> {
    let Comparison { identical_seeds, common_seeds, .. } = comparison;
    let same = identical_seeds.len();
    (same > 0).then(|| format!("did not act in {same} of {common_seeds} runs"))
}

/// With the registered σ, and with the observed one.
fn detectable(context: &Context, result: &Estimate) -> Option<String> {
    let pilot = context.analysis.declaration.pilot.as_ref().map(|pilot| pilot.sigma);
    let pairs = [
        result.minimum_detectable_effect.zip(pilot),
        result.observed_detectable_effect.zip(result.observed_sigma),
    ];
    let shown = pairs.map(|pair| {
        pair.map_or("–".to_owned(), |(effect, sigma)| {
            format!("{} (σ {})", Unit::Share.show(effect), text::standard_error(sigma))
        })
    });
    (pairs != [None; 2]).then(|| shown.join("; "))
}

/// Empty unless scores of the first family were compared within blocks and leave no spread to estimate anything from.
pub fn without_spread(context: &Context) -> String {
    let analysis = context.analysis;
    let has_spread = analysis.spread.as_ref().is_some_and(|spread| spread.within_blocks.is_some());
    let is_score = |it: &Comparison| it.declared.metric.is_avg_at_k() && it.result.is_some();
    let mut first = analysis.families.iter().take(1).flat_map(|family| &family.comparisons);
    if has_spread || !analysis.declaration.paired || !first.any(is_score) {
        return String::new();
    }
    " Arms share blocks here, and in the first family their differences are the same in all blocks, or nothing acted: \
     no detectable difference can be estimated."
        .to_owned()
}

/// A time has none: its test is about log-rank scores, whose sum is no time. See [`times`].
pub fn estimate(comparison: &Comparison) -> [TableCell; 3] {
    let unit = context::unit_of(&comparison.declared.metric);
    let result = comparison.result.as_ref().filter(|result| result.medians.is_none());
    [
        TableCell::shown(result.map(|it| it.difference), |difference| unit.signed(difference)),
        context::interval_cell(unit, result.and_then(|it| it.interval.as_ref()), "–"),
        TableCell::shown(result.and_then(|it| it.probability_higher), text::percent),
    ]
}

/// `medians 2 and never; reached by 5 of 6 and 2 of 6 runs`; `None` unless times to a level are compared.
pub fn times(comparison: &Comparison) -> Option<String> {
    let medians = comparison.result.as_ref()?.medians?;
    let [arm, reference] =
        [medians.0, medians.1].map(|time| time.map_or("never".to_owned(), text::number));
    let [arm_reached, reference_reached] = [&comparison.arm, &comparison.reference].map(|runs| {
        let reached = runs.iter().filter(|run| !run.censored).count();
        format!("{reached} of {}", runs.len())
    });
    Some(format!(
        "medians {arm} and {reference}; reached by {arm_reached} and {reference_reached} runs"
    ))
}

pub fn comparisons(context: &Context, caption: String, list: &[Comparison]) -> Table {
    let columns = format!(
        "comparison | metric | runs # | means # | difference # | {} # | \
         arm above # | p; after Holm; smallest # | could have found: registered σ; observed σ # | \
         verdict | status | why",
        context.level()
    );
    Table::new(caption, &columns, list.iter().map(|comparison| comparison_row(context, comparison)))
}

fn comparison_row(context: &Context, comparison: &Comparison) -> Vec<TableCell> {
    let declared = &comparison.declared;
    let unit = context::unit_of(&declared.metric);
    let (arm, reference) = comparison.means();
    let mean = |value: Option<f64>| value.map_or("–".to_owned(), |value| unit.show(value));
    let without = text::joined(comparison.without_value.iter().map(words::without_value), "; ");
    let without = (!without.is_empty()).then(|| format!("without a value: {without}"));
    let notes = [same_outcomes(comparison), words::evaluated_apart(comparison)];
    let why = [Some(words::why(&comparison.why)), without].into_iter().chain(notes).flatten();
    let why = text::visible(&text::joined(why, "; "));
    let result = comparison.result.as_ref();
    // A mean would count a run that never reached the level as if it had at its end.
    let means =
        times(comparison).unwrap_or_else(|| format!("{} and {}", mean(arm), mean(reference)));
    let p = result.map(|it| [it.p, it.adjusted_p, it.smallest_p].map(text::p_value).join("; "));
    let [difference, interval, above] = estimate(comparison);
    row![
        context.pair(&declared.arm, &declared.reference),
        text::visible(&declared.metric.words()),
        format!("{} and {}", comparison.arm.len(), comparison.reference.len()),
        means,
        difference,
        interval,
        above,
        TableCell::or(p, "–"),
        TableCell::or(result.and_then(|result| detectable(context, result)), "–"),
        context::verdict(comparison),
        Look::Quiet.of(if comparison.registered { "registered" } else { "exploratory" }),
        why
    ]
}

/// Last score on the primary set by tags, means over the runs; `None` without tags.
fn by_tag(context: &Context, grid: &GridSummary) -> Option<Table> {
    let set = &context.analysis.declaration.primary_set;
    let cells = |arm: &ArmSummary| context.study.cells_of(&arm.id);
    let first = grid.arms.iter().flat_map(cells).find_map(|cell| cell.problems.get(set))?;
    if first.tags.is_empty() {
        return None;
    }
    let rows = grid.arms.iter().map(|arm| {
        let shares = first.tags.values();
        let shares = shares.map(|places| mean_share(&cells(arm), set, places));
        let shares = shares.map(|share| TableCell::shown(share, text::points));
        row![text::visible(&arm.label)].into_iter().chain(shares).collect()
    });
    let caption = format!("{}, %, by the tags of its problems (how many).", context.score_name());
    let tag = |(tag, places): (&String, &Vec<usize>)| {
        format!("{} ({}) #", text::visible(tag), places.len())
    };
    Some(Table::new(caption, "arm", rows).with(first.tags.iter().map(tag)))
}

/// Mean over the runs of the share of correct samples of these problems.
fn mean_share(cells: &[&Cell], set: &str, places: &[usize]) -> Option<f64> {
    let runs = cells.iter().filter_map(|cell| {
        let accuracies = cell.last_evaluation(set)?.accuracies();
        let of_places = places.iter().filter_map(|place| accuracies.get(*place));
        Some(of_places.sum::<f64>() / places.len() as f64)
    });
    let runs: Vec<f64> = runs.collect();
    (!runs.is_empty()).then(|| estimators::mean(&runs))
}
