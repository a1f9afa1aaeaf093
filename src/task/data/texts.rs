//! Written solutions from a file, for a base policy of a task of one's own.

use crate::base::files;
use crate::base::rng::Stream;
use crate::task::{Shares, Solutions, TaskError, Written};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenText {
    question: String,
    solution: String,
}

/// Solutions of a file, each as likely as another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Texts(Vec<WrittenText>);

impl Texts {
    /// # Errors
    /// [`TaskError`] for a file that cannot be read, has no line, or has an empty text.
    pub fn read(path: &Path) -> Result<Self, TaskError> {
        let texts: Vec<WrittenText> = files::read_data_lines(path)?;
        let path = path.to_path_buf();
        if texts.is_empty() {
            return Err(TaskError::Empty { path });
        }
        for (record, text) in texts.iter().enumerate() {
            for (field, value) in [("question", &text.question), ("solution", &text.solution)] {
                if value.is_empty() {
                    return Err(TaskError::Blank { path, record, field });
                }
            }
        }
        Ok(Self(texts))
    }
}

impl Solutions for Texts {
    fn characters(&self) -> String {
        let of = |text: &WrittenText| {
            (text.question.clone() + &text.solution).chars().collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect::<BTreeSet<char>>().into_iter().collect()
    }

    fn shares(&self) -> &'static [&'static str] {
        &[]
    }

    /// A solution that is longer is cut and has no end.
    fn write(&self, _shares: &Shares, max_characters: usize, draws: &mut Stream) -> Written {
        let WrittenText { question, solution } = &self.0[draws.below(self.0.len() as u64) as usize];
        Written::cut(question.clone(), solution, max_characters)
    }
}
