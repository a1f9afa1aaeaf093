//! `dapo calibrate`: whether each statistical method keeps its promise on simulated data.

use crate::base::files;
use crate::commands::exit;
use crate::statistics::calibration;
use crate::statistics::calibration::table::Table;
use anyhow::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Simulate data whose truth is known, and count how often each interval and test is right.
///
/// Every stream is seeded: the same number of replicates gives the same bytes anywhere. The
/// committed table, made with 10,000, is golden/stats/calibration.json; it takes some minutes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  dapo calibrate
  dapo calibrate --replicates 1000 --out quick

Exit codes:
  0  every method keeps its range where it is offered
  4  a method is outside its range (named)")]
pub struct Args {
    /// Replicates of each scenario.
    #[arg(long, default_value_t = calibration::REPLICATES, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    replicates: u64,
    /// Folder for calibration.json and calibration.md.
    #[arg(long, default_value = "golden/stats")]
    out: PathBuf,
}

/// Runs the verb.
///
/// # Errors
/// When the folder cannot be written to.
pub fn run(args: &Args) -> Result<ExitCode> {
    files::create_folder(&args.out)?;
    let rows = calibration::calibrate(args.replicates, |row| {
        let share =
            row.share().map_or("withheld".into(), |share| format!("{:.2} %", 100.0 * share));
        eprintln!("{}, {}, {}: {share}", row.method, row.scenario, row.size);
    });
    let table = Table::new(args.replicates, rows);
    files::write_json(&args.out.join("calibration.json"), &table)?;
    files::write_atomic(&args.out.join("calibration.md"), table.markdown().as_bytes())?;
    let broken: Vec<_> = table.broken().collect();
    for row in &broken {
        println!("outside its range: {}, {}, {}", row.method, row.scenario, row.size);
    }
    if broken.is_empty() {
        println!("{} rows, every method within its range where it is offered", table.rows.len());
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::from(exit::MISMATCH))
}
