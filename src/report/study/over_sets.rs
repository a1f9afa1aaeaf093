//! The test sets of a study together: means over them, and how many runs reach a score.

use crate::report::Context;
use crate::report::page::{
    self, Block, CurveLine, Curves, Figure, Panel, Section, Table, TableCell, row,
};
use crate::report::study::{answer, context};
use crate::report::text::{self, Unit};
use crate::study::{ArmSummary, GridSummary};

/// Without blocks where every grid has one test set.
pub fn section(context: &Context) -> Section {
    let tables = context.analysis.grids.iter().filter_map(|grid| table(context, grid));
    let blocks = figure(context).map(Block::Figure).into_iter().chain(tables.map(Block::Table));
    Section::new("over-sets", "The test sets together", blocks.collect())
}

fn table(context: &Context, grid: &GridSummary) -> Option<Table> {
    let sets = &grid.arms.iter().find_map(|arm| arm.over_sets.as_ref())?.sets;
    let caption = format!(
        "{}: avg@k at the last evaluation over {}. Mean and interval: each run is one value, its mean over the sets. \
         Interquartile mean: of the scores of all runs on all sets, without a quarter at either end.",
        text::visible(&grid.name),
        text::visible(&text::listed(sets))
    );
    let columns =
        format!("arm | runs # | mean, % # | {} # | interquartile mean, % #", context.level());
    let row = |arm: &ArmSummary| {
        let score = arm.over_sets.as_ref().and_then(|it| it.score.as_ref());
        row![
            text::visible(&arm.label),
            TableCell::count(arm.seeds.len()),
            TableCell::shown(score.map(|it| it.mean), text::points),
            context::interval_cell(Unit::Share, score.and_then(|it| it.interval.as_ref()), "–"),
            TableCell::shown(arm.over_sets.as_ref().map(|it| it.iqm), text::points)
        ]
    };
    Some(Table::new(caption, &columns, grid.arms.iter().map(row)))
}

fn figure(context: &Context) -> Option<Figure> {
    let (arms, all) = answer::arms_asked_about(context);
    let lines: Vec<CurveLine> = arms.iter().filter_map(|id| line(context, id)).collect();
    let runs = arms.iter().filter_map(|id| context.arm(id)).map(|arm| arm.seeds.len()).max()?;
    let legend = page::legend(&lines);
    let unit = "share of runs and sets above the score, %";
    let curves = Curves::new("", "score (avg@k), %", unit, lines);
    (!curves.lines.is_empty()).then(|| Figure {
        id: "over-sets-figure".to_owned(),
        title: "Performance profile".to_owned(),
        numbers: numbers(context, &arms),
        caption: format!(
            "Performance profile (rliable): for each score the share of an arm\u{2019}s runs, on each of the sets, that are above it. \
             It has no band: with {} an arm a resampled one would be too narrow.{}",
            text::counted(runs, "run", "runs"),
            answer::of_all_arms(arms.len(), all)
        ),
        legend,
        panels: vec![Panel::Curves(curves)],
    })
}

fn line(context: &Context, id: &str) -> Option<CurveLine> {
    let steps = &context.arm(id)?.over_sets.as_ref()?.steps;
    Some(CurveLine {
        label: context.label(id),
        style: context.style(id),
        centre: steps.iter().map(|(score, share)| (100.0 * score, 100.0 * share)).collect(),
        ..CurveLine::default()
    })
}

fn numbers(context: &Context, arms: &[&str]) -> Table {
    let of = |id: &&str| Some((context.label(id), &context.arm(id)?.over_sets.as_ref()?.profile));
    let (labels, profiles): (Vec<_>, Vec<_>) = arms.iter().filter_map(of).unzip();
    let rows = (0..profiles.first().map_or(0, |profile| profile.len())).map(|step| {
        let score = TableCell::from(format!("{:.0}", 100.0 * profiles[0][step].0));
        let shares = profiles.iter().map(|profile| text::points(profile[step].1).into());
        [score].into_iter().chain(shares).collect()
    });
    let caption = "Share of an arm\u{2019}s runs and sets above a score, %.";
    let columns = labels.into_iter().map(|label| format!("{label} #"));
    Table::new(caption, "score, %", rows).with(columns)
}
