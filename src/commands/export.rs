//! `dapo export`: a study's cells for other tools.

use crate::ablate::Study;
use crate::cell;
use crate::commands::cells;
use crate::commands::exit;
use crate::commands::exit::Usage;
use crate::export::study;
use crate::visible;
use anyhow::Result;
use anyhow::bail;
use std::path::PathBuf;
use std::process::ExitCode;

/// Export the cells of a study: metrics, evaluations and single outcomes as long-format tables, and
/// TensorBoard event files.
///
/// Steps of TensorBoard count updates; the event files hold no times, so the same records give the
/// same bytes. Tables have one row for each value, with the cell, its arms and its seed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dapo export runs/ablate --csv
  dapo export reports/study --parquet --out tables
  dapo export runs/ablate --tensorboard && tensorboard --logdir runs/ablate/export/tensorboard")]
pub struct Args {
    /// Folder of a study.
    study: PathBuf,
    /// metrics.csv, evaluations.csv, outcomes.csv.
    #[arg(long)]
    csv: bool,
    /// metrics.parquet, evaluations.parquet, outcomes.parquet.
    #[arg(long)]
    parquet: bool,
    /// tensorboard/ARM/seed-N/events.out.tfevents…
    #[arg(long)]
    tensorboard: bool,
    /// Folder to write to. Default: STUDY/export.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Runs the verb.
///
/// # Errors
/// No format, a study that cannot be read, or a folder that cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    if !(args.csv || args.parquet || args.tensorboard) {
        bail!(Usage("choose --csv, --parquet or --tensorboard, or several".to_string()));
    }
    let folder = Study::at(&args.study);
    let (cells, refused) = cell::read_folder(&folder.cells())?;
    for error in &refused {
        eprintln!("left out: {}", visible::message(&error.to_string()));
    }
    let keys = study::keys(&cells, &cells::names(&folder)?);
    let out = args.out.clone().unwrap_or_else(|| args.study.join("export"));
    let mut paths = Vec::new();
    if args.csv {
        paths.extend(study::csv(&cells, &keys, &out)?);
    }
    if args.parquet {
        paths.extend(study::parquet(&cells, &keys, &out)?);
    }
    if args.tensorboard {
        paths.extend(study::events(&cells, &keys, &out)?);
    }
    for path in &paths {
        println!("{}", visible::visible(&path.display().to_string()));
    }
    let whole = refused.is_empty();
    Ok(ExitCode::from(if whole { exit::SUCCESS } else { exit::MISMATCH }))
}
