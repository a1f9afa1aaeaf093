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

fn push_table(out: &mut String, shown: &Table) {
    if !shown.caption.is_empty() {
        *out += &format!("  {}\n", shown.caption);
    }
    *out += &table(shown, None);
}

/// Columns as wide as their widest cell; numbers are set to the right. Where the lines are wider than
/// `most`, columns are left out from the right, but for the first and the last one.
pub fn table(shown: &Table, most: Option<usize>) -> String {
    let header: Vec<&str> = shown.columns.iter().map(|column| column.name.as_str()).collect();
    let rows = shown.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect());
    let lines: Vec<Vec<&str>> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let mut kept: Vec<usize> = (0..shown.columns.len()).collect();
    while kept.len() > 2
        && most
            .is_some_and(|most| kept.iter().map(|column| width(*column) + 2).sum::<usize>() > most)
    {
        kept.remove(kept.len() - 2);
    }
    let mut out = String::new();
    for line in &lines {
        let mut text = String::new();
        for &column in kept.iter().filter(|column| **column < line.len()) {
            let cell = line[column];
            let padding = " ".repeat(width(column) - cell.chars().count());
            let is_number = shown.columns[column].numeric;
            let (left, right) = if is_number { (&*padding, "") } else { ("", &*padding) };
            text += &format!("  {left}{cell}{right}");
        }
        out += text.trim_end();
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::row;

    #[test]
    fn a_narrow_terminal_keeps_the_first_and_the_last_column() {
        let shown =
            Table::new("", "run | seed # | steps # | state", [row!["a", "7", "40", "done"]]);
        assert_eq!(table(&shown, None), "  run  seed  steps  state\n  a       7     40  done\n");
        assert_eq!(table(&shown, Some(19)), "  run  seed  state\n  a       7  done\n");
        assert_eq!(table(&shown, Some(1)), "  run  state\n  a    done\n");
    }
}
