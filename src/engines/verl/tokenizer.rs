//! What the installed verl makes of an arm's tokenizer.

use crate::engines::{EngineError, Trap, process, rendered};
use crate::task::TaskError;
use crate::training::run::inputs::Inputs;
use serde::Deserialize;
use serde_json::json;

/// Problems whose texts are compared.
const PROBLEMS: usize = 200;

const KEY: &str = "inputs.model";

#[derive(Deserialize)]
struct Loaded {
    class: String,
    /// Texts that get other token ids.
    other: Vec<String>,
    refused: Option<String>,
}

/// Errors: a Python without transformers, or a tokenizer that it cannot load.
pub fn traps(inputs: &Inputs, program: &str) -> Result<Vec<Trap>, EngineError> {
    let problems = inputs.data.train.iter().take(PROBLEMS);
    let texts = problems.map(|it| format!("{} {}", it.question, it.answer)).map(|text| {
        let ids = inputs.tokenizer.encode(&text)?;
        Ok((text, ids))
    });
    let texts = texts.collect::<Result<Vec<_>, TaskError>>()?;
    let script = include_str!("tokenizer.py");
    let input = json!({"model": rendered::base_policy(inputs), "texts": texts});
    let Loaded { class, other, refused } = process::ask(program, script, &input)?;
    let trap = |name, what| Trap { name, key: KEY.to_string(), value: json!(class), what };
    let refusal = |why| {
        let what = format!(
            "verl's agent loop for this type of model does not start with the tokenizer: {why}; name a loop of \
             your own in rollout.agent.agent_loop_config_path"
        );
        trap("agent-loop", what)
    };
    let differs = |text: &String| {
        let what = format!(
            "transformers gives {} of {} texts of this task other token ids, {text:?} among them, and verl saves \
             this tokenizer beside its weights: use that of inputs.model with them",
            other.len(),
            texts.len()
        );
        trap("tokenizer-class", what)
    };
    Ok(refused.map(refusal).into_iter().chain(other.first().map(differs)).collect())
}
