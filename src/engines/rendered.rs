//! Prompts as another trainer gets them.

use crate::engines::EngineError;
use crate::task::prompt;
use crate::training::{run::inputs::Inputs, trainer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// A line of `prompts.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RenderedPrompt {
    pub problem: String,
    pub prompt: String,
    pub tokens: Vec<u32>,
    pub answer: String,
}

impl RenderedPrompt {
    pub fn of(inputs: &Inputs, problem: usize) -> Result<Self, EngineError> {
        let (experiment, tokenizer) = (&inputs.experiment, &inputs.tokenizer);
        let problem = &inputs.data.train[problem];
        let (settings, limit) = (&experiment.prompt, experiment.rollout.max_prompt_tokens);
        Ok(Self {
            problem: problem.id.clone(),
            prompt: prompt::render(problem, settings, tokenizer)?,
            tokens: prompt::prompt(problem, settings, tokenizer, limit)?.tokens,
            answer: problem.answer.clone(),
        })
    }

    /// The training problem of each line.
    pub fn places(inputs: &Inputs, lines: &[Self], path: &Path) -> Result<Vec<usize>, EngineError> {
        let ids = inputs.data.train.iter().enumerate();
        let places: BTreeMap<&str, usize> = ids.map(|(at, it)| (it.id.as_str(), at)).collect();
        let place = |(line, prompt): (usize, &Self)| {
            places.get(prompt.problem.as_str()).copied().ok_or_else(|| EngineError::Output {
                path: path.to_path_buf(),
                reason: format!(
                    "line {}: problem {} is not one of the training problems",
                    line + 1,
                    prompt.problem
                ),
            })
        };
        lines.iter().enumerate().map(place).collect()
    }
}

/// Training problems in the order of this harness's trainer.
pub fn drawn(inputs: &Inputs, count: u64) -> Vec<usize> {
    trainer::drawn(inputs.data.train.len(), inputs.experiment.execution.seed, 0, count)
}
