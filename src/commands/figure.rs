//! `dapo figure`: a figure for a paper, and its numbers.

use crate::base::files;
use crate::commands::exit::{bail_invalid, bail_usage};
use crate::commands::{exit, output};
use crate::records::RunFolder;
use crate::report::page::Panel;
use crate::report::study::figure::{self, Kind};
use crate::report::{printed, run, words};
use crate::study::{Clock, collection};
use anyhow::Result;
use std::path::PathBuf;

/// Draw a figure for a paper from a study or a run, and write its numbers beside it as CSV.
///
/// The numbers are those of the report. Text is 8 pt at the given width, a PDF or PNG (300 dpi) has its
/// font inside, and lines differ in dashes and marker as well as in colour. FILE.pdf comes with FILE.csv.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("kind").required(true),
    after_help = include_str!("help/figure.txt")
)]
pub struct FigureArgs {
    /// Folder of a study, or of a run.
    #[arg(value_name = "STUDY|RUN")]
    folder: PathBuf,
    /// Scores over training: of a run, or of arms of a study, with intervals over their runs.
    #[arg(long, group = "kind")]
    curves: bool,
    /// Differences between arms of a study with their intervals; differences that count as none are shaded.
    #[arg(long, group = "kind")]
    forest: bool,
    /// The arms of a study that stand for rows of the paper's Table 1, beside the paper's scores.
    #[arg(long, group = "kind")]
    ladder: bool,
    /// Only these arms of a study, by id, name or label; differences are then in the first declared measure, or
    /// rows of a grid. Default: those of the report's first figure, which has curves of 4 arms at most.
    #[arg(long, value_delimiter = ',', value_name = "ARM")]
    arms: Vec<String>,
    /// What curves are over. Default: updates.
    #[arg(long, value_name = "CLOCK")]
    x: Option<Clock>,
    /// Such as 3.25in, 8.5cm, 85mm or 234pt.
    #[arg(long, default_value = "3.25in", value_parser = printed::points)]
    width: f64,
    /// File to write: .pdf, .svg or .png.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// Errors: options that do not fit, and a folder without the figure.
pub fn run(args: &FigureArgs) -> Result<u8> {
    let format = args.out.extension().and_then(|it| it.to_str()).unwrap_or_default();
    let format = format.to_ascii_lowercase();
    if !["pdf", "svg", "png"].contains(&format.as_str()) {
        bail_usage!("--out {}: its name must end in .pdf, .svg or .png", args.out.display());
    }
    if args.x.is_some() && !args.curves {
        bail_usage!("--x is for --curves: nothing else is drawn over a clock");
    }
    if args.ladder && !args.arms.is_empty() {
        bail_usage!("--arms is for --curves and --forest: the ladder has the rows of the paper");
    }
    let panels = panels(args)?;
    for panel in &panels {
        if let Panel::Curves(curves) = panel {
            curves.left_out.iter().for_each(output::tell);
        }
    }
    let numbers = printed::csv(&panels);
    let csv = args.out.with_extension("csv");
    if files::kind(&csv)?.is_some() && !printed::is_csv(&files::read_text(&csv)?) {
        let csv = csv.display();
        bail_invalid!("{csv} is there and is not of such a figure: choose another name for --out");
    }
    if args.out.is_file() && files::kind(&csv)?.is_none() {
        let (out, csv) = (args.out.display(), csv.display());
        bail_invalid!(
            "{out} is there without {csv}, which a figure of this command has: choose another name for --out"
        );
    }
    let svg = printed::svg(&panels, args.width);
    let picture = match format.as_str() {
        "svg" => Ok(svg.into_bytes()),
        "pdf" => printed::pdf(&svg),
        _ => printed::png(&svg),
    };
    let picture = picture.map_err(anyhow::Error::msg)?;
    // Each format begins with 16 bytes that are those of every figure.
    files::may_write(&args.out, picture.get(..16).unwrap_or(&picture))?;
    files::write_output(&csv, numbers.as_bytes())?;
    files::write_output(&args.out, &picture)?;
    [&args.out, &csv].into_iter().for_each(|path| output::path(path));
    Ok(exit::SUCCESS)
}

fn panels(args: &FigureArgs) -> Result<Vec<Panel>> {
    let clock = args.x.unwrap_or(Clock::Updates);
    let kind = match (args.curves, args.forest) {
        (true, _) => Kind::Curves(clock),
        (_, true) => Kind::Forest,
        _ => Kind::Ladder,
    };
    let folder = args.folder.display();
    if collection::is_study(&args.folder) {
        let study = collection::load(&args.folder, None)?;
        words::absent_runs(&study).into_iter().for_each(output::tell);
        return Ok(figure::panels(&study, &args.folder, kind, &args.arms)?);
    }
    if args.folder.is_file() {
        bail_invalid!(
            "{folder}: it is a file: a figure is drawn of the folder of a study or a run; `dapo compare --curves … --html \
             FILE` draws curves of files"
        );
    }
    collection::has_begun(&args.folder)?;
    collection::is_of_a_kind(&args.folder)?;
    if !args.curves || !args.arms.is_empty() {
        bail_usage!(
            "{folder}: a run has --curves alone; --forest, --ladder and --arms are for a study"
        );
    }
    Ok(vec![Panel::Curves(run::curves(&RunFolder::at(&args.folder), clock)?)])
}
