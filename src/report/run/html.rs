//! One self-contained HTML file: its style and pictures are inside, it runs no script and
//! loads nothing. askama escapes every value; only the SVG of `plots` is inserted as it is.

use crate::report::run::document::Block;
use crate::report::run::figures::{Figure, Line};
use crate::report::run::plots;
use crate::report::run::samples::Kind;
use crate::report::{Cell, Document, Grid, SampleRollout, Strip, text};
use askama::Template;

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    document: &'a Document<'a>,
    style: &'static str,
}

struct Row<'a> {
    opens: bool,
    cells: Vec<ShownCell<'a>>,
}

struct ShownCell<'a> {
    class: String,
    text: &'a str,
    spark: Option<String>,
}

/// The page.
///
/// # Panics
/// Never on a report: writing to a string cannot fail.
pub fn render(document: &Document) -> String {
    let page = Page { document, style: include_str!("../templates/report.css") };
    page.render().expect("writing to a string cannot fail")
}

impl Page<'_> {
    fn our_chart(&self, figure: &Figure, size: (f64, f64)) -> String {
        let description = format!("{}, this run, over {}", figure.title, figure.x);
        plots::chart(
            &figure.ours,
            &plots::Style {
                description: &description,
                unit: figure.unit,
                family: "ours",
                doubling: figure.x == "k",
                size,
            },
        )
    }

    fn paper_chart(&self, figure: &Figure) -> String {
        let name = figure.paper_figure.unwrap_or_default();
        let description = format!("{}, the paper's Fig. {name}, over updates", figure.title);
        plots::chart(
            &figure.paper,
            &plots::Style {
                description: &description,
                unit: figure.paper_unit,
                family: "paper",
                doubling: false,
                size: plots::WIDE,
            },
        )
    }

    fn strip(&self, strip: &Strip) -> String {
        plots::strip(strip)
    }

    fn legend<'b>(&self, lines: &'b [Line]) -> Vec<(usize, &'b str)> {
        lines.iter().enumerate().map(|(index, line)| (index, line.label.as_str())).collect()
    }

    /// Keeps a number and its unit on one line.
    fn together(&self, text: &str) -> String {
        text.replace(" %", "\u{a0}%")
            .replace(" × ", "\u{a0}×\u{a0}")
            .replace(" = ", "\u{a0}=\u{a0}")
    }

    fn is_narrow(&self, grid: &Grid) -> bool {
        grid.columns.len() <= 3
    }

    fn heading<'b>(&self, column: &'b str) -> &'b str {
        column.trim_end_matches('#').trim_end()
    }

    fn is_number(&self, column: &str) -> bool {
        column.ends_with('#')
    }

    /// A row whose first cell repeats the one above shows it once.
    fn rows<'b>(&self, grid: &'b Grid) -> Vec<Row<'b>> {
        let opens = |row: usize| row == 0 || grid.rows[row][0].text != grid.rows[row - 1][0].text;
        let shown = |row: usize, column: usize, cell: &'b Cell| {
            let number = if self.is_number(grid.columns[column]) { "number " } else { "" };
            ShownCell {
                class: format!("{number}{}", cell.look),
                text: if column > 0 || opens(row) { &cell.text } else { "" },
                spark: cell.spark.as_deref().map(plots::sparkline),
            }
        };
        let rows = grid.rows.iter().enumerate().map(|(row, cells)| Row {
            opens: opens(row),
            cells: cells
                .iter()
                .enumerate()
                .map(|(column, cell)| shown(row, column, cell))
                .collect(),
        });
        rows.collect()
    }

    fn facts(&self, sample: &SampleRollout) -> Vec<(&'static str, String)> {
        let mut facts = vec![
            ("tokens", text::grouped(sample.response_tokens as u64)),
            ("reward", text::signed(sample.correctness_reward, 0)),
        ];
        if sample.overlong_penalty != 0.0 {
            facts.push(("penalty", text::number(sample.overlong_penalty)));
        }
        facts.push(("advantage", text::signed(sample.advantage, 2)));
        if let Some(mean) = sample.mean_log_prob {
            facts.push(("mean log-prob", text::signed(mean, 3)));
        }
        facts.push(("trained on", if sample.trained { "yes" } else { "no" }.to_owned()));
        facts
    }

    fn kind(&self, sample: &SampleRollout) -> &'static str {
        sample.kind.name()
    }
}

impl Kind {
    /// One word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Correct => "correct",
            Self::Wrong => "wrong",
            Self::Truncated => "truncated",
        }
    }
}
