//! `dapo golden`: the project's functions on vectors that verl's functions produced.

use crate::base::visible;
use crate::commands::exit;
use crate::verification::{FileReport, verl_vectors};
use comfy_table::{Table, presets};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Run this project's own functions on golden vectors, and compare every output.
///
/// DIR holds .json and .jsonl files in the format of golden/verl: a file's name says the
/// function. Numbers must agree within 1e-9 (float64) or 1e-5 (float32), absolute or
/// relative, unless a case or its note says otherwise; everything else exactly.
///
/// Exit codes: 0 all agree, 2 usage, 3 a file that cannot be read or a function that is not
/// known (all other files are still checked), 4 a value that differs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dapo golden golden/verl
  dapo golden golden/verl-edge --json")]
pub struct Args {
    /// Folder of vector files, or one file.
    pub dir: PathBuf,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Runs `dapo golden`.
///
/// # Errors
/// When the report cannot be represented in JSON.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (reports, errors) = check(&args.dir);
    if args.json {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let report = serde_json::json!({ "files": reports, "errors": errors });
        println!("{}", visible::json(&serde_json::to_string_pretty(&report)?));
    } else if !reports.is_empty() {
        print(&reports);
    }
    for error in &errors {
        eprintln!("error: {}", visible::message(&error.to_string()));
    }
    let differs = reports.iter().any(|report| report.passed < report.cases);
    Ok(match (errors.is_empty(), differs) {
        (false, _) => ExitCode::from(exit::INVALID),
        (true, true) => ExitCode::from(exit::MISMATCH),
        (true, false) => ExitCode::SUCCESS,
    })
}

fn check(dir: &Path) -> (Vec<FileReport>, Vec<verl_vectors::Error>) {
    let paths =
        if dir.is_file() { Ok(vec![dir.to_path_buf()]) } else { verl_vectors::vector_files(dir) };
    let (mut reports, mut errors) = (Vec::new(), Vec::new());
    match paths {
        Ok(paths) => {
            for path in paths {
                match verl_vectors::check_file(&path) {
                    Ok(report) => reports.push(report),
                    Err(error) => errors.push(error),
                }
            }
        }
        Err(error) => errors.push(error),
    }
    (reports, errors)
}

fn print(reports: &[FileReport]) {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["file", "function", "cases", "passed", "largest error"]);
    for report in reports {
        table.add_row([
            report.file.clone(),
            report.function.clone(),
            report.cases.to_string(),
            report.passed.to_string(),
            format!("{:.1e}", report.largest_error),
        ]);
    }
    println!("{table}");
    for report in reports {
        for failure in &report.failures {
            let mismatch = &failure.mismatch;
            let line = format!(
                "{}: {}: {}: got {}, want {}",
                report.file, failure.case, mismatch.field, mismatch.got, mismatch.want
            );
            println!("{}", visible::message(&line));
        }
        for input in &report.unread_inputs {
            let line = format!(
                "{}: {input}: this input is not read and may change the result",
                report.file
            );
            println!("{}", visible::message(&line));
        }
    }
}
