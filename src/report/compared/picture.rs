//! The pictures of a comparison: the difference with its intervals, and the courses of tracked runs.

use crate::records::tracked::TABLE;
use crate::report::compared::tracked;
use crate::report::page::{
    Block, CurveLine, Curves, Figure, IntervalRow, Intervals, LegendEntry, Page, Panel, Section,
    TableCell,
};
use crate::report::{text, words};
use crate::statistics::{Interval, estimators};
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

pub fn of_sides(comparison: &RunComparison) -> Pictures {
    let points = |interval: Interval| (100.0 * interval.low, 100.0 * interval.high);
    let paired = comparison.paired.uncertainties.iter().map(|answer| IntervalRow {
        label: answer.question.text().to_owned(),
        style: 1,
        centre: Some(100.0 * comparison.paired.difference),
        interval: answer.interval.map(points),
        ..IntervalRow::default()
    });
    let runs = comparison.between_runs.iter().map(|between| IntervalRow {
        label: "another training run".to_owned(),
        style: 1,
        centre: Some(100.0 * between.welch.difference),
        interval: between.welch.interval.map(points),
        ..IntervalRow::default()
    });
    let [a, b] = [&comparison.a, &comparison.b].map(|side| text::points(side.accuracy.avg_at_k));
    let change = text::signed_points(comparison.paired.difference);
    let headline = format!("A has {a} % right, B {b} %: {change} points on the same problems.");
    Pictures { headline, figures: vec![difference("points", paired.chain(runs).collect())] }
}

pub fn of_arms(compared: &ArmsCompared) -> Pictures {
    let all = [Some(&compared.comparison), compared.beside.as_ref()];
    let rows = all.into_iter().flatten().map(|comparison| {
        let (result, declared) = (comparison.result.as_ref(), &comparison.declared);
        let scale = if declared.metric.is_avg_at_k() { 100.0 } else { 1.0 };
        let interval = result.and_then(|result| result.interval);
        IntervalRow {
            label: text::visible(&declared.metric.words()),
            style: 1,
            centre: result.map(|result| scale * result.difference),
            interval: interval.map(|it| (scale * it.low, scale * it.high)),
            note: TableCell::from(comparison.word.words()),
            ..IntervalRow::default()
        }
    });
    let Comparison { declared, word, .. } = &compared.comparison;
    let x = if declared.metric.is_avg_at_k() { "points" } else { "" };
    let line = words::comparison(&compared.comparison);
    let headline = [word.words(), &line].map(text::visible).join(": ");
    Pictures { headline, figures: vec![difference(x, rows.collect())] }
}

/// The second picture is left out where the runs have no course.
pub fn of_tracked(comparison: &TrackedComparison) -> Pictures {
    let sign = if comparison.asked.lower_is_better { -1.0 } else { 1.0 };
    let estimate = comparison.estimate.as_ref().filter(|estimate| estimate.medians.is_none());
    let rows = estimate.map(|estimate| IntervalRow {
        label: "B is better by".to_owned(),
        style: 1,
        centre: Some(estimate.difference),
        interval: estimate.interval.map(|it| (it.low, it.high)),
        margin: estimate.equivalence.as_ref().map(|equivalence| equivalence.margin),
        ..IntervalRow::default()
    });
    let values = SIDES.map(|(side, style)| IntervalRow {
        label: side.to_string(),
        style,
        runs: of_side(comparison, side).map(|run| run.value).collect(),
        ..IntervalRow::default()
    });
    let x = text::visible(&comparison.metric);
    let values = Panel::Intervals(Intervals {
        title: "each run".to_owned(),
        x: if comparison.asked.to_level.is_some() {
            comparison.asked.at.clone()
        } else {
            x.clone()
        },
        around_zero: false,
        rows: values.into(),
    });
    let mut figure = difference(&x, rows.into_iter().collect());
    if sign < 0.0 {
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
    Figure {
        id: "difference".to_owned(),
        caption: "B − A with its interval; the margin, if one was given, is shaded.".to_owned(),
        panels: vec![Panel::Intervals(Intervals {
            title: "B − A".to_owned(),
            x: x.to_owned(),
            around_zero: true,
            rows,
        })],
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
    let legend =
        lines.iter().map(|line| LegendEntry { style: line.style, label: line.label.clone() });
    let (metric, clock) =
        [&comparison.metric, &comparison.asked.at].map(|name| text::visible(name)).into();
    Figure {
        id: "courses".to_owned(),
        caption: format!(
            "{metric} over {clock}, up to the budget: thin lines are runs, thick ones means where all runs of a side \
             have the same points."
        ),
        legend: legend.collect(),
        panels: vec![Panel::Curves(Curves {
            title: metric.clone(),
            x: clock,
            lines: lines.into(),
            ..Curves::default()
        })],
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
