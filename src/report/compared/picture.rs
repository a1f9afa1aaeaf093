//! The pictures of a comparison: the difference with its intervals, and the courses of tracked runs.

use crate::records::tracked::TABLE;
use crate::report::compared::{BESIDE, tracked};
use crate::report::page::{
    self, Block, CurveLine, Curves, Figure, IntervalRow, Intervals, Page, Panel, Section, TableCell,
};
use crate::report::{text, text::Unit, words};
use crate::statistics::estimators;
use crate::study::comparison::RunComparison;
use crate::study::comparisons::Comparison;
use crate::study::gate::ArmsCompared;
use crate::study::{TrackedComparison, TrackedValue};

/// Of [`IntervalRow::style`] and [`CurveLine::style`].
const SIDES: [(char, usize); 2] = [('A', 0), ('B', 1)];

/// What a page shows before the sections of a comparison.
pub struct Pictures {
    pub headline: String,
    pub figures: Vec<Figure>,
}

pub fn page(title: &str, sections: Vec<Section>, pictures: Pictures) -> Page {
    let figures = pictures.figures.into_iter().map(Block::Figure).collect();
    let sections = sections.into_iter().map(|section| {
        let is_sentence = section.id.starts_with(BESIDE);
        let title = if is_sentence { text::capital(&section.title) } else { section.title.clone() };
        Section { name: title.clone(), title, ..section }
    });
    let sections = [Section::new("pictures", "At a glance", figures)].into_iter().chain(sections);
    Page {
        kind: "comparison",
        title: text::visible(title),
        subtitle: "A is the reference".to_owned(),
        headline: pictures.headline,
        sections: sections.filter(|section| !section.blocks.is_empty()).collect(),
        ..Page::default()
    }
}

pub fn of_sides(comparison: &RunComparison, margin_points: Option<f64>) -> Pictures {
    let row = |label, difference, interval| IntervalRow {
        margin: margin_points,
        ..IntervalRow::of(label, 1, (Some(difference), interval), 100.0)
    };
    let change = comparison.paired.difference;
    let paired = comparison.paired.uncertainties.iter();
    let paired = paired.map(|answer| row(answer.question.text(), change, answer.interval));
    let runs = comparison.between_runs.iter().map(|between| {
        row("another training run", between.welch.difference, between.welch.interval)
    });
    let [a, b] = [&comparison.a, &comparison.b].map(|side| text::points(side.accuracy.avg_at_k));
    let change = text::signed_points(change);
    let headline = format!("A has {a} % right, B {b} %: {change} points on the same problems.");
    Pictures { headline, figures: vec![difference("points", paired.chain(runs).collect())] }
}

pub fn of_arms(
    compared: &ArmsCompared,
    printed_margin: Option<f64>,
    declared_share: Option<f64>,
) -> Pictures {
    let unit = words::unit_of(&compared.comparison);
    let is_alike = |it: &&Comparison| words::unit_of(it) == unit;
    let beside = compared.beside.iter().filter(is_alike);
    let rows = [&compared.comparison].into_iter().chain(beside).map(|comparison| {
        let result = comparison.result.as_ref();
        let difference = (result.map(|it| it.difference), result.and_then(|it| it.interval));
        let scale = unit.scale();
        let of_scores = declared_share.filter(|_| comparison.declared.metric.is_avg_at_k());
        let of_scores = of_scores.map(|it| scale * it / comparison.contrast_divisor as f64);
        let label = text::visible(&comparison.declared.metric.words());
        IntervalRow {
            note: TableCell::from(comparison.word.words()),
            margin: printed_margin.or(of_scores),
            ..IntervalRow::of(label, 1, difference, scale)
        }
    });
    let x = if unit == Unit::Share { "points" } else { "" };
    let line = words::comparison(&compared.comparison);
    let headline = [compared.comparison.word.words(), &line].map(text::visible).join(": ");
    Pictures { headline, figures: vec![difference(x, rows.collect())] }
}

/// The second picture is left out where the runs have no course.
pub fn of_tracked(comparison: &TrackedComparison) -> Pictures {
    let estimate = comparison.estimate.as_ref().filter(|estimate| estimate.medians.is_none());
    let rows = estimate.map(|estimate| {
        let difference = (Some(estimate.difference), estimate.interval);
        let margin = estimate.equivalence.as_ref().map(|equivalence| equivalence.margin);
        IntervalRow { margin, ..IntervalRow::of("B is better by", 1, difference, 1.0) }
    });
    let values = SIDES.map(|(side, style)| IntervalRow {
        label: side.to_string(),
        style,
        runs: of_side(comparison, side).map(|run| (run.seed, run.value)).collect(),
        ..IntervalRow::default()
    });
    let x = text::visible(&comparison.metric);
    let x_of_values = if comparison.asked.to_level.is_some() { &comparison.asked.at } else { &x };
    let values = Panel::Intervals(Intervals::new("each run", x_of_values, false, values.into()));
    let mut figure = difference(&x, rows.into_iter().collect());
    if comparison.asked.lower_is_better {
        figure.caption += " A lower value is better.";
    }
    figure.panels.retain(|panel| !matches!(panel, Panel::Intervals(it) if it.rows.is_empty()));
    figure.panels.push(values);
    let is_table = comparison.runs.iter().all(|run| run.notes.format == TABLE);
    let courses = (!is_table).then(|| courses(comparison));
    Pictures {
        headline: tracked::result(comparison).into_iter().take(2).collect::<Vec<_>>().join(" "),
        figures: [figure].into_iter().chain(courses).collect(),
    }
}

fn of_side(comparison: &TrackedComparison, side: char) -> impl Iterator<Item = &TrackedValue> {
    comparison.runs.iter().filter(move |run| run.side == side)
}

fn difference(x: &str, rows: Vec<IntervalRow>) -> Figure {
    let is_shaded = rows.iter().any(|row| row.margin.is_some());
    let shaded = if is_shaded { "; differences within the margin are shaded" } else { "" };
    Figure {
        id: "difference".to_owned(),
        caption: format!("B − A with its interval{shaded}."),
        panels: vec![Panel::Intervals(Intervals::new("B − A", x, true, rows))],
        ..Figure::default()
    }
}

fn courses(comparison: &TrackedComparison) -> Figure {
    let line = |(side, style): (char, usize)| {
        let runs: Vec<&Vec<(f64, f64)>> =
            of_side(comparison, side).map(|run| &run.points).collect();
        CurveLine {
            label: format!("{side} ({})", text::counted(runs.len(), "run", "runs")),
            style,
            centre: mean(&runs),
            runs: runs.into_iter().cloned().collect(),
            ..CurveLine::default()
        }
    };
    let lines = SIDES.map(line);
    let (metric, clock) =
        [&comparison.metric, &comparison.asked.at].map(|name| text::visible(name)).into();
    Figure {
        id: "courses".to_owned(),
        caption: format!(
            "{metric} over {clock}, up to the budget: thin lines are runs, thick ones means where all runs of a side \
             have the same points."
        ),
        legend: page::legend(&lines),
        panels: vec![Panel::Curves(Curves::new(metric, &clock, "", lines.into()))],
        ..Figure::default()
    }
}

/// Empty where runs have other places.
fn mean(runs: &[&Vec<(f64, f64)>]) -> Vec<(f64, f64)> {
    let Some(first) = runs.first() else { return Vec::new() };
    let places = |run: &[(f64, f64)]| run.iter().map(|point| point.0).collect::<Vec<f64>>();
    if runs.iter().any(|run| places(run) != places(first)) {
        return Vec::new();
    }
    let at = |index: usize| {
        let values: Vec<f64> = runs.iter().map(|run| run[index].1).collect();
        (first[index].0, estimators::mean(&values))
    };
    (0..first.len()).map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caption_names_a_shade_only_where_there_is_one() {
        let caption = |margin| {
            let row = IntervalRow { margin, ..IntervalRow::default() };
            difference("points", vec![row]).caption
        };
        assert!(caption(Some(4.0)).contains("shaded") && !caption(None).contains("shaded"));
    }
}
