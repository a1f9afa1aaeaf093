//! Sections as plain text for a terminal. Foreign text is made visible where a page is built.

use crate::report::page::{Block, Section, Table};
use crate::report::text;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, presets};
use textwrap::{Options, WordSplitter};

/// A column of text is not narrowed below it while one marked `?` can be left out, nor below `LEAST` while another can.
const NARROWEST: usize = 24;
const LEAST: usize = 6;

/// Lines are at most `width` columns wide; but for code, numbers, and words that are wider.
pub fn render(sections: &[Section], width: Option<usize>) -> String {
    let mut out = String::new();
    for section in sections {
        if !out.is_empty() {
            out.push('\n');
        }
        out += &wrapped(&section.title, width, ["", ""]);
        section.blocks.iter().for_each(|block| push_block(&mut out, block, width));
    }
    out
}

fn push_block(out: &mut String, block: &Block, width: Option<usize>) {
    match block {
        Block::Heading(text) => *out += &format!("\n{}", wrapped(text, width, ["  ", "  "])),
        Block::Text(text) => *out += &wrapped(text, width, ["  ", "  "]),
        Block::List(lines) => {
            lines.iter().for_each(|line| *out += &wrapped(line, width, ["  - ", "    "]));
        }
        Block::Table(table) | Block::Folded(table) => push_table(out, table, width),
        Block::Figure(figure) => push_table(out, &figure.numbers, width),
        Block::Code(text) => text.lines().for_each(|line| *out += &format!("    {line}\n")),
        Block::More(summary, blocks) => {
            *out += &format!("\n{}", wrapped(summary, width, ["  ", "  "]));
            blocks.iter().for_each(|block| push_block(out, block, width));
        }
    }
}

fn push_table(out: &mut String, shown: &Table, width: Option<usize>) {
    if !shown.caption.is_empty() {
        *out += &wrapped(&shown.caption, width, ["  ", "  "]);
    }
    *out += &table(shown, width);
}

/// Each line of a text, broken between words, with the indents of its first and its further lines.
pub fn wrapped(text: &str, width: Option<usize>, [first, further]: [&str; 2]) -> String {
    let line = |line: &str| match width {
        None => format!("{first}{line}\n"),
        Some(width) => {
            let options = Options::new(width).initial_indent(first).subsequent_indent(further);
            let options = options.break_words(false).word_splitter(WordSplitter::NoHyphenation);
            textwrap::fill(&line.replace(" %", KEPT_PERCENT), options).replace(KEPT_PERCENT, " %")
                + "\n"
        }
    };
    if text.is_empty() { line("") } else { text.lines().map(line).collect() }
}

const KEPT_PERCENT: &str = "\u{a0}%";

/// Lines of their own indents, whose further lines are indented by two more.
pub fn prose(text: &str, width: Option<usize>) -> String {
    let line = |line: &str| {
        let (indent, words) = line.split_at(line.len() - line.trim_start().len());
        wrapped(words, width, [indent, &format!("{indent}  ")])
    };
    text.lines().map(line).collect()
}

/// Numbers are set to the right. In a narrow terminal columns marked `?` are left out from the right, which a
/// line below says, and then cells of text are wrapped.
pub fn table(shown: &Table, width: Option<usize>) -> String {
    let kept = kept(shown, width);
    let mut table = comfy_table::Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(width.min(1000) as u16);
    }
    table.set_header(kept.iter().map(|column| shown.columns[*column].name.as_str()));
    for row in &shown.rows {
        let cell = |column: &usize| row.get(*column).map_or("", |cell| cell.text.as_str());
        table.add_row(kept.iter().map(cell));
    }
    for (place, column) in table.column_iter_mut().zip(&kept) {
        place.set_padding((2, 0));
        if shown.columns[*column].numeric {
            place.set_cell_alignment(CellAlignment::Right);
        }
        if least(shown, *column, NARROWEST) == widest(shown, *column) {
            place.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    let mut out = table.trim_fmt() + "\n";
    if kept.len() < shown.columns.len() {
        let hidden = (0..shown.columns.len()).filter(|column| !kept.contains(column));
        let names = text::listed(hidden.map(|column| &shown.columns[column].name));
        let line = format!("(--wide also shows {names})");
        out += &wrapped(&line, width, ["  ", "  "]);
    }
    out
}

fn kept(shown: &Table, width: Option<usize>) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..shown.columns.len()).collect();
    let has_wide = shown.columns.iter().any(|column| column.optional);
    for floor in [NARROWEST, LEAST] {
        let is_wide = |kept: &[usize]| {
            let least = kept.iter().map(|column| least(shown, *column, floor) + 2).sum::<usize>();
            width.is_some_and(|most| least > most)
        };
        let any_can_go = has_wide && floor == LEAST;
        let can_go =
            |column: &usize| shown.columns[*column].optional || (any_can_go && *column > 0);
        while is_wide(&kept)
            && let Some(at) = kept.iter().rposition(can_go)
        {
            kept.remove(at);
        }
    }
    kept
}

fn least(shown: &Table, column: usize, floor: usize) -> usize {
    let widest = widest(shown, column);
    if shown.columns[column].numeric || widest <= NARROWEST { widest } else { floor }
}

fn widest(shown: &Table, column: usize) -> usize {
    let cells = shown.rows.iter().filter_map(|row| Some(row.get(column)?.text.as_str()));
    let cells = cells.chain([shown.columns[column].name.as_str()]);
    cells.map(textwrap::core::display_width).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::row;

    #[test]
    fn a_narrow_terminal_leaves_out_what_is_optional_and_says_so() {
        let shown =
            Table::new("", "run | seed # ? | steps #? | state", [row!["a", "7", "40", "done"]]);
        assert_eq!(table(&shown, None), "  run  seed  steps  state\n  a       7     40  done\n");
        let narrow = "  run  seed  state\n  a       7  done\n  (--wide also shows\n  steps)\n";
        assert_eq!(table(&shown, Some(24)), narrow);
        assert!(table(&shown, Some(12)).starts_with("  run  state\n"));
        let path = "runs/a-long-name/of-an-arm-and-seed";
        let shown = Table::new("", "run | steps # | state ?", [row![path, "40", "unfinished"]]);
        let [narrow, least] = [18, 12].map(|width| table(&shown, Some(width)));
        assert!(narrow.lines().next().unwrap().split_whitespace().eq(["run", "steps"]), "{narrow}");
        assert!(least.lines().next().unwrap().trim() == "run" && least.lines().count() < 12);
        assert!(least.contains("steps") && least.contains("state)"), "{least}");
    }

    #[test]
    fn a_narrow_terminal_wraps_text_between_words_and_never_a_number() {
        let row = row!["records", "1,234", "all of them against their digests and each other"];
        let shown = Table::new("", "check | count # | compared", [row]);
        let narrow = table(&shown, Some(44));
        assert!(narrow.lines().all(|line| line.chars().count() <= 44), "{narrow}");
        assert!(narrow.contains("  records  1,234  all of them against"), "{narrow}");
        let words: Vec<&str> = narrow.split_whitespace().collect();
        let all =
            "check count compared records 1,234 all of them against their digests and each other";
        assert_eq!(words.join(" "), all);
    }

    #[test]
    fn prose_is_wrapped_below_its_indent() {
        assert_eq!(wrapped("one two three", Some(9), ["- ", "  "]), "- one two\n  three\n");
        assert_eq!(wrapped("one\n\ntwo", None, ["", ""]), "one\n\ntwo\n");
        assert_eq!(wrapped("of 12 95 % now", Some(9), ["", ""]), "of 12\n95 % now\n");
    }
}
