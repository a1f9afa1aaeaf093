//! Checks the folder's entries: place in the layout, kind, and digest.

use crate::base::files;
use crate::policy::checkpoint;
use crate::records::Outcome;
use crate::records::run_folder::{DAMAGED_CHECKPOINT, LAYOUT};
use crate::records::{RunFolder, ledger};
use crate::verification::verify::{Check, stays_inside};
use std::collections::BTreeSet;

/// Limit against hostile folders.
const MOST_ENTRIES: usize = 200_000;

const FOLDERS: [&str; 4] = ["evaluations", "rollouts", "checkpoints", "diverged"];

/// A checkpoint also has the base policy's companions.
const CHECKPOINT: [&str; 4] =
    ["model.safetensors", "optimizer.safetensors", "trainer.json", "carried.parquet"];

#[derive(Debug, Default)]
pub struct FolderFound {
    pub files: BTreeSet<String>,
    pub folders: BTreeSet<String>,
    /// Another trainer's folder; not looked into.
    pub has_engine: bool,
    /// Includes devices and the like.
    pub links: u64,
    /// Damaged checkpoints; not looked into, because no result is theirs.
    pub put_aside: Vec<String>,
}

impl FolderFound {
    /// Numbers of files `<prefix>NNNNNN<suffix>`.
    pub fn steps(&self, prefix: &str, suffix: &str) -> BTreeSet<u64> {
        let step = |name: &String| name.strip_prefix(prefix)?.strip_suffix(suffix)?.parse().ok();
        self.files.iter().filter_map(step).collect()
    }
}

/// Does not follow links; reports unknown entries.
pub fn walk(folder: &RunFolder) -> Result<(Check, FolderFound), files::FileError> {
    let mut check = Check::new("folder");
    let mut found = FolderFound::default();
    let mut folders = vec![String::new()];
    let mut entries = 0;
    while let Some(inside) = folders.pop() {
        for name in files::list(&folder.path(&inside))? {
            let path = if inside.is_empty() { name } else { format!("{inside}/{name}") };
            entries += 1;
            if entries > MOST_ENTRIES {
                check.mismatch(".", format!("holds more than {MOST_ENTRIES} entries"));
                return Ok((check.compared("not all entries"), found));
            }
            match (files::kind(&folder.path(&path))?, place(&path)) {
                (Some(files::FileKind::File), FolderPlace::File) => drop(found.files.insert(path)),
                (Some(files::FileKind::Folder), FolderPlace::Folder) => {
                    found.folders.insert(path.clone());
                    folders.push(path);
                }
                (Some(files::FileKind::Other), _) => {
                    found.links += 1;
                    check.mismatch(&path, "is a symbolic link, a device or the like");
                }
                (Some(files::FileKind::Folder), FolderPlace::Engine) => found.has_engine = true,
                (Some(files::FileKind::Folder), FolderPlace::Aside) => found.put_aside.push(path),
                // Left by a killed process; the next session removes it.
                (Some(_), _) if files::is_partial(path.rsplit('/').next().unwrap_or_default()) => {
                    check.inconclusive(&path, "was left half written; a resumed run removes it");
                }
                (Some(files::FileKind::File), FolderPlace::Folder) => {
                    check.mismatch(&path, "is a file, should be a folder")
                }
                (Some(files::FileKind::File), FolderPlace::Engine) => {
                    check.mismatch(&path, "is a file, should be a folder")
                }
                (Some(files::FileKind::Folder), FolderPlace::File) => {
                    check.mismatch(&path, "is a folder, should be a file")
                }
                (_, FolderPlace::None | FolderPlace::Aside) => {
                    check.mismatch(&path, "has no place in a run folder: it was added")
                }
                (None, _) => check.mismatch(&path, "has a name that is not UTF-8, or vanished"),
            }
        }
    }
    let lock = "run.lock";
    if found.files.contains(lock) && files::size_bytes(&folder.path(lock))? > 0 {
        check.mismatch(lock, "has content, and a lock has none");
    }
    let compared = format!("{} files against the layout of a run", found.files.len());
    Ok((check.compared(compared), found))
}

enum FolderPlace {
    File,
    Folder,
    /// Another trainer's files.
    Engine,
    Aside,
    None,
}

fn place(path: &str) -> FolderPlace {
    let parts: Vec<&str> = path.split('/').collect();
    let checkpoint =
        |name: &str| CHECKPOINT.contains(&name) || checkpoint::COMPANIONS.contains(&name);
    match parts[..] {
        [name] if FOLDERS.contains(&name) => FolderPlace::Folder,
        ["engine"] => FolderPlace::Engine,
        [name] if LAYOUT.contains(&name) => FolderPlace::File,
        ["evaluations", name] if name.ends_with(".parquet") => FolderPlace::File,
        ["rollouts", name] if numbered(name, ".parquet") => FolderPlace::File,
        ["checkpoints", name] if name.starts_with(DAMAGED_CHECKPOINT) => FolderPlace::Aside,
        ["checkpoints", name] if numbered(name, "") => FolderPlace::Folder,
        ["checkpoints", step, name] if numbered(step, "") && checkpoint(name) => FolderPlace::File,
        ["diverged", "divergence.json" | "rollouts.parquet"] => FolderPlace::File,
        ["diverged", "checkpoint"] => FolderPlace::Folder,
        ["diverged", "checkpoint", name] if checkpoint(name) => FolderPlace::File,
        _ => FolderPlace::None,
    }
}

/// `step-NNNNNN<suffix>`, with one spelling of a number.
fn numbered(name: &str, suffix: &str) -> bool {
    let digits = name.strip_prefix("step-").and_then(|rest| rest.strip_suffix(suffix));
    let number = digits.and_then(|digits| digits.parse::<u64>().ok());
    number.is_some_and(|number| digits == Some(&format!("{number:06}")))
}

/// Also reports files without a digest.
pub fn digests(folder: &RunFolder, found: &FolderFound, outcome: Option<&Outcome>) -> Check {
    let mut check = Check::new("digests");
    let Some(outcome) = outcome else {
        check.inconclusive("outcome.json", "is missing: the run is not finished");
        return check.compared("nothing");
    };
    for (name, written) in &outcome.digests {
        if !stays_inside(name) {
            check.mismatch(
                format!("outcome.json, digest of {name}"),
                "the path leaves the run folder",
            );
        } else if !found.files.contains(name) {
            missing(&mut check, found, name);
        } else {
            match files::sha256_file(&folder.path(name)) {
                Ok(digest) if digest == *written => {}
                Ok(digest) => check.mismatch(
                    name,
                    format!("its SHA-256 is {digest}, outcome.json says {written}"),
                ),
                Err(error) => check.mismatch(name, error),
            }
        }
    }
    let digested = |name: &&String| {
        ["metrics.jsonl", "evaluations.jsonl", ledger::FILE].contains(&name.as_str())
            || ["evaluations/", "rollouts/", "checkpoints/"].iter().any(|it| name.starts_with(it))
    };
    for name in found.files.iter().filter(digested) {
        if !outcome.digests.contains_key(name) {
            check.mismatch(name, "outcome.json has no digest of it: it was added");
        }
    }
    for name in ["metrics.jsonl", "evaluations.jsonl", ledger::FILE] {
        if !found.files.contains(name) && !outcome.digests.contains_key(name) {
            check.mismatch(name, "is missing");
        }
    }
    check.compared(format!("{} files hashed again", outcome.digests.len()))
}

/// Whole checkpoints may be deleted to save room (`dapo runs gc`); other files may not.
fn missing(check: &mut Check, found: &FolderFound, name: &str) {
    let of_checkpoint = name.strip_prefix("checkpoints/").and_then(|rest| rest.split_once('/'));
    let whole = of_checkpoint.is_some_and(|(step, _)| {
        let inside = format!("checkpoints/{step}/");
        !found.files.iter().any(|file| file.starts_with(&inside))
    });
    if whole {
        check.inconclusive(
            name,
            "is missing, and so is the whole checkpoint (dapo runs gc names those that may go)",
        )
    } else {
        check.mismatch(name, "is missing")
    }
}
