//! `dapo runs`: what lies in a folder of runs; `dapo runs gc`, `dapo runs cells`.

use crate::base::{program, visible};
use crate::commands::flags::wide::WideArg;
use crate::commands::{cells, exit, gc, output};
use crate::records::{RunSummary, housekeeping};
use crate::report::text::points;
use crate::study::collection;
use anyhow::Result;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// List the runs of a folder: state, steps, size and accuracy.
///
/// States: finished, saturated (nothing left to learn from), stalled (every response of a step was
/// wrong), diverged, unfinished (no outcome, no process), running (a process holds its lock), damaged (a record cannot be read; said on
/// standard error). Accuracy is the last evaluation of each set, avg@k in percent: of the base policy
/// only before the first update of a run that did not diverge, and with its rollout step where sets differ.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = include_str!("help/runs.txt")
)]
pub struct RunsArgs {
    #[command(subcommand)]
    verb: Option<RunsVerb>,
    /// Folder of runs, or one run.
    #[arg(default_value = "runs")]
    dir: PathBuf,
    /// Print one JSON record a line instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    wide: WideArg,
}

#[derive(Debug, clap::Subcommand)]
enum RunsVerb {
    Gc(gc::GcArgs),
    Cells(cells::CellsArgs),
}

/// Errors: a folder that cannot be listed; what `gc` and `cells` refuse.
pub fn run(args: &RunsArgs) -> Result<u8> {
    match &args.verb {
        Some(RunsVerb::Gc(args)) => gc::run(args),
        Some(RunsVerb::Cells(args)) => cells::run(args),
        None => list(args),
    }
}

fn list(args: &RunsArgs) -> Result<u8> {
    args.wide.apply();
    gc::check_folder(&args.dir)?;
    let folders = housekeeping::runs(&args.dir)?.into_iter();
    let summaries = folders.map(|folder| housekeeping::summary(&folder));
    let summaries: Vec<RunSummary> = summaries.collect::<Result<_, _>>()?;
    for RunSummary { folder, damage, .. } in &summaries {
        damage.iter().for_each(|it| output::tell(format!("{}: {it}", folder.display())));
    }
    if args.json {
        summaries.iter().for_each(output::json_line);
    } else if summaries.is_empty() {
        let dir = args.dir.display();
        let word = program::path_word(&args.dir);
        let is_study = collection::is_study(&args.dir);
        let cells =
            is_study.then(|| format!("; it is a study: dapo runs cells {word} lists its records"));
        let cells =
            collection::has_begun(&args.dir).map_or_else(|it| Some(format!("; {it}")), |()| cells);
        output::tell(format!("{dir}: no runs{}", cells.unwrap_or_default()));
    } else {
        print!("{}", table(&summaries));
    }
    Ok(exit::SUCCESS)
}

const LONGEST: usize = 80;

fn table(summaries: &[RunSummary]) -> String {
    let is_wide = output::WIDE.load(Ordering::Relaxed);
    let short = |name: String| if is_wide { name } else { visible::shortened(&name, LONGEST) };
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "?".to_string());
    let rows = summaries.iter().map(|summary| {
        let planned = or_unknown(summary.steps_planned.map(|steps| steps.to_string()));
        let hash = summary.arm_sha256.as_ref().map(|hash| hash.chars().take(8).collect());
        let score = |(set, share): (&String, &f64)| {
            format!("{set} {}{}", points(*share), summary.place(set))
        };
        [
            short(summary.folder.display().to_string()),
            or_unknown(summary.name.clone().map(short)),
            or_unknown(summary.seed.map(|seed| seed.to_string())),
            or_unknown(hash),
            summary.state.name().to_string(),
            format!("{}/{planned}", summary.steps_done),
            housekeeping::readable(summary.size_bytes),
            summary.accuracy.iter().map(score).collect::<Vec<_>>().join(", "),
        ]
    });
    output::table(
        "run | arm ? | seed # ? | arm hash ? | state | steps # | size # ? | accuracy %",
        rows,
    )
}
