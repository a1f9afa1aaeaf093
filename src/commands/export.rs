//! `dapo export`: a study's cells, or a run's curves, for other tools.

use crate::base::{files, visible};
use crate::commands::flags::tracking::TrackerArgs;
use crate::commands::{Interrupt, cells, exit, exit::bail_usage, output};
use crate::records::{CellKey, RunFolder};
use crate::report::export::{curves, study};
use crate::report::{CurveSender, RunCurves, Tracker};
use crate::study::{ablate::AblateStudy, cell, collection};
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often records are read again with --follow.
const LOOK: Duration = Duration::from_secs(2);

/// Export the cells of a study as long-format tables, and the curves of a run or of a study's cells to
/// TensorBoard, wandb, mlflow or trackio.
///
/// Steps of curves count updates. Event files of TensorBoard hold no times, so the same records give
/// the same bytes. wandb, mlflow and trackio are reached through the Python that has their package;
/// what they read from the environment (WANDB_MODE, MLFLOW_TRACKING_URI) holds here too. With --follow
/// what the runs add is sent until they end. Tables have one row for each value, with the cell, its
/// arms and its seed.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/export.txt"))]
pub struct ExportArgs {
    /// Folder of a study, or of a run.
    #[arg(value_name = "STUDY|RUN")]
    folder: PathBuf,
    /// Write metrics.csv, evaluations.csv and outcomes.csv.
    #[arg(long)]
    csv: bool,
    /// Write metrics.parquet, evaluations.parquet and outcomes.parquet.
    #[arg(long)]
    parquet: bool,
    /// The same as --to tensorboard. It writes tensorboard/ARM/seed-N/events.out.tfevents…, for a run
    /// tensorboard/RUN/events.out.tfevents…
    #[arg(long)]
    tensorboard: bool,
    /// Send the curves to this tracker.
    #[arg(long, value_name = "TRACKER", conflicts_with = "tensorboard")]
    to: Option<Tracker>,
    /// Send what is added until the run, or every run of the study, has ended.
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    tracker: TrackerArgs,
    /// Folder to write to. Default: STUDY/export; for a run the folder `export` beside it.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Errors: no format, a study that cannot be read, or a folder that cannot be written.
pub fn run(args: &ExportArgs) -> Result<u8> {
    let to = args.to.or(args.tensorboard.then_some(Tracker::Tensorboard));
    if !(args.csv || args.parquet || to.is_some()) {
        bail_usage!("choose --csv, --parquet, --tensorboard or --to, or several");
    }
    args.tracker.check(to, "--to")?;
    if args.follow && to.is_none() {
        bail_usage!("--follow needs --to or --tensorboard: only curves can be followed");
    }
    if files::kind(&args.folder.join("manifest.json"))?.is_some() {
        return run_folder(args, to);
    }
    collection::has_begun(&args.folder)?;
    collection::is_of_a_kind(&args.folder)?;
    let folder = AblateStudy::at(&args.folder);
    let (cells, refused) = cell::read_folder(folder.root())?;
    refused.iter().for_each(|error| output::tell(format!("left out: {error}")));
    let names = cells::names(&folder)?;
    let keys = study::keys(&cells, &names);
    let out = args.out.clone().unwrap_or_else(|| args.folder.join("export"));
    let sender = to.map(|tracker| args.tracker.sender(tracker, &out, &args.folder)).transpose()?;
    let (mut paths, mut code) = (Vec::new(), exit::SUCCESS);
    if args.csv {
        paths.extend(study::csv(&cells, &keys, &out)?);
    }
    if args.parquet {
        paths.extend(study::parquet(&cells, &keys, &out)?);
    }
    if let Some(mut sender) = sender {
        for (cell, key) in cells.iter().zip(&keys) {
            sender.send(&curves::of_cell(cell, key))?;
        }
        if args.follow {
            code = follow(&mut sender, || of_study(&folder, &names))?;
        }
        paths.extend(sender.end()?);
    }
    paths.iter().for_each(|path| output::path(path));
    Ok(if code == exit::SUCCESS { exit::agreed(refused.is_empty()) } else { code })
}

/// Returns whether all have ended, too.
fn of_study(
    study: &AblateStudy,
    names: &BTreeMap<String, Vec<String>>,
) -> Result<(Vec<RunCurves>, bool)> {
    let is_at_work = files::locks::is_locked(&study.root().join("ablate.lock"))?;
    let mut curves_of_runs = Vec::new();
    let runs = files::foreign::inside(study.root(), "runs")?;
    for name in files::optional(files::list(&runs))?.unwrap_or_default() {
        let run = RunFolder::at(files::foreign::inside(&runs, &name)?);
        // The manifest comes after the run folder.
        let Ok(manifest) = run.manifest() else { continue };
        let arms = names.get(&manifest.arm_sha256);
        let arms = arms.map_or_else(|| manifest.name.clone(), |it| it.join(" "));
        let key = CellKey { cell: name, arms, seed: manifest.seed };
        curves_of_runs.push(curves::of_run(&run, Some(&key))?);
    }
    Ok((curves_of_runs, !is_at_work))
}

/// Until the runs have ended or Ctrl-C.
fn follow(
    sender: &mut CurveSender,
    mut look: impl FnMut() -> Result<(Vec<RunCurves>, bool)>,
) -> Result<u8> {
    let interrupt = Interrupt::listen()?;
    loop {
        let (runs, ended) = look()?;
        for run in &runs {
            sender.send(run)?;
        }
        if ended {
            return Ok(exit::SUCCESS);
        }
        if interrupt.asked() {
            output::tell("stopped; what was sent stays, and the same command sends all again");
            return Ok(interrupt.exit_code());
        }
        std::thread::sleep(LOOK);
    }
}

fn run_folder(args: &ExportArgs, to: Option<Tracker>) -> Result<u8> {
    let shown = visible::visible(&args.folder.display().to_string());
    if args.csv || args.parquet {
        bail_usage!(
            "{shown} is a run: --tensorboard exports its curves; --csv and --parquet are for a study, \
             and a run's tables are parquet already, in rollouts/ and evaluations/"
        );
    }
    let run = RunFolder::at(&args.folder);
    let Some(tracker) = to else { return Ok(exit::SUCCESS) };
    let absolute = std::path::absolute(&args.folder)?;
    let beside = || match args.folder.file_name() {
        Some(_) => args.folder.with_file_name("export"),
        None => absolute.parent().unwrap_or(Path::new("")).join("export"),
    };
    let out = args.out.clone().unwrap_or_else(beside);
    let mut sender = args.tracker.sender(tracker, &out, &args.folder)?;
    let look = || {
        let curves = curves::of_run(&run, None)?;
        let ended = curves.ending.is_some() || !args.follow;
        Ok((vec![curves], ended))
    };
    let code = follow(&mut sender, look)?;
    sender.end()?.iter().for_each(|path| output::path(path));
    Ok(code)
}
