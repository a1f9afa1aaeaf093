//! verl's folder: overrides, prompts in the order of training, and scripts.

use crate::algorithm::{DynamicSampling, Problem};
use crate::base::files;
use crate::engines::rendered::{self, RenderedPrompt};
use crate::engines::verl::{self, overrides, settings, settings::Cards};
use crate::engines::{EngineError, Setting};
use crate::experiment::sets;
use crate::records::tables::TableError;
use crate::task::data::{self, template};
use crate::task::{TaskError, prompt};
use crate::training::run::inputs::Inputs;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// With Dynamic Sampling a step draws more prompts than it trains on; after the last row verl begins again.
const DRAWN_PER_TRAINED: u64 = 3;

const SETTINGS: &str = "overrides.txt";

/// Has settings that name this machine's files, too; `free`: the user's `KEY=VALUE`. Errors: an arm that verl cannot
/// run; a free key that would change what it computes.
pub fn all_settings(
    inputs: &Inputs,
    cards: Cards,
    free: &[String],
) -> Result<Vec<Setting>, EngineError> {
    let of_machine = [
        ("actor_rollout_ref.model.path", rendered::base_policy(inputs), "inputs.model"),
        ("reward.custom_reward_function.reward_kwargs.program", rendered::harness(), ""),
    ];
    let demand = settings::demand(&inputs.experiment, cards);
    let mut all = rendered::settings(inputs, demand, &of_machine)?;
    for text in free {
        let refused =
            |reason: &str| EngineError::Override { text: text.clone(), reason: reason.to_string() };
        let (name, value) = text.split_once('=').ok_or_else(|| refused("expected KEY=VALUE"))?;
        if !settings::KEYS.free.iter().any(|free| free == name) {
            return Err(refused(
                "the experiment decides what this key changes, or nothing says that it changes no number",
            ));
        }
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        let every = settings::save_every(&inputs.experiment);
        let divides = value.as_u64().is_some_and(|steps| every.is_multiple_of(steps));
        if name == "trainer.save_freq" && !divides {
            return Err(refused(&format!(
                "the import needs the weights of every {every} rollout steps: take a divisor of {every}"
            )));
        }
        all.retain(|setting| setting.name != name);
        all.push(Setting::new(name, value, "", "--engine-set"));
    }
    Ok(all)
}

/// Errors: as [`all_settings`]; a prompt that cannot be rendered, a folder that cannot be written or has outputs of other
/// settings.
pub fn render(
    inputs: &Inputs,
    folder: &Path,
    cards: Cards,
    free: &[String],
) -> Result<Vec<Setting>, EngineError> {
    let all = all_settings(inputs, cards, free)?;
    let (path, lines) = (folder.join(SETTINGS), overrides::file(&all));
    rendered::refuse_other_outputs(&path, &lines, &settings::KEYS)?;
    let drawn = rendered::drawn(inputs, rows(inputs));
    let distinct: BTreeSet<usize> = drawn.iter().copied().collect();
    let prompts = distinct.into_iter().map(|problem| RenderedPrompt::of(inputs, problem));
    let prompts = prompts.collect::<Result<Vec<_>, _>>()?;
    files::create_folder(folder)?;
    let title = format!(
        "# {} on verl. Above each override: the key of the experiment. train.py fills in {{folder}}.\n",
        inputs.experiment.name
    );
    let write = |name: &str, text: &str| files::write_atomic(&folder.join(name), text.as_bytes());
    write(SETTINGS, &(title + &lines))?;
    files::write_lines(&folder.join("prompts.jsonl"), &prompts)?;
    let settings = &inputs.experiment.prompt;
    let content = |(_, problem): &(&str, &Problem)| {
        if settings.is_template_alone() {
            return Ok(template::asked(&problem.question, settings.template.instructs()));
        }
        prompt::render(problem, settings, &inputs.tokenizer)
    };
    let table = |name: &str, rows: &[(&str, &Problem)]| {
        let prompts = rows.iter().map(content).collect::<Result<Vec<_>, _>>()?;
        let written = data::write_sourced(&folder.join(name), rows, &prompts);
        written.map_err(|error: TableError| EngineError::from(TaskError::from(error)))
    };
    let train = &inputs.data.train;
    let train: Vec<_> = drawn.iter().map(|&problem| ("train", &train[problem])).collect();
    table("train.parquet", &train)?;
    let validation = validation(inputs);
    table("val.parquet", &validation)?;
    let graded = train.iter().chain(&validation).map(|(_, problem)| *problem);
    rendered::write_program(inputs, folder, graded)?;
    write("train.py", &rendered::script(include_str!("train.py"), &verl::PACKAGES))?;
    write("reward.py", include_str!("reward.py"))?;
    files::write_program(&folder.join("launch.sh"), include_str!("launch.sh"))?;
    Ok(all)
}

pub fn same_settings(
    inputs: &Inputs,
    folder: &Path,
    cards: Cards,
    free: &[String],
) -> Result<(), EngineError> {
    let lines = overrides::file(&all_settings(inputs, cards, free)?);
    let instead = "import the experiment, with the seed, of which the folder was rendered";
    rendered::same_settings(&folder.join(SETTINGS), &lines, &settings::KEYS, instead)
}

pub fn kept_too_few(inputs: &Inputs, settings: &[Setting]) -> Option<String> {
    let key = "trainer.max_actor_ckpt_to_keep";
    let kept = settings.iter().find(|setting| setting.name == key)?.value.as_u64()?;
    let experiment = &inputs.experiment;
    let read = experiment.training.rollout_steps.div_ceil(settings::save_every(experiment));
    (kept < read).then(|| {
        format!(
            "{key} = {kept}: verl removes older weights, and an import after the training reads those of {read} steps; \
             use `dapo engine launch`, which reads each while verl trains, or leave the key out"
        )
    })
}

fn rows(inputs: &Inputs) -> u64 {
    let (training, dapo) = (&inputs.experiment.training, &inputs.experiment.dapo);
    let trained = training.rollout_steps.saturating_mul(training.prompts_per_step);
    let all = dapo.dynamic_sampling == (DynamicSampling::None {});
    if all { trained } else { trained.saturating_mul(DRAWN_PER_TRAINED) }
}

/// Rows of `val.parquet`; verl needs some even without evaluations.
fn validation(inputs: &Inputs) -> Vec<(&str, &Problem)> {
    let (_, mut wanted) = settings::validation(&inputs.experiment);
    if wanted.is_empty() {
        wanted.push((sets::DEV.to_string(), 1));
    }
    let set = |(name, times): &(String, u64)| {
        let found = inputs.data.evaluated().find(|(set, _)| set == name);
        let (name, problems) = found.unwrap_or_default();
        let times = *times as usize;
        problems.iter().flat_map(move |problem| std::iter::repeat_n((name, problem), times))
    };
    wanted.iter().flat_map(set).collect()
}
