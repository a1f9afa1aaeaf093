//! A grid's scores and differences as figures with every run, and details of last evaluations.

use crate::report::page::{Figure, IntervalRow, Intervals, Panel, Table, TableCell, row};
use crate::report::study::{context, headline};
use crate::report::text::{self, Unit};
use crate::report::{Context, published};
use crate::statistics::{aggregates, estimators};
use crate::study::{ArmSummary, Declared, GridSummary, Metric, SeedScore, comparisons::Comparison};

pub fn scores(context: &Context, grid: &GridSummary) -> Figure {
    let rows = grid.arms.iter().map(|arm| score_row(context, arm)).collect();
    let scores = Intervals::new(&context.score_name(), "%", false, rows);
    let mut panels = vec![Panel::Intervals(scores)];
    if !grid.differences.is_empty() {
        panels.push(Panel::Intervals(differences(context, &grid.differences)));
    }
    Figure {
        id: format!("scores-{}", anchor(&grid.name)),
        title: format!("{}: every training run, and the differences", text::visible(&grid.name)),
        caption: scores_caption(context, grid),
        panels,
        numbers: seeds(context, grid),
        ..Figure::default()
    }
}

pub fn score_row(context: &Context, arm: &ArmSummary) -> IntervalRow {
    let mean = arm.score.as_ref().map(|score| score.mean);
    let interval = arm.score.as_ref().and_then(|score| score.interval);
    let label = text::visible(&arm.label);
    IntervalRow {
        runs: arm.seeds.iter().map(|it| (Some(it.seed), 100.0 * it.avg_at_k)).collect(),
        note: TableCell::or(mean.map(text::points), "no run"),
        ..IntervalRow::of(label, context.style(&arm.id), (mean, interval), 100.0)
    }
}

pub fn anchor(name: &str) -> String {
    let keep = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
    name.chars().map(keep).collect()
}

fn scores_caption(context: &Context, grid: &GridSummary) -> String {
    let of = |arm: &ArmSummary| arm.score.as_ref()?.standard_deviation;
    let spread = grid.arms.iter().filter_map(of).reduce(f64::max);
    let spread = match spread {
        Some(spread) => format!(
            "The largest standard deviation between training runs of an arm is {} points",
            text::standard_error(spread)
        ),
        None => {
            "No arm has two runs, so nothing is known of the spread between training runs".into()
        }
    };
    format!(
        "{spread}.{} Circles: single runs; filled mark: their mean; bar: {} interval for other training runs.",
        before_training(context, grid).unwrap_or_default(),
        context.level()
    )
}

fn before_training(context: &Context, grid: &GridSummary) -> Option<String> {
    let scores: Vec<f64> = grid.arms.iter().filter_map(|arm| arm.base_score).collect();
    let least = scores.iter().copied().reduce(f64::min)?;
    let most = scores.iter().copied().reduce(f64::max)?;
    let (least, most, is_one) = (text::points(least), text::percent(most), least == most);
    let (which, mean) = match context.base_policies() {
        0 | 1 => ("the base policy scores", ""),
        _ => ("base policies score", " in the mean"),
    };
    let score =
        if is_one { format!("{most}{mean}") } else { format!("{least} to {most}{mean}, by arm") };
    Some(format!(" Before training {which} {score}."))
}

fn seeds(context: &Context, grid: &GridSummary) -> Table {
    let rows = grid.arms.iter().map(|arm| {
        let values: Vec<f64> = arm.seeds.iter().map(|seed| seed.avg_at_k).collect();
        let deviation = arm.score.as_ref().and_then(|score| score.standard_deviation);
        row![
            text::visible(&arm.label),
            text::joined(arm.seeds.iter().map(|seed| seed.seed), ", "),
            text::joined(values.iter().map(|score| text::points(*score)), ", "),
            TableCell::shown(aggregates::iqm(&values).ok(), text::points),
            TableCell::shown(deviation, text::standard_error),
            text::joined(&arm.missing_seeds, ", ")
        ]
    });
    Table::new(
        format!("{} of every run, in the order of the seeds.", context.score_name()),
        "arm | seeds | scores, % | interquartile mean, % # | standard deviation, points # | missing seeds",
        rows,
    )
}

pub const DIFFERENCE: &str = "difference";

pub fn differences<'a>(
    context: &Context,
    comparisons: impl IntoIterator<Item = &'a Comparison>,
) -> Intervals {
    let comparisons: Vec<&Comparison> = comparisons.into_iter().collect();
    let measure = |it: &Comparison| headline::measure_among(it, comparisons.iter().copied());
    // Grids have names of their own where their arms have the same ones.
    let pair = |it: &Comparison| {
        let Declared { arm, reference, .. } = &it.declared;
        (context.label(arm), context.label(reference), measure(it))
    };
    let is_repeated = |it: &Comparison| {
        let is_other = |other: &Comparison| other.declared.arm != it.declared.arm;
        comparisons.iter().any(|other| is_other(other) && pair(other) == pair(it))
    };
    let names_grids = comparisons.iter().any(|it| is_repeated(it));
    let rows = comparisons.iter().map(|it| {
        let grid = if names_grids { context.in_grid(&it.declared.arm) } else { String::new() };
        difference_row(context, it, &(grid + &measure(it)))
    });
    let x = match comparisons.first().map(|it| &it.declared.metric) {
        Some(Metric::Metric { name, .. }) if context::unit_of_training(name) == Unit::Plain => {
            context::unit_name(name)
        }
        _ => "points",
    };
    Intervals::new(DIFFERENCE, x, true, rows.collect())
}

/// `told`: what tells the row from others of the same arms.
fn difference_row(context: &Context, comparison: &Comparison, told: &str) -> IntervalRow {
    let (result, declared) = (comparison.result.as_ref(), &comparison.declared);
    let interval = result.and_then(|result| result.interval);
    let scale = context::unit_of(&declared.metric).scale();
    let divisor = comparison.contrast_divisor as f64;
    let margin = scale * context.analysis.declaration.margin / divisor;
    // A log-rank sum is no time.
    let difference = result.filter(|it| it.medians.is_none()).map(|it| it.difference);
    let (label, style) = (context.label(&declared.arm), context.style(&declared.arm));
    IntervalRow {
        against: Some(context.label(&declared.reference) + told),
        measure: text::visible(&declared.metric.words()),
        margin: declared.metric.is_avg_at_k().then_some(margin),
        published: published_step(context, declared),
        note: context::word(comparison),
        ..IntervalRow::of(label, style, (difference, interval), scale)
    }
}

/// In points; the paper compares a row with the row above alone.
fn published_step(context: &Context, declared: &Declared) -> Option<f64> {
    let row = |arm: &str| context.arm(arm)?.paper.as_ref();
    let published = published::beside(row(&declared.arm)?)?;
    let reference = published::beside(row(&declared.reference)?)?;
    published.step.filter(|step| (published.value - step - reference.value).abs() < 1e-9)
}

/// Means over an arm's runs: other statistics of an evaluation, and costs.
pub fn details(context: &Context, grid: &GridSummary) -> Table {
    let equal = grid.arms.iter().find_map(|arm| arm.at_equal_rollouts.as_ref());
    let equal_name = equal.map_or("at equal generated rollouts".to_owned(), |equal| {
        format!(
            "avg@k on {} at {} generated rollouts, %",
            text::visible(&equal.set),
            text::grouped(equal.budget)
        )
    });
    let caption = format!(
        "{}: other measures of the last evaluation and what the runs cost, means over runs. \
         The score at equal generated rollouts is each run\u{2019}s last one at or below the common number.",
        text::visible(&grid.name)
    );
    let columns = "arm | cons@k, % # | response tokens # | SE of decoding, points # | \
                   SE of problems, points # | updates # | generated rollouts # | generated tokens #";
    let at_equal = [equal_name + " #", format!("{} of it #", context.level())];
    let at_equal = at_equal.into_iter().chain(["seconds a run #".to_owned()]);
    Table::new(caption, columns, grid.arms.iter().map(details_row)).with(at_equal)
}

/// Over the runs of an arm; `None` where one has no value.
pub fn mean_of(arm: &ArmSummary, of: &dyn Fn(&SeedScore) -> Option<f64>) -> Option<f64> {
    let values: Option<Vec<f64>> = arm.seeds.iter().map(of).collect();
    values.filter(|values| !values.is_empty()).map(|values| estimators::mean(&values))
}

fn details_row(arm: &ArmSummary) -> Vec<TableCell> {
    let mean = |of: &dyn Fn(&SeedScore) -> Option<f64>| mean_of(arm, of);
    let counted = |value: f64| text::grouped(value.round() as u64);
    let equal = arm.at_equal_rollouts.as_ref().and_then(|equal| equal.score.as_ref());
    row![
        text::visible(&arm.label),
        TableCell::shown(mean(&|seed| seed.cons_at_k), text::points),
        TableCell::shown(mean(&|seed| Some(seed.response_tokens_mean)), text::number),
        TableCell::shown(arm.decoding_standard_error, text::standard_error),
        TableCell::shown(arm.problems_standard_error, text::standard_error),
        TableCell::shown(mean(&|seed| Some(seed.updates as f64)), counted),
        TableCell::shown(mean(&|seed| Some(seed.generated_rollouts as f64)), counted),
        TableCell::shown(mean(&|seed| Some(seed.generated_tokens? as f64)), counted),
        TableCell::shown(equal.map(|score| score.mean), text::points),
        context::interval_cell(Unit::Share, equal.and_then(|score| score.interval.as_ref()), "–"),
        TableCell::shown(mean(&|seed| Some(seed.wall_seconds)), counted)
    ]
}
