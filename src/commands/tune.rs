//! `dapo model tune`: a cold start from written solutions.

use crate::base::{files, visible, workers};
use crate::commands::{Progress, bounds, exit::Invalid, output, pretrain};
use crate::experiment::PromptTemplate;
use crate::policy::{Qwen2, checkpoint};
use crate::report::text::points;
use crate::task::Tokenizer;
use crate::training::{StageUpdate, TuneEvaluation, TuneRecipe, tuning};
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Tune a checkpoint on written solutions, so that it knows the form of an answer before training.
///
/// The policy learns the solutions of a generated task, or those of a file: JSON lines
/// {"question", "solution"}, each solution ending as the verifier reads an answer (`Answer: 17`). Prompts are
/// rendered as training renders them, and the loss is on the response alone, its end of turn included.
/// Responses at temperature 1 are sampled before and after, of problems that are not learned from.
///
/// DIR is a Hugging Face folder like MODEL, with the record tune.json: recipe, digests of all that was read
/// and written, every update's loss, both evaluations. It appears when all of it is there: after an
/// interruption the same command begins again, and where DIR has the result already, nothing is computed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dapo model tune MODEL --recipe experiments/smollm2/recipe.toml --out DIR
  dapo model tune MODEL --recipe recipe.toml --solutions solutions.jsonl --out DIR

Exit codes: 0 done or there already, 2 usage, 3 a recipe, model or file that cannot be used, 5 diverged")]
pub struct TuneArgs {
    /// Checkpoint folder in the Hugging Face layout.
    model: PathBuf,
    /// Recipe: template, stages and evaluation, as TOML.
    #[arg(long, value_name = "FILE")]
    recipe: PathBuf,
    /// Written solutions, instead of the recipe's task or file; shares of forms do not apply to them.
    #[arg(long, value_name = "FILE")]
    solutions: Option<PathBuf>,
    /// Folder for the tuned policy.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replaces the recipe's seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Threads. Where LibTorch computes, other counts may give other bits.
    #[arg(long, default_value_t = 2, value_parser = bounds::threads())]
    threads: u64,
}

const RECORD: &str = "tune.json";

/// It determines the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct TuneKey {
    recipe: TuneRecipe,
    /// Where LibTorch computes, bits depend on them; else absent.
    threads: Option<u64>,
    /// SHA-256 of checkpoint files, data and chat template.
    inputs: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct TuneRecord {
    harness: String,
    key: TuneKey,
    /// Ends a response.
    stop_token: u32,
    before: TuneEvaluation,
    after: TuneEvaluation,
    updates: Vec<StageUpdate>,
    /// Digests of every other file of the folder.
    sha256: BTreeMap<String, String>,
}

/// # Errors
/// A recipe, model or solutions that cannot be used, a folder that holds something else, or divergence.
pub fn run(args: &TuneArgs) -> Result<ExitCode> {
    workers::set_count(args.threads);
    let (recipe, data) = read(args)?;
    let inputs = tuning::digests(&recipe, &data, &args.model)?;
    let model = checkpoint::load_model(&args.model)?.with_numerics(recipe.numerics)?;
    let threads = (!model.is_native()).then_some(args.threads);
    let key = TuneKey { recipe: recipe.by_file_names(), threads, inputs };
    let recipe = &recipe;
    let out = std::path::absolute(&args.out)?;
    if is_there(&out, &key, &args.out)? {
        return Ok(ExitCode::SUCCESS);
    }
    let partial = files::partial_folder(&out);
    files::remove_folder(&partial)?;
    let tuned = tune_in(&partial, args, (recipe, &data), model, key);
    if tuned.is_err() {
        files::remove_folder(&partial)?;
    }
    tuned?;
    files::replace_folder(&partial, &out)?;
    Ok(ExitCode::SUCCESS)
}

/// Tunes a model, and writes everything of the result into a folder.
fn tune_in(
    partial: &Path,
    args: &TuneArgs,
    (recipe, data): (&TuneRecipe, &tuning::TuneData),
    model: Qwen2,
    key: TuneKey,
) -> Result<()> {
    tuning::write_companions(recipe, &args.model, partial)?;
    let tokenizer = Tokenizer::load(partial)?;
    let stop_token = tuning::stop_token(&tokenizer, recipe.template, &args.model)?;
    data.fit(recipe, &tokenizer)?;
    tokenizer.fits(&args.model, model.config().vocab_size)?;
    let evaluated = |model: &Qwen2, label: &str| {
        let mut bar = Progress::new(label, recipe.evaluation.problems * recipe.evaluation.samples);
        let progress = |done: usize, _| bar.set(done as u64, "responses");
        let evaluation = tuning::evaluate(model, recipe, data, &tokenizer, progress)?;
        bar.finish();
        Ok::<_, anyhow::Error>(evaluation)
    };
    let before = evaluated(&model, "evaluate before")?;
    let mut bar = Progress::new("tune", recipe.stages.iter().map(|stage| stage.updates).sum());
    let mut updates = Vec::new();
    let model = tuning::tune(model, recipe, data, &tokenizer, stop_token, |update| {
        updates.push(update.clone());
        bar.set(updates.len() as u64, &format!("{} loss {:.3}", update.stage, update.loss));
    })?;
    bar.finish();
    let after = evaluated(&model, "evaluate after")?;
    checkpoint::save_model(partial, model.parameters(), partial)?;
    let mut sha256 = BTreeMap::new();
    for name in files::list(partial)? {
        let digest = files::sha256_file(&partial.join(&name))?;
        sha256.insert(name, digest);
    }
    print!("{}", table(&before, &after));
    for [question, answer, response] in &after.examples {
        let example = json!({"question": question, "answer": answer, "response": response});
        println!("{}", visible::json(&example.to_string()));
    }
    println!("{}  {}", sha256["model.safetensors"], args.out.display());
    let harness = env!("CARGO_PKG_VERSION").to_string();
    let record = TuneRecord { harness, key, stop_token, before, after, updates, sha256 };
    files::write_json(&partial.join(RECORD), &record)?;
    Ok(())
}

fn read(args: &TuneArgs) -> Result<(TuneRecipe, tuning::TuneData)> {
    let path = &args.recipe;
    let mut recipe: TuneRecipe = pretrain::parsed(path)?;
    recipe.start_from(path.parent().unwrap_or(Path::new("")));
    if let Some(solutions) = &args.solutions {
        (recipe.task, recipe.solutions) = (None, Some(solutions.clone()));
        recipe.stages.iter_mut().for_each(|stage| stage.shares.clear());
    }
    recipe.seed = args.seed.unwrap_or(recipe.seed);
    let at = |error| Invalid(format!("{}: {error}", path.display()));
    let data = recipe.data().map_err(at)?;
    pretrain::refuse(path, &recipe.problems(&data))?;
    Ok((recipe, data))
}

/// The result of this key exists.
fn is_there(out: &Path, key: &TuneKey, shown: &Path) -> Result<bool> {
    if files::kind(out)?.is_none() || files::list(out)?.is_empty() {
        return Ok(false);
    }
    let shown = shown.display();
    if !out.join(RECORD).exists() {
        bail!(Invalid(format!("{shown} is not empty and holds no {RECORD}; choose another --out")));
    }
    let record: TuneRecord = files::read_json(&out.join(RECORD))?;
    if record.key != *key {
        bail!(Invalid(format!(
            "{shown} holds a policy that was tuned otherwise (recipe, threads or inputs differ; see its \
             {RECORD}); choose another --out or delete it"
        )));
    }
    for (name, written) in &record.sha256 {
        let path = files::foreign::inside(out, name)?;
        if files::sha256_file(&path)? != *written {
            bail!(Invalid(format!(
                "{shown}: {name} is not what its {RECORD} says; delete the folder and tune again"
            )));
        }
    }
    println!("{}  {shown} (there already)", record.sha256["model.safetensors"]);
    Ok(true)
}

/// `None` where the policy was not tuned here.
///
/// # Errors
/// A record that cannot be read.
pub fn template_of(folder: &Path) -> Result<Option<PromptTemplate>> {
    let path = folder.join(RECORD);
    if !path.exists() {
        return Ok(None);
    }
    let record: TuneRecord = files::read_json(&path)?;
    Ok(Some(record.key.recipe.template))
}

fn table(before: &TuneEvaluation, after: &TuneEvaluation) -> String {
    let mut rows: Vec<[String; 3]> = Vec::new();
    let mut put = |name: &str, shown: &dyn Fn(&TuneEvaluation) -> String| {
        rows.push([name.to_string(), shown(before), shown(after)]);
    };
    put("answered %", &|it| points(it.answered_share));
    put("right %", &|it| points(it.accuracy));
    put("useful groups %", &|it| points(it.useful_groups_share));
    put(&format!("pass@{} %", after.samples), &|it| points(it.pass_at_k));
    put("entropy, nats", &|it| format!("{:.2}", it.entropy));
    put("truncated %", &|it| points(it.truncated_share));
    put("tokens", &|it| format!("{:.1}", it.response_tokens_mean));
    for tag in after.accuracy_by_tag.keys() {
        let of = |it: &TuneEvaluation| it.accuracy_by_tag.get(tag).copied().unwrap_or(f64::NAN);
        put(&format!("right %, {tag}"), &|it| points(of(it)));
    }
    output::table(" | before # | after #", rows)
}
