use crate::algorithm::Problem;
use crate::base::{files, program};
use crate::engines::demand::EngineKeys;
use crate::engines::{Demand, EngineError, Setting, demand, process};
use crate::experiment::{Experiment, Grading, RewardProgram};
use crate::task::prompt;
use crate::task::reward::program::Asked;
use crate::training::{run::inputs::Inputs, trainer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
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

    /// The lines of a rendered folder, and the training problem of each.
    pub fn read(inputs: &Inputs, folder: &Path) -> Result<(Vec<Self>, Vec<usize>), EngineError> {
        let path = folder.join("prompts.jsonl");
        let lines: Vec<Self> = files::read_data_lines(&path)?;
        let ids = inputs.data.train.iter().enumerate();
        let places: BTreeMap<&str, usize> = ids.map(|(at, it)| (it.id.as_str(), at)).collect();
        let mut problems = Vec::with_capacity(lines.len());
        for (line, prompt) in (1..).zip(&lines) {
            let id = prompt.problem.as_str();
            let what = match places.get(id) {
                Some(&at) if *prompt == Self::of(inputs, at)? => {
                    problems.push(at);
                    continue;
                }
                Some(_) => format!("this experiment has another prompt of problem {id}"),
                None => format!("problem {id} is not one of the training problems"),
            };
            return Err(EngineError::Output { path, reason: format!("line {line}: {what}") });
        }
        Ok((lines, problems))
    }
}

/// What a trainer can do of an arm, and settings that name this machine's files. Errors: what it cannot do.
pub fn settings(
    inputs: &Inputs,
    demand: Demand,
    of_machine: &[(&str, Value, &str)],
) -> Result<Vec<Setting>, EngineError> {
    let Experiment { engine, name, .. } = &inputs.experiment;
    let mut all = demand.finish().map_err(|refusals| {
        let (engine, experiment) = (*engine, name.clone());
        EngineError::Refused { engine, experiment, refusals }
    })?;
    let own = of_machine.iter().cloned();
    all.extend(own.map(|(name, value, key)| Setting::new(name, value, key, "")));
    Ok(all)
}

const OUTPUTS: [&str; 5] = ["rollouts", "policies", "trainer", "logs", "checkpoints"];

/// `asked` are the lines of the settings' file at `path`, which is about to be written. Errors: outputs of other settings
/// beside it.
pub fn refuse_other_outputs(
    path: &Path,
    asked: &str,
    keys: &EngineKeys,
) -> Result<(), EngineError> {
    if !OUTPUTS.iter().any(|name| path.with_file_name(name).exists()) {
        return Ok(());
    }
    let instead = "the folder has outputs of a trainer: render into a folder of its own";
    same_settings(path, asked, keys, instead)
}

/// The file of a rendered folder has the settings of `asked`, but for those of machines. Errors: the first other one;
/// `instead` says what to do.
pub fn same_settings(
    path: &Path,
    asked: &str,
    keys: &EngineKeys,
    instead: &str,
) -> Result<(), EngineError> {
    let refused = |what: &str| {
        Err(EngineError::Output { path: path.to_path_buf(), reason: format!("{what}; {instead}") })
    };
    if !path.is_file() {
        return refused("it is missing: this folder was not written by `dapo engine render`");
    }
    let text = files::read_text(path)?;
    let (stated, asked) = (by_name(&text), by_name(asked));
    for name in asked.keys().chain(stated.keys()) {
        let [there, here] = [&stated, &asked].map(|values| values.get(name).copied());
        if there != here && !keys.is_of_machine(name) {
            let [there, here] = [there, here].map(|value| value.map_or("not set", shortened));
            return refused(&format!("{name} is {there} there, and {here} for this experiment"));
        }
    }
    Ok(())
}

fn by_name(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.split('\n').filter(|line| !line.starts_with('#'));
    let named = lines.filter_map(|line| {
        let (name, value) = line.split_once([':', '='])?;
        let value = value.trim();
        let value = value.rsplit_once("  # ").map_or(value, |(value, _)| value);
        Some((name.trim_start_matches('+'), value))
    });
    named.collect()
}

fn shortened(value: &str) -> &str {
    let end = value.char_indices().nth(60).map_or(value.len(), |(at, _)| at);
    &value[..end]
}

pub fn base_policy(inputs: &Inputs) -> Value {
    let folder = &inputs.experiment.inputs.model;
    json!(std::path::absolute(folder).unwrap_or_else(|_| folder.clone()))
}

pub fn harness() -> Value {
    json!(program::path().unwrap_or_else(|_| "dapo".into()))
}

/// The arm's verifier for the trainer's script, as it is named to `dapo data grade --verifier`.
pub fn verifier(grading: &Grading) -> Value {
    match grading {
        Grading::Rule(rule) => demand::name(rule),
        Grading::Program(_) => Value::from(format!("{{folder}}/{VERIFIER}")),
    }
}

/// A script with the packages whose versions it notes, and how: a list of texts and a text are the same in JSON and Python.
pub fn script(text: &str, packages: &[&str]) -> String {
    let [packages, versions] = [json!(packages), json!(process::VERSIONS)];
    text.replace("PACKAGES = []", &format!("PACKAGES = {packages}"))
        .replace("VERSIONS = \"\"", &format!("VERSIONS = {versions}"))
}

const VERIFIER: &str = "verifier.json";

/// Of a program, writes `verifier.json` and `asked.jsonl`: for each problem what it is told beside the response.
pub fn write_program<'a>(
    inputs: &Inputs,
    folder: &Path,
    problems: impl IntoIterator<Item = &'a Problem>,
) -> Result<(), EngineError> {
    let Grading::Program(program) = &inputs.experiment.reward.verifier else { return Ok(()) };
    // The harness's own has no file.
    let file = std::path::absolute(&program.file).unwrap_or_else(|_| program.file.clone());
    let program = Grading::Program(Box::new(RewardProgram { file, ..*program.clone() }));
    files::write_json(&folder.join(VERIFIER), &program)?;
    let mut written = BTreeSet::new();
    let new = problems.into_iter().filter(|problem| written.insert(&problem.id));
    let asked = new.filter_map(|problem| {
        Some(AskedProblem {
            problem: &problem.id,
            asked: inputs.grader.asked((problem, "", None))?,
        })
    });
    files::write_lines(&folder.join("asked.jsonl"), &asked.collect::<Vec<_>>())?;
    Ok(())
}

#[derive(Serialize)]
struct AskedProblem<'a> {
    problem: &'a str,
    #[serde(flatten)]
    asked: Asked,
}

pub fn updates_of_step(experiment: &Experiment) -> u64 {
    let training = &experiment.training;
    let rows = training.prompts_per_step.saturating_mul(experiment.rollout.group_size);
    (rows / training.mini_batch_rollouts.max(1)).saturating_mul(training.epochs_per_step)
}

/// Training problems in the order of this harness's trainer.
pub fn drawn(inputs: &Inputs, count: u64) -> Vec<usize> {
    trainer::drawn(inputs.data.train.len(), inputs.experiment.execution.seed, 0, count)
}
