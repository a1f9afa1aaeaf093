/// What Python's `str.isspace`, `\s` and `str.strip` take as space: unlike Unicode's White_Space also U+001C to U+001F.
pub fn is_space(c: char) -> bool {
    matches!(c, '\u{1c}'..='\u{1f}') || c.is_whitespace()
}

/// Python's `str.strip()`.
pub fn strip(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// Python's `str.isdigit()`: one or more of Numeric_Type Decimal or Digit: `²` and Arabic digits are, `½` is not.
pub fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_digit)
}

/// The last `count` code points: Python's `text[-count:]`.
pub fn last_code_points(text: &str, count: usize) -> &str {
    let start = count.checked_sub(1).map_or(text.len(), |skip| {
        text.char_indices().rev().nth(skip).map_or(0, |(start, _)| start)
    });
    &text[start..]
}

fn is_digit(c: char) -> bool {
    let after = DIGITS.partition_point(|(first, _)| *first <= c as u32);
    after > 0 && c as u32 <= DIGITS[after - 1].1
}

/// Ranges for which Python 3.11's `str.isdigit` is true (`unicodedata` 14.0.0).
#[rustfmt::skip]
const DIGITS: [(u32, u32); 81] = [
    (0x00030, 0x00039), (0x000b2, 0x000b3), (0x000b9, 0x000b9), (0x00660, 0x00669),
    (0x006f0, 0x006f9), (0x007c0, 0x007c9), (0x00966, 0x0096f), (0x009e6, 0x009ef),
    (0x00a66, 0x00a6f), (0x00ae6, 0x00aef), (0x00b66, 0x00b6f), (0x00be6, 0x00bef),
    (0x00c66, 0x00c6f), (0x00ce6, 0x00cef), (0x00d66, 0x00d6f), (0x00de6, 0x00def),
    (0x00e50, 0x00e59), (0x00ed0, 0x00ed9), (0x00f20, 0x00f29), (0x01040, 0x01049),
    (0x01090, 0x01099), (0x01369, 0x01371), (0x017e0, 0x017e9), (0x01810, 0x01819),
    (0x01946, 0x0194f), (0x019d0, 0x019da), (0x01a80, 0x01a89), (0x01a90, 0x01a99),
    (0x01b50, 0x01b59), (0x01bb0, 0x01bb9), (0x01c40, 0x01c49), (0x01c50, 0x01c59),
    (0x02070, 0x02070), (0x02074, 0x02079), (0x02080, 0x02089), (0x02460, 0x02468),
    (0x02474, 0x0247c), (0x02488, 0x02490), (0x024ea, 0x024ea), (0x024f5, 0x024fd),
    (0x024ff, 0x024ff), (0x02776, 0x0277e), (0x02780, 0x02788), (0x0278a, 0x02792),
    (0x0a620, 0x0a629), (0x0a8d0, 0x0a8d9), (0x0a900, 0x0a909), (0x0a9d0, 0x0a9d9),
    (0x0a9f0, 0x0a9f9), (0x0aa50, 0x0aa59), (0x0abf0, 0x0abf9), (0x0ff10, 0x0ff19),
    (0x104a0, 0x104a9), (0x10a40, 0x10a43), (0x10d30, 0x10d39), (0x10e60, 0x10e68),
    (0x11052, 0x1105a), (0x11066, 0x1106f), (0x110f0, 0x110f9), (0x11136, 0x1113f),
    (0x111d0, 0x111d9), (0x112f0, 0x112f9), (0x11450, 0x11459), (0x114d0, 0x114d9),
    (0x11650, 0x11659), (0x116c0, 0x116c9), (0x11730, 0x11739), (0x118e0, 0x118e9),
    (0x11950, 0x11959), (0x11c50, 0x11c59), (0x11d50, 0x11d59), (0x11da0, 0x11da9),
    (0x16a60, 0x16a69), (0x16ac0, 0x16ac9), (0x16b50, 0x16b59), (0x1d7ce, 0x1d7ff),
    (0x1e140, 0x1e149), (0x1e2f0, 0x1e2f9), (0x1e950, 0x1e959), (0x1f100, 0x1f10a),
    (0x1fbf0, 0x1fbf9),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_pythons() {
        // Counts and members printed by Python 3.11 over all code points.
        let spaces: Vec<u32> = ('\0'..=char::MAX).filter(|c| is_space(*c)).map(u32::from).collect();
        let mut expected: Vec<u32> = (0x09..=0x0d).chain(0x1c..=0x20).collect();
        expected.extend([0x85, 0xa0, 0x1680]);
        expected.extend(0x2000..=0x200a);
        expected.extend([0x2028, 0x2029, 0x202f, 0x205f, 0x3000]);
        assert_eq!(spaces, expected);
        assert_eq!(strip("\u{1c}\u{a0} 7 \u{85}\u{200b}"), "7 \u{85}\u{200b}");
    }

    #[test]
    fn digits_are_pythons() {
        assert_eq!(('\0'..=char::MAX).filter(|c| is_digit(*c)).count(), 788);
        for (text, expected) in [
            ("540", true),
            ("²", true),
            ("٣٤", true),
            ("①", true),
            ("½", false),
            ("Ⅷ", false),
            ("一", false),
            ("-1", false),
            ("1 ", false),
            ("", false),
        ] {
            assert_eq!(is_digits(text), expected, "{text}");
        }
    }

    #[test]
    fn slices_from_the_end_count_code_points() {
        assert_eq!(last_code_points("añ😀", 2), "ñ😀");
        assert_eq!(last_code_points("añ😀", 9), "añ😀");
        assert_eq!(last_code_points("añ😀", 0), "");
        assert_eq!(last_code_points("", 3), "");
    }
}
