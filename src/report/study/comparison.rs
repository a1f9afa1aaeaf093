//! Every comparison in full, and every run's scores.

use crate::report::page::{Block, Column, Section, Table, TableCell, row};
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
fn detectable(context: &Context, result: &Estimate) -> TableCell {
    let pilot = context.analysis.declaration.pilot.as_ref().map(|pilot| pilot.sigma);
    let pairs = [
        result.minimum_detectable_effect.zip(pilot),
        result.observed_detectable_effect.zip(result.observed_sigma),
    ];
    if pairs == [None; 2] {
        return TableCell::missing("–");
    }
    let shown = pairs.map(|pair| {
        pair.map_or("–".to_owned(), |(effect, sigma)| {
            format!("{} (σ {})", Unit::Share.show(effect), text::standard_error(sigma))
        })
    });
    TableCell::from(shown.join("; "))
}

pub fn estimate(comparison: &Comparison) -> [TableCell; 3] {
    let unit = context::unit_of(&comparison.declared.metric);
    let result = comparison.result.as_ref();
    [
        TableCell::shown(result.map(|it| it.difference), |difference| unit.signed(difference)),
        context::interval_cell(unit, result.and_then(|it| it.interval.as_ref()), "–"),
        TableCell::shown(result.and_then(|it| it.probability_higher), text::percent),
    ]
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
    let mut why = text::visible(&words::why(&comparison.why));
    if !comparison.without_value.is_empty() {
        let without =
            comparison.without_value.iter().map(|run| text::visible(&words::without_value(run)));
        why += &format!("; without a value: {}", text::joined(without, "; "));
    }
    if let Some(same) = same_outcomes(comparison) {
        why += &format!("; {same}");
    }
    let result = comparison.result.as_ref();
    if let Some(medians) = result.and_then(|result| result.medians) {
        let median = |time: Option<f64>| time.map_or("not reached".to_owned(), text::number);
        why += &format!("; medians {} and {}", median(medians.0), median(medians.1));
    }
    let missing = || TableCell::missing("–");
    let [difference, interval, above] = estimate(comparison);
    row![
        context.pair(&declared.arm, &declared.reference),
        text::visible(&declared.metric.words()),
        format!("{} and {}", comparison.arm.len(), comparison.reference.len()),
        format!("{} and {}", mean(arm), mean(reference)),
        difference,
        interval,
        above,
        result.map_or_else(missing, |result| {
            let p = [result.p, result.adjusted_p, result.smallest_p];
            TableCell::from(p.map(text::p_value).join("; "))
        }),
        result.map_or_else(missing, |result| detectable(context, result)),
        context::word(comparison),
        context::status(comparison.registered),
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
    let mut table = Table::new(caption, "arm", rows);
    let columns = first.tags.iter();
    let columns =
        columns.map(|(tag, places)| format!("{} ({}) #", text::visible(tag), places.len()));
    table.columns.extend(columns.map(|name| Column::new(&name)));
    Some(table)
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
