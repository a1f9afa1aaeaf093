//! The path of this process's program, for starting it again (a cell, a reader of tables) or naming it to another, and
//! the words of commands that somebody copies into a shell.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

static PATH: OnceLock<PathBuf> = OnceLock::new();

/// A process that executes commands of a program it was not started as (the tests) names it here.
pub fn set_path(path: PathBuf) {
    // A second call changes nothing: there is one program.
    let _again = PATH.set(path);
}

/// Errors: an executable of this process that the system cannot name.
pub fn path() -> io::Result<PathBuf> {
    PATH.get().map_or_else(std::env::current_exe, |path| Ok(path.clone()))
}

pub fn line(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// A path as a word for a shell, which no program takes for a flag.
pub fn path_word(path: &Path) -> String {
    let name = path.display().to_string();
    quoted(&if name.starts_with('-') { format!("./{name}") } else { name })
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    let prints = |c: char| "\"'\\".contains(c) || c.escape_debug().len() == 1;
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_string()
    } else if word.chars().all(prints) {
        format!("'{}'", word.replace('\'', "'\\''"))
    } else {
        let mut escaped = String::new();
        for byte in word.bytes() {
            let _ = write!(escaped, "\\{byte:03o}");
        }
        format!("\"$(printf '{escaped}')\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_a_shell_would_change_are_quoted() {
        assert_eq!(quoted("runs/a-1"), "runs/a-1");
        assert_eq!(quoted("a b$c"), "'a b$c'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("über \\"), "'über \\'");
        assert_eq!(quoted("a\n\u{1b}"), "\"$(printf '\\141\\012\\033')\"");
        assert_eq!(path_word(Path::new("-rf x")), "'./-rf x'");
    }
}
