//! The default mode of the released verifier: the last `Answer: …`, normalised.

use crate::task::reward::python_text::{is_digits, strip};
use regex::Regex;
use std::sync::LazyLock;

/// The last match of `(?i)Answer\s*:\s*([^\n]+)` (math_dapo.py:166). As in Python, the answer may stand on a later
/// line, since `\s` includes newlines; the group ends with its line; `ſ` (U+017F) is an `s` when case is ignored.
pub fn last_answer_line(text: &str) -> Option<&str> {
    // The white space of Python's `\s`, spelled out: Rust's lacks U+001C to U+001F.
    static ANSWER: LazyLock<Regex> = LazyLock::new(|| {
        let space = r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]";
        pattern(&format!(r"[Aa][Nn][Ss\x{{17f}}][Ww][Ee][Rr]{space}*:{space}*([^\n]+)"))
    });
    let captures = ANSWER.captures_iter(text).last()?;
    captures.get(1).map(|group| group.as_str())
}

/// Normalises an answer or a ground truth (`normalize_final_answer`, math_dapo.py:124-162).
pub fn normalise(answer: &str) -> String {
    let mut text = answer.rsplit('=').next().unwrap_or_default().to_owned();
    // No rule below changes digits alone, and most answers are.
    if is_digits(&text) {
        return text;
    }
    for (before, after) in SUBSTITUTIONS {
        text = text.replace(before, after);
    }
    for expression in REMOVED {
        text = text.replace(expression, "");
    }
    for (rule, replacement) in REWRITES.iter() {
        text = rule.replace_all(&text, *replacement).into_owned();
    }
    text = text.replace('$', "");
    let without_commas = text.replace(',', "");
    if is_digits(&without_commas) {
        text = without_commas;
    }
    strip(&text).to_owned()
}

/// Literal replacements, in order (math_dapo.py:66-77). They act inside words as well: `pizza 5` becomes `pizz5`.
const SUBSTITUTIONS: [(&str, &str); 10] = [
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    ("\\$", ""),
    ("\\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (",\\text{and}", ","),
    ("\\text{and}", ","),
    ("\\text{m}", "\\text{}"),
];

/// Removed wherever they stand, in order (math_dapo.py:79-121).
#[rustfmt::skip]
const REMOVED: [&str; 41] = [
    "square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", "\\ldots",
    "sue", "points", "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds",
    "meters", "meals", "edges", "students", "childrentickets", "multiples", "\\text{s}",
    "\\text{.}", "\\text{\ns}", "\\text{}^2", "\\text{}^3", "\\text{\n}", "\\text{}",
    "\\mathrm{th}", "^\\circ", "^{\\circ}", "\\;", ",\\!", "{,}", "\"", "\\dots",
];

/// Patterns and replacements, in order (math_dapo.py:142-155): what stands between a line's first two dollars; the
/// content of `\text`, `\textbf`, `\overline` (shortest) and `\boxed` (longest); `\fracab` and `\sqrta` with braces.
static REWRITES: LazyLock<[(Regex, &str); 7]> = LazyLock::new(|| {
    [
        (pattern(r"(.*?)(\$)(.*?)(\$)(.*)"), "$$${3}$$"),
        (pattern(r"(\\text\{)(.*?)(\})"), "${2}"),
        (pattern(r"(\\textbf\{)(.*?)(\})"), "${2}"),
        (pattern(r"(\\overline\{)(.*?)(\})"), "${2}"),
        (pattern(r"(\\boxed\{)(.*)(\})"), "${2}"),
        (pattern(r"(frac)([^{])(.)"), "frac{${2}}{${3}}"),
        (pattern(r"(sqrt)([^{])"), "sqrt{${2}}"),
    ]
});

pub fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the verifier's patterns are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_answer_line_wins_and_may_stand_on_a_later_line() {
        for (text, expected) in [
            ("Answer: 12\nAnswer: 540", Some("540")),
            ("Answer:\n\n540", Some("540")),
            ("aNSWER\u{1c}:\u{2003}540", Some("540")),
            ("An\u{17f}wer: 540", Some("540")),
            ("Answer: 540\nAnswer:", Some("540")),
            ("Answer: 1 or Answer: 2", Some("1 or Answer: 2")),
            ("Answer:  ", Some(" ")),
            ("Answer: \n", Some(" ")),
            ("Answer:\n", None),
            ("Answer:", None),
            ("The answer is: 540", None),
            ("\u{c5}nswer: 540", None),
            ("Answer: 5\r6", Some("5\r6")),
        ] {
            assert_eq!(last_answer_line(text), expected, "{text:?}");
        }
    }

    #[test]
    fn normalisation_has_the_released_codes_quirks() {
        for (text, expected) in [
            ("pizza 5", "pizz5"),
            ("1, 2", "12"),
            ("(1,2)", "(1,2)"),
            ("a=b=c", "c"),
            ("$540.$", "540"),
            ("x $1$ and $2$", "1"),
            ("$1$\n$2$", "1\n2"),
            ("\\boxed{1} or \\boxed{2}", "1}or\\boxed{2"),
            ("\\text{a}\\text{b}", "ab"),
            ("\\frac12", "\\frac{1}{2}"),
            ("\\frac1\n", "\\frac1"),
            ("\\sqrt\n2", "\\sqrt{\n}2"),
            ("5\\mbox{cm}^2", "5"),
            ("1\u{a0}024", "1\u{a0}024"),
            ("\u{1c}7\u{85}", "7"),
            ("²,³", "²³"),
            ("−7", "−7"),
            ("", ""),
        ] {
            assert_eq!(normalise(text), expected, "{text:?}");
        }
    }
}
