//! The paper's results and re-runs beside ours.

use crate::experiment::PaperRow;
use crate::report::page::{CurveLine, Curves, Look, Table, row};
use crate::report::text;
use crate::study::paper::{self, PublishedCurve, PublishedTable};

/// A re-run of the authors → the nearest row of Table 1 (the remark of the re-runs says which differ).
const RERUNS: [(&str, &str); 3] = [
    ("DAPO", "+ Dynamic Sampling (DAPO)"),
    ("DAPO without Dynamic Sampling", "+ Token-level Loss"),
    ("DAPO without Token-level Loss and Dynamic Sampling", "+ Soft Overlong Punishment"),
];

pub const NO_SPREAD: &str = "The size of a step of the paper\u{2019}s Table 1 cannot be tested against it: each row is one \
     run without spread, and the authors\u{2019} own later runs differ from it by as much as a step.";

pub const EMBEDDED: &str = "arithmetic for models of at most about a million parameters, so that no \
                            score can be compared with one of the paper";

pub struct Published {
    /// Percent.
    pub value: f64,
    /// Against the row above, if it adds one technique.
    pub step: Option<f64>,
    /// The authors' own, percent.
    pub rerun: Option<f64>,
}

pub fn beside(paper: &PaperRow) -> Option<Published> {
    let rows = &paper::table_1().rows;
    let place = rows.iter().position(|row| row.label == paper.row)?;
    let row = &rows[place];
    let above = place.checked_sub(1).filter(|_| row.technique.is_some()).map(|at| rows[at].value);
    let name = RERUNS.iter().find(|(_, of)| *of == paper.row).map(|(name, _)| *name);
    let reruns = &paper::table("authors-reruns").rows;
    let rerun = reruns.iter().find(|row| Some(row.label.as_str()) == name).map(|row| row.value);
    Some(Published { value: row.value, step: above.map(|above| row.value - above), rerun })
}

pub fn table(table: &PublishedTable) -> Table {
    let mut above: Option<f64> = None;
    let rows = table.rows.iter().map(|row| {
        let step = row.technique.as_ref().and(above).map(|above| row.value - above);
        above = Some(row.value);
        let around = row.uncertainty.map(|width| format!(" ± {}", text::number(width)));
        let shown = format!("{}{}", text::number(row.value), around.unwrap_or_default());
        let step = step.map_or(String::new(), |step| format!("+{}", text::number(step)));
        row![&row.label, Look::Strong.of(shown), step]
    });
    let caption = format!(
        "Published: {} ({}, {}). {} Uncertainty: {} Source: {}.",
        table.title,
        table.benchmark,
        table.metric,
        text::sentence(&table.remark),
        text::sentence(&table.uncertainty),
        table.source
    );
    Table::new(caption, &format!("row | {} # | against the row above #", table.unit), rows)
}

/// `None` for a figure that was not digitised.
pub fn curves(name: &str) -> Option<Curves> {
    let published = paper::figure(name);
    let first = published.first()?;
    // Fig. 1 has three statistics of one run; we plot avg@32.
    let shown = if name == "1" { 1 } else { published.len() };
    let line = |(style, curve): (usize, &&PublishedCurve)| CurveLine {
        label: curve.label.clone(),
        style,
        centre: curve.in_print(),
        ..CurveLine::default()
    };
    let percent = matches!(first.y_unit.as_str(), "share" | "percent");
    let title = format!("the paper\u{2019}s Fig. {name}");
    let unit = if percent { "%" } else { &first.y_unit };
    let lines = published.iter().take(shown).enumerate().map(line).collect();
    Some(Curves { published: true, ..Curves::new(title, &first.x_unit, unit, lines) })
}

/// What our scores and the paper's have in common.
pub fn comparability(embedded: bool) -> &'static str {
    if embedded {
        "No score here can be compared with a score of the paper: ours are shares of \
             arithmetic problems solved by models of at most about a million parameters, the paper\u{2019}s \
             are AIME 2024 with a model of 32 billion. What can be compared is the sign and the \
             order of the steps, and the course of the training metrics."
    } else {
        "These scores can be compared with the paper\u{2019}s only where model, problems, prompt \
             and sampling are the paper\u{2019}s; sign and order of the steps can be compared in any case."
    }
}
