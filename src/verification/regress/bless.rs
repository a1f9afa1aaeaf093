//! Accepts the present program's results as golden: only from a clean commit, and with a recorded
//! reason.

use crate::base::files;
use crate::verification::Golden;
use crate::verification::regress::RegressError;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    pub commit: String,
    /// On one line.
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blessed {
    /// `exact` or `fast`.
    pub part: &'static str,
    /// The ledger's head, or the digest of the curves' file; `None` without an earlier one.
    pub before: Option<String>,
    pub now: String,
}

/// Refuses to bless without a reason or with uncommitted changes, untracked files included.
pub fn leave(golden: &Golden, reason: &str) -> Result<Leave, RegressError> {
    let reason: Vec<&str> = reason.split_whitespace().collect();
    if !reason.iter().any(|word| word.chars().any(char::is_alphanumeric)) {
        return Err(RegressError::Refused(
            "a reason of at least one word must be given".to_string(),
        ));
    }
    let root = golden.root();
    let status = git(root, &["status", "--porcelain"])?;
    if let Some(line) = status.lines().next() {
        return Err(RegressError::Refused(format!(
            "{} has changes that are not committed, {} first: commit them, so that the log can name what was blessed",
            root.display(),
            line.get(3..).unwrap_or(line)
        )));
    }
    let commit = git(root, &["rev-parse", "HEAD"])?;
    Ok(Leave { commit, reason: reason.join(" ") })
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, RegressError> {
    let command = arguments.join(" ");
    let refuse = |reason: String| {
        RegressError::Refused(format!("git {command} in {}: {reason}", root.display()))
    };
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output();
    let output = output.map_err(|error| refuse(error.to_string()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_string();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(refuse(text(&output.stderr))),
    }
}

const HEADER: &str = "\
# Golden runs: what was blessed, when and why

Written by `dapo regress --bless --reason …`. *exact*: last head of the ledger; *fast*: SHA-256 of
`fast/curves.json`. The commit is the one whose program made them.

| Date (UTC) | Commit | Part | Old → new | Reason |
|---|---|---|---|---|
";

/// Appends a line for each part to `LOG.md`. `now` is the time since 1970, UTC.
pub fn record(
    golden: &Golden,
    leave: &Leave,
    parts: &[Blessed],
    now: Duration,
) -> Result<(), RegressError> {
    let path = golden.log();
    let mut text = match path.exists() {
        true => files::read_text(&path)?,
        false => HEADER.to_string(),
    };
    // A bar would end a cell of the Markdown table.
    let reason = leave.reason.replace('|', "\\|");
    for Blessed { part, before, now: after } in parts {
        let before = before.as_deref().unwrap_or("none");
        let (date, commit) = (date(now), &leave.commit);
        text += &format!("| {date} | {commit} | {part} | {before} → {after} | {reason} |\n");
    }
    Ok(files::write_atomic(&path, text.as_bytes())?)
}

/// Gregorian date of a time since 1970, UTC: Hinnant's `civil_from_days`, counted from 1 March 0000
/// in eras of 400 years.
fn date(since_1970: Duration) -> String {
    let days = since_1970.as_secs() / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (1_795_219_199, "2026-11-20"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(date(Duration::from_secs(seconds)), expected);
        }
    }
}
