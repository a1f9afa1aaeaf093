//! `dapo diff`: where two runs first differ.

use crate::commands::flags::wide::WideArg;
use crate::commands::{exit, output};
use crate::records::RunFolder;
use crate::study::collection;
use crate::verification::diff::{self, DiffVerdict, text};
use anyhow::Result;
use std::path::PathBuf;

/// Find the first rollout step and component at which two runs differ, and what differs there.
///
/// Ledgers are compared, and stored records: rollouts (problem, sample, token), metrics,
/// checkpoints (tensor, element; other files), evaluations and endings, by bits, with distances in
/// units in the last place. Gradients and old log-probs are not stored; of them the ledgers tell.
/// Differences of configuration, inputs and machine follow. Runs may be unfinished or from other machines.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/diff.txt"))]
pub struct DiffArgs {
    /// Run folder.
    a: PathBuf,
    /// Run folder to compare with.
    b: PathBuf,
    /// One JSON document instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wide: WideArg,
}

/// Errors: a folder that holds no run, or a record that cannot be read.
pub fn run(args: &DiffArgs) -> Result<u8> {
    args.wide.apply();
    [&args.a, &args.b].into_iter().try_for_each(|folder| collection::has_begun(folder))?;
    let diff = diff::compare(&RunFolder::at(&args.a), &RunFolder::at(&args.b))?;
    output::sections((args.json, false), &diff, &text::sections(&diff));
    Ok(exit::agreed(diff.verdict == DiffVerdict::Identical))
}
