//! `dapo cell run`: one cell of a study, on whatever machine this is.

use crate::base::files;
use crate::commands::exit::{Invalid, bail_invalid};
use crate::commands::output::{self, tell};
use crate::commands::{OverrideArgs, exit, train};
use crate::experiment::{compare::differing_keys, shipped};
use crate::records::{Manifest, RunFolder};
use crate::report::{cells, text};
use crate::study::ablate::recording::{self, ATTEMPTS};
use crate::study::ablate::{AblateStudy, jobs, jobs::JobState, listing, process};
use crate::study::{CellEnding, Job};
use crate::training::{TrainingError, run::inputs};
use anyhow::{Error, Result};
use std::path::PathBuf;

/// One cell of a study, on any machine that sees the study's folder
#[derive(Debug, clap::Subcommand)]
pub enum CellVerb {
    Run(CellRunArgs),
}

/// Train a cell, or go on with it, and record it.
///
/// `dapo ablate STUDY --launcher command` numbers the cells in STUDY/cells.jsonl and prints this command
/// for each. A cell that is on record is not run again. An unfinished one continues from its last
/// checkpoint. Ctrl-C, SIGTERM, SIGUSR1 and SIGHUP stop after the present rollout step and save a checkpoint.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/cell.txt"))]
pub struct CellRunArgs {
    /// Number of the cell in STUDY/cells.jsonl, from 0.
    cell: u64,
    /// Folder of the study.
    #[arg(long, value_name = "FOLDER")]
    study: PathBuf,
    /// Folder from which the relative paths of the experiment's inputs start. Default: the working
    /// folder.
    #[arg(long, value_name = "FOLDER")]
    inputs: Option<PathBuf>,
    /// Begin the cell again if its record says that it failed.
    #[arg(long)]
    retry_failed: bool,
}

/// Errors: a study, cell or input that cannot be used; a folder that another process works in.
pub fn run(CellVerb::Run(args): &CellVerb) -> Result<u8> {
    let study = AblateStudy::at(std::path::absolute(&args.study)?);
    // A record names inputs as the experiment does, whatever folder of this machine they lie in.
    if let Some(folder) = &args.inputs
        && let Err(error) = std::env::set_current_dir(folder)
    {
        bail_invalid!("--inputs {}: {error}", folder.display());
    }
    let mut job = job(&study, args)?;
    if !job.is_to_run(args.retry_failed) {
        tell(format!("{} is on record: {}", job.title(), job.state.name()));
        return Ok(exit::SUCCESS);
    }
    for attempt in 1..=ATTEMPTS {
        if job.folder.is_locked()? {
            return Err(in_use(&job));
        }
        if let JobState::Unusable { reason } = job.state.clone() {
            recording::set_aside(&mut job, &reason)?.iter().for_each(tell);
        }
        if job.state != JobState::Ended
            && let Some(stopped) = trained(&study, &mut job)?
        {
            return Ok(stopped);
        }
        if job.state == JobState::Ended
            && let Some(problem) = recording::record(&study, &mut job)?
        {
            if attempt < ATTEMPTS {
                recording::set_aside(&mut job, &problem)?.iter().for_each(tell);
                continue;
            }
            recording::fail(&study, &mut job, &problem)?;
        }
        break;
    }
    Ok(ending(&job))
}

fn in_use(job: &Job) -> Error {
    let folder = job.folder.root().display();
    Invalid(format!("{folder}: another process works on this cell")).into()
}

fn job(study: &AblateStudy, args: &CellRunArgs) -> Result<Job> {
    if files::kind(&study.root().join("cells.jsonl"))?.is_none() {
        bail_invalid!(
            "{} has no cells.jsonl, which numbers the cells; `dapo ablate GRID --out STUDY --launcher command` writes it",
            args.study.display()
        );
    }
    let listed = listing::find(study, args.cell)?;
    let file = files::foreign::inside(study.root(), &listed.experiment)?;
    let experiment = OverrideArgs::default().load(&file)?;
    let mut there = experiment.clone().of_its_seed();
    there.inputs.model = shipped::model_folder(&there.inputs.model)?;
    if let Some(path) = there.inputs.paths().into_iter().find(|path| !path.exists()) {
        bail_invalid!(
            "{}: an input of this cell is not here: there is no {}; relative paths start from {}, --inputs FOLDER \
             names another start",
            file.display(),
            path.display(),
            std::env::current_dir()?.display()
        );
    }
    let manifest = inputs::identified(&experiment)?;
    let folder = RunFolder::at(files::foreign::inside(study.root(), &listed.folder)?);
    if manifest.run_key != listed.run_key {
        bail_invalid!(
            "{}: the inputs of this cell are not those with which it was listed: its run key is {}, and {} \
             in cells.jsonl; {}",
            file.display(),
            manifest.run_key,
            listed.run_key,
            differing(&folder, &manifest)
        );
    }
    let arm = listed.title.split(" seed ").next().unwrap_or_default().to_string();
    let mut job = Job {
        arms: vec![arm],
        experiment,
        manifest,
        record: files::foreign::inside(study.root(), &listed.record)?,
        folder,
        state: JobState::Missing,
    };
    job.state = jobs::state(&job)?;
    Ok(job)
}

fn differing(folder: &RunFolder, manifest: &Manifest) -> String {
    let begun = folder.manifest().map(|begun| begun.inputs).unwrap_or_default();
    let differing = differing_keys(&begun, &manifest.inputs);
    if begun.is_empty() || differing.is_empty() {
        let here = manifest.inputs.iter().map(|(name, digest)| format!("{name} {digest}"));
        return format!("the inputs here are {}", text::joined(here, ", "));
    }
    format!("other than in its run folder: {}", text::joined(differing, ", "))
}

/// Trains as `dapo train`. Returns the exit code when stopped; a failed run is on record.
fn trained(study: &AblateStudy, job: &mut Job) -> Result<Option<u8>> {
    let arguments = process::arguments(&study.experiment(&job.run_name()), &job.folder);
    let ended = train::run_line(&arguments);
    let has_outcome = jobs::has_outcome(&job.folder)?;
    if has_outcome {
        job.state = JobState::Ended;
    }
    match ended {
        Ok(_) if has_outcome => Ok(None),
        Ok(stopped) => Ok(Some(stopped)),
        Err(error) if matches!(error.downcast_ref(), Some(TrainingError::InUse { .. })) => {
            Err(in_use(job))
        }
        // The run has ended, and its report can be made again.
        Err(error) if has_outcome => {
            tell(format!("error: {}", exit::message(&error)));
            Ok(None)
        }
        Err(error) if job.folder.is_locked()? || exit::code(&error) == exit::BUG => Err(error),
        Err(error) if files::is_unread(error.as_ref()) => Err(error),
        Err(error) => {
            recording::fail(study, job, &format!("error: {}", exit::message(&error)))?;
            Ok(None)
        }
    }
}

fn ending(job: &Job) -> u8 {
    let Some(cell) = job.state.cell() else { return exit::SUCCESS };
    use CellEnding::{Diverged, Failed, Finished, Saturated, Stalled};
    let (code, result) = match cell.ending {
        Failed => (exit::INCONCLUSIVE, cell.reason.clone()),
        Diverged => (exit::DIVERGED, cells::scores(cell)),
        Finished | Saturated | Stalled => (exit::SUCCESS, cells::scores(cell)),
    };
    tell(format!("{} {}: {result}", job.title(), cell.ending.name()));
    output::path(&job.record);
    code
}
