//! One self-contained HTML file: its style and pictures are inside, it runs no script and loads
//! nothing. askama escapes every value; only the SVG of `charts` is inserted as it is.

use crate::report::study::page::{Block, Column, Figure, Page, Table};
use crate::report::study::{charts, row_charts};
use crate::report::{Panel, TableCell};
use askama::Template;

#[derive(Template)]
#[template(path = "study.html")]
struct Whole<'a> {
    page: &'a Page,
    style: &'static str,
    study_style: &'static str,
}

#[derive(Template)]
#[template(path = "study_block.html")]
struct Piece<'a> {
    block: &'a Block,
}

/// The style of the page and its pictures: what reports share, and what a study's adds.
pub const STYLES: [&str; 2] =
    [include_str!("../templates/report.css"), include_str!("../templates/study.css")];

/// The page.
///
/// # Panics
/// Never on a page: writing to a string cannot fail.
pub fn render(page: &Page) -> String {
    let [style, study_style] = STYLES;
    let whole = Whole { page, style, study_style };
    whole.render().expect("writing to a string cannot fail")
}

fn render_block(block: &Block) -> String {
    Piece { block }.render().expect("writing to a string cannot fail")
}

/// Keeps a number and its unit on one line.
fn together(text: &str) -> String {
    text.replace(" %", "\u{a0}%").replace(" = ", "\u{a0}=\u{a0}").replace("Fig. ", "Fig.\u{a0}")
}

impl Whole<'_> {
    fn together(&self, text: &str) -> String {
        together(text)
    }

    fn block(&self, block: &Block) -> String {
        render_block(block)
    }
}

impl Piece<'_> {
    fn together(&self, text: &str) -> String {
        together(text)
    }

    fn inner(&self, block: &Block) -> String {
        render_block(block)
    }

    fn class(&self, cell: &TableCell, column: &Column) -> String {
        let number = if column.numeric { "number " } else { "" };
        format!("{number}{}", cell.look.class()).trim().to_owned()
    }

    fn cells<'b>(
        &self,
        table: &'b Table,
        row: &'b [TableCell],
    ) -> Vec<(bool, &'b Column, &'b TableCell)> {
        let columns = table.columns.iter().zip(row).enumerate();
        columns.map(|(index, (column, cell))| (index == 0, column, cell)).collect()
    }

    fn picture(&self, figure: &Figure, panel: &Panel) -> String {
        let title = panel_title(panel);
        let description = match title.is_empty() {
            true => format!("{}. {}", figure.title, figure.caption),
            false => format!("{}: {title}. {}", figure.title, figure.caption),
        };
        charts::panel(panel, &description)
    }

    fn title<'b>(&self, panel: &'b Panel) -> &'b str {
        panel_title(panel)
    }

    fn key(&self, style: &usize) -> String {
        charts::key(*style)
    }

    fn shades(&self) -> String {
        row_charts::shades()
    }

    fn is_heat(&self, figure: &Figure) -> bool {
        figure.panels.iter().any(|panel| matches!(panel, Panel::Heat(_)))
    }

    /// A published curve has its own line style, which is explained beside it.
    fn keys_of<'b>(&self, panel: &'b Panel) -> Vec<(usize, &'b str)> {
        match panel {
            Panel::Curves(curves) if curves.published => {
                curves.lines.iter().map(|line| (line.style, line.label.as_str())).collect()
            }
            _ => Vec::new(),
        }
    }

    fn layout(&self, figure: &Figure) -> &'static str {
        match figure.panels.as_slice() {
            [_] => "panels one",
            [Panel::Curves(_), Panel::Curves(_), _, ..] => "panels lead",
            _ => "panels",
        }
    }
}

fn panel_title(panel: &Panel) -> &str {
    match panel {
        Panel::Curves(curves) => &curves.title,
        Panel::Changes(changes) => &changes.title,
        Panel::Intervals(intervals) => &intervals.title,
        Panel::Heat(_) => "",
    }
}
