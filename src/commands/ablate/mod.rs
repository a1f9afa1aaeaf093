//! `dapo ablate`: every arm of a grid with every seed, each as a process of its own.

pub mod elsewhere;
pub mod progress;
pub mod registered;

use crate::base::{files, program};
use crate::commands::ablate::elsewhere::LauncherArgs;
use crate::commands::ablate::progress::GridProgress;
use crate::commands::ablate::registered::StudyFiles;
use crate::commands::exit::{Invalid, bail_invalid, bail_usage};
use crate::commands::flags::declared::{self, Problems};
use crate::commands::flags::seeds::{Seeds, seeds};
use crate::commands::flags::wide::WideArg;
use crate::commands::{Interrupt, OverrideArgs, exit, output, output::tell, report};
use crate::engines::Launcher;
use crate::engines::run::{self as engines, EngineOptions};
use crate::experiment::grid::file::{self, BaseSource};
use crate::experiment::{Arm, Grid, diagnose, shipped};
use crate::report::{cells, study as study_report, text};
use crate::study::ablate::schedule::{self, ScheduleEvent, ScheduleOptions};
use crate::study::ablate::{AblateStudy, jobs, jobs::JobState};
use crate::study::declaration::{self, Placement};
use crate::study::{Cell, CellEnding, Declaration, Job, StudyError};
use crate::study::{cell, cell::packed, collection as studies, membership};
use crate::training::run::inputs;
use anyhow::Result;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Run a grid: every arm with every seed, each as a process with one thread.
///
/// A grid is a TOML file or the name of one (listed below). Several grids share one study, and an arm that several of
/// them have is run once. A cell that is on record is not run again; an unfinished one is continued.
/// A record that was edited, or that does not fit its run folder, is renamed, and the cell is run again. A
/// cell that fails stays on record with its reason while the others go on. Ctrl-C stops after the present
/// rollout steps.
///
/// Reports, statistics and resuming read only STUDY/grids and STUDY/cells: you may delete the run folders
/// afterwards.
#[derive(Debug, clap::Args)]
#[command(after_help = help())]
pub struct AblateArgs {
    /// Grids: names of shipped ones, TOML files, or the folder of a study.
    /// Default: the grids that the study keeps, else ladder.
    grids: Vec<String>,
    /// Seeds instead of the grids' own, such as 1,2,5 or 1..5 (5 included).
    #[arg(long, value_parser = seeds)]
    seeds: Option<Seeds>,
    /// Run only cells of these arms now: names, or GRID/ARM, separated by commas. The others stay to run.
    #[arg(long, value_delimiter = ',', value_name = "ARMS", conflicts_with = "status")]
    arms: Vec<String>,
    /// Declaration of what was decided beforehand, such as experiments/study.toml. It must fit the grids.
    /// STUDY/study.json keeps it, and reports and later calls read it there. Without --seeds its seeds are run.
    #[arg(long, value_name = "FILE")]
    declaration: Option<PathBuf>,
    /// Folder of the study. Default: that of `dapo init` or of a study in which the named grids lie, else runs/ablate.
    #[arg(long, visible_alias = "study", value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Cells at the same time. Default: one for each core; with Slurm, as many as it has room for.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=256))]
    jobs: Option<u64>,
    /// Only print the cells, what is there, the cost, and how the arms differ.
    #[arg(long)]
    dry_run: bool,
    /// Begin failed cells again.
    #[arg(long)]
    retry_failed: bool,
    /// Run a registered study although no commit shows its grids, its declaration or the tracked files. The study's
    /// declared.json keeps why, and each record that tracked files differed.
    #[arg(long)]
    dirty: bool,
    /// Keep only the last checkpoint of each run, whatever the experiment says (about 3 MB instead of 10
    /// on the embedded benchmark). It changes no number, and `dapo verify` needs no other.
    #[arg(long)]
    last_checkpoint_only: bool,
    /// Print one JSON document instead of tables: every cell with its arm, seed, state and scores.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wide: WideArg,
    #[command(flatten)]
    overrides: OverrideArgs,
    #[command(flatten)]
    launcher: LauncherArgs,
}

fn help() -> String {
    let paths = shipped::all().map(|(path, _)| path);
    let names = paths.filter(|path| path.starts_with(shipped::GRIDS));
    let names = text::joined(names.map(|path| shipped::name(&path)), ", ");
    format!("Grids: {names}\n\n{}", include_str!("../help/ablate.txt"))
}

/// Errors: grids, arms or inputs that cannot be used, a study that is in use, a folder that cannot be written.
pub fn run(args: &AblateArgs) -> Result<u8> {
    args.wide.apply();
    args.launcher.check(args.jobs, args.json)?;
    let own = ["execution.seed", "execution.threads", "name"].map(|key| (key, true));
    args.overrides.check(&own)?;
    if args.launcher.status
        && let Some((study, grids)) = args.kept_grids()?
    {
        return elsewhere::status(&study, &grids, args.json);
    }
    let study = AblateStudy::at(args.study());
    let declaration = args.declaration.as_deref().map(declaration::load).transpose()?;
    let kept = kept_declaration(&study, declaration.as_ref())?;
    let is_kept = kept.is_some();
    let declaration = declaration.or(kept);
    let root = study.root();
    let (mut grid_files, sources, grids) = grids_to_run(args, root, declaration.as_ref(), is_kept)?;
    tell_other_grids(root, &grids);
    if let Some(declaration) = &declaration {
        declared_arms(&grids, declaration, args.dry_run && !is_kept && !args.json)?;
        if !args.launcher.status {
            let own = study.root().join("study.json");
            let place = args.declaration.as_ref().unwrap_or(&own).display();
            let others = declared::other_grids(study.root(), declaration, &grids, &grid_files);
            let problems = declared::problems(declaration, &grids, &others);
            check_declaration(&place.to_string(), problems, is_kept)?;
            tell_left_seeds(&place.to_string(), declaration, &grids);
        }
    } else {
        check_sets(&study, &grids)?;
    }
    if args.launcher.status {
        let all = || grids.iter().map(|grid| study.with_kept_seeds(grid)).collect::<Result<_, _>>();
        let all = args.seeds.is_none().then(all).transpose()?;
        return elsewhere::status(&study, &all.unwrap_or(grids), args.json);
    }
    if args.dirty && !declaration.as_ref().is_some_and(|it| it.registered) {
        tell("note: --dirty changes nothing: this study is not registered");
    }
    grid_files.retain(|path| path.exists());
    let files = StudyFiles { grids: grid_files, declaration: args.declaration.clone() };
    let refusal = uncommitted(args, &study, &grids, declaration.as_ref(), &files)?;
    if args.dry_run {
        if let Some(refusal) = refusal {
            tell(format!("warning: the run will be refused: {refusal}"));
        }
        let declaration = declaration.unwrap_or(Declaration::undeclared(&[], "", ""));
        let jobs = chosen(args, &study, &grids, true)?;
        refuse_arms(args, &jobs)?;
        return dry_run(args, &study, (&grids, &sources), &jobs, &declaration);
    }
    if grids.iter().flat_map(|grid| &grid.arms).any(|arm| !arm.experiment.engine.is_native()) {
        refuse_arms(args, &chosen(args, &study, &grids, false)?)?;
    }
    if let Some(refusal) = refusal {
        bail_invalid!("{refusal}");
    }
    run_cells(args, &study, &grids, declaration.as_ref(), &files)
}

/// With their files: those that are named, else those that the study keeps, else the usual one.
fn grids_to_run(
    args: &AblateArgs,
    root: &Path,
    declaration: Option<&Declaration>,
    is_kept: bool,
) -> Result<(Vec<PathBuf>, Vec<BaseSource>, Vec<Grid>)> {
    let declared = declaration.map(|declaration| &declaration.seeds);
    let declared = declared.filter(|seeds| !seeds.is_empty());
    let seeds = args.seeds.as_ref().map(|Seeds(seeds)| seeds).or(declared);
    let out = args.out.as_ref().filter(|out| file::in_folder(out).is_some());
    let names_grids = !args.grids.is_empty() && args.kept_study().is_none();
    let may_keep = !names_grids && out.is_none() && root.is_dir();
    let kept_grids = if may_keep { studies::grids(root)? } else { Vec::new() };
    if may_keep && kept_grids.is_empty() {
        has_no_cells(root)?;
    }
    let usual = [out.map_or("ladder".to_string(), |out| out.display().to_string())];
    let named = if args.grids.is_empty() { &usual[..] } else { &args.grids };
    let grid_files = match &kept_grids[..] {
        [] => named.iter().map(|name| file::find(name)).collect::<Result<Vec<_>, _>>()?,
        kept => kept.iter().map(|grid| Grid::path(root, &grid.name)).collect(),
    };
    let mut sources = Vec::new();
    for path in grid_files.iter().filter(|_| kept_grids.is_empty()) {
        let mut source = file::load_overridden(path, args.overrides.texts())?;
        source.grid.seeds = seeds.unwrap_or(&source.grid.seeds).clone();
        sources.push(source);
    }
    sources.iter().flat_map(|source| &source.notes).for_each(|note| tell(format!("note: {note}")));
    let mut grids: Vec<Grid> = sources.iter().map(|source| source.grid.clone()).collect();
    if !kept_grids.is_empty() {
        let names = text::joined(kept_grids.iter().map(|grid| &grid.name), ", ");
        if !args.overrides.is_empty() {
            bail_usage!("--set is for grids that you name; {} keeps {names}", root.display());
        }
        tell(format!("note: the grids that {} keeps: {names}", root.display()));
        grids = kept_grids;
        grids.iter_mut().for_each(|grid| grid.seeds = seeds.unwrap_or(&grid.seeds).clone());
    } else if may_keep && is_kept {
        let declared = declaration.map(Declaration::declared_grids).unwrap_or_default();
        if !declared.is_empty() && !declared.contains(&grids[0].name[..]) {
            bail_invalid!(
                "{}: study.json declares {} and not {}, which no argument names; name the grids to run",
                root.display(),
                text::joined(declared, ", "),
                grids[0].name
            );
        }
    }
    Ok((grid_files, sources, grids))
}

fn run_cells(
    args: &AblateArgs,
    study: &AblateStudy,
    grids: &[Grid],
    declaration: Option<&Declaration>,
    files: &StudyFiles,
) -> Result<u8> {
    let interrupt = Interrupt::listen()?;
    let lock = study.lock()?;
    let mut jobs = chosen(args, study, grids, true)?;
    if args.last_checkpoint_only {
        jobs.iter_mut().for_each(Job::keep_last_checkpoint_only);
    }
    let kept = kept_declaration(study, declaration)?;
    let declared_since = kept.as_ref().filter(|_| declaration.is_none());
    if let Some(refusal) = uncommitted(args, study, grids, declared_since, files)? {
        bail_invalid!("{refusal}");
    }
    if let Some(declaration) = declaration.filter(|_| kept.is_none()) {
        declare(study, declaration, files)?;
    }
    for grid in grids {
        study.keep(grid)?;
    }
    if args.is_elsewhere() && jobs.iter().any(|job| job.is_to_run(args.retry_failed)) {
        return elsewhere::hand_over(args, study, &jobs);
    }
    let options = ScheduleOptions {
        program: program::path()?,
        at_once: at_once(args),
        retry_failed: args.retry_failed,
    };
    let count = jobs.len();
    tell(format!("{count} cells in {}, {} at a time", study.root().display(), options.at_once));
    let mut progress = GridProgress::new(count);
    let mut next_report = Instant::now();
    schedule::run((study, &lock), &mut jobs, &options, &|| interrupt.asked(), &mut |event| {
        if interrupt.news() {
            progress.note("stopping after the present rollout steps; once more stops at once");
        }
        progress.show(&event);
        let started = Instant::now();
        if matches!(event, ScheduleEvent::Ended(_)) && started >= next_report {
            if let Err(error) = study_report::write(study.root(), None, None) {
                tracing::warn!(%error, "the report was not renewed");
            }
            // For at most a tenth of the time.
            next_report = Instant::now() + 9 * started.elapsed();
        }
    })?;
    progress.finish();
    let whole = studies::load(study.root(), None)?;
    let records = cells::counting(&study.cells(), &whole);
    let summary = |grid| output::page_table(&cells::summary(&whole, grid)) + "\n";
    output::document(args.json, &cells::document(&jobs, &state_names(&jobs), &records), || {
        whole.grids.iter().map(summary).collect()
    });
    let code = ending(args, study, &jobs, &interrupt);
    let further = cells::further(&jobs, &records);
    if !further.is_empty() {
        let seeds: BTreeSet<u64> = further.iter().map(|(_, _, cell)| cell.seed).collect();
        let (count, seeds) = (further.len(), text::joined(seeds, ", "));
        let verbs = if count == 1 { "is on record and counts" } else { "are on record and count" };
        let count = text::counted(count, "further cell", "further cells");
        tell(format!("{count} of this study {verbs} (seeds: {seeds})"));
    }
    let is_whole = jobs.iter().all(|job| job.state.cell().is_some());
    if is_whole && args.json {
        study_report::write(study.root(), None, None)?;
    } else if is_whole {
        report::study(study.root(), [None, None], false)?;
    }
    Ok(code)
}

fn chosen(args: &AblateArgs, study: &AblateStudy, grids: &[Grid], told: bool) -> Result<Vec<Job>> {
    let mut jobs = jobs::jobs(study, grids)?;
    let count = jobs.len();
    let is_of = |job: &Job, wanted: &String| {
        job.arms.iter().any(|title| title == wanted || title.split('/').nth(1) == Some(wanted))
    };
    let wanted: Vec<String> = args.arms.iter().map(|arm| arm.trim().to_string()).collect();
    for wanted in &wanted {
        if !jobs.iter().any(|job| is_of(job, wanted)) {
            let names: BTreeSet<String> = jobs.iter().flat_map(|job| job.arms.clone()).collect();
            let names: Vec<String> = names.into_iter().collect();
            let known = diagnose::known(wanted, "the grids have", &names);
            bail_invalid!("--arms {wanted}: no grid has this arm; {known}");
        }
    }
    if !args.arms.is_empty() {
        jobs.retain(|job| wanted.iter().any(|wanted| is_of(job, wanted)));
        if told {
            let own = jobs.len();
            tell(format!("note: {own} of {count} cells are of --arms; the others stay to run"));
        }
    }
    Ok(jobs)
}

/// Errors: a cell to run of an arm that its trainer cannot run.
fn refuse_arms(args: &AblateArgs, jobs: &[Job]) -> Result<()> {
    let mut checked = BTreeSet::new();
    for job in jobs.iter().filter(|job| !job.experiment.engine.is_native()) {
        if job.is_to_run(args.retry_failed) && checked.insert(&job.manifest.arm_sha256) {
            let inputs = inputs::prepare_without_weights(job.experiment.clone())?;
            engines::all_settings(&inputs, &EngineOptions::default())?;
        }
    }
    Ok(())
}

impl AblateArgs {
    fn is_elsewhere(&self) -> bool {
        self.launcher.launcher != Launcher::Local
    }

    /// `None` where grids are named and the folder is no study.
    fn kept_grids(&self) -> Result<Option<(AblateStudy, Vec<Grid>)>> {
        let root = match &self.grids[..] {
            [] => self.study(),
            [folder] if file::in_folder(Path::new(folder)).is_none() => PathBuf::from(folder),
            _ => return Ok(None),
        };
        let grids = if root.is_dir() { studies::grids(&root)? } else { Vec::new() };
        Ok((!grids.is_empty()).then(|| (AblateStudy::at(root), grids)))
    }

    fn study(&self) -> PathBuf {
        let own = match &self.grids[..] {
            [folder] => file::in_folder(Path::new(folder)).map(|_grid| PathBuf::from(folder)),
            _ => None,
        };
        let own = self.out.clone().or(own).or_else(|| self.kept_study());
        own.or_else(|| self.study_of_files()).unwrap_or_else(|| PathBuf::from("runs/ablate"))
    }

    fn study_of_files(&self) -> Option<PathBuf> {
        let is_init = |folder: &Path, file: &Path| {
            let has = |name: &str| folder.join(name).is_file();
            file.ends_with("grid.toml") && has("base.toml") && has("README.md")
        };
        let folder = |file: &String| {
            let file = Path::new(file);
            let folder = file.parent().filter(|_| file.is_file())?;
            let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
            (studies::has_grids(folder) || is_init(folder, file)).then(|| folder.to_path_buf())
        };
        let mut folders: BTreeSet<Option<PathBuf>> = self.grids.iter().map(folder).collect();
        let first = folders.pop_first().flatten();
        first.filter(|_| folders.is_empty())
    }

    fn kept_study(&self) -> Option<PathBuf> {
        let [folder] = &self.grids[..] else { return None };
        let is_other = self.out.is_some() || file::find(folder).is_ok();
        (!is_other && studies::has_grids(Path::new(folder))).then(|| PathBuf::from(folder))
    }
}

fn tell_other_grids(root: &Path, grids: &[Grid]) {
    let kept = studies::grids(root).unwrap_or_default().into_iter().map(|grid| grid.name);
    let others = kept.filter(|name| grids.iter().all(|grid| grid.name != *name));
    let others = text::joined(others, ", ");
    if !others.is_empty() {
        tell(format!(
            "note: {root} also keeps the grids {others}, which are not run now and stay in its report; delete \
             {root}/grids/NAME.json if a grid has another name now",
            root = root.display()
        ));
    }
}

fn has_no_cells(root: &Path) -> Result<()> {
    const OF_CELLS: [&str; 4] = ["cells", "experiments", "runs", packed::FILE];
    if let Some(name) = OF_CELLS.into_iter().find(|name| root.join(name).exists()) {
        bail_invalid!(
            "{}: it has {name} and keeps no grids, so that nothing says what it is a study of; bring its folder grids \
             back (a study that was moved has it), name the grids to run, or use another --out",
            root.display()
        );
    }
    Ok(())
}

/// Without a declaration, the grids' sets must be the study's. Fails before anything is run.
fn check_sets(study: &AblateStudy, grids: &[Grid]) -> Result<()> {
    let root = study.root();
    // A grid of the same name is replaced; the report refuses unreadable ones.
    let mut all = studies::grids(root).unwrap_or_default();
    all.retain(|known| grids.iter().all(|grid| grid.name != known.name));
    all.extend_from_slice(grids);
    let at = |reason: String| Invalid(format!("{}: {reason}", root.display()));
    Ok(studies::one_pair_of_sets(&all).map_err(at)?)
}

/// An arm's identity must be the declared one.
fn declared_arms(grids: &[Grid], declaration: &Declaration, prints: bool) -> Result<()> {
    let arms = || grids.iter().flat_map(membership::arms_of);
    let refusal = |(id, arm): (String, &Arm)| declaration.refuses(&id, &arm.arm_sha256);
    if let Some(reason) = arms().find_map(refusal) {
        bail_invalid!("{reason}");
    }
    if prints && declaration.arms.is_empty() {
        println!("The declaration does not bind the arms. These lines in it bind them:\n\n[arms]");
        for (id, arm) in arms() {
            println!("{id:?} = {:?}", arm.arm_sha256);
        }
        println!();
    }
    Ok(())
}

/// A declaration that the study keeps cannot be corrected any more: what is wrong with it is only told.
fn check_declaration(place: &str, problems: Problems, is_kept: bool) -> Result<()> {
    let Problems { of_declaration, of_command, notes } = problems;
    let (told, mut refused) =
        if is_kept { (of_declaration, Vec::new()) } else { (notes, of_declaration) };
    refused.extend(of_command);
    told.iter().for_each(|problem| tell(format!("note: {place}: {problem}")));
    Ok(exit::refuse_problems(place, &refused)?)
}

fn tell_left_seeds(place: &str, declaration: &Declaration, grids: &[Grid]) {
    let run: BTreeSet<u64> = grids.iter().flat_map(|grid| grid.seeds.iter().copied()).collect();
    let left = declaration.seeds.iter().filter(|seed| !run.contains(seed));
    let left = text::joined(left, ", ");
    if !left.is_empty() {
        tell(format!("note: {place}: seeds {left} are declared and not among those of --seeds"));
    }
}

/// The study's own declaration, which never changes. Errors: another one is given or lies there than the first.
fn kept_declaration(
    study: &AblateStudy,
    declaration: Option<&Declaration>,
) -> Result<Option<Declaration>> {
    let path = study.root().join("study.json");
    let kept = files::kind(&path)?.map(|_kind| declaration::load(&path)).transpose()?;
    if kept.is_some() && declaration.is_some() && kept.as_ref() != declaration {
        let path = path.display();
        bail_invalid!(
            "{path}: the study has another declaration; keep that one, or use another --out"
        );
    }
    let placed = Placement::read(study.root())?;
    let is_other = |placed: &&Placement| {
        let here = kept.as_ref().or(declaration).map(Declaration::sha256);
        here.as_ref() != Some(&placed.declaration_sha256)
    };
    if let Some(placed) = placed.as_ref().filter(is_other) {
        let what = match (&kept, declaration) {
            (Some(_), _) => "the file was changed since",
            (None, Some(_)) => "the file is gone, and --declaration has another declaration",
            (None, None) => "the file is gone",
        };
        bail_invalid!(
            "{}: the study began with the declaration {}… ({} names it), and {what}; put the first study.json back, or \
             use another --out",
            path.display(),
            text::short_digest(&placed.declaration_sha256),
            Placement::FILE
        );
    }
    Ok(kept)
}

/// Why a registered study is not run: others can look up in a commit what it was made from.
fn uncommitted(
    args: &AblateArgs,
    study: &AblateStudy,
    grids: &[Grid],
    declaration: Option<&Declaration>,
    files: &StudyFiles,
) -> Result<Option<String>> {
    if args.dirty || !declaration.is_some_and(|it| it.registered) {
        return Ok(None);
    }
    let has_begun = files::kind(&study.root().join("study.json"))?.is_some()
        || Placement::read(study.root())?.is_some();
    let jobs = chosen(args, study, grids, false)?;
    let problems = files.uncommitted();
    let runs_some = jobs.iter().any(|job| job.is_to_run(args.retry_failed));
    Ok((!problems.is_empty() && (runs_some || !has_begun)).then(|| {
        format!(
            "{}: the study is registered, and no commit shows what it is made from:\n  {}\n\
             commit these files (git add --force for those that git ignores), or run with --dirty",
            study.root().display(),
            problems.join("\n  ")
        )
    }))
}

fn declare(study: &AblateStudy, declaration: &Declaration, files: &StudyFiles) -> Result<()> {
    // What was so at the first time stays, where study.json alone was lost.
    if Placement::read(study.root())?.is_none() {
        // Failed and unreadable ones, too: somebody has seen them.
        let (cells, refused) = records(study)?;
        let recorded = cells.len() + refused.len();
        if recorded > 0 {
            let cells = text::counted(recorded, "cell", "cells");
            tell(format!(
                "the declaration was put beside {cells} on record: nothing here shows that it is the older one, and \
                 declared.json keeps that"
            ));
        }
        files.placement(declaration, recorded as u64).write(study.root())?;
    }
    Ok(files::write_json(&study.root().join("study.json"), declaration)?)
}

fn records(study: &AblateStudy) -> Result<(Vec<Cell>, Vec<StudyError>)> {
    let has_records = cell::has_records(&study.cells())?;
    Ok(if has_records { cell::read_folder(study.root())? } else { Default::default() })
}

fn at_once(args: &AblateArgs) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    args.jobs.map_or_else(cores, |jobs| jobs as usize)
}

/// Prints what is left and why.
fn ending(args: &AblateArgs, study: &AblateStudy, jobs: &[Job], interrupt: &Interrupt) -> u8 {
    let of = |ending: CellEnding| {
        let is = move |job: &&Job| job.state.cell().is_some_and(|cell| cell.ending == ending);
        jobs.iter().filter(is)
    };
    for job in of(CellEnding::Diverged).chain(of(CellEnding::Failed)) {
        if let Some(Cell { ending, reason, .. }) = job.state.cell() {
            tell(format!("{} {}: {reason}", job.title(), ending.name()));
        }
    }
    let recorded = jobs.iter().filter(|job| job.state.cell().is_some()).count();
    let cells = study.cells();
    tell(format!("{recorded} of {} cells are on record in {}", jobs.len(), cells.display()));
    if recorded < jobs.len() {
        tell("stopped; the same command continues");
        return if interrupt.asked() { interrupt.exit_code() } else { exit::BUG };
    }
    let failed = of(CellEnding::Failed).next().is_some();
    if failed && !args.retry_failed {
        tell("--retry-failed begins failed cells again");
    }
    match of(CellEnding::Diverged).next() {
        _ if failed => exit::INCONCLUSIVE,
        Some(_) => exit::DIVERGED,
        None => exit::SUCCESS,
    }
}

fn dry_run(
    args: &AblateArgs,
    study: &AblateStudy,
    (grids, sources): (&[Grid], &[BaseSource]),
    jobs: &[Job],
    declaration: &Declaration,
) -> Result<u8> {
    if args.is_elsewhere() {
        return elsewhere::hand_over(args, study, jobs);
    }
    let names = state_names(jobs);
    if args.json {
        output::document(true, &cells::document(jobs, &names, &[]), String::new);
        return Ok(exit::SUCCESS);
    }
    for (index, grid) in grids.iter().enumerate() {
        if let Some(source) = sources.get(index) {
            println!("{}", output::rendered(&[cells::arms(source)]));
        }
        println!("{}", output::page_table(&cells::states(grid, jobs, &names)));
    }
    let is_declared = !declaration.families.is_empty();
    let compared = grids
        .iter()
        .filter(|grid| is_declared || grid.arms.iter().any(|arm| arm.compared_with.is_some()));
    let counts: BTreeSet<usize> = compared.map(|grid| grid.seeds.len()).collect();
    for seeds in counts {
        output::say(cells::evidence(seeds, declaration) + "\n");
    }
    for job in jobs {
        if let JobState::Unusable { reason } = &job.state {
            output::say(format!("{}: {reason}", job.title()));
        }
    }
    // Every cell that ended by itself tells what one costs here. Refused ones were named with their job, or belong
    // to none.
    let (mut measured, _refused) = records(study)?;
    measured.retain(|cell| cell.ending != CellEnding::Failed);
    output::say(cells::cost(jobs, &measured, at_once(args)));
    output::say(format!("the study's folder: {}", study.root().display()));
    Ok(exit::SUCCESS)
}

fn state_names(jobs: &[Job]) -> Vec<String> {
    jobs.iter().map(|job| job.state.name()).collect()
}
