//! The path of this process's program, for starting it again (a cell, a reader of tables) or naming it to another.

use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;

static PATH: OnceLock<PathBuf> = OnceLock::new();

/// A process that executes commands of a program it was not started as (the tests) names it here.
pub fn set_path(path: PathBuf) {
    // A second call changes nothing: there is one program.
    let _again = PATH.set(path);
}

/// Errors: an executable of this process that the system cannot name.
pub fn path() -> io::Result<PathBuf> {
    PATH.get().map_or_else(std::env::current_exe, |path| Ok(path.clone()))
}
