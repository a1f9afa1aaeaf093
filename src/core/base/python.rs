//! The user's Python as a child process.

use std::path::PathBuf;
use std::process::Command;

/// `DAPO_PYTHON`, else `python3`.
pub fn of_environment() -> String {
    std::env::var("DAPO_PYTHON").unwrap_or_else(|_| "python3".to_string())
}

/// It must not load this process's LibTorch.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    if let Some(folders) = std::env::var_os("LD_LIBRARY_PATH") {
        let other = |folder: &PathBuf| !folder.join("libtorch_cpu.so").exists();
        let folders = std::env::split_paths(&folders).filter(other);
        command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap_or_default());
    }
    command
}
