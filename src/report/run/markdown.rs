//! The report as Markdown, for terminals and code review: the same document as the HTML, with
//! curves as block characters. Foreign text is neutralised: no HTML, no links, no markup.

use crate::report::run::document::Block;
use crate::report::run::figures::Figure;
use crate::report::{Document, Grid, SampleRollout, Strip, text};
use std::fmt::Write;

const SPARKLINE_COLUMNS: usize = 32;

/// The whole document.
pub fn render(document: &Document) -> String {
    let mut out = format!("# DAPO run report: {}\n\n", escape(&document.title));
    let _ = writeln!(out, "{} · **{}**\n", escape(&document.subtitle), document.state);
    let _ = writeln!(out, "**{}**\n", escape(document.headline));
    let _ = writeln!(out, "{}\n", escape(document.status));
    for alert in &document.alerts {
        let _ = writeln!(out, "> **{}**\n", escape(alert));
    }
    for tile in &document.tiles {
        let _ = writeln!(
            out,
            "- {}: **{}** ({})",
            escape(&tile.label),
            escape(&tile.value),
            escape(&tile.note)
        );
    }
    for section in &document.sections {
        let _ = writeln!(out, "\n## {}\n", section.title);
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
            let _ = writeln!(out, "### {title}\n");
        }
        Block::Text(paragraph) => {
            let _ = writeln!(out, "{}\n", escape(paragraph));
        }
        Block::Grid(grid) => table(out, grid),
        Block::Folded(summary, grid) => {
            let _ = writeln!(out, "{}:\n", escape(summary));
            table(out, grid);
        }
        Block::Beside(figures) => beside(out, figures),
        Block::Charts(figures) => charts(out, figures),
        Block::Strip(rows) => strip(out, rows),
        Block::Samples(samples) => samples.iter().for_each(|one| sample(out, one)),
        Block::Code(lines) => fenced(out, lines),
    }
}

fn table(out: &mut String, grid: &Grid) {
    let names: Vec<String> =
        grid.columns.iter().map(|name| escape(name.trim_end_matches('#').trim_end())).collect();
    let rule = |name: &&str| if name.ends_with('#') { "---:" } else { "---" };
    let rules: Vec<&str> = grid.columns.iter().map(rule).collect();
    let _ = writeln!(out, "| {} |\n| {} |", names.join(" | "), rules.join(" | "));
    for row in &grid.rows {
        let cells: Vec<String> = row
            .iter()
            .map(|cell| match (cell.look, cell.text.as_str()) {
                (_, "") => String::new(),
                ("strong" | "name", text) => format!("**{}**", escape(text)),
                (_, text) => escape(text),
            })
            .collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out.push('\n');
}

fn course(points: &[(f64, f64)]) -> String {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return "not recorded".to_owned();
    };
    let drawn = text::sparkline(points, SPARKLINE_COLUMNS);
    format!("{} {drawn} {}", text::number(first.1), text::number(last.1))
}

fn beside(out: &mut String, figures: &[Figure]) {
    out.push_str("| quantity | unit | this run: first, course, last | Fig. | the paper: first, course, last |\n");
    out.push_str("| --- | --- | --- | --- | --- |\n");
    for figure in figures {
        let ours: Vec<String> = match figure.ours.as_slice() {
            [] => vec!["not recorded".to_owned()],
            [line] => vec![course(&line.points)],
            lines => lines
                .iter()
                .map(|line| format!("{}: {}", escape(&line.label), course(&line.points)))
                .collect(),
        };
        let paper = figure.paper.first().map(|line| course(&line.points)).unwrap_or_default();
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {paper} |",
            escape(&figure.title),
            figure.unit,
            ours.join("; "),
            figure.paper_figure.unwrap_or_default()
        );
    }
    out.push('\n');
    for figure in figures {
        let _ = writeln!(out, "- {}: {}", escape(&figure.title), escape(&figure.remark));
    }
    out.push('\n');
}

fn charts(out: &mut String, figures: &[Figure]) {
    out.push_str("| quantity | unit | line | first, course, last |\n| --- | --- | --- | --- |\n");
    for figure in figures {
        for line in &figure.ours {
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} |",
                escape(&figure.title),
                figure.unit,
                escape(&line.label),
                course(&line.points)
            );
        }
    }
    out.push('\n');
}

fn strip(out: &mut String, strip: &Strip) {
    out.push_str("`█` correct, `·` wrong, `T` truncated, `?` no answer found.\n\n");
    let shown = |marks: &Option<String>| -> String {
        let mark = |mark: char| match mark {
            'C' => '█',
            'W' => '·',
            'N' => '?',
            other => other,
        };
        marks.iter().flat_map(|marks| marks.chars()).map(mark).collect()
    };
    let width =
        |of: &dyn Fn(&usize) -> usize| (0..strip.rows.len()).map(|i| of(&i)).max().unwrap_or(0);
    let names = width(&|row| strip.rows[*row].problem.chars().count()).max("problem".len());
    let bases = width(&|row| shown(&strip.rows[*row].base).chars().count()).max("base".len());
    let mut lines = format!("{:names$}  {:bases$}  final\n", "problem", "base");
    for row in &strip.rows {
        let line =
            format!("{:names$}  {:bases$}  {}", row.problem, shown(&row.base), shown(&row.last));
        let _ = writeln!(lines, "{}", line.trim_end());
    }
    fenced(out, lines.trim_end());
}

fn sample(out: &mut String, sample: &SampleRollout) {
    let _ = writeln!(
        out,
        "### Step {}, {}: {}, attempt {}, sample {}\n",
        sample.step,
        sample.kind.name(),
        escape(&sample.problem),
        sample.attempt,
        sample.sample
    );
    fenced(out, &format!("{}\n\n{}", sample.question, sample.response));
    let read = sample.prediction.as_deref().map_or("nothing".to_owned(), escape);
    let _ = writeln!(
        out,
        "Answer {}, read {read}; {} tokens, reward {}, penalty {}, advantage {}, {}.\n",
        escape(&sample.answer),
        sample.response_tokens,
        text::signed(sample.correctness_reward, 0),
        text::number(sample.overlong_penalty),
        text::signed(sample.advantage, 2),
        if sample.trained { "trained on" } else { "not trained on" }
    );
}

/// A code block whose fence is longer than any run of backticks inside it.
pub fn fenced(out: &mut String, content: &str) {
    let longest = content.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    let _ = writeln!(out, "{fence}text\n{content}\n{fence}\n");
}

/// Text that Markdown shows as it is. What cannot act is left alone, for the source's reader:
/// underscores inside words, brackets around numbers, backslashes before letters.
pub fn escape(text: &str) -> String {
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
        assert_eq!(escape("L_max [82.4, 86.7] \\u{1b}"), "L_max [82.4, 86.7] \\u{1b}");
    }

    #[test]
    fn a_fence_cannot_be_closed_from_inside() {
        let mut out = String::new();
        fenced(&mut out, "a ```` b");
        assert_eq!(out, "`````text\na ```` b\n`````\n\n");
    }
}
