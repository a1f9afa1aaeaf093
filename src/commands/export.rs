//! `dapo export`: a study's cells, or a run's curves and files, for other tools.

use crate::base::{files, visible};
use crate::commands::{cells, exit, exit::Usage, output};
use crate::records::RunFolder;
use crate::report::export::{statement, study};
use crate::study::{ablate::AblateStudy, cell};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Export the cells of a study: metrics, evaluations and single outcomes as long-format tables, and
/// TensorBoard event files; or the curves of a run, finished or not, as an event file, and the digests
/// of a run's files as an in-toto statement.
///
/// Steps of TensorBoard count updates; the event files hold no times, so the same records give the
/// same bytes. Tables have one row for each value, with the cell, its arms and its seed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dapo export runs/ablate --csv
  dapo export reports/study-1 --parquet --out tables
  dapo export runs/ablate --tensorboard && tensorboard --logdir runs/ablate/export/tensorboard
  dapo export runs/reproduce --tensorboard
  dapo export runs/reproduce --statement

Exit codes:
  3  the folder cannot be read, or the run has not ended
  4  a cell was left out, or a file of the run is not the one that outcome.json lists")]
pub struct ExportArgs {
    /// Folder of a study, or of a run.
    #[arg(value_name = "STUDY|RUN")]
    folder: PathBuf,
    /// metrics.csv, evaluations.csv, outcomes.csv.
    #[arg(long)]
    csv: bool,
    /// metrics.parquet, evaluations.parquet, outcomes.parquet.
    #[arg(long)]
    parquet: bool,
    /// tensorboard/ARM/seed-N/events.out.tfevents…; of a run tensorboard/RUN/events.out.tfevents…
    #[arg(long)]
    tensorboard: bool,
    /// RUN/statement.json: an in-toto Statement v1 with the SHA-256 of every file, not signed.
    #[arg(long)]
    statement: bool,
    /// Folder to write to. Default: STUDY/export; of a run the folder `export` beside it.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Runs the verb.
///
/// # Errors
/// No format, a study that cannot be read, or a folder that cannot be written.
pub fn run(args: &ExportArgs) -> Result<ExitCode> {
    if !(args.csv || args.parquet || args.tensorboard || args.statement) {
        bail!(Usage(
            "choose --csv, --parquet, --tensorboard or --statement, or several".to_string()
        ));
    }
    if files::kind(&args.folder.join("manifest.json"))?.is_some() {
        return run_folder(args);
    }
    if args.statement {
        let shown = visible::visible(&args.folder.display().to_string());
        bail!(Usage(format!("{shown} is not a run: --statement is for a run folder")));
    }
    let folder = AblateStudy::at(&args.folder);
    let (cells, refused) = cell::read_folder(&folder.cells())?;
    for error in &refused {
        output::tell(format!("left out: {error}"));
    }
    let keys = study::keys(&cells, &cells::names(&folder)?);
    let out = args.out.clone().unwrap_or_else(|| args.folder.join("export"));
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
    paths.iter().for_each(|path| output::path(path));
    Ok(exit::agreed(refused.is_empty()))
}

/// A run's event file, which lies outside the run folder, and its statement, which lies in it.
fn run_folder(args: &ExportArgs) -> Result<ExitCode> {
    let shown = visible::visible(&args.folder.display().to_string());
    if args.csv || args.parquet {
        bail!(Usage(format!(
            "{shown} is a run: --tensorboard exports its curves, --statement its digests; --csv and --parquet are for a study, \
             and a run's tables are parquet already, in rollouts/ and evaluations/"
        )));
    }
    let run = RunFolder::at(&args.folder);
    if args.statement {
        statement::write(&run)?;
        output::path(&run.path(statement::NAME));
    }
    if !args.tensorboard {
        return Ok(ExitCode::SUCCESS);
    }
    let absolute = std::path::absolute(&args.folder)?;
    let name = absolute.file_name().unwrap_or_default().to_string_lossy();
    let beside = || match args.folder.file_name() {
        Some(_) => args.folder.with_file_name("export"),
        None => absolute.parent().unwrap_or(Path::new("")).join("export"),
    };
    let out = args.out.clone().unwrap_or_else(beside);
    output::path(&study::run_events(&run, &name, &out)?);
    Ok(ExitCode::SUCCESS)
}
