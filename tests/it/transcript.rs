//! Transcripts: what a user types in a folder, and what comes of it.

use crate::binary::{PROGRAM, ended, line_in};
use crate::repository;
use std::path::Path;
use std::process::Command;

/// Plays a transcript in a folder. Each of its blocks has a line of `dapo` or of the shell, `= CODE` where it does
/// not end with 0, and words of either output, or of standard error for a refusal; with `! ` before them, words of
/// neither. `# ` begins a comment. The shell finds `dapo` and the folder's `bin/`, so that `env dapo` is a process of its own; ROOT is the repository.
#[track_caller]
pub fn play(folder: &Path, transcript: &str) {
    let root = repository::root().display().to_string();
    for block in transcript.split("\n\n") {
        let lines: Vec<&str> = block.lines().filter(|line| !line.starts_with("# ")).collect();
        let Some((line, expected)) = lines.split_first() else { continue };
        let (code, out, talk) = if let Some(line) = line.strip_prefix("dapo ") {
            line_in(folder, &line.replace("$ROOT", &root))
        } else {
            ended(shell(folder).args(["-ec", line]).env("ROOT", &root))
        };
        let output = format!("{out}{talk}");
        let message = if [0, 4, 6].contains(&code) { &output } else { &talk };
        let mut expected_code = 0;
        for words in expected {
            if let Some(stated) = words.strip_prefix("= ") {
                expected_code = stated.parse().unwrap();
            } else if let Some(absent) = words.strip_prefix("! ") {
                assert!(!output.contains(absent), "{line}: says {absent:?}: {output}");
            } else {
                assert!(message.contains(words), "{line}: does not say {words:?}: {output}");
            }
        }
        assert_eq!(code, expected_code, "{line}: {output}");
        assert!(!output.contains("panicked"), "{line}: {output}");
    }
}

fn shell(folder: &Path) -> Command {
    let programs = Path::new(PROGRAM).parent().unwrap().display();
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("sh");
    shell.current_dir(folder).env_remove("RAY_ADDRESS");
    shell.env("PATH", format!("{}/bin:{programs}:{path}", folder.display()));
    shell
}
