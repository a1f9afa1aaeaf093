//! The command that runs a cell, and calls of other programs.

use crate::base::python;
use crate::engines::EngineError;
use std::fmt::Display;
use std::path::PathBuf;

/// This program on another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellProgram {
    pub program: PathBuf,
    pub study: PathBuf,
    /// Start of relative paths.
    pub inputs: PathBuf,
    pub retry_failed: bool,
}

impl CellProgram {
    pub fn words(&self, cell: &impl Display) -> Vec<String> {
        let shown = |path: &PathBuf| path.display().to_string();
        let (program, cell) = (shown(&self.program), cell.to_string());
        let (study, inputs) = (shown(&self.study), shown(&self.inputs));
        let run = [&program, "cell", "run", &cell, "--study", &study, "--inputs", &inputs];
        let mut words = run.map(String::from).to_vec();
        words.extend(self.retry_failed.then(|| "--retry-failed".to_string()));
        words
    }
}

/// Fails if the program fails.
pub fn printed(program: &str, arguments: &[String]) -> Result<String, EngineError> {
    let mut command = python::command(program);
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let filters = |name: &String| name.starts_with("SQUEUE_") || name == "SLURM_CLUSTERS";
    for name in names.filter(|name| program == "squeue" && filters(name)) {
        command.env_remove(name);
    }
    let start = |source| EngineError::Start { program: program.to_string(), source };
    let output = command.args(arguments).output().map_err(start)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let reason = last_words(&errors).unwrap_or_else(|| output.status.to_string());
    Err(EngineError::Program { program: program.to_string(), reason })
}

fn last_words(errors: &str) -> Option<String> {
    let has_words = |line: &&str| line.contains(char::is_alphabetic);
    let mut lines: Vec<&str> =
        errors.lines().rev().map(str::trim).filter(has_words).take(2).collect();
    lines.reverse();
    (!lines.is_empty()).then(|| lines.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_end_with_lines_that_have_words() {
        let ray =
            "Traceback:\n  File x\nValueError: Job a already exists.\nPlease use another id\n.\n\n";
        let words = "ValueError: Job a already exists.; Please use another id";
        assert_eq!(last_words(ray).as_deref(), Some(words));
        assert_eq!(last_words(".\n--\n"), None);
    }
}
