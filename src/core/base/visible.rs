//! Foreign text (of a model, a data set, a file or a machine) as a reader sees it: no character moves a terminal,
//! reorders a line or hides. Every page, terminal line and line of JSON with such text passes through here.

use std::fmt::Write;

/// Characters of one line of a message; a longer line loses its middle.
const MESSAGE_LINE_CHARACTERS: usize = 1000;

const MESSAGE_LINES: usize = 200;

/// Foreign text on one line: whatever does not print as itself (control characters, terminal escapes, direction marks,
/// combining marks, line ends) is shown as a Rust escape, and a backslash is doubled: no result is ambiguous.
pub fn visible(text: &str) -> String {
    // `⏎` stands for a line end in a report's excerpts.
    escaped(text, &['"', '\'']).replace('⏎', "\\u{23ce}")
}

fn escaped(text: &str, plain: &[char]) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if plain.contains(&character) {
            shown.push(character)
        } else {
            shown.extend(character.escape_debug())
        }
    }
    shown
}

/// A message for a terminal: lines and indentation stay, backslashes are not doubled (a message quotes values with
/// their escapes), all else that does not print is escaped, and overlong lines lose their middle.
pub fn message(text: &str) -> String {
    let line = |line| escaped(&shortened(line, MESSAGE_LINE_CHARACTERS), &['"', '\'', '\\']);
    let lines: Vec<String> = text.lines().take(MESSAGE_LINES).map(line).collect();
    let left_out = text.lines().count().saturating_sub(MESSAGE_LINES);
    let mut shown = lines.join("\n");
    if left_out > 0 {
        let _ = write!(shown, "\n[… {left_out} more lines …]");
    }
    shown
}

/// At most about `limit` characters: the beginning and the end.
pub fn shortened(text: &str, limit: usize) -> String {
    // A character has at most four bytes: short texts are not counted.
    let total = if text.len() <= limit { text.len() } else { text.chars().count() };
    if total <= limit {
        return text.to_string();
    }
    let head = limit * 3 / 5;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(total - (limit - head)).collect();
    format!("{start}[… {} characters …]{end}", total - limit)
}

/// The first `count` characters, with `…` where there are more.
pub fn start(text: &str, count: usize) -> String {
    match text.char_indices().nth(count) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// The first `most` of some words, and how many more there are.
pub fn first_of(words: &[String], most: usize, separator: &str) -> String {
    let shown = words[..words.len().min(most)].join(separator);
    match words.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A line of JSON whose strings a terminal can print: what does not print as itself becomes `\uXXXX`, the same value.
pub fn json(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut units = [0; 2];
    for character in line.chars() {
        // JSON itself escapes ASCII that does not print inside strings, except DEL.
        let prints = match character {
            '\u{7f}' => false,
            _ if character.is_ascii() => true,
            _ => character.escape_debug().len() == 1,
        };
        if prints {
            shown.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut units) {
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOSTILE: &str =
        "\u{1b}[31mred\u{7}\r\n\t\u{202e}evil\u{200b}\u{feff}\u{9b}2J e\u{301}\u{2028}\u{7f}";

    #[test]
    fn nothing_that_moves_a_terminal_or_reorders_text_stays() {
        let shown = visible(HOSTILE);
        assert!(shown.chars().all(|c| !c.is_control()), "{shown}");
        assert_eq!(
            shown,
            "\\u{1b}[31mred\\u{7}\\r\\n\\t\\u{202e}evil\\u{200b}\\u{feff}\\u{9b}2J e\\u{301}\\u{2028}\\u{7f}"
        );
        assert_eq!(visible("\\n"), "\\\\n");
        assert_eq!(visible("x² ≤ 3, it's \"so\""), "x² ≤ 3, it's \"so\"");
    }

    #[test]
    fn a_message_keeps_its_lines_and_its_quotes_and_nothing_that_acts() {
        assert_eq!(
            message("a: \"\\u{1b}\"\n  |\n^ x\u{1b}]52;c;x\u{7}"),
            "a: \"\\u{1b}\"\n  |\n^ x\\u{1b}]52;c;x\\u{7}"
        );
        let long = message(&format!("start{}end", "x".repeat(1 << 20)));
        assert!(long.len() < 1100 && long.starts_with("start") && long.ends_with("end"), "{long}");
        let many = message(&"line\n".repeat(1000));
        assert!(many.ends_with("line\n[… 800 more lines …]"));
    }

    #[test]
    fn json_keeps_its_value_and_prints() {
        let line = serde_json::to_string(HOSTILE).unwrap();
        let shown = json(&line);
        assert!(shown.chars().all(|c| !c.is_control() && c.escape_debug().count() <= 2), "{shown}");
        assert!(!shown.contains('\u{202e}') && !shown.contains('\u{9b}'));
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), HOSTILE);
    }

    proptest! {
        #[test]
        fn whatever_the_text_its_json_is_the_same_value_and_its_shown_forms_print(
            text in proptest::collection::vec(any::<char>(), 0..200)
        ) {
            let text: String = text.into_iter().collect();
            let line = json(&serde_json::to_string(&text).unwrap());
            prop_assert_eq!(&serde_json::from_str::<String>(&line).unwrap(), &text);
            for shown in [visible(&text), line, message(&text).replace('\n', "")] {
                let acts = |c: char| c != '"' && c != '\'' && c != '\\' && c.escape_debug().len() > 1;
                prop_assert!(!shown.chars().any(acts), "{:?}", shown);
            }
        }
    }
}
