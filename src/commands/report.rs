//! `dapo report RUN` and `dapo report STUDY`: HTML, Markdown and JSON.

use crate::base::files::FileError;
use crate::commands::exit::{self, bail_usage};
use crate::commands::flags::declared;
use crate::commands::flags::wide::WideArg;
use crate::commands::output;
use crate::records::{RunFolder, housekeeping};
use crate::report::claims as claim_pages;
use crate::report::run::{self, Report, chapters};
use crate::report::{ReportError, index, study, words};
use crate::study::claims::{self, evidence};
use crate::study::{analysis, collection, declaration};
use anyhow::Result;
use clap::Args;
use serde_json::json;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Write a report of one run, or of a study, as HTML, Markdown and JSON.
///
/// Reads the records and tables of a run folder, finished or not, and writes report.html
/// (self-contained), report.md and report.json into it. A folder with `grids` is a study: its
/// report is made from `grids`, `cells` and `study.json` alone. Details are in appendix.html and
/// appendix.md; `answer.svg` is the answer's chart. No model is loaded. Of a folder of runs and studies it
/// writes index.html: a row each, with links to their reports.
///
/// With --claims it judges the paper's claims by a study: a claim is supported, contradicted,
/// inconclusive (with what would be needed), not testable at this scale (with the reason), or a
/// positive control: shown, but the benchmark was made to show it. Evidence is computed from the
/// study's grids and cell records alone, over training runs, and is shown beside the paper's own
/// curves and tables.
#[derive(Debug, Args)]
#[command(after_long_help = include_str!("help/report.txt"))]
pub struct ReportArgs {
    /// A run folder, a study, or a folder of them.
    #[arg(value_name = "RUN|STUDY|FOLDER")]
    pub run: PathBuf,
    /// For a study: the declaration to use instead of the study's own study.json.
    #[arg(long, value_name = "FILE")]
    pub declaration: Option<PathBuf>,
    /// Folder to write the report of a run or a study into, instead of its own.
    #[arg(long, value_name = "FOLDER", conflicts_with = "claims")]
    pub out: Option<PathBuf>,
    /// Judge the paper's claims by the study instead of writing a report. FILE has claims to use instead of
    /// the shipped ones.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub claims: Option<Option<PathBuf>>,
    /// Print the claims as Markdown instead of text.
    #[arg(long, requires = "claims", conflicts_with = "json")]
    pub markdown: bool,
    /// Print the report as one line of JSON, or the claims as one JSON document, instead of text.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    wide: WideArg,
}

/// Tables are never coloured. Errors: a file of the report that cannot be written.
pub fn run(args: &ReportArgs) -> Result<u8> {
    args.wide.apply();
    if let Some(file) = &args.claims {
        return judge(args, file.as_deref());
    }
    if args.markdown {
        bail_usage!("--markdown is for --claims; a report has a Markdown page of its own");
    }
    let path = &args.run;
    if collection::is_study(path) {
        check_declared(path, args.declaration.as_deref())?;
        return study(path, [&args.declaration, &args.out].map(Option::as_deref), args.json);
    }
    if args.declaration.is_some() {
        bail_usage!("{}: --declaration is for a study, a folder with `grids`", path.display());
    }
    collection::has_begun(path)?;
    if path.is_dir() && !housekeeping::is_run(path)? {
        if index(path, args)? {
            return Ok(exit::SUCCESS);
        }
        collection::is_of_a_kind(path)?;
    }
    let out = args.out.as_deref().unwrap_or(path);
    let report = run::write_into(&RunFolder::at(path), out).map_err(elsewhere)?;
    if args.json {
        output::json_line(&report);
        return Ok(exit::SUCCESS);
    }
    output::say(format!("{}: {}", report.run.name, report.headline));
    output::say(&report.status.sentence);
    if !report.evaluations.is_empty() {
        print!("\n{}", summary(&report));
        chapters::withheld(&report).into_iter().for_each(output::say);
    }
    report.alerts().iter().for_each(|alert| output::say(format!("\n{alert}")));
    println!();
    for name in ["report.html", "report.md", "report.json"] {
        output::path(&out.join(name));
    }
    Ok(exit::SUCCESS)
}

/// As `ablate` refuses a declaration before the first run.
fn check_declared(study: &Path, file: Option<&Path>) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    let declaration = declaration::load(file)?;
    let grids = collection::grids(study)?;
    let others = declared::other_grids(study, &declaration, &grids, &[]);
    let problems = declared::problems(&declaration, &grids, &others).of_declaration;
    Ok(exit::refuse_problems(file.display(), &problems)?)
}

fn elsewhere(error: ReportError) -> anyhow::Error {
    use ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let text = format!("{error}; --out names another folder");
    match &error {
        ReportError::File(FileError::Io { action: "write" | "create folder", source, .. })
            if [PermissionDenied, ReadOnlyFilesystem].contains(&source.kind()) =>
        {
            anyhow::Error::from(error).context(text)
        }
        _ => error.into(),
    }
}

/// Whether the folder has runs or studies, which are then listed.
fn index(folder: &Path, args: &ReportArgs) -> Result<bool> {
    let Some(page) = index::page(folder)? else { return Ok(false) };
    if args.json {
        bail_usage!("--json is for one run or study; `dapo runs FOLDER --json` lists runs");
    }
    if args.out.is_some() {
        bail_usage!("--out is for one run or study; {} has several", folder.display());
    }
    println!("{}: {}", page.title, page.headline);
    output::path(&index::write(folder, &page)?);
    Ok(true)
}

/// Prints the answer and the report's place. Errors: a study that cannot be read, or a report that cannot be written.
pub fn study(folder: &Path, options: [Option<&Path>; 2], json: bool) -> Result<u8> {
    let [declaration, out] = options;
    let (report, paths) = study::write(folder, declaration, out).map_err(elsewhere)?;
    if json {
        print!("{}", study::json(&report.facts));
        return Ok(exit::SUCCESS);
    }
    output::say(&report.page.title);
    output::say(&report.page.headline);
    report.page.alerts.iter().for_each(|alert| output::say(format!("\nnote: {alert}")));
    println!();
    paths.iter().for_each(|path| output::path(path));
    Ok(exit::SUCCESS)
}

fn summary(report: &Report) -> String {
    let columns =
        "set | n × k × runs ? | policy | avg@k % # | 95 %, these # | 95 %, others # | cons@k % # ?";
    let shown = [0, 1, 2, 3, 5, 7, 9];
    let rows = chapters::evaluation_rows(report);
    let rows = rows.iter().map(|row| shown.map(|column| row[column].text.as_str()));
    output::table(columns, rows)
}

fn judge(args: &ReportArgs, file: Option<&Path>) -> Result<u8> {
    check_declared(&args.run, args.declaration.as_deref())?;
    let study = collection::load(&args.run, args.declaration.as_deref())?;
    let all = match file {
        Some(file) => claims::load(file, &study)?,
        None => claims::of(&args.run, &study)?,
    };
    let judged = evidence::judge(&study, &analysis::analyse(&study), &all);
    let document = json!({ "schema": "dapo-claims/1", "judged": judged });
    output::sections((args.json, args.markdown), &document, &claim_pages::judged(&judged));
    words::absent_runs(&study).into_iter().for_each(output::tell);
    Ok(exit::SUCCESS)
}
