use crate::algorithm::Problem;
use crate::base::files;
use crate::engines::{Demand, EngineError, demand, process};
use crate::experiment::{Grading, RewardProgram};
use crate::task::prompt;
use crate::task::reward::program::Asked;
use crate::training::{run::inputs::Inputs, trainer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

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

/// The arm's verifier for the trainer's script, as it is named to `dapo data grade --verifier`.
pub fn verifier(grading: &Grading) -> Value {
    match grading {
        Grading::Rule(rule) => demand::name(rule),
        Grading::Program(_) => Value::from(format!("{{folder}}/{VERIFIER}")),
    }
}

/// What holds of a program in every trainer's script.
pub fn need_program(demand: &mut Demand, grading: &Grading) {
    let Grading::Program(program) = grading else { return };
    let reason =
        "each response is graded again when the run is imported, and must get the same grade";
    let allowed = program.allow_nondeterministic;
    demand.need(!allowed, "reward.verifier.allow_nondeterministic", &allowed, reason);
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
    let file = std::path::absolute(&program.file).unwrap_or_else(|_| program.file.clone());
    let file = if program.file.as_os_str().is_empty() { PathBuf::new() } else { file };
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

/// Training problems in the order of this harness's trainer.
pub fn drawn(inputs: &Inputs, count: u64) -> Vec<usize> {
    trainer::drawn(inputs.data.train.len(), inputs.experiment.execution.seed, 0, count)
}
