//! One HTML file that loads nothing. askama leaves only the style sheet, [`Page::script`], pictures and what `coded` escapes.

use crate::report::page::{self, Block, Column, Curves, Figure, Page, Panel, PanelSize, TableCell};
use crate::report::{axes, figures, text};
use askama::Template;

#[derive(Template)]
#[template(path = "page.html")]
struct Whole<'a> {
    page: &'a Page,
}

#[derive(Template)]
#[template(path = "block.html")]
struct Piece<'a> {
    block: &'a Block,
}

pub const STYLE: &str = include_str!("templates/page.css");

pub fn render(page: &Page) -> String {
    Whole { page }.render().expect("writing to a string cannot fail")
}

fn block(block: &Block) -> String {
    Piece { block }.render().expect("writing to a string cannot fail")
}

/// Keeps a number and its unit on one line.
fn together(text: &str) -> String {
    let pairs = [
        (" %", "\u{a0}%"),
        (" = ", "\u{a0}=\u{a0}"),
        (" × ", "\u{a0}×\u{a0}"),
        ("Fig. ", "Fig.\u{a0}"),
    ];
    let replaced = |text: String, (apart, close)| text.replace(apart, close);
    coded(&pairs.into_iter().fold(text.to_owned(), replaced))
}

fn coded(text: &str) -> String {
    let parts: Vec<String> = text.split('`').map(axes::escape).collect();
    if parts.len().is_multiple_of(2) {
        return parts.join("`");
    }
    let part = |(index, part): (usize, &String)| {
        if index.is_multiple_of(2) { part.clone() } else { format!("<code>{part}</code>") }
    };
    parts.iter().enumerate().map(part).collect()
}

fn class(cell: &TableCell, column: &Column) -> String {
    let number = if column.numeric { "number " } else { "" };
    format!("{number}{}", cell.look.class()).trim().to_owned()
}

fn picture(figure: &Figure, panel: &Panel) -> String {
    let title = [figure.title.as_str(), panel.title()].into_iter().filter(|part| !part.is_empty());
    let title = text::joined(title, ": ");
    figures::panel(panel, format!("{title}. {}", figure.caption).trim_end())
}

/// Lines that the figure's legend does not name: a published curve has its own styles.
fn keys(figure: &Figure, panel: &Panel) -> Vec<(usize, String)> {
    match panel {
        Panel::Curves(curves) if curves.size == PanelSize::Small => Vec::new(),
        Panel::Curves(curves) if curves.published || figure.legend.is_empty() => {
            page::legend(&curves.lines)
        }
        _ => Vec::new(),
    }
}

fn layout(figure: &Figure) -> &'static str {
    match figure.panels.as_slice() {
        [Panel::Curves(Curves { size: PanelSize::Small, .. }), ..] => "panels many",
        [Panel::Intervals(_), Panel::Curves(_), ..] => "panels lead",
        [_] => "panels one",
        _ => "panels",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::{Table, row};

    #[test]
    fn what_stands_between_backticks_is_code_and_nothing_is_markup() {
        assert_eq!(coded("set `a<b>`, 5 %"), "set <code>a&lt;b&gt;</code>, 5 %");
        assert_eq!(coded("<i>` alone"), "&lt;i&gt;` alone");
        let list = block(&Block::List(vec!["set `a`".to_owned()]));
        assert!(list.contains("<li>set <code>a</code></li>"), "{list}");
    }

    /// The style sheet shows them where a window is too narrow for the columns.
    #[test]
    fn a_cell_has_the_name_of_its_column() {
        let table =
            Table::new("scores", "arm | mean, % # | | verdict", [row!["a", "1.0", "b", "hurts"]]);
        let shown = block(&Block::Table(table));
        assert!(shown.contains("<td class=\"number\" data-label=\"mean, %\"><span>1.0"), "{shown}");
        assert!(shown.contains("<td><span>b"), "{shown}");
        assert!(shown.contains("<td data-label=\"verdict\">"), "{shown}");
    }
}
