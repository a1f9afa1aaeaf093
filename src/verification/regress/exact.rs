//! The run whose ledger must be the golden one, bit for bit.

use crate::base::files;
use crate::records::RunFolder;
use crate::records::ledger::{self, Entry};
use crate::verification::regress::Error;
use crate::verification::{Golden, RunDiff, diff};

/// What of a run becomes the golden run: all but what is large or tells of time.
const RECORDS: [&str; 7] = [
    "experiment.json",
    "manifest.json",
    "environment.json",
    ledger::FILE,
    "metrics.jsonl",
    "evaluations.jsonl",
    "outcome.json",
];

/// A comparison with the golden run.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The last head of the golden ledger.
    pub golden: String,
    /// The last head of the run's.
    pub head: String,
    /// `None`: the ledgers are equal in every line. Otherwise where they first differ.
    pub diff: Option<RunDiff>,
}

/// Compares a finished run with the golden one.
///
/// # Errors
/// When there is no golden run, or a record cannot be read.
pub fn compare(golden: &Golden, run: &RunFolder) -> Result<Compared, Error> {
    let folder = golden.exact();
    let path = folder.path(ledger::FILE);
    if !path.exists() {
        return Err(Error::NotBlessed { path });
    }
    let (old, new) = (folder.ledger()?, run.ledger()?);
    let same = old == new;
    let diff = if same { None } else { Some(diff::compare(&folder, run)?) };
    Ok(Compared { golden: head(&old), head: head(&new), diff })
}

/// The last head; `none` of an empty ledger.
pub fn head(entries: &[Entry]) -> String {
    entries.last().map_or("none".to_string(), |entry| entry.head.clone())
}

/// Puts a finished run's records in the place of the golden ones. Returns the golden head
/// before, if there was one, and now.
///
/// # Errors
/// When a file cannot be read or written.
pub fn replace(golden: &Golden, run: &RunFolder) -> Result<(Option<String>, String), Error> {
    let folder = golden.exact();
    let before = match folder.path(ledger::FILE).exists() {
        true => Some(head(&folder.ledger()?)),
        false => None,
    };
    for name in RECORDS {
        files::write_atomic(&folder.path(name), &files::read(&run.path(name))?)?;
    }
    Ok((before, head(&run.ledger()?)))
}
