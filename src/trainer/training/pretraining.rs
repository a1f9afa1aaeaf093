//! A base policy: a fresh Qwen2 trained by cross-entropy on written solutions, in stages that mix the ways of writing.

use crate::base::files::{self, FileError};
use crate::experiment::{PromptSettings, PromptTemplate};
use crate::numerics::Numerics;
use crate::policy::{Config, Family, Qwen2, checkpoint};
use crate::task::data::embedded::{self, characters};
use crate::task::data::texts::Texts;
use crate::task::{Solutions, TaskError, Tokenizer};
use crate::training::TrainingError;
use crate::training::supervised::{self, AdamSettings, Lessons, Stage, StageUpdate};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const LOG: &str = "pretrain.jsonl";
const WEIGHTS: &str = "model.safetensors";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// As in `inputs.data.kind`; or `texts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// JSON lines `{"question", "solution"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub texts: Option<PathBuf>,
    pub numerics: Numerics,
    /// Decides initial weights, problems and ways of writing.
    pub seed: u64,
    pub model: PretrainShape,
    /// AdamW without its rate, which stages set.
    pub optimizer: AdamSettings,
    /// In order, on the same weights, each with fresh moments.
    pub stages: Vec<Stage>,
}

/// The solutions decide the vocabulary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PretrainShape {
    hidden_size: i64,
    intermediate_size: i64,
    num_hidden_layers: i64,
    num_attention_heads: i64,
    num_key_value_heads: i64,
    max_position_embeddings: i64,
    rope_theta: f64,
    rms_norm_eps: f64,
    tie_word_embeddings: bool,
}

impl Recipe {
    /// With notes on them. A relative `texts` starts from `folder`.
    /// Errors: [`TaskError`] for an unknown or missing task, and for texts that cannot be used.
    pub fn solutions(&self, folder: &Path) -> Result<(Box<dyn Solutions>, Vec<String>), TaskError> {
        match (&self.task, &self.texts) {
            (Some(name), None) => {
                let task: Box<dyn Solutions> = embedded::named(name)?;
                Ok((task, Vec::new()))
            }
            (None, Some(path)) => {
                let path = folder.join(path);
                let texts = Texts::read(&path)?;
                self.fit(&path, &texts)?;
                let notes = self.cut(&texts);
                Ok((Box::new(texts), notes))
            }
            _ => Err(TaskError::Solutions),
        }
    }

    fn fit(&self, path: &Path, texts: &Texts) -> Result<(), TaskError> {
        let positions = self.model.max_position_embeddings;
        let limits = || self.stages.iter().map(|stage| stage.max_response_tokens);
        for (line, question, solution) in texts.iter() {
            let [question, solution] = [question, solution].map(characters_of);
            let learned = |most| if solution > most { most } else { solution + 1 };
            let tokens = question + limits().map(learned).max().unwrap_or(0);
            if positions > 0 && tokens > positions as u64 {
                let reason = format!(
                    "question and solution together are {tokens} tokens; model.max_position_embeddings is {positions}: \
                     raise it, or shorten the line or leave it out"
                );
                let path = path.to_path_buf();
                return Err(FileError::Line { path, line, reason }.into());
            }
        }
        Ok(())
    }

    fn cut(&self, texts: &Texts) -> Vec<String> {
        let stage_notes = |(index, stage): (usize, &Stage)| {
            let most = stage.max_response_tokens;
            let is_cut = |(_, _, solution): &(usize, &str, &str)| characters_of(solution) > most;
            let (cut, count) = (texts.iter().filter(is_cut).count(), texts.iter().count());
            (cut > 0).then(|| {
                format!(
                    "stages[{index}]: {cut} of {count} solutions are cut at max_response_tokens = {most}; the base learns \
                     no end from them"
                )
            })
        };
        self.stages.iter().enumerate().filter_map(stage_notes).collect()
    }

    pub fn config(&self, solutions: &dyn Solutions) -> Config {
        let shape = &self.model;
        Config {
            family: Family::Qwen2,
            vocab_size: characters::vocabulary_size(&solutions.characters()) as i64,
            hidden_size: shape.hidden_size,
            intermediate_size: shape.intermediate_size,
            num_hidden_layers: shape.num_hidden_layers,
            num_attention_heads: shape.num_attention_heads,
            num_key_value_heads: shape.num_key_value_heads,
            head_dim: shape.hidden_size / shape.num_attention_heads,
            max_position_embeddings: shape.max_position_embeddings,
            rope_theta: shape.rope_theta,
            rope_scaling: None,
            rms_norm_eps: shape.rms_norm_eps,
            tie_word_embeddings: shape.tie_word_embeddings,
        }
    }

    /// One sentence for each problem, starting with the key.
    pub fn problems(&self, solutions: &dyn Solutions) -> Vec<String> {
        let mut problems = supervised::problems(self.optimizer, &self.stages, solutions);
        // The rules of every policy's `config.json`.
        let (width, heads) = (self.model.hidden_size, self.model.num_attention_heads);
        if heads < 1 {
            problems
                .push(format!("model.num_attention_heads must be a positive integer, got {heads}"));
            return problems;
        }
        if width % heads != 0 {
            problems.push(format!(
                "model.hidden_size must be a multiple of model.num_attention_heads, got {width}"
            ));
        }
        if let Err(error) = Config::from_json(&self.config(solutions).to_json(0, 0)) {
            problems.push(format!("model.{error}"));
        }
        problems
    }
}

fn characters_of(text: &str) -> u64 {
    text.chars().count() as u64
}

/// Pretrains into the folder `out`. Returns the SHA-256 of the weights.
/// Errors: a folder that holds something else or is in use, or divergence.
pub fn make(
    recipe: &Recipe,
    solutions: &dyn Solutions,
    out: &Path,
    mut watch: impl FnMut(&StageUpdate) -> bool,
) -> Result<String, TrainingError> {
    let may_replace = || check_out(out);
    supervised::write_folder(out, may_replace, |partial| {
        write_companions(partial, recipe, solutions)?;
        let tokenizer = Tokenizer::load(partial)?;
        let mut updates = Vec::new();
        let model = pretrain(recipe, solutions, &tokenizer, |update| {
            updates.push(update.clone());
            watch(update)
        })?;
        files::write_lines(&partial.join(LOG), &log(&updates))?;
        let weights = partial.join(WEIGHTS);
        checkpoint::write_tensors(&weights, &checkpoint::values(&model))?;
        Ok(files::sha256_file(&weights)?)
    })
}

/// Only an empty folder, or an earlier result and nothing else, is replaced.
fn check_out(out: &Path) -> Result<(), TrainingError> {
    let names = if files::kind(out)?.is_some() { files::list(out)? } else { Vec::new() };
    let refuse = |reason| Err(TrainingError::Folder { folder: out.to_path_buf(), reason });
    if !names.is_empty() && !names.iter().any(|name| name == LOG) {
        return refuse(format!("is not empty and holds no {LOG}; choose another --out"));
    }
    let is_own =
        |name: &str| [LOG, WEIGHTS].contains(&name) || checkpoint::COMPANIONS.contains(&name);
    match names.iter().find(|name| !is_own(name)) {
        Some(name) => {
            refuse(format!("holds {name}, which pretraining does not write; choose another --out"))
        }
        None => Ok(()),
    }
}

fn write_companions(
    folder: &Path,
    recipe: &Recipe,
    solutions: &dyn Solutions,
) -> Result<(), TrainingError> {
    files::create_folder(folder)?;
    characters::write_tokenizer(folder, &solutions.characters())?;
    let (eos, pad) = (characters::EOS_TOKEN_ID, characters::PAD_TOKEN_ID);
    files::write_json(&folder.join("config.json"), &recipe.config(solutions).to_json(eos, pad))?;
    let generation = json!({"eos_token_id": eos, "pad_token_id": pad, "do_sample": true,
        "temperature": 1.0, "top_p": 0.7});
    Ok(files::write_json(&folder.join("generation_config.json"), &generation)?)
}

/// Means of the losses of 100 updates; of fewer at the end of a stage.
fn log(updates: &[StageUpdate]) -> Vec<Value> {
    let stages = updates.chunk_by(|a, b| a.stage == b.stage && a.update < b.update);
    let line = |window: &[StageUpdate]| {
        let count = window.len();
        let mean = window.iter().map(|update| update.loss).sum::<f64>() / count as f64;
        let StageUpdate { stage, update, .. } = &window[count - 1];
        json!({"stage": stage, "update": update, (format!("loss_mean_{count}")): mean})
    };
    stages.flat_map(|stage| stage.chunks(100).map(line)).collect()
}

pub fn pretrain(
    recipe: &Recipe,
    solutions: &dyn Solutions,
    tokenizer: &Tokenizer,
    progress: impl FnMut(&StageUpdate) -> bool,
) -> Result<Qwen2, TrainingError> {
    let (seed, prompt) = (recipe.seed, &PromptSettings::of(PromptTemplate::Question));
    let stop_token = characters::EOS_TOKEN_ID;
    let lessons = Lessons { seed, solutions, tokenizer, prompt, stop_token };
    let model = Qwen2::initialise(recipe.config(solutions), seed).with_numerics(recipe.numerics)?;
    supervised::train(model, recipe.optimizer, &recipe.stages, lessons, progress)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Purpose;
    use crate::base::rng::{Id, stream};
    use crate::experiment::MiniAimeVariant;
    use crate::task::data::embedded::mini_aime;
    use std::collections::BTreeSet;

    /// The base policy that was made before the present evaluation sets is therefore the one that
    /// the recipe gives with them.
    #[test]
    fn pretraining_draws_no_question_of_the_evaluation_sets_so_it_has_none_to_draw_again() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/mini-aime/recipe.toml");
        let recipe: Recipe = toml::from_str(&files::read_text(path.as_ref()).unwrap()).unwrap();
        let sets = mini_aime::generate(MiniAimeVariant::Standard);
        let tests = sets.tests.iter().flat_map(|(_, problems)| problems);
        let evaluated: BTreeSet<&str> = tests.map(|problem| problem.question.as_str()).collect();
        let excluded = mini_aime::evaluated_questions();
        for stage in &recipe.stages {
            for (update, row) in (0..stage.updates)
                .flat_map(|update| (0..stage.sequences_per_update).map(move |row| (update, row)))
            {
                let ids = [Id::from(stage.name.as_str()), Id::from(update), Id::from(row)];
                let mut draws = stream(recipe.seed, Purpose::Pretraining, &ids);
                draws.uniform();
                loop {
                    let question =
                        mini_aime::Expression::draw(MiniAimeVariant::Standard, &mut draws)
                            .question();
                    assert!(!evaluated.contains(question.as_str()), "{question}");
                    if !excluded.contains(&question) {
                        break;
                    }
                }
            }
        }
    }

    #[test]
    fn texts_that_a_stage_cuts_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let lines: String = ["1", "12", "123"]
            .map(|text| format!("{{\"question\": \"1?\", \"solution\": \"{text}\"}}\n"))
            .concat();
        files::write_atomic(&folder.path().join("t.jsonl"), lines.as_bytes()).unwrap();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden/mini-aime/recipe.toml");
        let mut recipe: Recipe = toml::from_str(&files::read_text(path.as_ref()).unwrap()).unwrap();
        (recipe.task, recipe.texts) = (None, Some("t.jsonl".into()));
        recipe.stages.truncate(1);
        recipe.stages[0].shares.clear();
        let mut noted = |most| {
            recipe.stages[0].max_response_tokens = most;
            recipe.solutions(folder.path()).unwrap().1
        };
        let note = |count: &str, most: u64| {
            let cut = format!("solutions are cut at max_response_tokens = {most}");
            [format!("stages[0]: {count} {cut}; the base learns no end from them")]
        };
        assert_eq!(noted(3), [""; 0]);
        assert_eq!(noted(2), note("1 of 3", 2));
        assert_eq!(noted(1), note("2 of 3", 1));
    }

    #[test]
    fn every_update_is_in_the_log_and_no_line_is_of_two_stages() {
        let update = |stage: &str, update: u64| {
            let (stage, loss) = (stage.to_string(), update as f64);
            StageUpdate { stage, update, loss, gradient_norm: 0.0 }
        };
        let stages = [("skill", 102), ("shares", 100), ("shares", 1)];
        let updates = stages.map(|(stage, count)| (1..=count).map(move |at| update(stage, at)));
        let lines = log(&updates.into_iter().flatten().collect::<Vec<_>>());
        let expected = [
            json!({"stage": "skill", "update": 100, "loss_mean_100": 50.5}),
            json!({"stage": "skill", "update": 102, "loss_mean_2": 101.5}),
            json!({"stage": "shares", "update": 100, "loss_mean_100": 50.5}),
            json!({"stage": "shares", "update": 1, "loss_mean_1": 1.0}),
        ];
        assert_eq!(lines, expected);
    }
}
