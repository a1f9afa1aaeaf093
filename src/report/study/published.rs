//! The paper's results and the re-runs, beside which ours stand.

use crate::experiment::PaperRow;
use crate::report::study::page::{Block, Column, Table};
use crate::report::{Look, TableCell, text};
use crate::study::paper;

/// A re-run of the authors → the row of Table 1 with the same techniques, or the nearest one
/// (the remark of the re-runs says which is only near).
const RERUNS: [(&str, &str); 3] = [
    ("DAPO", "+ Dynamic Sampling (DAPO)"),
    ("DAPO without Dynamic Sampling", "+ Token-level Loss"),
    ("DAPO without Token-level Loss and Dynamic Sampling", "+ Soft Overlong Punishment"),
];

/// A published value that an arm stands beside.
pub struct Published {
    /// Percent.
    pub value: f64,
    /// Against the row above, where the row adds a technique to it.
    pub step: Option<f64>,
    /// The authors' own re-run, percent.
    pub rerun: Option<f64>,
}

/// What was published for a row; `None` for a row that no table has.
pub fn beside(paper: &PaperRow) -> Option<Published> {
    let rows = &paper::table_1().rows;
    let place = rows.iter().position(|row| row.label == paper.row)?;
    let row = &rows[place];
    let above = place.checked_sub(1).filter(|_| row.technique.is_some()).map(|at| rows[at].value);
    let name = RERUNS.iter().find(|(_, of)| *of == paper.row).map(|(name, _)| *name);
    let reruns = &paper::authors_reruns().rows;
    let rerun = reruns.iter().find(|row| Some(row.label.as_str()) == name).map(|row| row.value);
    Some(Published { value: row.value, step: above.map(|above| row.value - above), rerun })
}

/// Every published table, as it was published.
pub fn tables() -> Vec<Block> {
    paper::tables().iter().map(|table| Block::Folded(published(table))).collect()
}

fn published(table: &paper::Table) -> Table {
    let mut above: Option<f64> = None;
    let rows = table.rows.iter().map(|row| {
        let step = row.technique.as_ref().and(above).map(|above| row.value - above);
        above = Some(row.value);
        let uncertainty =
            row.uncertainty.map_or(String::new(), |width| format!(" ± {}", text::number(width)));
        let values: Vec<f64> = [Some(row.value), row.uncertainty].into_iter().flatten().collect();
        vec![
            TableCell::plain(&row.label),
            TableCell::value(format!("{}{uncertainty}", text::number(row.value)), values)
                .looking(Look::Strong),
            step.map_or(TableCell::plain(""), |step| {
                TableCell::value(format!("+{}", text::number(step)), [step])
            }),
        ]
    });
    Table {
        rows: rows.collect(),
        caption: format!(
            "Published: {} ({}, {}). {} Uncertainty: {} Source: {}.",
            table.title,
            table.benchmark,
            table.metric,
            sentence(&table.remark),
            sentence(&table.uncertainty),
            table.source
        ),
        columns: vec![
            Column::text("row"),
            Column::number(table.unit.clone()),
            Column::number("against the row above"),
        ],
    }
}

/// With an end.
pub fn sentence(text: &str) -> String {
    match text.ends_with(['.', '?', '!']) {
        true => text.to_owned(),
        false => format!("{text}."),
    }
}

/// What our scores and the paper's have in common, and what not. For the page, once.
pub fn comparability(embedded: bool) -> &'static str {
    match embedded {
        true => {
            "No score here can be set against a score of the paper: ours are shares of three-digit \
             arithmetic problems solved by a model of under a million parameters, the paper\u{2019}s \
             are AIME 2024 with a model of 32 billion. What can be compared is the sign and the \
             order of the steps, and the course of the training metrics."
        }
        false => {
            "These scores can be set against the paper\u{2019}s only where model, problems, prompt \
             and sampling are the paper\u{2019}s; sign and order of the steps can be compared in any case."
        }
    }
}
