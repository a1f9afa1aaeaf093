//! The last number of a response, as lm-eval's `flexible-extract` takes it
//! (lm_eval/tasks/gsm8k/gsm8k.yaml, filters/extraction.py and `exact_match` of api/metrics.py, 0.4.9.1).

use crate::task::reward::answer::pattern;
use regex::Regex;
use std::sync::LazyLock;

/// What lm-eval compares where there is no number.
pub const INVALID: &str = "[invalid]";

/// The last match of `(-?[$0-9.,]{2,})|(-?[0-9]+)`: a run of dots or commas is one, too.
pub fn last_number(text: &str) -> Option<&str> {
    static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"-?[$0-9.,]{2,}|-?[0-9]+"));
    NUMBER.find_iter(text).last().map(|number| number.as_str())
}

/// Without commas, dollars, what stands before the last `#### `, and a final full stop; in lower case.
pub fn normalise(text: &str) -> String {
    static REASONING: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?s).*#### "));
    let text = text.replace([',', '$'], "");
    let text = REASONING.replace(&text, "");
    // `\.$` in Python: the end of a final line, too.
    let text = match text.strip_suffix(".\n") {
        Some(line) => format!("{line}\n"),
        None => text.strip_suffix('.').unwrap_or(&text).to_owned(),
    };
    text.to_lowercase()
}
