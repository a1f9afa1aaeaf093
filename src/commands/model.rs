//! `dapo model`: what is done with a checkpoint outside of a run.

use crate::commands::{generate, pretrain, score};
use anyhow::Result;
use std::process::ExitCode;

/// Make a base policy, sample from a checkpoint, or score responses with one.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Pretrain(pretrain::Args),
    Generate(generate::Args),
    Score(score::Args),
}

/// Runs the verb.
///
/// # Errors
/// Whatever the verb below it could not do.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.verb {
        Verb::Pretrain(args) => pretrain::run(args),
        Verb::Generate(args) => generate::run(args),
        Verb::Score(args) => score::run(args),
    }
}
