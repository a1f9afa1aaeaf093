//! `dapo runs gc`: what could be deleted, and with `--yes` its deletion.

use crate::base::visible;
use crate::commands::output;
use crate::records::{Candidate, HousekeepingRules, housekeeping};
use anyhow::Result;
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Say what could be deleted from a folder of runs; delete it with `--yes`.
///
/// Leftovers of killed writes, checkpoints that are not among the newest of their run, and with
/// `--unfinished` whole runs without an outcome. A run that a process works on, a damaged run, a
/// folder that is no run, and links are left alone. Intermediate checkpoints of a finished run
/// are named in its outcome: afterwards its report says that they are missing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dapo runs gc
      what could go from runs/
  dapo runs gc --keep-last 2 --yes
      delete all but the two newest checkpoints of each run
  dapo runs gc runs/study --unfinished --json")]
pub struct GcArgs {
    /// Folder of runs, or one run.
    #[arg(default_value = "runs")]
    dir: PathBuf,
    /// Newest checkpoints that each run keeps. An unfinished run keeps at least 2.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    keep_last: u32,
    /// Whole runs without an outcome, too.
    #[arg(long)]
    unfinished: bool,
    /// Delete. Without it nothing is changed.
    #[arg(long)]
    yes: bool,
    /// Print one JSON record a line.
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
///
/// # Errors
/// A folder that cannot be listed, or something that cannot be deleted; what was deleted until
/// then was printed.
pub fn run(args: &GcArgs) -> Result<ExitCode> {
    let rules =
        HousekeepingRules { keep_last: args.keep_last as usize, unfinished: args.unfinished };
    let candidates = housekeeping::candidates(&args.dir, rules)?;
    let (mut count, mut bytes) = (0, 0);
    for candidate in &candidates {
        let deleted = args.yes && housekeeping::delete(candidate)?;
        print(candidate, deleted, args);
        if deleted || !args.yes {
            count += 1;
            bytes += candidate.size_bytes;
        }
    }
    let size = housekeeping::readable(bytes);
    match (args.yes, count) {
        (_, 0) => eprintln!("nothing to delete"),
        (true, count) => eprintln!("deleted {count}, {size}"),
        (false, count) => eprintln!("{count} could be deleted, {size}; add --yes to delete them"),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(candidate: &Candidate, deleted: bool, args: &GcArgs) {
    if args.json {
        let mut record = json!(candidate);
        record["deleted"] = json!(deleted);
        return output::json_line(&record);
    }
    let word = match (args.yes, deleted) {
        (false, _) => "would delete",
        (true, true) => "deleted",
        (true, false) => "left (in use, or gone)",
    };
    let size = housekeeping::readable(candidate.size_bytes);
    let path = visible::visible(&candidate.path.display().to_string());
    println!("{word} {path} ({size}): {}", candidate.reason);
}
