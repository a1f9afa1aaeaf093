//! What lies in a run folder, and when the run was made.

use crate::base::files::{self, FileKind};
use crate::records::{RunFolder, run_folder::DAMAGED_CHECKPOINT};

/// Files that speak about the others, and the lock: outside every list of a run's files, as are
/// damaged checkpoints that a session put aside.
pub const OUTSIDE: [&str; 2] = ["run.lock", "statement.json"];

/// Names of the regular files in a run folder by their path under it with `/` between its
/// parts, sorted, without [`OUTSIDE`] and what a killed process left half written; then the
/// names of what is neither a file nor a folder. Links are not followed.
///
/// # Errors
/// When a folder cannot be listed.
pub fn names(run: &RunFolder) -> Result<(Vec<String>, Vec<String>), files::FileError> {
    let (mut found, mut strange) = (Vec::new(), Vec::new());
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for name in files::list(&run.path(&folder))? {
            let relative = format!("{folder}{name}");
            let put_aside = format!("checkpoints/{DAMAGED_CHECKPOINT}");
            if files::is_partial(&name)
                || OUTSIDE.contains(&relative.as_str())
                || relative.starts_with(&put_aside)
            {
                continue;
            }
            match files::kind(&run.path(&relative))? {
                Some(FileKind::File) => found.push(relative),
                Some(FileKind::Folder) => folders.push(format!("{relative}/")),
                Some(FileKind::Other) => strange.push(relative),
                None => {}
            }
        }
    }
    found.sort();
    strange.sort();
    Ok((found, strange))
}

/// Whether a name leads to a regular file inside the folder: no part of it is empty, `.` or
/// `..`, none is a link, and it does not begin at the root.
///
/// # Errors
/// When a part of the path cannot be looked at.
pub fn is_inside(run: &RunFolder, name: &str) -> Result<bool, files::FileError> {
    let parts: Vec<&str> = name.split('/').collect();
    let odd = |part: &&str| part.is_empty() || *part == "." || *part == ".." || part.contains('\0');
    if parts.iter().any(odd) {
        return Ok(false);
    }
    for count in 1..parts.len() {
        if files::kind(&run.path(&parts[..count].join("/")))? != Some(FileKind::Folder) {
            return Ok(false);
        }
    }
    Ok(files::kind(&run.path(name))? == Some(FileKind::File))
}

pub fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("json") => "application/json",
        Some("jsonl") => "application/jsonl",
        Some("html") => "text/html",
        Some("md") => "text/markdown",
        Some("parquet") => "application/vnd.apache.parquet",
        _ => "application/octet-stream",
    }
}

/// When a run was made, in milliseconds since 1970-01-01 UTC, as its sessions recorded it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InventoryTimes {
    pub started_ms: Option<u64>,
    /// End of the last session; absent when it was killed.
    pub ended_ms: Option<u64>,
}

/// The recorded times of a run. A folder without `sessions.jsonl` has none.
///
/// # Errors
/// When `sessions.jsonl` is there and malformed.
pub fn times(run: &RunFolder) -> Result<InventoryTimes, files::FileError> {
    if !run.path("sessions.jsonl").exists() {
        return Ok(InventoryTimes::default());
    }
    let sessions = run.sessions()?;
    Ok(InventoryTimes {
        started_ms: sessions.first().and_then(|session| session.started_ms),
        ended_ms: sessions.last().and_then(|session| session.ended_ms),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, RunFolder) {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::at(folder.path());
        let names =
            ["b.json", "a/x.parquet", "a/deep/y", "run.lock", "statement.json", ".partial-z"];
        for name in names {
            files::write_atomic(&run.path(name), b"x").unwrap();
        }
        std::os::unix::fs::symlink("b.json", run.path("link.json")).unwrap();
        std::os::unix::fs::symlink("/", run.path("a/out")).unwrap();
        (folder, run)
    }

    #[test]
    fn regular_files_are_listed_by_path_and_links_apart() {
        let (_folder, run) = folder();
        let (found, strange) = names(&run).unwrap();
        assert_eq!(found, ["a/deep/y", "a/x.parquet", "b.json"]);
        assert_eq!(strange, ["a/out", "link.json"]);
    }

    #[test]
    fn a_name_that_leaves_the_folder_or_goes_through_a_link_is_not_inside() {
        let (_folder, run) = folder();
        for name in ["b.json", "a/x.parquet", "a/deep/y"] {
            assert!(is_inside(&run, name).unwrap(), "{name}");
        }
        let outside = [
            "",
            ".",
            "a",
            "a/",
            "/etc/hostname",
            "../b.json",
            "a/../b.json",
            "a//x.parquet",
            "./b.json",
            "link.json",
            "a/out/etc/hostname",
            "b.json/x",
            "missing",
            "nul\0",
        ];
        for name in outside {
            assert!(!is_inside(&run, name).unwrap(), "{name}");
        }
    }
}
