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
    let output = python::command(program).args(arguments).output();
    let output =
        output.map_err(|source| EngineError::Start { program: program.to_string(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let last = errors.lines().rev().find(|line| !line.trim().is_empty());
    let reason = last.map_or_else(|| output.status.to_string(), |line| line.trim().to_string());
    Err(EngineError::Program { program: program.to_string(), reason })
}
