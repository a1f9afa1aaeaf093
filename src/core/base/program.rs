//! The program that this process is: where it starts itself (a cell of a study, a reader of tables)
//! or is named to another program, this is its path.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

static PATH: OnceLock<PathBuf> = OnceLock::new();

/// A process that executes commands of a program it was not started as (the tests) names it here.
pub fn set_path(path: PathBuf) {
    // A second call changes nothing: there is one program.
    let _again = PATH.set(path);
}

/// # Errors
/// When the system cannot name the executable of this process.
pub fn path() -> io::Result<PathBuf> {
    PATH.get().map_or_else(std::env::current_exe, |path| Ok(path.clone()))
}
