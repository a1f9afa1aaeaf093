//! The bad-input table: what a user can get wrong, and what the binary says. Each case is made
//! in a folder of its own, the binary runs there, and the exit code and the words of its
//! message are checked; beside that, no case prints a panic or a control character, and a
//! refusal changes no file. `TABLE.md` is the table for readers; a test keeps it in step.

mod config;
mod data;
mod folders;
mod foreign;
mod launchers;
mod model;
mod records;
mod scratch;
mod tokenizer;

use crate::bad_input::scratch::Scratch;
use assert_cmd::Command;
use dapo::base::files::{self, FileKind};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// One row of the table.
pub struct Case {
    /// What is wrong.
    name: &'static str,
    /// Makes the input in an empty folder.
    make: fn(&Scratch),
    /// Arguments of `dapo`, run in that folder.
    command: &'static str,
    /// Expected exit code.
    code: i32,
    /// Words that standard error (or, on success, standard output) must have.
    says: &'static [&'static str],
}

/// A chapter of the table.
type Chapter = (&'static str, fn() -> Vec<Case>);

const CHAPTERS: [Chapter; 8] = [
    ("Experiment files", config::cases),
    ("Checkpoints", model::cases),
    ("Tokenizers", tokenizer::cases),
    ("Problems, prompts and responses", data::cases),
    ("Missing files, folders and places to write", folders::cases),
    ("Run folders", records::cases),
    ("Made to do harm", foreign::cases),
    ("Cells and other machines", launchers::cases),
];

fn check(case: &Case) -> Result<(), String> {
    let scratch = Scratch::new();
    (case.make)(&scratch);
    let before = tree(scratch.path());
    let output = Command::cargo_bin("dapo")
        .unwrap()
        .args(case.command.split(' '))
        .current_dir(scratch.path())
        .env("OMP_NUM_THREADS", "1")
        .timeout(std::time::Duration::from_secs(120))
        .write_stdin(files::read(&scratch.path().join("stdin")).unwrap_or_default())
        .output()
        .map_err(|error| format!("{}: {error}", case.name))?;
    let code = output.status.code();
    let (stdout, stderr) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let mut wrong = Vec::new();
    if code != Some(case.code) {
        wrong.push(format!("exit code {code:?}, expected {}", case.code));
    }
    let said = if case.code == 0 { format!("{stdout}{stderr}") } else { stderr.clone() };
    for words in case.says {
        if !said.contains(words) {
            wrong.push(format!("does not say {words:?}"));
        }
    }
    if stderr.contains("panicked") || stderr.contains("RUST_BACKTRACE") {
        wrong.push("prints a panic".into());
    }
    if let Some(control) = [&stdout, &stderr].into_iter().flat_map(|text| text.chars()).find(acts) {
        wrong.push(format!("prints {control:?}"));
    }
    if stderr.len() > 20_000 {
        wrong.push(format!("prints {} bytes of errors", stderr.len()));
    }
    if case.code != 0 && tree(scratch.path()) != before {
        wrong.push("changes files".into());
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let short: String = said.chars().take(2000).collect();
    Err(format!("{} ({}): {}\n{short}", case.name, case.command, wrong.join("; ")))
}

/// Characters that move a terminal, hide or reorder.
pub fn acts(character: &char) -> bool {
    let reorders = matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (character.is_control() && *character != '\n') || reorders
}

/// Every file below a folder with its digest; folders without one.
fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for name in files::list(&root.join(&folder)).unwrap() {
            let relative = Path::new(&folder).join(name).display().to_string();
            let path = root.join(&relative);
            let digest = match files::kind(&path).unwrap() {
                // A file of holes is not read; the refusal names its size.
                Some(FileKind::File) => {
                    files::sha256_file(&path).unwrap_or_else(|it| it.to_string())
                }
                kind => format!("{kind:?}"),
            };
            found.insert(relative.clone(), digest);
            if path.is_dir() && !path.is_symlink() {
                folders.push(relative);
            }
        }
    }
    found
}

fn check_chapter(index: usize) {
    let cases = CHAPTERS[index].1();
    let wrong: Vec<String> = cases.iter().filter_map(|case| check(case).err()).collect();
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n\n")
    );
}

#[test]
fn bad_experiment_files_are_refused_as_the_table_says() {
    check_chapter(0);
}

#[test]
fn bad_checkpoints_are_refused_as_the_table_says() {
    check_chapter(1);
}

#[test]
fn bad_tokenizers_are_refused_as_the_table_says() {
    check_chapter(2);
}

#[test]
fn bad_problems_prompts_and_responses_are_refused_as_the_table_says() {
    check_chapter(3);
}

#[test]
fn missing_files_and_places_that_cannot_be_written_are_refused_as_the_table_says() {
    check_chapter(4);
}

#[test]
fn damaged_run_folders_are_refused_or_described_as_the_table_says() {
    check_chapter(5);
}

#[test]
fn files_made_to_do_harm_are_refused_as_the_table_says() {
    check_chapter(6);
}

#[test]
fn cells_and_launchers_that_cannot_be_used_are_refused_as_the_table_says() {
    check_chapter(7);
}

#[test]
fn the_table_for_readers_is_the_table_that_is_tested() {
    let mut table = String::from(
        "# Bad input\n\nWhat a user can get wrong, the exit code, and words of the message. Every row is run by\n\
         `tests/it/bad_input/`: besides what stands here, no case prints a panic or a control character, and\n\
         no refusal changes a file. Written by the tests (`./justw bless`).\n",
    );
    let mut names = BTreeMap::new();
    for (title, cases) in CHAPTERS {
        let _ = write!(
            table,
            "\n## {title}\n\n| Case | Command | Exit code | The message has |\n|---|---|---|---|\n"
        );
        for case in cases() {
            assert_eq!(names.insert(case.name, ()), None, "two cases are named {}", case.name);
            let words: Vec<String> = case.says.iter().map(|words| code(words)).collect();
            let command = format!("dapo {}", case.command);
            let _ = writeln!(
                table,
                "| {} | {} | {} | {} |",
                case.name.replace('|', "\\|"),
                code(&command),
                case.code,
                words.join(", ")
            );
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/bad_input/TABLE.md");
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        files::write_atomic(&path, table.as_bytes()).unwrap();
    }
    let kept = files::read_text(&path).unwrap_or_default();
    assert!(
        kept == table,
        "TABLE.md is not the table of the tests; look at it and `./justw bless`"
    );
}

/// Inline code of a table cell.
fn code(text: &str) -> String {
    let text = text.replace('|', "\\|").replace('\n', " ");
    if text.contains('`') { format!("`` {text} ``") } else { format!("`{text}`") }
}
