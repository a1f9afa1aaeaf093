//! A grid's scores and differences as figures with every run, and details of last evaluations.

use crate::report::page::{Figure, IntervalRow, Intervals, Panel, Table, TableCell, row};
use crate::report::study::context::{self, Unit};
use crate::report::{Context, axes, published, text};
use crate::statistics::aggregates;
use crate::study::{ArmSummary, GridSummary, SeedScore, comparisons::Comparison};

pub fn scores(context: &Context, grid: &GridSummary) -> Figure {
    let name = text::visible(&grid.name);
    let row = |arm: &ArmSummary| {
        let mean = arm.score.as_ref().map(|score| score.mean);
        let interval = arm.score.as_ref().and_then(|score| score.interval);
        IntervalRow {
            label: text::visible(&arm.label),
            against: None,
            style: context.style(&arm.id),
            centre: mean.map(|mean| 100.0 * mean),
            interval: interval.map(|it| (100.0 * it.low, 100.0 * it.high)),
            published: None,
            runs: arm.seeds.iter().map(|seed| 100.0 * seed.avg_at_k).collect(),
            note: mean.map_or("no run".to_owned(), text::points),
        }
    };
    let mut panels = vec![Panel::Intervals(Intervals {
        title: context.score_name(),
        x: "%".to_owned(),
        around_zero: false,
        rows: grid.arms.iter().map(row).collect(),
    })];
    let mut caption = scores_caption(context, grid);
    if !grid.differences.is_empty() {
        panels.push(Panel::Intervals(differences(context, &grid.differences)));
        caption += &differences_caption(context, grid);
    }
    Figure {
        id: format!("scores-{}", anchor(&grid.name)),
        title: format!("{name}: every training run, and the differences"),
        caption,
        legend: Vec::new(),
        panels,
        numbers: seeds(context, grid),
    }
}

/// Letters, digits and dashes.
pub fn anchor(name: &str) -> String {
    let keep = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
    name.chars().map(keep).collect()
}

fn scores_caption(context: &Context, grid: &GridSummary) -> String {
    let scored = || grid.arms.iter().filter_map(|arm| Some((arm.score.as_ref()?.mean, arm)));
    let best = scored().reduce(|a, b| if b.0 > a.0 { b } else { a });
    let worst = scored().reduce(|a, b| if b.0 < a.0 { b } else { a });
    let (Some(best), Some(worst)) = (best, worst) else {
        return "No arm has a run that counts.".to_owned();
    };
    let named = |(mean, arm): (f64, &ArmSummary)| {
        format!("{} ({})", text::visible(&arm.label), text::percent(mean))
    };
    let spreads = scored().filter_map(|(_, arm)| arm.score.as_ref()?.standard_deviation);
    let spread = spreads.reduce(f64::max);
    let spread = spread.map_or(
        "No arm has two runs, so nothing is known of the spread between training runs".to_owned(),
        |spread| {
            format!(
                "The largest standard deviation between training runs of an arm is {} points",
                text::standard_error(spread)
            )
        },
    );
    let base = text::counted(grid.arms.len(), "arm", "arms");
    let base_score = grid.arms.iter().find_map(|arm| arm.base_score);
    let start = base_score
        .map(|score| format!(" The base policy starts at {}.", text::percent(score)))
        .unwrap_or_default();
    format!(
        "Of {base}, the highest mean is {}, the lowest {}. {spread}.{start} Circles: single runs; \
         filled mark: their mean; bar: {} interval for other training runs.",
        named(best),
        named(worst),
        context.level()
    )
}

fn seeds(context: &Context, grid: &GridSummary) -> Table {
    let rows = grid.arms.iter().map(|arm| {
        let values: Vec<f64> = arm.seeds.iter().map(|seed| seed.avg_at_k).collect();
        let deviation = arm.score.as_ref().and_then(|score| score.standard_deviation);
        row![
            text::visible(&arm.label),
            text::joined(arm.seeds.iter().map(|seed| seed.seed), ", "),
            TableCell::value(
                text::joined(values.iter().map(|it| text::points(*it)), ", "),
                &values[..]
            ),
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

pub fn differences<'a>(
    context: &Context,
    comparisons: impl IntoIterator<Item = &'a Comparison>,
) -> Intervals {
    let row = |comparison: &Comparison| {
        let result = comparison.result.as_ref();
        let interval = result.and_then(|result| result.interval);
        let unit = context::unit_of(&comparison.declared.metric);
        IntervalRow {
            label: context.label(&comparison.declared.arm),
            against: Some(context.label(&comparison.declared.reference)),
            style: context.style(&comparison.declared.arm),
            centre: result.map(|result| unit.scale() * result.difference),
            interval: interval.map(|it| (unit.scale() * it.low, unit.scale() * it.high)),
            published: published_step(context, &comparison.declared.arm),
            runs: Vec::new(),
            note: comparison.word.words().to_owned(),
        }
    };
    Intervals {
        title: "difference to the row that it is compared with".to_owned(),
        x: "points".to_owned(),
        around_zero: true,
        rows: comparisons.into_iter().map(row).collect(),
    }
}

/// In points.
fn published_step(context: &Context, arm: &str) -> Option<f64> {
    published::beside(context.arm(arm)?.paper.as_ref()?)?.step
}

fn differences_caption(context: &Context, grid: &GridSummary) -> String {
    let shown = |comparison: &&Comparison| comparison.shown().is_some();
    let count = grid.differences.iter().filter(shown).count();
    let registered = grid.differences.iter().filter(|it| it.registered).count();
    let total = text::counted(grid.differences.len(), "difference", "differences");
    let declared = match registered {
        0 => "none of them registered beforehand".to_owned(),
        all if all == grid.differences.len() => "all of them registered beforehand".to_owned(),
        some => format!("{some} of them registered beforehand"),
    };
    format!(
        " Of {total} ({declared}), {count} {} shown: the adjusted p is at most {} and the {} interval \
         lies on one side of 0.",
        if count == 1 { "is" } else { "are" },
        axes::tick_label(context.analysis.declaration.alpha),
        context.level()
    )
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
    let columns = format!(
        "arm | pass@k, % # | cons@k, % # | response tokens # | SE of decoding, points # | \
         SE of problems, points # | updates # | generated rollouts # | generated tokens # | \
         at equal # | {} of it # | seconds a run #",
        context.level()
    );
    let mut table = Table::new(caption, &columns, grid.arms.iter().map(details_row));
    // Foreign text may contain the separator of columns.
    table.columns[9].name = equal_name;
    table
}

fn details_row(arm: &ArmSummary) -> Vec<TableCell> {
    let mean = |of: &dyn Fn(&SeedScore) -> f64| {
        let sum: f64 = arm.seeds.iter().map(of).sum();
        (!arm.seeds.is_empty()).then(|| sum / arm.seeds.len() as f64)
    };
    let counted = |value: f64| text::grouped(value.round() as u64);
    let tokens: Option<u64> = arm.seeds.iter().map(|seed| seed.generated_tokens).sum();
    let tokens =
        tokens.filter(|_| !arm.seeds.is_empty()).map(|sum| sum as f64 / arm.seeds.len() as f64);
    let equal = arm.at_equal_rollouts.as_ref().and_then(|equal| equal.score.as_ref());
    row![
        text::visible(&arm.label),
        TableCell::shown(mean(&|seed| seed.pass_at_k), text::points),
        TableCell::shown(mean(&|seed| seed.cons_at_k), text::points),
        TableCell::shown(mean(&|seed| seed.response_tokens_mean), text::number),
        TableCell::shown(arm.decoding_standard_error, text::standard_error),
        TableCell::shown(arm.problems_standard_error, text::standard_error),
        TableCell::shown(mean(&|seed| seed.updates as f64), counted),
        TableCell::shown(mean(&|seed| seed.generated_rollouts as f64), counted),
        TableCell::shown(tokens, counted),
        TableCell::shown(equal.map(|score| score.mean), text::points),
        context::interval_cell(Unit::Share, equal.and_then(|score| score.interval.as_ref()), "–"),
        TableCell::shown(mean(&|seed| seed.wall_seconds), counted)
    ]
}
