//! What can be wrong with an experiment file or a grid.

use crate::base::files;

#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    #[error(transparent)]
    File(#[from] files::FileError),
    #[error("{}", problems.join("\n"))]
    Invalid {
        /// One line each: file, arm or key, rule, value.
        problems: Vec<String>,
    },
}

impl From<String> for ExperimentError {
    fn from(problem: String) -> Self {
        Self::Invalid { problems: vec![problem] }
    }
}
