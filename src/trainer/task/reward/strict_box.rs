//! The strict mode of the released verifier: the last `\boxed{…}` near the end, compared raw.

use crate::task::reward::python_text::last_code_points;

/// Only so many code points at the end are searched (math_dapo.py:206).
pub const WINDOW: usize = 100;

pub const OPENING: &str = "\\boxed{";

/// The content of the last box in the last [`WINDOW`] code points (math_dapo.py:193-217).
pub fn last_box(text: &str) -> Option<&str> {
    last_box_in(last_code_points(text, WINDOW))
}

/// The content of the last `\boxed{…}`, if its braces balance: earlier ones are not tried (math_dapo.py:22-48).
pub fn last_box_in(window: &str) -> Option<&str> {
    to_own_brace(&window[window.rfind(OPENING)? + OPENING.len()..])
}

/// What stands behind an opening brace, up to the one that closes it.
pub fn to_own_brace(content: &str) -> Option<&str> {
    let mut open = 1;
    for (index, c) in content.char_indices() {
        match c {
            '{' => open += 1,
            '}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(&content[..index]);
        }
    }
    None
}

/// Whether the window holds a box that does not end.
pub fn is_unclosed(text: &str) -> bool {
    let window = last_code_points(text, WINDOW);
    window.contains(OPENING) && last_box_in(window).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_box_is_read_to_its_own_brace() {
        for (text, expected) in [
            ("\\boxed{540}", Some("540")),
            ("\\boxed{\\frac{1}{2}} }", Some("\\frac{1}{2}")),
            ("\\boxed{1} then \\boxed{2}", Some("2")),
            ("\\boxed{1} then \\boxed{2", None),
            ("\\boxed{\\boxed{1}}", Some("1")),
            ("\\boxed{}", Some("")),
            ("\\boxed {1}", None),
            ("boxed{1}", None),
            ("", None),
        ] {
            assert_eq!(last_box(text), expected, "{text}");
        }
    }

    #[test]
    fn the_window_can_cut_a_box_in_two() {
        let text = format!("\\boxed{{1}}{}", "z".repeat(92));
        assert_eq!(last_box(&text), None);
        assert!(!is_unclosed(&text) && is_unclosed("\\boxed{1"));
    }
}
