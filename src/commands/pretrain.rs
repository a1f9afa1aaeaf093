//! `dapo model pretrain`: make a base policy.

use crate::base::{files, workers};
use crate::commands::exit::Invalid;
use crate::commands::{Interrupt, Progress, bounds, exit, output};
use crate::experiment::diagnose;
use crate::task::Solutions;
use crate::training::{Recipe, TrainingError, pretraining};
use anyhow::Result;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// Make a small base policy from written solutions, those of a generated task or your own.
///
/// DIR appears when it is complete: after an interruption the same command begins again. An earlier result in
/// DIR is replaced then, as a whole; a folder with anything else is refused. Its pretrain.jsonl has the mean loss
/// of each 100 updates, and of those that are left at the end of a stage.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/pretrain.txt"))]
pub struct PretrainArgs {
    /// Recipe: the policy's shape and the stages of pretraining.
    recipe: PathBuf,
    /// Folder for the checkpoint, in the Hugging Face layout; no mount point, and not the working folder.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Seed instead of the recipe's: another base policy of the same kind.
    #[arg(long)]
    seed: Option<u64>,
    /// Threads. The bits are the same with any number, where the native engine computes the policy.
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
    let out = std::path::absolute(&args.out)?;
    let total = recipe.stages.iter().map(|stage| stage.updates).sum();
    let (mut done, mut bar) = (0, Progress::new("pretrain", total));
    let interrupt = Interrupt::listen()?;
    let made = pretraining::make(&recipe, &*solutions, &out, |update| {
        done += 1;
        bar.set(done, &format!("{} loss {:.4}", update.stage, update.loss));
        interrupt.asked()
    });
    bar.finish();
    if let Err(TrainingError::Stopped) = made {
        return Ok(stopped(&interrupt, &args.out));
    }
    println!("{}  {}", made?, args.out.display());
    Ok(exit::SUCCESS)
}

pub fn stopped(interrupt: &Interrupt, out: &Path) -> u8 {
    let out = out.display();
    output::tell(format!(
        "stopped; nothing was kept, {out} is as it was, and the same command begins again"
    ));
    interrupt.exit_code()
}

/// Returns the solutions, too. Errors: a file that cannot be read, or a recipe that cannot run, by key.
pub fn recipe(path: &Path) -> Result<(Recipe, Box<dyn Solutions>)> {
    let recipe: Recipe = parsed(path)?;
    let at = |error| Invalid(format!("{}: {error}", path.display()));
    let folder = path.parent().unwrap_or(Path::new(""));
    let (solutions, notes) = recipe.solutions(folder).map_err(at)?;
    exit::refuse_problems(path.display(), &recipe.problems(&*solutions))?;
    notes.iter().for_each(|note| output::tell(format!("note: {}: {note}", path.display())));
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
