//! What a killed process leaves: names of what is half written, set aside or only for a while.

use crate::base::files::{
    FileError, FileKind, io_error, kind, list, no_temporary, remove_file, remove_folder,
    without_library_path,
};
use std::fs;
use std::path::{Path, PathBuf};

const SET_ASIDE: &str = ".set-aside-";

pub fn is_set_aside(name: &str) -> bool {
    name.contains(SET_ASIDE)
}

pub const PARTIAL_FILE: &str = ".partial-";
const PARTIAL_FOLDER: &str = ".partial";
const SCRATCH_FOLDER: &str = ".dapo-scratch-";

/// The name under which a folder is filled before [`replace_folder`](crate::base::files::replace_folder) moves it into place.
pub fn partial_folder(folder: &Path) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_os_string();
    name.push(PARTIAL_FOLDER);
    folder.with_file_name(name)
}

/// Whether a name is that of a file or folder that a killed process left half written.
pub fn is_partial(name: &str) -> bool {
    is_leftover(name) || name.ends_with(PARTIAL_FOLDER)
}

pub fn is_leftover(name: &str) -> bool {
    name.starts_with(PARTIAL_FILE) || name.starts_with(SCRATCH_FOLDER)
}

/// Removes the files of [`write_atomic`](crate::base::files::write_atomic) that a killed process left directly in a folder: nobody locks them any more.
pub fn remove_leftovers(folder: &Path) {
    remove_unheld(folder, PARTIAL_FILE, FileKind::File);
}

fn remove_unheld(folder: &Path, prefix: &str, of_kind: FileKind) {
    let is_own = |rest: &str| rest.len() == 6 && rest.bytes().all(|it| it.is_ascii_alphanumeric());
    for name in list(folder).unwrap_or_default() {
        let path = folder.join(&name);
        if name.strip_prefix(prefix).is_some_and(is_own)
            && kind(&path).is_ok_and(|kind| kind == Some(of_kind))
            && let Ok(file) = fs::File::open(&path)
            && file.try_lock().is_ok()
        {
            let is_file = of_kind == FileKind::File;
            let _read_only = if is_file { fs::remove_file(path) } else { fs::remove_dir_all(path) };
        }
    }
}

/// Removes what a killed process left half written directly in a folder, if there is one.
pub fn remove_partial(folder: &Path) -> Result<(), FileError> {
    if !folder.is_dir() {
        return Ok(());
    }
    for name in list(folder)?.iter().filter(|name| is_partial(name)) {
        let path = folder.join(name);
        if path.is_dir() { remove_folder(&path)? } else { remove_file(&path)? }
    }
    Ok(())
}

#[derive(Debug)]
pub struct ScratchFolder {
    folder: tempfile::TempDir,
    _held: fs::File,
}

impl ScratchFolder {
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// An empty folder in `beside` (`None`: TMPDIR) that ends with its value. Those of killed processes are removed first.
pub fn scratch_folder(beside: Option<&Path>) -> Result<ScratchFolder, FileError> {
    let temporary = std::env::temp_dir();
    let within = beside.unwrap_or(&temporary);
    remove_unheld(within, SCRATCH_FOLDER, FileKind::Folder);
    let make = || loop {
        let folder = tempfile::Builder::new().prefix(SCRATCH_FOLDER).tempdir_in(within)?;
        let held = fs::File::open(folder.path());
        let _unsupported = held.as_ref().map(fs::File::lock);
        if folder.path().exists() {
            return Ok(ScratchFolder { folder, _held: held? });
        }
    };
    make().map_err(without_library_path).map_err(|error| match beside {
        Some(_) => io_error("create a folder in", within)(error),
        None => no_temporary(within, &error),
    })
}

/// Renames a file or folder that cannot be used to the first free `<name>.set-aside-<n>`; returns where it is now.
pub fn set_aside(path: &Path) -> Result<PathBuf, FileError> {
    set_aside_beside(path, path)
}

pub fn set_aside_beside(path: &Path, other: &Path) -> Result<PathBuf, FileError> {
    let name = other.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let numbered = |number: u32| other.with_file_name(format!("{name}{SET_ASIDE}{number}"));
    let mut number = 1;
    while kind(&numbered(number))?.is_some() {
        number += 1;
    }
    let aside = numbered(number);
    fs::rename(path, &aside).map_err(io_error("set aside", path))?;
    Ok(aside)
}
