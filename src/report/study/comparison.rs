//! Every comparison in full, and every run's scores.

use crate::report::page::{Block, Look, Section, Table, TableCell, row};
use crate::report::text::{self, Unit};
use crate::report::{Context, published, study::context, study::scores, words};
use crate::statistics::Estimate;
use crate::study::{GridSummary, Word, comparisons::Comparison};

pub fn section(context: &Context) -> Section {
    let mut blocks = vec![Block::text(published::comparability(context.is_embedded()))];
    blocks.extend(context.analysis.grids.iter().flat_map(|grid| grid_blocks(context, grid)));
    Section::new("comparison", "Every training run, and every comparison", blocks)
}

fn grid_blocks(context: &Context, grid: &GridSummary) -> Vec<Block> {
    let name = text::visible(&grid.name);
    let caption = format!("{name}: each row against the row that it is compared with, in full");
    vec![
        Block::Heading(name),
        Block::Figure(scores::scores(context, grid)),
        Block::Folded(comparisons(context, caption, &grid.differences)),
        Block::Folded(scores::details(context, grid)),
    ]
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

pub fn word(comparison: &Comparison) -> TableCell {
    let look = match comparison.word {
        Word::Improves | Word::Higher => Look::Good,
        Word::Hurts | Word::Lower => Look::Bad,
        Word::Inconclusive | Word::Equivalent => Look::Open,
        Word::NotCompared => Look::Quiet,
    };
    look.of(comparison.word.words())
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
        word(comparison),
        context::status(comparison.registered),
        why
    ]
}
