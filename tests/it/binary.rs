//! The binary as a user calls it.

use crate::{forked, repository};
use serde_json::Value;
use std::io::{Seek, Write};
use std::path::Path;
use std::process::Command;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_dapo");

/// Exit code, standard output and standard error.
pub type Output = (i32, String, String);

/// Calls it in the repository's folder.
pub fn dapo(arguments: &[&str]) -> Output {
    dapo_in(&repository::root(), arguments)
}

/// Calls it in a folder.
pub fn dapo_in(folder: &Path, arguments: &[&str]) -> Output {
    dapo_given(folder, arguments, b"")
}

/// Calls it in a folder with this on standard input.
pub fn dapo_given(folder: &Path, arguments: &[&str], input: &[u8]) -> Output {
    if let Some(output) = forked::dapo_given(folder, arguments, input) {
        return output;
    }
    let mut stdin = tempfile::tempfile().unwrap();
    stdin.write_all(input).unwrap();
    stdin.rewind().unwrap();
    let mut command = Command::new(PROGRAM);
    ended(command.args(arguments).current_dir(folder).stdin(stdin).env_remove("COLUMNS"))
}

/// Calls it in a folder with the words of a line.
pub fn line_in(folder: &Path, line: &str) -> Output {
    dapo_in(folder, &line.split_whitespace().collect::<Vec<_>>())
}

/// The lines of JSON of an output.
pub fn json_lines(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs a command to its end; -1 stands for a signal.
pub fn ended(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// Standard output and standard error of a call that succeeded.
#[track_caller]
pub fn succeeded((code, out, talk): Output) -> (String, String) {
    assert_eq!(code, 0, "{out}{talk}");
    (out, talk)
}

#[track_caller]
pub fn json(output: Output) -> serde_json::Value {
    serde_json::from_str(&succeeded(output).0).unwrap()
}

/// A call ended with this code, and with these words on standard error.
#[track_caller]
pub fn failed((code, out, talk): Output, expected: i32, words: &str) {
    let held = code == expected && talk.contains(words);
    assert!(held, "{code}, not {expected} {words:?}: {out}{talk}");
}

/// A call ended with this code, and with all of these words on either output.
#[track_caller]
pub fn says((code, out, talk): Output, expected: i32, words: &[&str]) {
    let said = |words: &&str| out.contains(words) || talk.contains(words);
    let held = code == expected && words.iter().all(said);
    assert!(held, "{code}, not {expected} {words:?}: {out}{talk}");
}
