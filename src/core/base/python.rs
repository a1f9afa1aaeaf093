//! The user's Python as a child process.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// `DAPO_PYTHON`, else `python3`.
pub fn of_environment() -> String {
    let stated = std::env::var("DAPO_PYTHON").ok().filter(|program| !program.is_empty());
    stated.unwrap_or_else(|| "python3".to_string())
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

/// A script that got `input`, and whose output is kept. Errors: Python does not start.
pub fn fed(program: &str, script: &str, input: &[u8]) -> io::Result<Child> {
    let mut command = command(program);
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    // A script that ends without reading says why on standard error.
    let _gone = child.stdin.take().map(|mut stdin| stdin.write_all(input));
    Ok(child)
}

/// Standard output of a script that gets `input`; else why Python did not start, or the last line on standard error.
pub fn output_of(program: &str, script: &str, input: &[u8]) -> Result<String, String> {
    let output = fed(program, script, input).and_then(Child::wait_with_output);
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(|error| error.to_string());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.trim().lines().last().unwrap_or("it failed without a word");
    let is_missing = last.starts_with("ModuleNotFoundError");
    let advice = format!("; install it into {program}, or name a Python that has it");
    Err(format!("{last}{}", if is_missing { advice.as_str() } else { "" }))
}
