//! TRL's folder: settings, prompts in the order of training, and the script.

use crate::base::{files, program};
use crate::engines::rendered::{self, RenderedPrompt};
use crate::engines::trl::{self, settings};
use crate::engines::{EngineError, Setting, demand};
use crate::experiment::Engine;
use crate::training::run::inputs::Inputs;
use std::path::Path;

pub const SCRIPT: &str = include_str!("train.py");

/// Includes settings that name this machine's files.
pub fn all_settings(inputs: &Inputs, processes: u64) -> Result<Vec<Setting>, EngineError> {
    let experiment = &inputs.experiment;
    let mut all = settings::settings(experiment, processes).map_err(|refusals| {
        let (engine, experiment) = (Engine::Trl, experiment.name.clone());
        EngineError::Refused { engine, experiment, refusals }
    })?;
    let path = |path: &Path| std::path::absolute(path).unwrap_or(path.to_path_buf());
    let program = program::path().unwrap_or_else(|_| "dapo".into());
    for (name, value, key) in [
        ("model", serde_json::json!(path(&experiment.inputs.model)), "inputs.model"),
        ("stop_tokens", serde_json::json!(inputs.tokenizer.stop_tokens()), "inputs.model"),
        ("program", serde_json::json!(program), ""),
    ] {
        let (name, key) = (format!("harness.{name}"), key.to_string());
        all.push(Setting { name, value, key, remark: String::new() });
    }
    Ok(all)
}

/// Errors: an arm that TRL cannot run, a prompt that cannot be rendered, a folder that cannot be written.
pub fn render(inputs: &Inputs, folder: &Path, processes: u64) -> Result<Vec<Setting>, EngineError> {
    let all = all_settings(inputs, processes)?;
    let prompts = prompts(inputs)?;
    files::create_folder(folder)?;
    let title = format!(
        "# {} on TRL. After each value: the key of the experiment.\n",
        inputs.experiment.name
    );
    files::write_atomic(&folder.join("config.yaml"), (title + &demand::yaml(&all)).as_bytes())?;
    files::write_lines(&folder.join("prompts.jsonl"), &prompts)?;
    rendered::write_program(inputs, folder, &inputs.data.train)?;
    let script = rendered::script(SCRIPT, &trl::PACKAGES);
    files::write_atomic(&folder.join("train.py"), script.as_bytes())?;
    Ok(all)
}

/// All rollout steps, as this harness's trainer draws them.
fn prompts(inputs: &Inputs) -> Result<Vec<RenderedPrompt>, EngineError> {
    let training = &inputs.experiment.training;
    let drawn = rendered::drawn(inputs, training.rollout_steps * training.prompts_per_step);
    drawn.into_iter().map(|problem| RenderedPrompt::of(inputs, problem)).collect()
}
