//! A grid's scores and differences as figures, every run in them, and what else is known of an
//! arm's last evaluation.

use crate::report::run::plots;
use crate::report::study::context::{self, Unit};
use crate::report::study::page::{Column, Figure, Table};
use crate::report::{Context, IntervalRow, Intervals, Panel, TableCell, text};
use crate::statistics::aggregates;
use crate::study::comparisons::Comparison;
use crate::study::{ArmSummary, GridSummary, SeedScore};

/// Every seed of every arm with mean and interval.
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
        panels.push(Panel::Intervals(differences(context, grid)));
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

/// An anchor of a name: letters, digits and dashes.
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
    let base = context::counted(grid.arms.len(), "arm", "arms");
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
        let list = |show: &dyn Fn(&SeedScore) -> String| {
            let shown: Vec<String> = arm.seeds.iter().map(show).collect();
            shown.join(", ")
        };
        let values: Vec<f64> = arm.seeds.iter().map(|seed| seed.avg_at_k).collect();
        let missing: Vec<String> = arm.missing_seeds.iter().map(u64::to_string).collect();
        let deviation = arm.score.as_ref().and_then(|score| score.standard_deviation);
        vec![
            TableCell::plain(text::visible(&arm.label)),
            TableCell::plain(list(&|seed| seed.seed.to_string())),
            TableCell::value(list(&|seed| text::points(seed.avg_at_k)), values.clone()),
            aggregates::iqm(&values).map_or(TableCell::missing("–"), |iqm| {
                TableCell::value(text::points(iqm), [iqm])
            }),
            deviation.map_or(TableCell::missing("–"), |deviation| {
                TableCell::value(text::standard_error(deviation), [deviation])
            }),
            TableCell::plain(missing.join(", ")),
        ]
    });
    Table {
        rows: rows.collect(),
        caption: format!("{} of every run, in the order of the seeds.", context.score_name()),
        columns: vec![
            Column::text("arm"),
            Column::text("seeds"),
            Column::text("scores, %"),
            Column::number("interquartile mean, %"),
            Column::number("standard deviation, points"),
            Column::text("missing seeds"),
        ],
    }
}

/// Each arm against the row that it is compared with.
fn differences(context: &Context, grid: &GridSummary) -> Intervals {
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
            runs: Vec::new(),
            note: comparison.word.words().to_owned(),
        }
    };
    Intervals {
        title: "difference to the row that it is compared with".to_owned(),
        x: "points".to_owned(),
        around_zero: true,
        rows: grid.differences.iter().map(row).collect(),
    }
}

fn differences_caption(context: &Context, grid: &GridSummary) -> String {
    let shown = |comparison: &&Comparison| comparison.shown().is_some();
    let count = grid.differences.iter().filter(shown).count();
    let registered = grid.differences.iter().filter(|it| it.registered).count();
    let total = context::counted(grid.differences.len(), "difference", "differences");
    let declared = match registered {
        0 => "none of them registered beforehand".to_owned(),
        all if all == grid.differences.len() => "all of them registered beforehand".to_owned(),
        some => format!("{some} of them registered beforehand"),
    };
    format!(
        " Of {total} ({declared}), {count} {} shown: the adjusted p is at most {} and the {} interval \
         lies on one side of 0.",
        if count == 1 { "is" } else { "are" },
        plots::tick_label(context.analysis.declaration.alpha),
        context.level()
    )
}

/// Means over an arm's runs of what else an evaluation tells, and what the runs cost.
pub fn details(context: &Context, grid: &GridSummary) -> Table {
    let equal = grid.arms.iter().find_map(|arm| arm.at_equal_rollouts.as_ref());
    let equal_name = equal.map_or("at equal generated rollouts".to_owned(), |equal| {
        format!(
            "avg@k on {} at {} generated rollouts, %",
            text::visible(&equal.set),
            text::grouped(equal.budget)
        )
    });
    let rows = grid.arms.iter().map(details_row).collect();
    Table {
        rows,
        caption: format!(
            "{}: other measures of the last evaluation and what the runs cost, means over runs. \
             The score at equal generated rollouts is each run\u{2019}s last one at or below the common number.",
            text::visible(&grid.name)
        ),
        columns: vec![
            Column::text("arm"),
            Column::number("pass@k, %"),
            Column::number("cons@k, %"),
            Column::number("response tokens"),
            Column::number("SE of decoding, points"),
            Column::number("SE of problems, points"),
            Column::number("updates"),
            Column::number("generated rollouts"),
            Column::number(equal_name),
            Column::number(format!("{} of it", context.level())),
            Column::number("seconds a run"),
        ],
    }
}

fn details_row(arm: &ArmSummary) -> Vec<TableCell> {
    let mean = |of: &dyn Fn(&SeedScore) -> f64| {
        let sum: f64 = arm.seeds.iter().map(of).sum();
        (!arm.seeds.is_empty()).then(|| sum / arm.seeds.len() as f64)
    };
    let cell = |value: Option<f64>, show: &dyn Fn(f64) -> String| match value {
        Some(value) => TableCell::value(show(value), [value]),
        None => TableCell::missing("–"),
    };
    let points: &dyn Fn(f64) -> String = &text::points;
    let plain: &dyn Fn(f64) -> String = &text::number;
    let counted: &dyn Fn(f64) -> String = &|value| text::grouped(value.round() as u64);
    let error: &dyn Fn(f64) -> String = &text::standard_error;
    let equal = arm.at_equal_rollouts.as_ref().and_then(|equal| equal.score.as_ref());
    vec![
        TableCell::plain(text::visible(&arm.label)),
        cell(mean(&|seed| seed.pass_at_k), points),
        cell(mean(&|seed| seed.cons_at_k), points),
        cell(mean(&|seed| seed.response_tokens_mean), plain),
        cell(arm.decoding_standard_error, error),
        cell(arm.problems_standard_error, error),
        cell(mean(&|seed| seed.updates as f64), counted),
        cell(mean(&|seed| seed.generated_rollouts as f64), counted),
        cell(equal.map(|score| score.mean), points),
        context::interval_cell(Unit::Share, equal.and_then(|score| score.interval.as_ref()), "–"),
        cell(mean(&|seed| seed.wall_seconds), counted),
    ]
}
