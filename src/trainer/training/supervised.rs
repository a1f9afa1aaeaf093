//! Stages of cross-entropy over response tokens of written solutions, for pretraining and tuning.

use crate::algorithm::{Problem, Row};
use crate::base::rng::{Id, stream};
use crate::base::{Purpose, files, workers};
use crate::experiment::{Optimizer, PromptSettings, WarmUp, WarmUpStart, sources};
use crate::numerics::{NumericsError, halving, operations};
use crate::policy::batch::{self, Pass};
use crate::policy::{Gradients, Policy, Qwen2, UpdateScale};
use crate::task::{Shares, Solutions, Tokenizer, Written, prompt};
use crate::training::TrainingError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// Rows of an update, and tokens of a row.
const MOST: u64 = 1 << 20;

/// AdamW; stages set its rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
    /// The cosine decay ends at this share.
    pub final_rate_share: f64,
    /// Shares of the task's ways of writing; empty for solutions from a file.
    #[serde(default)]
    pub shares: Shares,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageUpdate {
    pub stage: String,
    /// Within the stage, from 1.
    pub update: u64,
    /// Mean over response tokens, in nats.
    pub loss: f64,
    /// Global L2 norm before clipping.
    pub gradient_norm: f64,
}

#[derive(Clone, Copy)]
pub struct Lessons<'a> {
    /// Decides problems and ways of writing.
    pub seed: u64,
    pub solutions: &'a dyn Solutions,
    pub tokenizer: &'a Tokenizer,
    pub prompt: &'a PromptSettings,
    pub stop_token: u32,
}

impl AdamSettings {
    fn optimizer(self, stage: &Stage) -> Optimizer {
        let Self { beta1, beta2, epsilon, weight_decay, max_gradient_norm } = self;
        // Stages set each update's rate, so this schedule is not used.
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

/// One sentence for each problem, starting with the key.
pub fn problems(
    optimizer: AdamSettings,
    stages: &[Stage],
    solutions: &dyn Solutions,
) -> Vec<String> {
    let mut problems = Vec::new();
    let mut check = |holds: bool, key: String, rule: &str, got: String| {
        if !holds {
            problems.push(format!("{key} must be {rule}, got {got}"));
        }
    };
    let AdamSettings { beta1, beta2, epsilon, weight_decay, max_gradient_norm } = optimizer;
    for (key, value) in [
        ("optimizer.beta1", beta1),
        ("optimizer.beta2", beta2),
        ("optimizer.epsilon", epsilon),
        ("optimizer.weight_decay", weight_decay),
        ("optimizer.max_gradient_norm", max_gradient_norm),
    ] {
        let range = sources::of(key).and_then(|key| key.range).unwrap_or_default();
        check(range.contains(value), key.into(), &range.to_string(), value.to_string());
    }
    check(!stages.is_empty(), "stages".into(), "at least one", "none".into());
    for (index, stage) in stages.iter().enumerate() {
        let key = |name: &str| format!("stages[{index}].{name}");
        for (name, value) in [
            ("updates", stage.updates),
            ("sequences_per_update", stage.sequences_per_update),
            ("max_response_tokens", stage.max_response_tokens),
        ] {
            let holds = (1..=MOST).contains(&value);
            check(holds, key(name), &format!("from 1 to {MOST}"), value.to_string());
        }
        let (warm_up, updates) = (stage.warm_up_updates, stage.updates);
        let rule = format!("at most the stage's updates ({updates})");
        check(warm_up <= updates, key("warm_up_updates"), &rule, warm_up.to_string());
        for (name, value) in
            [("learning_rate", stage.learning_rate), ("final_rate_share", stage.final_rate_share)]
        {
            let holds = value >= 0.0 && value.is_finite();
            check(holds, key(name), "at least 0", value.to_string());
        }
    }
    for (index, stage) in stages.iter().enumerate() {
        if let Err(problem) = shares(solutions, &stage.shares) {
            problems.push(format!("stages[{index}].shares {problem}"));
        }
    }
    problems
}

/// A missing or unknown name, or what the task refuses.
fn shares(solutions: &dyn Solutions, shares: &Shares) -> Result<(), String> {
    let known = solutions.shares();
    let stated: BTreeSet<&str> = shares.keys().map(String::as_str).collect();
    if stated != known.iter().copied().collect() {
        let [known, stated] = [known.to_vec(), stated.into_iter().collect()]
            .map(|names| if names.is_empty() { "none".to_string() } else { names.join(", ") });
        return Err(format!("must state {known}, got {stated}"));
    }
    solutions.check(shares)
}

/// Fills a folder beside `out`, which takes its place as a whole where `may_replace` still allows it. Errors: another
/// process that does so, and those of both.
pub fn write_folder<T>(
    out: &Path,
    may_replace: impl Fn() -> Result<(), TrainingError>,
    fill: impl FnOnce(&Path) -> Result<T, TrainingError>,
) -> Result<T, TrainingError> {
    let out = out.canonicalize().unwrap_or_else(|_| out.to_path_buf());
    if let Some(what) = files::what_is_fixed(&out) {
        let reason = format!("is {what}, which cannot be replaced; name a folder in it");
        return Err(TrainingError::Folder { folder: out, reason });
    }
    may_replace()?;
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    files::create_folder(parent)?;
    let lock = files::leftovers::partial_folder(&out).with_added_extension("lock");
    let Some(_held) = files::locks::lock(&lock)? else {
        return Err(TrainingError::InUse { folder: out });
    };
    let scratch = files::leftovers::scratch_folder(Some(parent))?;
    let made = scratch.path().join("made");
    let filled = fill(&made);
    let moved = if filled.is_ok() {
        let replaced = may_replace().and_then(|()| Ok(files::replace_folder(&made, &out)?));
        replaced.map_err(|source| match files::leftovers::set_aside_beside(&made, &out) {
            Ok(finished) => TrainingError::NotMoved { finished, source: Box::new(source) },
            Err(_) => source,
        })
    } else {
        Ok(())
    };
    files::remove_file(&lock)?;
    moved?;
    filled
}

/// Each stage has fresh moments. `progress` sees every update, and returns whether to stop. Errors: that stop, a text that
/// the tokenizer refuses, a solution longer than the policy's positions, and numbers that are not finite.
pub fn train(
    mut model: Qwen2,
    optimizer: AdamSettings,
    stages: &[Stage],
    lessons: Lessons,
    mut progress: impl FnMut(&StageUpdate) -> bool,
) -> Result<Qwen2, TrainingError> {
    let positions = model.config().max_position_embeddings;
    let characters = lessons.tokenizer.most_characters().max(1);
    for stage in stages {
        let mut policy = Policy::new(model, &optimizer.optimizer(stage));
        for update in 0..stage.updates {
            let rows = sequences(lessons, stage, update, characters)?;
            let tokens = rows.iter().map(|row| row.tokens.len()).max().unwrap_or(0);
            if tokens as i64 > positions {
                let stage = stage.name.clone();
                return Err(TrainingError::SolutionTooLong { stage, tokens, positions });
            }
            let (loss, gradients) = loss(policy.model(), &rows)?;
            let updated = policy.update(gradients, stage.rate(update));
            let rate = stage.learning_rate;
            let (stage, update) = (stage.name.clone(), update + 1);
            let (_, gradient_norm) = match updated {
                Ok(updated) => updated,
                Err(source) => {
                    return Err(TrainingError::StageDiverged { stage, update, rate, source });
                }
            };
            if progress(&StageUpdate { stage, update, loss, gradient_norm }) {
                return Err(TrainingError::Stopped);
            }
        }
        model = policy.into_model();
    }
    Ok(model)
}

/// One update's solutions, each a function of (seed, stage, update, row). A token has at most `characters`.
fn sequences(
    lessons: Lessons,
    stage: &Stage,
    update: u64,
    characters: usize,
) -> Result<Vec<Row>, TrainingError> {
    let Lessons { seed, solutions, tokenizer, prompt: settings, stop_token } = lessons;
    let most = stage.max_response_tokens as usize;
    let row = |row: u64| {
        let ids = [Id::from(stage.name.as_str()), Id::from(update), Id::from(row)];
        let mut draws = stream(seed, Purpose::Pretraining, &ids);
        let written = solutions.write(&stage.shares, most.saturating_mul(characters), &mut draws);
        let Written { question, solution, ends } = written;
        let id = format!("{}/{}/{row}", stage.name, update + 1);
        let problem = Problem { id, question, answer: String::new() };
        let prompt = prompt::prompt(&problem, settings, tokenizer, u64::MAX)?.tokens;
        let mut response = tokenizer.encode(&solution)?;
        if ends {
            response.push(stop_token)
        } else {
            response.truncate(most)
        }
        let prompt_tokens = prompt.len();
        let tokens = [prompt, response].concat();
        Ok(Row { group: 0, tokens, prompt_tokens, advantage: 0.0, in_loss: true })
    };
    (0..stage.sequences_per_update).map(row).collect()
}

/// So many that a core's caches hold a small policy's activations.
const PASS_TOKENS: usize = 1024;

/// Mean over all response tokens of the update, in nats, with gradients. Prompts have no loss.
pub fn loss(model: &Qwen2, rows: &[Row]) -> Result<(f64, Gradients), NumericsError> {
    let tokens = rows.iter().map(Row::loss_tokens).sum::<u64>() as f64;
    let fed = rows.iter().map(|row| row.tokens.len()).sum();
    let scale = UpdateScale { largest_weight: 1.0 / tokens, tokens: fed };
    let add = |model: &Qwen2, sums: &mut Gradients, members: &[usize]| {
        let pass = Pass::new(rows, members, false);
        model.add_gradients(sums, &pass.sequences, 1.0, scale, |log_probs| {
            let losses = -log_probs / tokens;
            let loss = losses.sum(losses.kind());
            (loss, operations::sum(&losses))
        })
    };
    let all: Vec<usize> = (0..rows.len()).collect();
    let passes = batch::balanced(rows, &all, PASS_TOKENS, model.side_by_side(), false);
    if !model.is_native() {
        // One set of sums, as in the trainer; LibTorch's threads share an operation.
        let work = |passes: &[Vec<usize>]| {
            let (mut total, mut gradients) = (0.0, Gradients::default());
            for members in passes {
                total += add(model, &mut gradients, members)?;
            }
            Ok::<_, NumericsError>((total, gradients))
        };
        return Ok(workers::together(|| halving::together(passes, work))?.0);
    }
    let work = |members: &[usize]| batch::fed_tokens(rows, members, false);
    let (gradients, losses) =
        batch::sum_of_passes(model, &passes, work, |model, members, sums| {
            add(model, sums, members)
        })?;
    Ok((losses.into_iter().fold(0.0, |total, loss| total + loss), gradients))
}

impl Stage {
    /// Linear warm-up, then a cosine from the full rate to its final share.
    fn rate(&self, update: u64) -> f64 {
        let warm_up = ((update + 1) as f64 / self.warm_up_updates as f64).min(1.0);
        let done = update as f64 / self.updates as f64;
        let cosine = 0.5 * (1.0 + libm::cos(std::f64::consts::PI * done));
        let share = self.final_rate_share + (1.0 - self.final_rate_share) * cosine;
        self.learning_rate * warm_up * share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::PromptTemplate;
    use crate::policy::{Config, model::config::tests::tiny};
    use crate::task::data::embedded::characters;
    use crate::task::data::embedded::word_problems::WordProblems;

    #[test]
    fn the_loss_is_a_mean_over_the_response_and_its_end_alone() {
        let folder = tempfile::tempdir().unwrap();
        let alphabet = WordProblems.characters();
        characters::write_tokenizer(folder.path(), &alphabet).unwrap();
        let config = serde_json::json!({"eos_token_id": characters::EOS_TOKEN_ID});
        crate::base::files::write_json(&folder.path().join("config.json"), &config).unwrap();
        let tokenizer = Tokenizer::load(folder.path()).unwrap();
        let vocab_size = characters::vocabulary_size(&alphabet) as i64;
        let config = Config { vocab_size, max_position_embeddings: 256, ..tiny() };
        let model = Qwen2::initialise(config, 1);
        let stage = Stage {
            name: "form".to_string(),
            updates: 1,
            sequences_per_update: 6,
            max_response_tokens: 48,
            learning_rate: 1e-3,
            warm_up_updates: 0,
            final_rate_share: 1.0,
            shares: WordProblems.shares().iter().map(|name| (name.to_string(), 1.0)).collect(),
        };
        let lessons = Lessons {
            seed: 1,
            solutions: &WordProblems,
            tokenizer: &tokenizer,
            prompt: &PromptSettings::of(PromptTemplate::Question),
            stop_token: characters::EOS_TOKEN_ID,
        };
        let rows = sequences(lessons, &stage, 0, 1).unwrap();
        let (mut sum, mut count) = (0.0, 0);
        for (index, row) in rows.iter().enumerate() {
            let text = tokenizer.decode(&row.tokens[row.prompt_tokens..]);
            assert!(text.contains("Answer: ") && !text.contains('?'), "{text}");
            assert!(tokenizer.decode(&row.tokens[..row.prompt_tokens]).ends_with('?'));
            assert_eq!(row.tokens.last(), Some(&characters::EOS_TOKEN_ID));
            let [read, _] = model.statistics(&Pass::new(&rows, &[index], false).sequences, 1.0);
            let log_probs = Vec::<f64>::try_from(read).unwrap();
            assert_eq!(log_probs.len(), text.chars().count() + 1);
            sum -= log_probs.iter().sum::<f64>();
            count += log_probs.len();
        }
        let (mean, _) = loss(&model, &rows).unwrap();
        assert!((mean - sum / count as f64).abs() < 1e-6, "{mean} {sum} {count}");
    }

    #[test]
    fn one_process_at_a_time_makes_a_folder_which_is_there_as_a_whole() {
        let parent = tempfile::tempdir().unwrap();
        let out = parent.path().join("base");
        let fill = |folder: &Path, text: &str| -> Result<(), TrainingError> {
            Ok(files::write_atomic(&folder.join("config.json"), text.as_bytes())?)
        };
        let other = files::leftovers::partial_folder(&out).join("of somebody else");
        files::write_atomic(&other, b"").unwrap();
        let may = || Ok(());
        write_folder(&out, may, |folder| {
            let second = write_folder(&out, may, |_| Ok(()));
            assert!(matches!(second, Err(TrainingError::InUse { .. })));
            assert!(!out.exists());
            fill(folder, "first")
        })
        .unwrap();
        let failed = write_folder(&out, may, |folder| {
            fill(folder, "second")?;
            Err::<(), _>(TrainingError::Saturated)
        });
        failed.unwrap_err();
        files::remove_folder(other.parent().unwrap()).unwrap();
        assert_eq!(files::list(parent.path()).unwrap(), ["base"]);
        assert_eq!(files::list(&out).unwrap(), ["config.json"]);
        assert_eq!(files::read_text(&out.join("config.json")).unwrap(), "first");
        for fixed in ["/proc", "."] {
            let never = |_: &Path| Err::<(), _>(TrainingError::Saturated);
            let refused = write_folder(fixed.as_ref(), may, never);
            let text = refused.unwrap_err().to_string();
            assert!(text.ends_with("cannot be replaced; name a folder in it"), "{text}");
        }
        let late = parent.path().join("late");
        let unmoved = write_folder(&late, may, |folder| {
            fill(folder, "kept")?;
            Ok(files::write_atomic(&late, b"a file")?)
        });
        let text = unmoved.unwrap_err().to_string();
        assert!(text.ends_with("late.set-aside-1"), "{text}");
        let kept = parent.path().join("late.set-aside-1");
        assert_eq!(files::read_text(&kept.join("config.json")).unwrap(), "kept");
        let notes = parent.path().join("busy/notes");
        let taken = || if notes.exists() { Err(TrainingError::Saturated) } else { Ok(()) };
        let unmoved = write_folder(notes.parent().unwrap(), taken, |folder| {
            fill(folder, "kept")?;
            Ok(files::write_atomic(&notes, b"mine")?)
        });
        let text = unmoved.unwrap_err().to_string();
        assert!(text.ends_with("busy.set-aside-1") && notes.exists(), "{text}");
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(&out, &link).unwrap();
        write_folder(&link, may, |folder| fill(folder, "third")).unwrap();
        assert!(link.is_symlink());
        assert_eq!(files::read_text(&out.join("config.json")).unwrap(), "third");
    }
}
