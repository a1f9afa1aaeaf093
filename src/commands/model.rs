//! `dapo model`: what is done with a checkpoint outside of a run.

use crate::commands::{generate, pretrain, score};
use anyhow::Result;
use std::process::ExitCode;

/// Make a base policy, sample from a checkpoint, or score responses with one.
#[derive(Debug, clap::Args)]
pub struct ModelArgs {
    #[command(subcommand)]
    verb: ModelVerb,
}

#[derive(Debug, clap::Subcommand)]
enum ModelVerb {
    Pretrain(pretrain::PretrainArgs),
    Generate(generate::GenerateArgs),
    Score(score::ScoreArgs),
}

/// Runs the verb.
///
/// # Errors
/// Whatever the verb below it could not do.
pub fn run(args: &ModelArgs) -> Result<ExitCode> {
    match &args.verb {
        ModelVerb::Pretrain(args) => pretrain::run(args),
        ModelVerb::Generate(args) => generate::run(args),
        ModelVerb::Score(args) => score::run(args),
    }
}
