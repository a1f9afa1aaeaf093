//! `dapo runs gc`: what could be deleted.

use crate::base::{files, visible};
use crate::commands::{exit, exit::bail_invalid, output};
use crate::records::{HousekeepingRules, housekeeping};
use anyhow::Result;
use std::path::{Path, PathBuf};

/// List what could be deleted from a folder of runs: path, size and reason, with tabs between them.
///
/// Leftovers of killed writes, checkpoints that are not among the newest of their run, and with
/// `--unfinished` whole runs without an outcome. Nothing of a run that a process works on, of a
/// damaged run or of a folder that is no run is listed, and no link. Nothing is deleted. Intermediate
/// checkpoints of a finished run are named in its outcome: its report says when they are missing.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/gc.txt"))]
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
    /// Print one JSON record a line.
    #[arg(long)]
    json: bool,
}

pub fn check_folder(folder: &Path) -> Result<()> {
    if files::kind(folder)?.is_none() {
        bail_invalid!(
            "there is no folder {}; dapo train makes runs in the folder runs, and every verb takes another by its name",
            folder.display()
        );
    }
    Ok(())
}

/// Errors: a folder that cannot be listed.
pub fn run(args: &GcArgs) -> Result<u8> {
    check_folder(&args.dir)?;
    let rules =
        HousekeepingRules { keep_last: args.keep_last as usize, unfinished: args.unfinished };
    let candidates = housekeeping::candidates(&args.dir, rules)?;
    for candidate in &candidates {
        if args.json {
            output::json_line(candidate);
        } else {
            let path = visible::visible(&candidate.path.display().to_string());
            let size = housekeeping::readable(candidate.size_bytes);
            println!("{path}\t{size}\t{}", candidate.reason);
        }
    }
    let size = housekeeping::readable(candidates.iter().map(|it| it.size_bytes).sum());
    match candidates.len() {
        0 => output::tell("nothing to delete"),
        count => output::tell(format!("{count} could be deleted, {size}")),
    }
    Ok(exit::SUCCESS)
}
