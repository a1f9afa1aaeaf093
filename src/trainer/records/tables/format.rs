//! Recognises formats by the first bytes, so that an error can name them.

use crate::base::files::foreign;
use crate::records::tables::{Refusal, TableError};
use regex::{Captures, Regex};
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::io::Read;
use std::path::Path;
use std::sync::LazyLock;

const HEAD_BYTES: u64 = 4096;

const KNOWN: [(&[u8], &str); 11] = [
    (b"PAR1", "a parquet file"),
    (b"ARROW1", "an Arrow or Feather file"),
    (b"\xff\xff\xff\xff", "an Arrow stream, as the `datasets` library keeps"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x03", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x05", "a Python pickle"),
    (b"\xff\xfe", "UTF-16 text; save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text; save it as UTF-8"),
    (b"<", "an HTML or XML page"),
];

/// Accepts text in lines, and parquet where `or_parquet`. Skips irregular files: a pipe can be read only once. Errors:
/// [`Refusal::Format`], which says what the file is.
pub fn check(path: &Path, expected: &'static str, or_parquet: bool) -> Result<(), TableError> {
    let Some(head) = head(path) else { return Ok(()) };
    match of(&head) {
        Some("a parquet file") if or_parquet => Ok(()),
        Some(found) => {
            let (found, expected) = (found.to_string(), expected.to_string());
            Err(Refusal::Format { found, expected }.of(path))
        }
        None => Ok(()),
    }
}

/// JSON in which Python's json.dumps has written what is not finite.
pub fn with_not_finite_as(text: &str, written: impl Fn(&str) -> String) -> Cow<'_, str> {
    static TOKENS: LazyLock<Regex> = LazyLock::new(|| {
        let rule = r#""(?s:[^"\\]|\\.)*"|NaN|-?Infinity"#;
        Regex::new(rule).expect("a fixed expression")
    });
    TOKENS.replace_all(text, |token: &Captures| match &token[0] {
        word if word.starts_with('"') => word.to_string(),
        word => written(word),
    })
}

/// A whole object in the first line and another one behind it: a `.json` that holds JSON lines.
pub fn has_lines(path: &Path) -> bool {
    let head = head(path).unwrap_or_default();
    let mut lines = head.split(|&byte| byte == b'\n');
    let is_object = |line: Option<&[u8]>| line.is_some_and(|line| line.starts_with(b"{"));
    let first = lines.next().is_some_and(|line| serde_json::from_slice::<IgnoredAny>(line).is_ok());
    first && is_object(lines.next())
}

/// For a file whose name does not tell its format.
pub fn begins(path: &Path, mark: &[u8]) -> bool {
    let head = head(path).unwrap_or_default();
    head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&head).trim_ascii_start().starts_with(mark)
}

fn head(path: &Path) -> Option<Vec<u8>> {
    let (file, _) = foreign::open_regular(path).ok()?;
    let mut head = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    Some(head)
}

/// `None` for text in lines.
fn of(head: &[u8]) -> Option<&'static str> {
    if let Some((_, name)) =
        foreign::PACKED.iter().chain(&KNOWN).find(|(mark, _)| head.starts_with(mark))
    {
        return Some(name);
    }
    if head.contains(&0) {
        return Some("a binary file");
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    if text.starts_with(b"[") {
        return Some("one JSON list; `jq -c '.[]'` makes JSON lines of it");
    }
    let end = text.iter().position(|&byte| byte == b'\n')?;
    let first = serde_json::from_slice::<IgnoredAny>(&text[..end]);
    let goes_on = first.is_err_and(|error| error.is_eof());
    (text.starts_with(b"{") && goes_on).then_some("one JSON document over several lines")
}
