//! `dapo ablate --launcher` and `--status`: cells handed to other machines, and what became of them.

use crate::base::{program, program::line};
use crate::commands::ablate::{self, AblateArgs};
use crate::commands::exit::bail_usage;
use crate::commands::{exit, output, output::tell};
use crate::engines::launcher::{self, ray, slurm};
use crate::engines::{CellProgram, Launcher, LauncherState};
use crate::experiment::Grid;
use crate::report::{cells, text};
use crate::study::ablate::{AblateStudy, jobs, jobs::JobState, listing};
use crate::study::{CellEnding, Job, cell};
use anyhow::Result;
use std::path::PathBuf;

/// Where cells run, and what is asked about them.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Other machines")]
pub struct LauncherArgs {
    /// What runs the cells. `command` prints a command for each; `slurm` and `ray` hand over the cells that
    /// are neither on record nor on their way, and do not wait.
    #[arg(long, value_enum, default_value = "local")]
    pub launcher: Launcher,
    /// Only print which cells are queued, running, done and failed.
    #[arg(long, conflicts_with_all = ["dry_run", "retry_failed", "launcher"])]
    pub status: bool,
    /// Script for Slurm instead of the built-in one, which --dry-run prints. `@ARRAY@`, `@COMMAND@` and
    /// `@LOGS@` (a folder) in it are filled in.
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// Address of Ray's head, such as http://127.0.0.1:8265. Default: RAY_ADDRESS.
    #[arg(long)]
    address: Option<String>,
    /// Path of this program on the other machines. Default: its path here.
    #[arg(long, value_name = "PROGRAM")]
    program: Option<PathBuf>,
}

impl LauncherArgs {
    /// Errors: a flag that the launcher does not read, or a template that cannot be used.
    pub fn check(&self, at_once: Option<u64>, json: bool) -> Result<()> {
        let launcher = self.launcher;
        use Launcher::{Command, Local, Ray, Slurm};
        let flags: [(&str, bool, &[Launcher]); 5] = [
            ("--template", self.template.is_some(), &[Slurm]),
            ("--address", self.address.is_some(), &[Ray]),
            ("--program", self.program.is_some(), &[Command, Slurm, Ray]),
            ("--jobs", at_once.is_some(), &[Local, Slurm]),
            ("--json", json, &[Local]),
        ];
        for (flag, is_given, readers) in flags {
            if is_given && !readers.contains(&launcher) {
                let readers = text::listed(readers.iter().map(|it| it.name()));
                let own = launcher.name();
                bail_usage!("{flag} is for --launcher {readers}, and the launcher is {own}");
            }
        }
        // Fails before anything is written.
        if launcher == Launcher::Ray && !self.status {
            self.address()?;
        }
        slurm::template(self.template.as_deref())?;
        Ok(())
    }

    fn program(&self, study: &AblateStudy, retry_failed: bool) -> Result<CellProgram> {
        Ok(CellProgram {
            program: self.program.clone().map_or_else(program::path, Ok)?,
            study: std::path::absolute(study.root())?,
            inputs: std::env::current_dir()?,
            retry_failed,
        })
    }

    fn address(&self) -> Result<String> {
        match self.address.clone().or_else(|| std::env::var("RAY_ADDRESS").ok()) {
            Some(address) if !address.is_empty() => Ok(address),
            _ => bail_usage!("--launcher ray needs --address or RAY_ADDRESS"),
        }
    }
}

/// Cells that are recorded or submitted are left out.
/// Errors: a study that cannot be written, or a launcher that cannot be asked or refuses.
pub fn hand_over(args: &AblateArgs, study: &AblateStudy, jobs: &[Job]) -> Result<u8> {
    let launcher = &args.launcher;
    let cells = kept(args, study, jobs)?;
    let program = launcher.program(study, args.retry_failed)?;
    match launcher.launcher {
        Launcher::Local | Launcher::Command => {
            cells.iter().for_each(|cell| println!("{}", line(&program.words(cell))));
        }
        Launcher::Slurm => {
            let template = slurm::template(launcher.template.as_deref())?;
            let arrays = slurm::arrays(study, &cells, &program, args.jobs, &template)?;
            let mut before = None;
            for (job, script) in arrays {
                if args.dry_run {
                    print!("{script}");
                    continue;
                }
                let job = slurm::submit(study, job, &script, before.as_ref())?;
                println!("{}", job.id);
                before = Some(job);
            }
        }
        Launcher::Ray => {
            let mut failed = None;
            for (job, words) in ray::jobs(&cells, &program, &launcher.address()?) {
                if args.dry_run {
                    println!("ray {}", line(&words));
                    continue;
                }
                match ray::submit(study, &job, &words) {
                    Ok(()) => println!("{}", job.id),
                    Err(error) if failed.is_none() => failed = Some(error),
                    Err(error) => return Err(error.into()),
                }
            }
            failed.map_or(Ok(()), Err)?;
        }
    }
    if !args.dry_run {
        tell("the same command with --status instead of --launcher shows the state of the cells");
    }
    Ok(exit::SUCCESS)
}

/// Numbers of cells, ascending.
fn kept(args: &AblateArgs, study: &AblateStudy, jobs: &[Job]) -> Result<Vec<u64>> {
    let numbers = listing::numbers(study, jobs)?;
    launcher::cut_off(study)?.iter().for_each(tell);
    let (states, mut silent) = launcher::states(study)?;
    // Otherwise waiting cells would be submitted again.
    if let Some(error) = silent.pop() {
        return Err(error.into());
    }
    let mut places = Vec::new();
    let mut done = 0;
    for (place, (job, number)) in jobs.iter().zip(&numbers).enumerate() {
        if !job.is_to_run(args.retry_failed) {
            done += 1;
        } else if !states.contains_key(number) && !job.folder.is_locked()? {
            places.push(place);
        }
    }
    if !args.dry_run {
        listing::keep(study, jobs, &places)?;
    }
    let (all, count) = (jobs.len(), places.len());
    let away = all - done - count;
    tell(format!("{all} cells: {done} on record, {away} on their way, {count} to hand over"));
    let mut cells: Vec<u64> = places.into_iter().map(|place| numbers[place]).collect();
    cells.sort_unstable();
    Ok(cells)
}

/// Without JSON it reads only the head of a record. Errors: a study that cannot be read.
pub fn status(study: &AblateStudy, grids: &[Grid], json: bool) -> Result<u8> {
    let jobs = jobs::unchecked(study, grids)?;
    let numbers = listing::numbers(study, &jobs)?;
    launcher::cut_off(study)?.iter().for_each(tell);
    let (states, silent) = launcher::states(study)?;
    for error in silent {
        tell(format!("{error}; the states below are those of records and run folders alone"));
    }
    let named = jobs.iter().zip(&numbers).map(|(job, number)| state(job, states.get(number)));
    let named = named.collect::<Result<Vec<_>>>()?;
    let (classes, names): (Vec<&str>, Vec<String>) = named.into_iter().unzip();
    let counts = text::counts(classes);
    if json {
        let (records, _refused) = ablate::records(study)?;
        let records = records.iter().map(|it| (study.cells().join(it.file_name()), vec![], it));
        let own = |(path, ..): &cells::KeptRecord| jobs.iter().any(|job| job.record == *path);
        let records: Vec<_> = records.filter(own).collect();
        output::document(true, &cells::document(&jobs, &names, &records), String::new);
        return Ok(exit::SUCCESS);
    }
    for grid in grids {
        println!("{}", output::page_table(&cells::states(grid, &jobs, &names)));
    }
    let count = |class: &&str| format!("{} {class}", counts.get(*class).unwrap_or(&0));
    println!("{} cells: {}", jobs.len(), text::joined(CLASSES.iter().map(count), ", "));
    Ok(exit::SUCCESS)
}

const CLASSES: [&str; 6] = ["done", "failed", "running", "queued", "to run", "unusable"];

fn state(job: &Job, elsewhere: Option<&LauncherState>) -> Result<(&'static str, String)> {
    let head = cell::head(&job.record)?;
    let is_whole = match &head {
        Some(head) => head.is_whole,
        None => !cell::is_there(&job.record)?,
    };
    let fits = head.as_ref().is_none_or(|head| head.run_key == job.manifest.run_key);
    let recorded = head.map(|head| head.ending);
    let class = match (recorded, elsewhere) {
        _ if !is_whole || !fits => "unusable",
        (Some(CellEnding::Failed), None) => "failed",
        (Some(ending), _) if ending != CellEnding::Failed => "done",
        _ if job.folder.is_locked()? => "running",
        (_, Some(LauncherState::Running)) => "running",
        (_, Some(LauncherState::Queued)) => "queued",
        _ => "to run",
    };
    let name = match (class, recorded, jobs::steps_done(&job.folder)) {
        ("done" | "failed", Some(ending), _) => ending.name().to_string(),
        ("unusable", ..) if !is_whole => "no whole record".to_string(),
        // `dapo ablate` names the inputs.
        ("unusable", ..) => "of other inputs".to_string(),
        (_, _, 0) => class.to_string(),
        ("to run", _, steps) => JobState::Unfinished { steps }.name(),
        (_, _, steps) => format!("{class}, {steps} steps"),
    };
    Ok((class, name))
}
