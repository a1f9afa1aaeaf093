//! Curves of the run beside the paper's, and its metrics over time.

use crate::report::page::{
    self, Block, CurveLine, Curves, Figure, Look, Panel, Section, Table, TableCell, row,
};
use crate::report::run::Report;
use crate::report::run::figures::{FigureLine, RunFigure};
use crate::report::{ShownMetric, published, text};
use crate::study::paper;

const SPARKLINE_COLUMNS: usize = 32;

/// The score, and the curve after it.
pub fn learning(report: &Report) -> Section {
    let recorded = report.figures.iter().filter(|figure| !figure.ours.is_empty());
    let first: Vec<RunFigure> = recorded.take(2).cloned().collect();
    let nothing = || Block::text("No evaluation and no rollout step is recorded yet.");
    let curves = together("learning-curves", "", &first).unwrap_or_else(nothing);
    Section::new("learning", "Learning curves", vec![curves])
}

pub fn beside_the_paper(report: &Report) -> Section {
    let intro = format!(
        "The panels “this run” show this run, the others the paper\u{2019}s own curves, for their shape alone and with axes \
         of their own. Model, data and length limit differ, so no height in the one can be read against a height in the \
         other. x counts updates (optimiser steps) in both. Paper: {}; x is exact to one update, in Figs 1 and 7 to 80.",
        paper::curves_source()
    );
    let figures = report.figures.iter().map(|figure| Block::Figure(with_the_papers(figure)));
    let blocks = [Block::Text(intro)].into_iter().chain(figures).collect();
    Section::new("curves", "Training curves beside the paper\u{2019}s", blocks)
}

fn with_the_papers(figure: &RunFigure) -> Figure {
    let name = figure.paper_figure.unwrap_or_default();
    let of_paper = format!("the paper\u{2019}s Fig. {name}");
    let own = figure.ours.iter().map(|line| ("this run", line));
    let lines = own.chain(figure.paper.iter().map(|line| (of_paper.as_str(), line)));
    let panels = [own_panel(figure, "this run")].into_iter().chain(published::curves(name));
    Figure {
        id: format!("curves-{name}"),
        title: figure.title.clone(),
        caption: figure.remark.clone(),
        panels: panels.map(Panel::Curves).collect(),
        numbers: courses(figure.unit, "run", lines.map(|(of, line)| course_row(line, of))),
        ..Figure::default()
    }
}

pub fn own_panel(figure: &RunFigure, title: &str) -> Curves {
    let lines = figure.ours.iter().enumerate();
    let lines = lines.map(|(style, line)| own_line(line, style, figure.unit == "%")).collect();
    Curves { doubling: figure.x == "k", ..Curves::new(title, figure.x, figure.unit, lines) }
}

fn own_line(line: &FigureLine, style: usize, is_percent: bool) -> CurveLine {
    let cut = |value: f64| if is_percent { value.clamp(0.0, 100.0) } else { value };
    let around = line.points.iter().zip(&line.half_widths);
    CurveLine {
        label: line.label.clone(),
        // Blue first; black is an arm that studies share.
        style: style + 10,
        centre: line.points.clone(),
        band: around
            .filter_map(|((x, y), half)| half.map(|half| (*x, cut(y - half), cut(y + half))))
            .collect(),
        ..CurveLine::default()
    }
}

/// One panel for each quantity.
pub fn together(id: &str, title: &str, figures: &[RunFigure]) -> Option<Block> {
    let panels = figures.iter().map(|figure| own_panel(figure, &figure.title));
    let rows = figures.iter().flat_map(|figure| {
        let quantity = format!("{}, {}", figure.title, figure.unit);
        figure.ours.iter().map(move |line| course_row(line, &quantity))
    });
    (!figures.is_empty()).then(|| {
        Block::Figure(Figure {
            id: id.to_owned(),
            title: title.to_owned(),
            panels: panels.map(Panel::Curves).collect(),
            numbers: courses("the unit of each quantity", "quantity", rows),
            ..Figure::default()
        })
    })
}

fn courses(unit: &str, of: &str, rows: impl Iterator<Item = Vec<TableCell>>) -> Table {
    let columns = format!("line | {of} | first # | {COURSE}");
    Table::new(format!("First to last point, in {unit}."), &columns, rows)
}

const COURSE: &str = "course | last # | lowest # | highest #";

fn course_row(line: &FigureLine, of: &str) -> Vec<TableCell> {
    row![&line.label, of].into_iter().chain(course(&line.points)).collect()
}

fn course(points: &[(f64, f64)]) -> [TableCell; 5] {
    let [first, drawn, last, low, high] = page::course(points, SPARKLINE_COLUMNS, text::number);
    let drawn = TableCell { spark: points.to_vec(), ..drawn };
    [first, drawn, last.looking(Look::Strong), low, high]
}

pub fn dynamics(report: &Report) -> Section {
    let (main, other): (Vec<&ShownMetric>, Vec<&ShownMetric>) =
        report.metrics.iter().partition(|metric| metric.is_main);
    if report.metrics.is_empty() {
        let nothing = Block::text("No rollout step is recorded yet.");
        return Section::new("dynamics", "Dynamics", vec![nothing]);
    }
    let own = together("dynamics-curves", "What the paper does not plot", &report.own_figures);
    let caption = "Metrics, from the first to the last rollout step that recorded them.";
    let columns = format!("metric | meaning | first # | {COURSE}");
    let table = |caption, of: Vec<_>| Table::new(caption, &columns, of.into_iter().map(metric_row));
    let tables =
        [Block::Table(table(caption, main)), Block::Folded(table("The other metrics", other))];
    Section::new("dynamics", "Dynamics", own.into_iter().chain(tables).collect())
}

fn metric_row(metric: &ShownMetric) -> Vec<TableCell> {
    let named = [Look::Code.of(&metric.name), Look::Quiet.of(metric.meaning.unwrap_or("–"))];
    named.into_iter().chain(course(&metric.points)).collect()
}
