//! `dapo model pretrain`: make a base policy.

use crate::base::{files, workers};
use crate::commands::exit::{Invalid, bail_invalid};
use crate::commands::{Progress, bounds, exit};
use crate::experiment::diagnose;
use crate::policy::checkpoint;
use crate::report::text::joined;
use crate::task::data::embedded::characters;
use crate::task::{Solutions, Tokenizer};
use crate::training::{Recipe, pretraining};
use anyhow::Result;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::path::{Path, PathBuf};

/// Make a small base policy from written solutions, those of a generated task or your own.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/pretrain.txt"))]
pub struct PretrainArgs {
    /// Recipe: the policy's shape and the stages of pretraining.
    recipe: PathBuf,
    /// Folder for the checkpoint, in the Hugging Face layout.
    #[arg(long)]
    out: PathBuf,
    /// Seed instead of the recipe's: another base policy of the same kind.
    #[arg(long)]
    seed: Option<u64>,
    /// Threads of LibTorch. The committed base policy was made with 1; other counts may give
    /// other bits.
    #[arg(long, default_value_t = 1)]
    #[arg(value_parser = bounds::threads())]
    threads: u64,
}

/// A larger file, or an endless device, is not read.
const MOST_RECIPE_BYTES: u64 = 1 << 20;

/// Errors: a recipe that cannot be read, a folder that cannot be written, or divergence.
pub fn run(args: &PretrainArgs) -> Result<u8> {
    workers::set_count(args.threads);
    let (mut recipe, solutions) = recipe(&args.recipe)?;
    recipe.seed = args.seed.unwrap_or(recipe.seed);
    let solutions = &*solutions;
    check_out(&args.out)?;
    write_companions(&args.out, &recipe, solutions)?;
    let tokenizer = Tokenizer::load(&args.out)?;
    let total = recipe.stages.iter().map(|stage| stage.updates).sum();
    let mut bar = Progress::new("pretrain", total);
    let log = args.out.join("pretrain.jsonl");
    let (mut done, mut window, mut failed) = (0, Vec::new(), None);
    let model = pretraining::pretrain(&recipe, solutions, &tokenizer, |update| {
        done += 1;
        window.push(update.loss);
        bar.set(done, &format!("{} loss {:.4}", update.stage, update.loss));
        if window.len() == 100 {
            let mean = window.drain(..).sum::<f64>() / 100.0;
            let line =
                json!({"stage": update.stage, "update": update.update, "loss_mean_100": mean});
            failed = failed.take().or(files::append_line(&log, &line).err());
        }
    });
    bar.finish();
    let model = model?;
    failed.map_or(Ok(()), Err)?;
    let path = args.out.join("model.safetensors");
    checkpoint::write_tensors(&path, &checkpoint::values(&model))?;
    println!("{}  {}", files::sha256_file(&path)?, args.out.display());
    Ok(exit::SUCCESS)
}

/// Returns the solutions, too. Errors: a file that cannot be read, or a recipe that cannot run, by key.
pub fn recipe(path: &Path) -> Result<(Recipe, Box<dyn Solutions>)> {
    let recipe: Recipe = parsed(path)?;
    let at = |error| Invalid(format!("{}: {error}", path.display()));
    let solutions = recipe.solutions(path.parent().unwrap_or(Path::new(""))).map_err(at)?;
    refuse(path, &recipe.problems(&*solutions))?;
    Ok((recipe, solutions))
}

/// Reads a recipe of any kind, as TOML. Errors: a file that cannot be read, and the line of a wrong key.
pub fn parsed<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = files::read_text_up_to(path, MOST_RECIPE_BYTES)?;
    Ok(toml::from_str(&text).map_err(|error: toml::de::Error| {
        let message = diagnose::with_suggestion(error.message());
        let reason = files::foreign::without_text(&text, &message, error.span());
        Invalid(format!("{}: {reason}", path.display()))
    })?)
}

/// Errors: the problems, one a line, if there are any.
pub fn refuse(path: &Path, problems: &[String]) -> Result<()> {
    if problems.is_empty() {
        return Ok(());
    }
    let line = |problem: &String| format!("{}: {problem}", path.display());
    bail_invalid!("{}", joined(problems.iter().map(line), "\n"))
}

/// Only an empty folder, or an earlier result of this verb.
fn check_out(out: &Path) -> Result<()> {
    if out.exists() && !out.join("pretrain.jsonl").exists() && !files::list(out)?.is_empty() {
        let out = out.display();
        bail_invalid!("{out} is not empty and holds no pretrain.jsonl; choose another --out");
    }
    Ok(())
}

fn write_companions(out: &Path, recipe: &Recipe, solutions: &dyn Solutions) -> Result<()> {
    files::create_folder(out)?;
    characters::write_tokenizer(out, &solutions.characters())?;
    let (eos, pad) = (characters::EOS_TOKEN_ID, characters::PAD_TOKEN_ID);
    files::write_json(&out.join("config.json"), &recipe.config(solutions).to_json(eos, pad))?;
    let generation = json!({"eos_token_id": eos, "pad_token_id": pad, "do_sample": true,
        "temperature": 1.0, "top_p": 0.7});
    files::write_json(&out.join("generation_config.json"), &generation)?;
    files::write_atomic(&out.join("pretrain.jsonl"), b"")?;
    Ok(())
}
