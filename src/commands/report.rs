//! `dapo report RUN` and `dapo report STUDY`: HTML, Markdown and JSON of one run folder, or of a
//! study.

use crate::base::{files, visible};
use crate::commands::claims;
use crate::commands::exit::Usage;
use crate::records::RunFolder;
use crate::report::run::{self, Report, chapters};
use crate::report::study;
use anyhow::bail;
use clap::Args;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The folder holds no run, or a file in it is malformed.
const INVALID_DATA: u8 = 3;

/// Write a report of one run, or of a study, as HTML, Markdown and JSON.
///
/// Reads the records and tables of a run folder, finished or not, and writes report.html
/// (self-contained), report.md and report.json into it. A folder with `grids` is a study: its
/// report is made from `grids`, `cells` and `study.json` alone, and `scores.svg` is written beside
/// it: the first grid's runs as a picture. No model is loaded.
///
/// With --claims it lists the paper's claims, or judges them by a study: a claim is supported,
/// contradicted, inconclusive (with what would be needed), not testable at this scale (with the
/// reason), or a positive control: shown, but the benchmark was made to show it. Evidence is
/// computed from the study's grids and cell records alone, over training runs; the paper's own
/// curves and tables stand beside it.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:\n  dapo report runs/dapo-seed1-1f2e3d4c\n  \
dapo report runs/ablate\n  \
dapo report reports/study-1 --declaration experiments/study.toml --out again\n  \
dapo report --claims\n  \
dapo report runs/ablate --claims\n  \
dapo report reports/study-1 --claims --declaration experiments/study.toml --markdown > claims.md\n  \
dapo report runs/ablate --claims --only each-row-improves --json\n\n\
Exit codes:\n  0  the report was written, whether or not its checks held\n  \
3  the folder is missing or a file in it is malformed; the message names it")]
pub struct ReportArgs {
    /// A run folder, or a study.
    #[arg(value_name = "RUN|STUDY", required_unless_present = "claims")]
    pub run: Option<PathBuf>,
    /// Of a study: what was declared beforehand, in place of the study's own study.json.
    #[arg(long, value_name = "FILE", requires = "run")]
    pub declaration: Option<PathBuf>,
    /// Of a study: the folder that the report is written into, in place of the study's.
    #[arg(long, value_name = "FOLDER", conflicts_with = "claims")]
    pub out: Option<PathBuf>,
    /// List the paper's claims, or judge them by the study; write no report. FILE has other claims
    /// than the shipped ones.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub claims: Option<Option<PathBuf>>,
    /// Only this claim; may be given several times. All are computed, so that what is adjusted
    /// together stays together.
    #[arg(long, value_name = "ID", requires = "claims")]
    pub only: Vec<String>,
    /// Claims as a Markdown table instead of text.
    #[arg(long, requires_all = ["claims", "run"], conflicts_with = "json")]
    pub markdown: bool,
    /// Print the report as one line of JSON instead of a summary; claims as one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Writes the report, and prints where it is and a summary. Tables are never coloured.
///
/// # Errors
/// When a file of the report cannot be written.
pub fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.claims {
        return claims::run(&claims::Asked {
            study: args.run.as_deref(),
            declaration: args.declaration.as_deref(),
            claims: file.as_deref(),
            only: &args.only,
            json: args.json,
            markdown: args.markdown,
        });
    }
    let Some(path) = &args.run else { bail!(Usage("which run or study?".to_string())) };
    if is_study(path) {
        return study_report(path, args);
    }
    if args.declaration.is_some() || args.out.is_some() {
        let folder = path.display().to_string();
        let message = "--declaration and --out are for a study, a folder with `grids`";
        eprintln!("error: {}: {message}", visible::message(&folder));
        return Ok(ExitCode::from(INVALID_DATA));
    }
    let folder = RunFolder::at(path);
    let report = match run::write(&folder) {
        Ok(report) => report,
        Err(run::load::RunReportError::Files(
            error @ files::FileError::Io { action: "write" | "create folder", .. },
        )) => {
            return Err(error.into());
        }
        Err(error) => {
            eprintln!("error: {}", visible::message(&error.to_string()));
            return Ok(ExitCode::from(INVALID_DATA));
        }
    };
    if args.json {
        println!("{}", visible::json(&files::canonical_json_line(&report)));
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}: {}", report.run.name, report.headline);
    println!("{}", report.status.sentence);
    if !report.evaluations.is_empty() {
        println!("\n{}", summary(&report));
    }
    for check in report.checks.iter().filter(|check| !check.held) {
        println!("\nnot so: {} ({})", check.what, check.detail);
    }
    for warning in report.effects.warnings() {
        println!("\nwarning: {warning}");
    }
    println!();
    for name in ["report.html", "report.md", "report.json"] {
        println!("{}", folder.path(name).display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the folder is a study and no run.
fn is_study(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).is_dir();
    (has("grids") || has("cells")) && !folder.join("manifest.json").exists()
}

fn study_report(folder: &Path, args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let written = study::write(folder, args.declaration.as_deref(), args.out.as_deref());
    let (report, paths) = match written {
        Ok(written) => written,
        Err(study::StudyReportError::Write(error)) => return Err(error.into()),
        Err(error) => {
            eprintln!("error: {}", visible::message(&error.to_string()));
            return Ok(ExitCode::from(INVALID_DATA));
        }
    };
    if args.json {
        print!("{}", study::json(&report));
        return Ok(ExitCode::SUCCESS);
    }
    println!("{}", report.page.question);
    println!("{}", report.page.headline);
    for alert in &report.page.alerts {
        println!("\nnote: {alert}");
    }
    println!();
    for path in paths {
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn summary(report: &Report) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_content_arrangement(ContentArrangement::Disabled);
    let columns =
        ["set", "n × k × runs", "policy", "avg@k %", "95 %, these", "95 %, others", "cons@k %"];
    table.set_header(columns);
    for row in chapters::evaluation_rows(report) {
        table.add_row([0, 1, 2, 3, 5, 7, 9].map(|column| row[column].text.clone()));
    }
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
