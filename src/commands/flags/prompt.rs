//! Flags of what stands around a question, and of what ends a response, where no experiment states it.

use crate::commands::exit::Usage;
use crate::experiment::{PromptExample, PromptSettings, PromptTemplate, validate};
use serde_json::{Error as JsonError, Value};
use std::collections::BTreeMap;

type Variables = BTreeMap<String, Value>;

#[derive(Debug, Clone, clap::Args)]
pub struct PromptArgs {
    /// Text before the question: the system's message in a chat template
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// A question with its response before the question; may be repeated
    #[arg(long, num_args = 2, value_names = ["QUESTION", "RESPONSE"])]
    example: Vec<String>,
    /// Text with which every response begins; it is part of the prompt and of the graded text
    #[arg(long, value_name = "TEXT")]
    response_prefix: Option<String>,
    /// Variables of the chat template as a JSON object, such as '{"enable_thinking": false}'
    #[arg(long, value_name = "JSON", value_parser = variables)]
    chat_template_kwargs: Option<Variables>,
    /// Text that ends a response and is not part of it; may be repeated
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub stop: Vec<String>,
}

impl PromptArgs {
    pub fn is_empty(&self) -> bool {
        self.stop.is_empty() && !self.is_around()
    }

    /// Whether anything but the template stands around a question.
    pub fn is_around(&self) -> bool {
        self.system.is_some()
            || self.response_prefix.is_some()
            || !self.example.is_empty()
            || self.chat_template_kwargs.is_some()
    }

    /// Errors: texts that an experiment could not have.
    pub fn settings(&self, template: PromptTemplate) -> Result<PromptSettings, Usage> {
        let example = |pair: &[String]| PromptExample {
            question: pair[0].clone(),
            response: pair[1].clone(),
        };
        let settings = PromptSettings {
            template,
            system: self.system.clone(),
            examples: self.example.chunks_exact(2).map(example).collect(),
            response_prefix: self.response_prefix.clone(),
            chat_template_kwargs: self.chat_template_kwargs.clone().unwrap_or_default(),
        };
        let mut problems = validate::prompt("", &settings);
        problems.extend(validate::stop_strings("--stop", &self.stop));
        if problems.is_empty() { Ok(settings) } else { Err(Usage(problems.join("\n"))) }
    }
}

fn variables(text: &str) -> Result<Variables, JsonError> {
    serde_json::from_str(text)
}
