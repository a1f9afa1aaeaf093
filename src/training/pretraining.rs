//! A base policy: a fresh Qwen2 trained on written solutions by cross-entropy over the response tokens, in
//! stages that differ in the shares of the ways of writing.

use crate::algorithm::Row;
use crate::base::rng::{Id, stream};
use crate::base::{Purpose, workers};
use crate::experiment::{Optimizer, WarmUp, WarmUpStart};
use crate::numerics::{Numerics, NumericsError, operations};
use crate::policy::batch::{self, Pass};
use crate::policy::{Config, Family, Gradients, Policy, Qwen2, UpdateScale};
use crate::task::data::embedded::{self, characters};
use crate::task::data::texts::Texts;
use crate::task::{Shares, Solutions, TaskError, Tokenizer, Written};
use crate::training::TrainingError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Most rows of one update, and most tokens of a row.
const MOST: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// A generated task, as in `inputs.data.kind`; or `texts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// JSON lines `{"question", "solution"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub texts: Option<PathBuf>,
    pub numerics: Numerics,
    /// Initial weights, problems and ways of writing derive from it.
    pub seed: u64,
    pub model: PretrainShape,
    /// AdamW without its rate, which each stage sets.
    pub optimizer: AdamSettings,
    /// Run in order on the same weights, each with fresh moments.
    pub stages: Vec<Stage>,
}

/// The policy's shape; the vocabulary is that of the solutions.
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdamSettings {
    beta1: f64,
    beta2: f64,
    epsilon: f64,
    weight_decay: f64,
    max_gradient_norm: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    pub name: String,
    pub updates: u64,
    pub sequences_per_update: u64,
    pub max_response_tokens: u64,
    pub learning_rate: f64,
    pub warm_up_updates: u64,
    /// The cosine decay ends at this share of the rate.
    pub final_rate_share: f64,
    /// Of the ways of writing, by the names of the task; none for `texts`.
    #[serde(default)]
    pub shares: Shares,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PretrainProgress {
    pub stage: String,
    /// Within the stage, from 1.
    pub update: u64,
    /// Mean cross-entropy over response tokens, in nats.
    pub loss: f64,
    pub gradient_norm: f64,
}

impl Recipe {
    /// What is to be learned. A relative `texts` starts from `folder`.
    ///
    /// # Errors
    /// [`TaskError`] for a task that is unknown or not stated, and for texts that cannot be used.
    pub fn solutions(&self, folder: &Path) -> Result<Box<dyn Solutions>, TaskError> {
        match (&self.task, &self.texts) {
            (Some(name), None) => Ok(embedded::named(name)?),
            (None, Some(path)) => Ok(Box::new(Texts::read(&folder.join(path))?)),
            _ => Err(TaskError::Solutions),
        }
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

    /// Everything that is wrong with the recipe, one sentence each, starting with the key.
    pub fn problems(&self, solutions: &dyn Solutions) -> Vec<String> {
        let mut problems = Vec::new();
        let mut check = |holds: bool, key: String, rule: &str, got: String| {
            if !holds {
                problems.push(format!("{key} must be {rule}, got {got}"));
            }
        };
        let AdamSettings { beta1, beta2, epsilon, weight_decay, max_gradient_norm } =
            self.optimizer;
        for (key, value, rule, holds) in [
            ("beta1", beta1, "in [0, 1)", (0.0..1.0).contains(&beta1)),
            ("beta2", beta2, "in [0, 1)", (0.0..1.0).contains(&beta2)),
            ("epsilon", epsilon, "at least 0", epsilon >= 0.0),
            ("weight_decay", weight_decay, "at least 0", weight_decay >= 0.0),
            ("max_gradient_norm", max_gradient_norm, "above 0", max_gradient_norm > 0.0),
        ] {
            let holds = holds && value.is_finite();
            check(holds, format!("optimizer.{key}"), rule, value.to_string());
        }
        check(!self.stages.is_empty(), "stages".into(), "at least one", "none".into());
        for (index, stage) in self.stages.iter().enumerate() {
            let key = |name: &str| format!("stages[{index}].{name}");
            for (name, value) in [
                ("updates", stage.updates),
                ("sequences_per_update", stage.sequences_per_update),
                ("max_response_tokens", stage.max_response_tokens),
            ] {
                let holds = (1..=MOST).contains(&value);
                check(holds, key(name), "from 1 to 1048576", value.to_string());
            }
            for (name, value) in [
                ("learning_rate", stage.learning_rate),
                ("final_rate_share", stage.final_rate_share),
            ] {
                let holds = value >= 0.0 && value.is_finite();
                check(holds, key(name), "at least 0", value.to_string());
            }
        }
        // The policy's `config.json` obeys the rules of any other.
        let shape = self.model.num_attention_heads >= 1;
        let got = self.model.num_attention_heads.to_string();
        check(shape, "model.num_attention_heads".into(), "a positive integer", got);
        let (width, heads) = (self.model.hidden_size, self.model.num_attention_heads);
        let divides = shape && width % heads == 0;
        let rule = "a multiple of model.num_attention_heads";
        check(divides || !shape, "model.hidden_size".into(), rule, width.to_string());
        for (index, stage) in self.stages.iter().enumerate() {
            if let Err(problem) = shares(solutions, &stage.shares) {
                problems.push(format!("stages[{index}].shares {problem}"));
            }
        }
        if shape && let Err(error) = Config::from_json(&self.config(solutions).to_json(0, 0)) {
            problems.push(format!("model.{error}"));
        }
        problems
    }

    fn adamw(&self, stage: &Stage) -> Optimizer {
        let AdamSettings { beta1, beta2, epsilon, weight_decay, max_gradient_norm } =
            self.optimizer;
        // Each update is given its rate; the schedule of rollout steps is not used.
        let warm_up = WarmUp { rollout_steps: 0, start: WarmUpStart::FirstStep };
        Optimizer {
            learning_rate: stage.learning_rate,
            beta1,
            beta2,
            epsilon,
            weight_decay,
            max_gradient_norm,
            non_finite: None,
            warm_up,
        }
    }
}

/// What is wrong with a stage's shares: a name that is missing or unknown, or what the task says.
fn shares(solutions: &dyn Solutions, shares: &Shares) -> Result<(), String> {
    let known = solutions.shares();
    let stated: BTreeSet<&str> = shares.keys().map(String::as_str).collect();
    if stated != known.iter().copied().collect() {
        let [known, stated] =
            [known.to_vec(), stated.into_iter().collect()].map(|names| match names.is_empty() {
                true => "none".to_string(),
                false => names.join(", "),
            });
        return Err(format!("must state {known}, got {stated}"));
    }
    solutions.check(shares)
}

/// Makes the base policy. `progress` sees every update.
pub fn pretrain(
    recipe: &Recipe,
    solutions: &dyn Solutions,
    tokenizer: &Tokenizer,
    mut progress: impl FnMut(&PretrainProgress),
) -> Result<Qwen2, TrainingError> {
    let mut model =
        Qwen2::initialise(recipe.config(solutions), recipe.seed).with_numerics(recipe.numerics)?;
    for stage in &recipe.stages {
        let mut policy = Policy::new(model, &recipe.adamw(stage));
        for update in 0..stage.updates {
            let rows = sequences(recipe.seed, stage, update, solutions, tokenizer)?;
            let tokens = rows.iter().map(|row| row.tokens.len()).max().unwrap_or(0);
            let positions = recipe.model.max_position_embeddings;
            if tokens as i64 > positions {
                return Err(TrainingError::PretrainingTooLong {
                    stage: stage.name.clone(),
                    tokens,
                    positions,
                });
            }
            let (loss, gradients) = loss(&policy, &rows)?;
            let (_, gradient_norm) =
                policy.update(gradients, stage.rate(update)).map_err(|source| {
                    TrainingError::PretrainingDiverged {
                        stage: stage.name.clone(),
                        update: update + 1,
                        source,
                    }
                })?;
            let stage = stage.name.clone();
            progress(&PretrainProgress { stage, update: update + 1, loss, gradient_norm });
        }
        model = policy.into_model();
    }
    Ok(model)
}

/// The solutions of one update, each a function of (seed, stage, update, row).
fn sequences(
    seed: u64,
    stage: &Stage,
    update: u64,
    solutions: &dyn Solutions,
    tokenizer: &Tokenizer,
) -> Result<Vec<Row>, TrainingError> {
    let row = |row: u64| {
        let ids = [Id::from(stage.name.as_str()), Id::from(update), Id::from(row)];
        let mut draws = stream(seed, Purpose::Pretraining, &ids);
        let most = stage.max_response_tokens as usize;
        let Written { question, solution, ends } = solutions.write(&stage.shares, most, &mut draws);
        let prompt = tokenizer.encode(&question)?;
        let mut response = tokenizer.encode(&solution)?;
        response.extend(ends.then_some(characters::EOS_TOKEN_ID));
        let prompt_tokens = prompt.len();
        let tokens = [prompt, response].concat();
        Ok(Row { group: 0, tokens, prompt_tokens, advantage: 0.0, in_loss: true })
    };
    (0..stage.sequences_per_update).map(row).collect()
}

/// Tokens of one pass, as many as the caches of a core hold of activations.
const PASS_TOKENS: usize = 1024;

/// Mean cross-entropy over all response tokens of the update, with its gradients.
fn loss(policy: &Policy, rows: &[Row]) -> Result<(f64, Gradients), NumericsError> {
    let tokens = rows.iter().map(Row::loss_tokens).sum::<u64>() as f64;
    let all: Vec<usize> = (0..rows.len()).collect();
    let micro_batch = batch::micro_batches(rows, &all, rows.len()).concat();
    let passes = batch::passes(rows, &micro_batch, PASS_TOKENS);
    let fed = rows.iter().map(|row| row.tokens.len()).sum();
    let scale = UpdateScale { largest_weight: 1.0 / tokens, tokens: fed };
    let made = workers::map(
        &passes,
        || policy.model().share(),
        |model, members| {
            let mut sums = Gradients::default();
            let added =
                Pass::new(rows, members).add_gradients(&mut sums, model, 1.0, scale, |log_probs| {
                    let losses = -log_probs / tokens;
                    let loss = losses.sum(losses.kind());
                    (loss, operations::sum(&losses))
                });
            added.map(|loss| (sums, loss))
        },
    );
    let (mut total, mut gradients) = (0.0, Gradients::default());
    for pass in made {
        let (gradient, loss) = pass?;
        total += loss;
        gradients.add(gradient);
    }
    Ok((total, gradients))
}

impl Stage {
    /// Linear warm-up, then a cosine from the full rate to its final share.
    fn rate(&self, update: u64) -> f64 {
        let warm_up = if self.warm_up_updates > update {
            (update + 1) as f64 / self.warm_up_updates as f64
        } else {
            1.0
        };
        let done = update as f64 / self.updates as f64;
        let cosine = 0.5 * (1.0 + libm::cos(std::f64::consts::PI * done));
        let share = self.final_rate_share + (1.0 - self.final_rate_share) * cosine;
        self.learning_rate * warm_up * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::files;
    use crate::experiment::MiniAimeVariant;
    use crate::task::data::embedded::mini_aime;

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
                    let question = mini_aime::TASK.draw(&mut draws).question();
                    assert!(!evaluated.contains(question.as_str()), "{question}");
                    if !excluded.contains(&question) {
                        break;
                    }
                }
            }
        }
    }
}
