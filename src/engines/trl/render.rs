//! TRL's folder: settings, prompts in the order of training, and the script.

use crate::base::files;
use crate::engines::rendered::{self, RenderedPrompt};
use crate::engines::trl::{self, settings};
use crate::engines::{EngineError, Setting, demand};
use crate::training::run::inputs::Inputs;
use serde_json::json;
use std::path::Path;

pub const SCRIPT: &str = include_str!("train.py");

const SETTINGS: &str = "config.yaml";

/// Includes settings that name this machine's files.
pub fn all_settings(inputs: &Inputs, processes: u64) -> Result<Vec<Setting>, EngineError> {
    let of_machine = [
        ("harness.model", rendered::base_policy(inputs), "inputs.model"),
        ("harness.stop_tokens", json!(inputs.tokenizer.stop_tokens()), "inputs.model"),
        ("harness.program", rendered::harness(), ""),
    ];
    rendered::settings(inputs, settings::demand(&inputs.experiment, processes), &of_machine)
}

/// Errors: an arm that TRL cannot run, a prompt that cannot be rendered, a folder that cannot be written or has outputs of
/// other settings.
pub fn render(inputs: &Inputs, folder: &Path, processes: u64) -> Result<Vec<Setting>, EngineError> {
    let all = all_settings(inputs, processes)?;
    let (path, lines) = (folder.join(SETTINGS), demand::yaml(&all));
    rendered::refuse_other_outputs(&path, &lines, &settings::KEYS)?;
    // All rollout steps, as this harness's trainer draws them.
    let training = &inputs.experiment.training;
    let drawn = rendered::drawn(inputs, training.rollout_steps * training.prompts_per_step);
    let prompts = drawn.into_iter().map(|problem| RenderedPrompt::of(inputs, problem));
    let prompts = prompts.collect::<Result<Vec<_>, _>>()?;
    files::create_folder(folder)?;
    let title = format!(
        "# {} on TRL. After each value: the key of the experiment.\n",
        inputs.experiment.name
    );
    files::write_atomic(&path, (title + &lines).as_bytes())?;
    files::write_lines(&folder.join("prompts.jsonl"), &prompts)?;
    rendered::write_program(inputs, folder, &inputs.data.train)?;
    let script = rendered::script(SCRIPT, &trl::PACKAGES);
    files::write_atomic(&folder.join("train.py"), script.as_bytes())?;
    Ok(all)
}

pub fn same_settings(inputs: &Inputs, folder: &Path, processes: u64) -> Result<(), EngineError> {
    let lines = demand::yaml(&all_settings(inputs, processes)?);
    let instead = "import the experiment, with the seed and the --processes, of which the folder was rendered";
    rendered::same_settings(&folder.join(SETTINGS), &lines, &settings::KEYS, instead)
}
