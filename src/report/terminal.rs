//! Sections as plain text for a terminal. Foreign text is made visible where a page is built.

use crate::report::page::{Block, Section, Table};

pub fn render(sections: &[Section]) -> String {
    let mut out = String::new();
    for section in sections {
        if !out.is_empty() {
            out.push('\n');
        }
        out += &format!("{}\n", section.title);
        section.blocks.iter().for_each(|block| push_block(&mut out, block));
    }
    out
}

fn push_block(out: &mut String, block: &Block) {
    match block {
        Block::Heading(text) => *out += &format!("\n  {text}\n"),
        Block::Text(text) => *out += &format!("  {text}\n"),
        Block::List(lines) => lines.iter().for_each(|line| *out += &format!("  - {line}\n")),
        Block::Table(table) | Block::Folded(table) => push_table(out, table),
        Block::Figure(figure) => push_table(out, &figure.numbers),
        Block::Code(text) => text.lines().for_each(|line| *out += &format!("    {line}\n")),
        Block::More(summary, blocks) => {
            *out += &format!("\n  {summary}\n");
            blocks.iter().for_each(|block| push_block(out, block));
        }
    }
}

/// Columns as wide as their widest cell; numbers are set to the right.
fn push_table(out: &mut String, table: &Table) {
    if !table.caption.is_empty() {
        *out += &format!("  {}\n", table.caption);
    }
    let header: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    let rows = table.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect());
    let lines: Vec<Vec<&str>> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
    };
    for line in &lines {
        let mut text = String::new();
        for (index, (cell, column)) in line.iter().zip(&table.columns).enumerate() {
            let padding = " ".repeat(width(index).unwrap_or(0) - cell.chars().count());
            let (left, right) = if column.numeric { (&*padding, "") } else { ("", &*padding) };
            text += &format!("  {left}{cell}{right}");
        }
        *out += text.trim_end();
        out.push('\n');
    }
}
