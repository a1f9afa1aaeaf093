//! From a response's tokens to the text that is graded, and where a stop string ends it. As in vLLM
//! (`include_stop_str_in_output = false`), the text ends before the stop string, the tokens with the one that completes
//! it. Deviation: where one token completes several, vLLM cuts at the first of the list, we at the first of the text.

use crate::experiment::Experiment;
use crate::task::{TaskError, Tokenizer};

#[derive(Debug, Clone, Copy)]
pub struct ResponseText<'a> {
    tokenizer: &'a Tokenizer,
    prefix: &'a str,
    stop: &'a [String],
}

impl<'a> ResponseText<'a> {
    pub fn new(tokenizer: &'a Tokenizer, prefix: Option<&'a str>, stop: &'a [String]) -> Self {
        Self { tokenizer, prefix: prefix.unwrap_or_default(), stop }
    }

    pub fn of_rollouts(experiment: &'a Experiment, tokenizer: &'a Tokenizer) -> Self {
        let prefix = experiment.prompt.response_prefix.as_deref();
        Self::new(tokenizer, prefix, experiment.rollout_stop())
    }

    /// `None` where no stop string ends a response.
    pub fn stopping(self) -> Option<Self> {
        (!self.stop.is_empty()).then_some(self)
    }

    /// The beginning that the prompt has, then the decoded tokens before the stop token or the first stop string.
    pub fn of(&self, tokens: &[u32]) -> String {
        let is_stop = |token: &&u32| self.tokenizer.stop_tokens().contains(*token);
        let stopped = tokens.len() - usize::from(tokens.last().filter(is_stop).is_some());
        let mut text = self.tokenizer.decode(&tokens[..stopped]);
        text.truncate(self.end_of(&text).unwrap_or(text.len()));
        [self.prefix, &text].concat()
    }

    /// Whether the newest token completes a stop string. No earlier one does.
    pub fn is_complete(&self, tokens: &[u32]) -> bool {
        /// Tokens whose text a decoder may change by what stands before them.
        const MARGIN: usize = 8;
        let Some(longest) = self.stop.iter().map(String::len).max() else { return false };
        // Each token has a byte of text or more, so these hold every stop string that ends in the newest:
        // the cost of a token does not grow with the response.
        let has_text = |token: &&u32| !self.tokenizer.special_tokens().contains_key(*token);
        let tail = tokens.iter().rev().filter(has_text).take(longest + MARGIN).copied();
        let mut tail: Vec<u32> = tail.collect();
        tail.reverse();
        let is_in = |tokens: &[u32]| self.end_of(&self.tokenizer.decode(tokens)).is_some();
        is_in(&tail) && is_in(tokens)
    }

    fn end_of(&self, text: &str) -> Option<usize> {
        self.stop.iter().filter_map(|stop| text.find(stop.as_str())).min()
    }
}

/// Errors: a text that no response has: one with a special token, or with characters that the tokenizer lacks.
pub fn check_stop(
    key: &'static str,
    tokenizer: &Tokenizer,
    stop: &[String],
) -> Result<(), TaskError> {
    let of_key = |source| TaskError::Stop { key, source: Box::new(source) };
    for text in stop {
        tokenizer.encode(text).map_err(of_key)?;
        let mut special = tokenizer.special_tokens().values();
        if let Some(token) = special.find(|token| text.contains(*token)) {
            let (text, token) = (text.clone(), token.clone());
            return Err(of_key(TaskError::SpecialStop { text, token }));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
