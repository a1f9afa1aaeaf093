//! Curves of the run beside the paper's, and its metrics over time.

use crate::report::page::{
    self, Block, CurveLine, Curves, Figure, Look, Panel, Section, Table, TableCell, row,
};
use crate::report::run::Report;
use crate::report::run::figures::RunFigure;
use crate::report::{ShownMetric, published, text};
use crate::study::paper;

const SPARKLINE_COLUMNS: usize = 32;

/// The score, and the curve after it.
pub fn learning(report: &Report) -> Section {
    let curves = report.figures.iter().map(|figure| &figure.curves);
    let recorded = curves.filter(|curves| !curves.lines.is_empty());
    let first: Vec<Curves> = recorded.take(2).cloned().collect();
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
    let name = figure.paper_figure;
    let own = Curves { title: "this run".to_owned(), ..figure.curves.clone() };
    let panels: Vec<Curves> = [own].into_iter().chain(published::curves(name)).collect();
    let rows = panels.iter().flat_map(|panel| course_rows(panel, &panel.title));
    Figure {
        id: format!("curves-{name}"),
        title: figure.curves.title.clone(),
        caption: figure.remark.clone(),
        numbers: courses(&figure.curves.unit, "run", rows),
        panels: panels.into_iter().map(Panel::Curves).collect(),
        ..Figure::default()
    }
}

/// One panel for each quantity.
pub fn together(id: &str, title: &str, curves: &[Curves]) -> Option<Block> {
    let rows = curves.iter().flat_map(|panel| {
        let quantity = format!("{}, {}", panel.title, panel.unit);
        course_rows(panel, &quantity)
    });
    (!curves.is_empty()).then(|| {
        Block::Figure(Figure {
            id: id.to_owned(),
            title: title.to_owned(),
            panels: curves.iter().cloned().map(Panel::Curves).collect(),
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

fn course_rows(curves: &Curves, of: &str) -> Vec<Vec<TableCell>> {
    let row = |line: &CurveLine| [row![&line.label, of], course(&line.centre).into()].concat();
    curves.lines.iter().map(row).collect()
}

fn course(points: &[(f64, f64)]) -> [TableCell; 5] {
    let [first, drawn, last, low, high] = page::course(points, SPARKLINE_COLUMNS, text::number);
    [first, drawn, last.looking(Look::Strong), low, high]
}

pub fn dynamics(report: &Report) -> Section {
    let (main, other): (Vec<&ShownMetric>, Vec<&ShownMetric>) =
        report.metrics.iter().partition(|metric| metric.is_main);
    if report.metrics.is_empty() {
        let nothing = Block::text("No rollout step is recorded yet.");
        return Section::new("dynamics", "Dynamics", vec![nothing]);
    }
    let own = together("dynamics-curves", "What the paper does not plot", &report.own_curves);
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
