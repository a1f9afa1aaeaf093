use crate::engines::EngineError;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// From 1.
    pub line: Option<usize>,
    pub what: String,
}

impl Refused {
    pub fn at(line: usize, what: &str) -> Self {
        Self { line: Some(line), what: what.to_string() }
    }

    pub fn of(self, path: &Path) -> EngineError {
        let reason = match self.line {
            Some(line) => format!("line {line}: {}", self.what),
            None => self.what,
        };
        EngineError::Output { path: path.to_path_buf(), reason }
    }
}
