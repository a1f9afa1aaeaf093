//! The HTML's page as Markdown: a figure is its caption and table. Foreign text gets no HTML, links or markup.

use crate::report::page::{Block, Look, Page, Section, Table};
use std::fmt::{self, Write};

pub fn render(page: &Page) -> String {
    let mut out = String::new();
    let _ = render_page(&mut out, page);
    format!("{}\n", out.trim_end())
}

pub fn sections(sections: &[Section]) -> String {
    let mut out = String::new();
    let _ = sections.iter().try_for_each(|section| render_section(&mut out, section));
    format!("{}\n", out.trim())
}

fn render_page(out: &mut String, page: &Page) -> fmt::Result {
    writeln!(out, "# DAPO {} report: {}\n", page.kind, escape(&page.title))?;
    writeln!(out, "{} · **{}**\n", escape(&page.subtitle), page.state)?;
    writeln!(out, "**{}**\n", escape(&page.headline))?;
    paragraph(out, &page.status)?;
    for alert in &page.alerts {
        writeln!(out, "> **{}**\n", escape(alert))?;
    }
    for tile in &page.tiles {
        let [label, value, note] = [&tile.label, &tile.value, &tile.note].map(|it| escape(it));
        let note = if note.is_empty() { note } else { format!(" ({note})") };
        writeln!(out, "- {label}: **{value}**{note}")?;
    }
    page.sections.iter().try_for_each(|section| render_section(out, section))
}

fn render_section(out: &mut String, section: &Section) -> fmt::Result {
    writeln!(out, "\n## {}\n", escape(&section.title))?;
    section.blocks.iter().try_for_each(|block| render_block(out, block))
}

fn render_block(out: &mut String, block: &Block) -> fmt::Result {
    match block {
        Block::Heading(title) => writeln!(out, "### {}\n", escape(title)),
        Block::Text(paragraph) => writeln!(out, "{}\n", escape(paragraph)),
        Block::List(lines) => {
            lines.iter().try_for_each(|line| writeln!(out, "- {}", escape(line)))?;
            writeln!(out)
        }
        Block::Table(grid) | Block::Folded(grid) => {
            paragraph(out, &grid.caption)?;
            table(out, grid)
        }
        Block::Figure(figure) => {
            if figure.numbers.rows.is_empty() {
                return Ok(());
            }
            if !figure.title.is_empty() {
                writeln!(out, "#### {}\n", escape(&figure.title))?;
            }
            paragraph(out, &figure.caption)?;
            table(out, &figure.numbers)
        }
        Block::Code(lines) => writeln!(out, "{}", fenced(lines)),
        Block::More(summary, blocks) => {
            writeln!(out, "### {}\n", escape(summary))?;
            blocks.iter().try_for_each(|block| render_block(out, block))
        }
    }
}

fn paragraph(out: &mut String, text: &str) -> fmt::Result {
    if text.is_empty() { Ok(()) } else { writeln!(out, "{}\n", escape(text)) }
}

fn table(out: &mut String, grid: &Table) -> fmt::Result {
    let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    let rule = |numeric: bool| if numeric { "---:" } else { "---" }.to_owned();
    writeln!(out, "{}", line(grid.columns.iter().map(|column| escape(&column.name)).collect()))?;
    writeln!(out, "{}", line(grid.columns.iter().map(|column| rule(column.numeric)).collect()))?;
    for row in &grid.rows {
        let cells =
            row.iter().enumerate().map(|(index, cell)| match (index, cell.look, &*cell.text) {
                (_, _, "") => String::new(),
                (0, _, text) | (_, Look::Strong, text) => format!("**{}**", escape(text)),
                (_, _, text) => escape(text),
            });
        writeln!(out, "{}", line(cells.collect()))?;
    }
    writeln!(out)
}

/// The fence is longer than any run of backticks inside.
fn fenced(content: &str) -> String {
    let longest = content.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{content}\n{fence}\n")
}

fn escape(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    let mut inner = parts.iter().take(parts.len() - 1).skip(1);
    let are_marks = !parts.len().is_multiple_of(2)
        && inner.all(|part| !part.is_empty() && !part.contains(['|', '<', '\n']));
    if !are_marks {
        return escaped(text);
    }
    let part = |(index, part): (usize, &&str)| {
        if index.is_multiple_of(2) { escaped(part) } else { format!("`{part}`") }
    };
    parts.iter().enumerate().map(part).collect()
}

/// Harmless characters stay readable: underscores inside words, brackets around numbers, backslashes before letters.
fn escaped(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut escaped = String::with_capacity(text.len());
    for (index, character) in characters.iter().copied().enumerate() {
        let before = index.checked_sub(1).map(|index| characters[index]);
        let after = characters.get(index + 1).copied();
        let is_word = |neighbour: Option<char>| neighbour.is_some_and(char::is_alphanumeric);
        let acts = match character {
            '|' | '*' | '`' | '~' => true,
            '_' => !(is_word(before) && is_word(after)),
            '[' => !matches!(after, Some('0'..='9' | '−' | '+')),
            ']' => matches!(after, Some('(' | '[' | ':')),
            '\\' => after.is_some_and(|next| next.is_ascii_punctuation()),
            '#' => index == 0,
            _ => false,
        };
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\n' => escaped.push(' '),
            _ if acts => escaped.extend(['\\', character]),
            _ => escaped.push(character),
        }
    }
    // A bare address becomes a link in most renderers.
    escaped.replace("://", "&#58;//")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_foreign_text_is_shown_and_not_obeyed() {
        assert_eq!(
            escape("#<b>|*_`[x](http://a)\n[1](b) \\_"),
            "\\#&lt;b&gt;\\|\\*\\_\\`\\[x\\](http&#58;//a) [1\\](b) \\\\\\_"
        );
        assert_eq!(escape("set `a_*://b` to `_`_"), "set `a_*://b` to `_`\\_");
        assert_eq!(escape("``a`` `b|c`"), "\\`\\`a\\`\\` \\`b\\|c\\`");
        assert_eq!(escape("L_max [82.4, 86.7] \\u{1b}"), "L_max [82.4, 86.7] \\u{1b}");
    }

    #[test]
    fn a_fence_cannot_be_closed_from_inside() {
        assert_eq!(fenced("a ```` b"), "`````text\na ```` b\n`````\n");
    }
}
