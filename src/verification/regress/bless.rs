//! Accepts results as golden: only from a clean commit, and with a recorded reason.

use crate::base::files;
use crate::records::{RunFolder, environment};
use crate::verification::regress::{Blessed, curves, exact};
use crate::verification::{Fast, Golden, RegressCurves, VerificationError};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    pub commit: String,
    pub reason: String,
}

/// Untracked files of the golden folder count as uncommitted changes; those of the rest of its repository do not.
pub fn leave(golden: &Golden, reason: &str) -> Result<Leave, VerificationError> {
    let reason: Vec<&str> = reason.split_whitespace().collect();
    if !reason.iter().any(|word| word.chars().any(char::is_alphanumeric)) {
        let what = "a reason of at least one word must be given";
        return Err(VerificationError::Refused(what.to_string()));
    }
    let root = golden.root();
    let repository = git(root, &["rev-parse", "--show-toplevel"])?;
    let golden = git(root, &["status", "--porcelain", "--", "."])?;
    let tracked = git(root, &["status", "--porcelain", "--untracked-files=no"])?;
    if let Some(line) = golden.lines().chain(tracked.lines()).next() {
        return Err(VerificationError::Refused(format!(
            "the repository {repository} has changes that are not committed, {} first: commit them, so that the log can \
             name what was blessed; `git -C {} checkout -- .` undoes a blessing that was interrupted",
            line.get(3..).unwrap_or(line),
            root.display()
        )));
    }
    Ok(Leave { commit: git(root, &["rev-parse", "HEAD"])?, reason: reason.join(" ") })
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, VerificationError> {
    let command = arguments.join(" ");
    let refuse = |reason: String| {
        VerificationError::Refused(format!("git {command} in {}: {reason}", root.display()))
    };
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output();
    let output = output.map_err(|error| refuse(error.to_string()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_string();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(refuse(text(&output.stderr)))
    }
}

const HEADER: &str = "\
# Golden runs: what was blessed, when and why

Written by `dapo regress --bless --reason …`. *exact*: last head of the ledger; *fast*: SHA-256 of
`fast/curves.json`. The commit is the one whose program made them.

| Date (UTC) | Commit | Part | Old → new | Reason |
|---|---|---|---|---|
";

/// Makes the present results the golden ones; what is refused changes no file. `now`: since 1970, UTC.
pub fn accept(
    golden: &Golden,
    rule: &Fast,
    (exact, fast): (Option<&RunFolder>, Option<&RegressCurves>),
    Leave { commit, reason }: &Leave,
    now: Duration,
) -> Result<(), VerificationError> {
    let exact = exact.map(|run| exact::bless(golden, run)).transpose()?;
    let fast = fast.map(|curves| curves::bless(golden, rule, curves)).transpose()?;
    let path = golden.log();
    let mut text = if path.exists() { files::read_text(&path)? } else { HEADER.to_string() };
    let time = u64::try_from(now.as_millis()).ok().and_then(environment::rfc3339);
    let date = time.as_deref().and_then(|time| time.split('T').next()).unwrap_or("unknown");
    // A bar would end a table's cell.
    let reason = reason.replace('|', "\\|");
    let blessed: Vec<Blessed> = exact.into_iter().chain(fast).collect();
    for Blessed { part, before, now: after, .. } in &blessed {
        let before = before.as_deref().unwrap_or("none");
        text += &format!("| {date} | {commit} | {part} | {before} → {after} | {reason} |\n");
    }
    files::write_atomic(&path, text.as_bytes())?;
    blessed.iter().try_for_each(Blessed::write)
}
