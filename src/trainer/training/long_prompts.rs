//! Prompts with more than `max_prompt_tokens` tokens: those of a set are counted before one message tells of them.

use crate::algorithm::Prompt;
use crate::task::TaskError;

#[derive(Debug, Default)]
pub struct LongPrompts {
    count: usize,
    /// Whether it is counted in bytes (it was not tokenized), its size, and the problem.
    longest: (bool, usize, String),
}

impl LongPrompts {
    /// The prompt, unless it is too long. Errors: one of another kind.
    pub fn counted(
        &mut self,
        prompt: Result<Prompt, TaskError>,
    ) -> Result<Option<Prompt>, TaskError> {
        let long = match prompt {
            Err(TaskError::TooLong { id, tokens, .. }) => (false, tokens, id),
            Err(TaskError::TooLongText { id, bytes, .. }) => (true, bytes, id),
            other => return other.map(Some),
        };
        self.count += 1;
        if (long.0, long.1) > (self.longest.0, self.longest.1) {
            self.longest = long;
        }
        Ok(None)
    }

    /// `problems`: all of the set; `setting`: how the user states another limit. Errors: their number and the longest.
    pub fn refuse(self, problems: usize, limit: u64, setting: &str) -> Result<(), TaskError> {
        let Self { count, longest: (is_in_bytes, size, id) } = self;
        if count == 0 {
            return Ok(());
        }
        let unit = if is_in_bytes { "bytes" } else { "tokens" };
        let what = format!(
            "{count} of {problems} problems have prompts of more than max_prompt_tokens ({limit}); the longest, of \
             problem {id}, has {size} {unit}"
        );
        Err(TaskError::LongPrompts { what, setting: setting.to_string() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_prompts_that_are_too_long_are_counted_and_the_longest_is_named() {
        let mut long = LongPrompts::default();
        for (id, tokens) in [("a", 30), ("b", 90), ("c", 31)] {
            long.counted(Err(TaskError::TooLong { id: id.into(), tokens, limit: 24 })).unwrap();
        }
        let refused = long.refuse(8, 24, "--max-prompt-tokens N").unwrap_err().to_string();
        assert_eq!(
            refused,
            "3 of 8 problems have prompts of more than max_prompt_tokens (24); the longest, of problem b, has 90 \
             tokens; --max-prompt-tokens N takes longer ones, or leave those rows out"
        );
        assert!(LongPrompts::default().refuse(8, 24, "").is_ok());
        let mut long = LongPrompts::default();
        for error in [
            TaskError::TooLongText { id: "d".into(), bytes: 12_000, limit: 24 },
            TaskError::TooLong { id: "e".into(), tokens: 20_000, limit: 24 },
        ] {
            assert!(long.counted(Err(error)).unwrap().is_none());
        }
        let refused = long.refuse(8, 24, "").unwrap_err().to_string();
        assert!(refused.contains("problem d, has 12000 bytes"), "{refused}");
        let other = TaskError::EmptyPrompt { id: "f".into() };
        assert!(LongPrompts::default().counted(Err(other)).is_err());
    }
}
