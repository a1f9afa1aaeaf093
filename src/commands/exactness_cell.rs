//! `dapo exactness-cell`: what `dapo exactness` starts for each cell. Not listed.

use crate::commands::{bounds, pretrain};
use crate::experiment::extends;
use crate::numerics::Numerics;
use crate::records::RunFolder;
use crate::verification::exactness::cell::{self, Work};
use crate::verification::{Message, Size};
use anyhow::Result;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compute one cell of `dapo exactness` and print its digests.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Experiment file.
    experiment: PathBuf,
    /// Recipe of pretraining.
    #[arg(long)]
    recipe: PathBuf,
    /// Run folder.
    #[arg(long)]
    out: PathBuf,
    /// Arithmetic.
    #[arg(long)]
    numerics: Numerics,
    /// How much is computed.
    #[arg(long)]
    size: Size,
    /// Threads.
    #[arg(long, default_value_t = 1, value_parser = bounds::threads())]
    threads: u64,
    /// Rollouts of one forward and backward pass.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..))]
    micro_batch: u64,
    /// Responses generated at the same time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    generation_batch: u64,
    /// Compute every sum again reversed and shuffled; end where one differs.
    #[arg(long)]
    check_orders: bool,
    /// Leave pretraining out.
    #[arg(long)]
    without_pretraining: bool,
}

/// Runs the verb.
///
/// # Errors
/// What keeps the cell from being computed.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut experiment = extends::load(&args.experiment)?;
    experiment.numerics = args.numerics;
    experiment.execution.threads = args.threads;
    experiment.execution.micro_batch_rollouts = args.micro_batch;
    experiment.execution.generation_batch_rollouts = args.generation_batch;
    let mut recipe = pretrain::recipe(&args.recipe)?;
    recipe.numerics = args.numerics;
    let recipe = (!args.without_pretraining).then_some(recipe);
    let work = Work { experiment, recipe, size: args.size, check_orders: args.check_orders };
    let folder = RunFolder::at(args.out.clone());
    let digests = cell::run(work, &folder, &mut |step| say(&Message::Saved(step)))?;
    say(&Message::Done(digests));
    Ok(ExitCode::SUCCESS)
}

/// The parent must hear of a checkpoint at once.
fn say(message: &Message) {
    println!("{}", serde_json::to_string(message).expect("a plain record"));
    // Without a parent there is nobody to tell.
    std::io::stdout().flush().ok();
}
