//! The report as Markdown, for terminals and code review: the same page as the HTML, with each
//! figure as its caption and its table of numbers. Foreign text is neutralised: no HTML, no
//! links, no markup.

use crate::report::Look;
use crate::report::run::markdown::{escape, fenced};
use crate::report::study::page::{Block, Page, Table};
use std::fmt::Write;

/// The whole page.
pub fn render(page: &Page) -> String {
    let mut out = format!("# DAPO study report: {}\n\n", escape(&page.title));
    let _ = writeln!(out, "{} · **{}**\n", escape(&page.subtitle), page.state);
    let _ = writeln!(out, "**Question.** {}\n", escape(&page.question));
    let _ = writeln!(out, "**Answer.** {}\n", escape(&page.headline));
    for alert in &page.alerts {
        let _ = writeln!(out, "> **{}**\n", escape(alert));
    }
    for tile in &page.tiles {
        let (label, value, note) = (escape(&tile.label), escape(&tile.value), escape(&tile.note));
        let _ = writeln!(out, "- {label}: **{value}** ({note})");
    }
    for section in &page.sections {
        let _ = writeln!(out, "\n## {}\n", escape(&section.title));
        for block in &section.blocks {
            render_block(&mut out, block);
        }
    }
    // Blocks end with an empty line; a file ends with one line end.
    format!("{}\n", out.trim_end())
}

fn render_block(out: &mut String, block: &Block) {
    match block {
        Block::Heading(title) => {
            let _ = writeln!(out, "### {}\n", escape(title));
        }
        Block::Text(paragraph) => {
            let _ = writeln!(out, "{}\n", escape(paragraph));
        }
        Block::List(lines) => {
            for line in lines {
                let _ = writeln!(out, "- {}", escape(line));
            }
            out.push('\n');
        }
        Block::Table(grid) | Block::Folded(grid) => {
            let _ = writeln!(out, "{}\n", escape(&grid.caption));
            table(out, grid);
        }
        Block::Figure(figure) => {
            let _ = writeln!(out, "#### {}\n", escape(&figure.title));
            let _ = writeln!(out, "{}\n", escape(&figure.caption));
            table(out, &figure.numbers);
        }
        Block::Code(lines) => fenced(out, lines),
        Block::More(summary, blocks) => {
            let _ = writeln!(out, "### {}\n", escape(summary));
            blocks.iter().for_each(|block| render_block(out, block));
        }
    }
}

fn table(out: &mut String, grid: &Table) {
    let names: Vec<String> = grid.columns.iter().map(|column| escape(&column.name)).collect();
    let rules: Vec<&str> =
        grid.columns.iter().map(|column| if column.numeric { "---:" } else { "---" }).collect();
    let _ = writeln!(out, "| {} |\n| {} |", names.join(" | "), rules.join(" | "));
    for row in &grid.rows {
        let cells: Vec<String> = row
            .iter()
            .enumerate()
            .map(|(index, cell)| match (index, cell.look, cell.text.as_str()) {
                (_, _, "") => String::new(),
                (0, _, text) | (_, Look::Strong, text) => format!("**{}**", escape(text)),
                (_, _, text) => escape(text),
            })
            .collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
}
