//! A cold start: a checkpoint learns the form of an answer from written solutions before reinforcement learning.

use crate::algorithm::{Problem, dynamic_sampling};
use crate::base::files::{self, FileError};
use crate::experiment::{
    Grading, PromptExample, PromptSettings, PromptTemplate, Sampling, Verifier, sets, validate,
};
use crate::numerics::Numerics;
use crate::policy::{Qwen2, checkpoint, checkpoint::weights};
use crate::records::tables::OutcomeRecord;
use crate::task::data::{self, embedded, texts::Texts};
use crate::task::{Embedded, Grader, Solutions, TaskError, Tokenizer, prompt};
use crate::training::evaluation::{self, Set};
use crate::training::supervised::{self, AdamSettings, Lessons, Stage, StageUpdate};
use crate::training::{Protocol, TrainingError};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuneRecipe {
    /// As in `inputs.data.kind`; or `solutions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// JSON lines `{"question", "solution"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solutions: Option<PathBuf>,
    /// As in `prompt.template`.
    pub template: PromptTemplate,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<PromptExample>,
    /// A solution is what follows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_prefix: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub chat_template_kwargs: BTreeMap<String, Value>,
    /// A file for the tuned policy; absent: the checkpoint's own template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_template: Option<PathBuf>,
    pub numerics: Numerics,
    /// Decides problems, ways of writing and sampled responses.
    pub seed: u64,
    pub optimizer: AdamSettings,
    /// In order, each with fresh moments.
    pub stages: Vec<Stage>,
    pub evaluation: TuneProtocol,
}

/// Before and after, at temperature 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuneProtocol {
    /// From the task's development set, or from the file, whose questions are then not learned.
    pub problems: u64,
    pub samples: u64,
    pub max_response_tokens: u64,
    pub verifier: Verifier,
    pub generation_batch_rollouts: u64,
}

pub struct TuneData {
    solutions: Box<dyn Solutions>,
    texts: Option<Texts>,
    problems: Vec<Problem>,
    /// The problems' lines in the file of solutions.
    lines: Vec<usize>,
    tags: BTreeMap<String, Vec<String>>,
    /// Name → SHA-256.
    pub digests: BTreeMap<String, String>,
}

/// Statistics of sampled responses. Shares are in [0, 1].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TuneEvaluation {
    pub problems: u64,
    pub samples: u64,
    /// Responses with an answer that the verifier reads.
    pub answered_share: f64,
    pub accuracy: f64,
    /// Problems with right and wrong responses: a group-relative method learns from these alone.
    pub useful_groups_share: f64,
    pub pass_at_k: f64,
    /// Mean over tokens, in nats.
    pub entropy: f64,
    pub truncated_share: f64,
    pub response_tokens_mean: f64,
    pub accuracy_by_tag: BTreeMap<String, f64>,
    /// First problems: question, answer, response.
    pub examples: Vec<[String; 3]>,
}

const EXAMPLES: usize = 4;

impl TuneRecipe {
    /// As `[prompt]` of an experiment. A table of it here would change the records of earlier policies.
    pub fn prompt(&self) -> PromptSettings {
        let Self { template, system, examples, .. } = self.clone();
        let Self { response_prefix, chat_template_kwargs, .. } = self.clone();
        PromptSettings { template, system, examples, response_prefix, chat_template_kwargs }
    }

    /// Relative paths start from `folder`.
    pub fn start_from(&mut self, folder: &Path) {
        for path in [&mut self.solutions, &mut self.chat_template].into_iter().flatten() {
            *path = folder.join(&path);
        }
    }

    /// Removes folders from paths, for a record that has the files' digests.
    pub fn by_file_names(&self) -> Self {
        let mut named = self.clone();
        for path in [&mut named.solutions, &mut named.chat_template].into_iter().flatten() {
            *path = path.file_name().map(PathBuf::from).unwrap_or_default();
        }
        named
    }

    /// Errors: [`TaskError`] for an unknown or missing task, and for solutions that cannot be used.
    pub fn data(&self) -> Result<TuneData, TaskError> {
        let wanted = self.evaluation.problems as usize;
        match (&self.task, &self.solutions) {
            (Some(name), None) => {
                let task: Box<dyn Embedded> = embedded::named(name)?;
                let mut all = task.sets();
                let digests = [("data/train", &all.train), ("data/dev", &all.dev)];
                let digests = digests.map(|(set, it)| (set.to_string(), data::digest(it))).into();
                let tags = all.tags.remove(sets::DEV).unwrap_or_default();
                all.dev.truncate(wanted);
                let solutions: Box<dyn Solutions> = task;
                let (texts, lines) = (None, Vec::new());
                Ok(TuneData { solutions, texts, problems: all.dev, lines, tags, digests })
            }
            (None, Some(path)) => {
                let mut texts = Texts::read(path)?;
                let held_out = texts.hold_out(wanted, self.evaluation.verifier)?;
                let (lines, problems) = held_out.into_iter().unzip();
                let digests = [("data/solutions".to_string(), files::sha256_file(path)?)].into();
                let (solutions, tags) = (Box::new(texts.clone()), BTreeMap::new());
                Ok(TuneData { solutions, texts: Some(texts), problems, lines, tags, digests })
            }
            _ => Err(TaskError::Solutions),
        }
    }

    /// One sentence for each problem, starting with the key.
    pub fn problems(&self, data: &TuneData) -> Vec<String> {
        let mut problems = supervised::problems(self.optimizer, &self.stages, &*data.solutions);
        problems.extend(validate::prompt("", &self.prompt()));
        let TuneProtocol { problems: count, samples, max_response_tokens, .. } = self.evaluation;
        // Where 0 problems are asked for, none are held: their number is then no bound.
        let held = if count == 0 { 1 << 20 } else { data.problems.len() as u64 };
        for (key, value, most) in [
            ("problems", count, held),
            ("samples", samples, 1 << 20),
            ("max_response_tokens", max_response_tokens, 1 << 20),
            ("generation_batch_rollouts", self.evaluation.generation_batch_rollouts, 1 << 20),
        ] {
            if !(1..=most).contains(&value) {
                problems.push(format!("evaluation.{key} must be from 1 to {most}, got {value}"));
            }
        }
        problems
    }

    fn protocol(&self) -> Protocol {
        Protocol {
            prompt: self.prompt(),
            max_prompt_tokens: u64::MAX,
            max_response_tokens: self.evaluation.max_response_tokens,
            sampling: Sampling { temperature: 1.0, top_p: 1.0, top_k: 0, log_probs: None },
            verifier: Grading::Rule(self.evaluation.verifier),
            seed: self.seed,
            batch_rows: self.evaluation.generation_batch_rollouts,
            stop: Vec::new(),
            keeps_rewards: false,
        }
    }
}

/// Copies of a policy need these files.
const TERMS: [&str; 2] = ["LICENSE", "NOTICE"];

/// SHA-256 of checkpoint files, data and chat template. Errors: a file that cannot be read.
pub fn digests(
    recipe: &TuneRecipe,
    data: &TuneData,
    base: &Path,
) -> Result<BTreeMap<String, String>, TrainingError> {
    let mut digests = data.digests.clone();
    digests.extend(base_digests(base)?);
    if let Some(path) = &recipe.chat_template {
        digests.insert("chat_template".to_string(), files::sha256_file(path)?);
    }
    Ok(digests)
}

pub fn base_digests(folder: &Path) -> Result<BTreeMap<String, String>, TrainingError> {
    let companions = checkpoint::COMPANIONS.map(String::from).into_iter();
    let mut digests = BTreeMap::new();
    for name in companions.chain(weights::names(folder)?) {
        let path = folder.join(&name);
        if path.exists() {
            digests.insert(format!("base/{name}"), files::sha256_file_once(&path)?);
        }
    }
    Ok(digests)
}

/// Everything but the weights. Errors: a file that cannot be read or written.
pub fn write_companions(recipe: &TuneRecipe, base: &Path, out: &Path) -> Result<(), FileError> {
    const OF_CHAT: [&str; 2] = ["tokenizer_config.json", "chat_template.jinja"];
    files::create_folder(out)?;
    for name in checkpoint::COMPANIONS.into_iter().chain(TERMS) {
        let from = base.join(name);
        if from.exists() {
            files::write_atomic(&out.join(name), &files::read(&from)?)?;
        }
    }
    let Some(template) = &recipe.chat_template else { return Ok(()) };
    let [config, jinja] = OF_CHAT.map(|name| out.join(name));
    files::write_atomic(&jinja, &files::read(template)?)?;
    if config.exists() {
        let mut json: serde_json::Map<String, Value> = files::read_json(&config)?;
        json.remove("chat_template");
        files::write_json(&config, &json)?;
    }
    Ok(())
}

/// A chat template ends the assistant's turn with it.
/// Errors: a chat template whose turns end with a token that stops no response.
pub fn stop_token(
    tokenizer: &Tokenizer,
    template: PromptTemplate,
    folder: &Path,
) -> Result<u32, TaskError> {
    if !template.is_chat() {
        return Ok(tokenizer.stop_tokens()[0]);
    }
    let folder = folder.to_path_buf();
    let Some(chat) = tokenizer.chat_template()? else {
        return Err(TaskError::NoChatTemplate { folder });
    };
    if let Some(token) = tokenizer.unstopped_end_of_turn()? {
        return Err(TaskError::Unstopped { folder, token });
    }
    let first = tokenizer.encode(&chat.end_of_turn())?.first().copied();
    first.ok_or_else(|| TaskError::Unstopped { folder, token: "nothing".to_string() })
}

impl TuneData {
    /// Checks beforehand that every prompt can be made, and that every line of a file fits the stages, the evaluation
    /// and the model's positions. The error names the line and its tokens.
    pub fn fit(
        &self,
        recipe: &TuneRecipe,
        tokenizer: &Tokenizer,
        positions: i64,
    ) -> Result<(), TaskError> {
        let settings = recipe.prompt();
        let Some((texts, path)) = self.texts.as_ref().zip(recipe.solutions.as_ref()) else {
            for problem in &self.problems {
                prompt::prompt(problem, &settings, tokenizer, u64::MAX)?;
            }
            return Ok(());
        };
        // The error with its line instead of its problem.
        let at = |line, error| {
            let reason = match error {
                TaskError::Problem { source, .. } => source.to_string(),
                error => error.to_string(),
            };
            TaskError::from(FileError::Line { path: path.clone(), line, reason })
        };
        let check = |line, problem: &Problem, response: u64, of_response| {
            let prompt = prompt::prompt(problem, &settings, tokenizer, u64::MAX);
            let prompt = prompt.map_err(|error| at(line, error))?.tokens.len();
            if (prompt as u64).saturating_add(response) <= positions as u64 {
                return Ok(());
            }
            let path = path.clone();
            Err(TaskError::LongRow { path, line, prompt, response, of_response, positions })
        };
        let response = recipe.evaluation.max_response_tokens;
        for (line, problem) in self.lines.iter().zip(&self.problems) {
            check(*line, problem, response, "evaluation.max_response_tokens")?;
        }
        let limits = recipe.stages.iter().map(|stage| stage.max_response_tokens);
        let limit = limits.min().unwrap_or(u64::MAX);
        for (line, question, solution) in texts.iter() {
            let encoded = tokenizer.encode(solution);
            let tokens = encoded.map_err(|error| at(line, error))?.len();
            if tokens as u64 > limit {
                return Err(TaskError::LongSolution { path: path.clone(), line, tokens, limit });
            }
            let (id, question) = (format!("line {line}"), question.to_string());
            let problem = Problem { id, question, answer: String::new() };
            check(line, &problem, tokens as u64 + 1, "its solution with the stop token")?;
        }
        Ok(())
    }
}

/// `progress` sees every update. Errors: as [`supervised::train`].
pub fn tune(
    model: Qwen2,
    recipe: &TuneRecipe,
    data: &TuneData,
    tokenizer: &Tokenizer,
    stop_token: u32,
    progress: impl FnMut(&StageUpdate) -> bool,
) -> Result<Qwen2, TrainingError> {
    let (seed, prompt, solutions) = (recipe.seed, &recipe.prompt(), &*data.solutions);
    let lessons = Lessons { seed, solutions, tokenizer, prompt, stop_token };
    supervised::train(model, recipe.optimizer, &recipe.stages, lessons, progress)
}

/// Every policy has the same draws. `progress`: responses done, total.
/// Errors: a prompt that the policy's positions do not hold, and logits that are not finite.
pub fn evaluate(
    model: &Qwen2,
    recipe: &TuneRecipe,
    data: &TuneData,
    tokenizer: &Tokenizer,
    progress: impl FnMut(usize, usize),
) -> Result<TuneEvaluation, TrainingError> {
    let samples = recipe.evaluation.samples;
    let set = Set { name: "tune", problems: &data.problems, samples };
    let grader = Grader::Rule(recipe.evaluation.verifier);
    let sampled =
        evaluation::sampled(model, tokenizer, (&recipe.protocol(), &grader), set, true, progress)?;
    Ok(described(&sampled, data, samples))
}

fn described(
    sampled: &[(OutcomeRecord, Vec<f64>)],
    data: &TuneData,
    samples: u64,
) -> TuneEvaluation {
    let count = sampled.len() as f64;
    let share = |holds: &dyn Fn(&OutcomeRecord) -> bool| {
        sampled.iter().filter(|(outcome, _)| holds(outcome)).count() as f64 / count
    };
    let groups: Vec<&[(OutcomeRecord, Vec<f64>)]> =
        sampled.chunk_by(|(a, _), (b, _)| a.problem == b.problem).collect();
    let correct = |group: &[(OutcomeRecord, Vec<f64>)]| {
        group.iter().filter(|(outcome, _)| outcome.is_correct).count()
    };
    let of_groups = |holds: &dyn Fn(usize, usize) -> bool| {
        let held = groups.iter().filter(|group| holds(correct(group), group.len())).count();
        held as f64 / groups.len() as f64
    };
    let entropies: Vec<f64> = sampled.iter().flat_map(|(_, entropy)| entropy).copied().collect();
    let tokens: f64 = sampled.iter().map(|(outcome, _)| f64::from(outcome.response_tokens)).sum();
    let mut by_tag: BTreeMap<&String, (usize, usize)> = BTreeMap::new();
    for group in &groups {
        for tag in data.tags.get(&group[0].0.problem).into_iter().flatten() {
            let (right, all) = by_tag.entry(tag).or_default();
            (*right, *all) = (*right + correct(group), *all + group.len());
        }
    }
    let by_tag = by_tag.into_iter().map(|(tag, (right, all))| (tag, right as f64 / all as f64));
    let example = |(problem, group): (&Problem, &&[(OutcomeRecord, Vec<f64>)])| {
        [problem.question.clone(), problem.answer.clone(), group[0].0.response.clone()]
    };
    TuneEvaluation {
        problems: groups.len() as u64,
        samples,
        answered_share: share(&|outcome| outcome.prediction.is_some()),
        accuracy: share(&|outcome| outcome.is_correct),
        useful_groups_share: of_groups(&dynamic_sampling::is_useful),
        pass_at_k: of_groups(&|correct, _| correct > 0),
        entropy: entropies.iter().sum::<f64>() / entropies.len() as f64,
        truncated_share: share(&|outcome| outcome.truncated),
        response_tokens_mean: tokens / count,
        accuracy_by_tag: by_tag.map(|(tag, accuracy)| (tag.clone(), accuracy)).collect(),
        examples: data.problems.iter().zip(&groups).take(EXAMPLES).map(example).collect(),
    }
}
