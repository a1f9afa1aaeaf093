//! `dapo exactness`: the same short training under many settings.

use crate::base::{files, visible};
use crate::commands::exit;
use crate::commands::progress::Progress;
use crate::experiment::extends;
use crate::numerics::Numerics;
use crate::records::environment;
use crate::verification::exactness::matrix::{COLUMNS, Row};
use crate::verification::exactness::process;
use crate::verification::{Common, Matrix, Outcome, Setting, Size};
use anyhow::{Context, Result};
use comfy_table::Table;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Repeat a short training under many settings and print which digests are equal.
///
/// Every cell is a process of its own: updates of pretraining from random weights, rollout steps
/// of the experiment with refill rounds, evaluations. Under exact arithmetic all must be equal;
/// under fast arithmetic it is shown what differs.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dapo exactness\n  dapo exactness --numerics exact --quick\n  dapo exactness --emulate Nehalem --emulate Haswell --json exactness.json\n\nExit codes: 0 all exact cells agree, 4 one does not"
)]
pub struct Args {
    /// Experiment file: the run of a cell.
    #[arg(default_value = "experiments/exactness.toml")]
    experiment: PathBuf,
    /// Recipe that the updates of pretraining follow.
    #[arg(long, default_value = "golden/mini-aime/recipe.toml")]
    recipe: PathBuf,
    /// One arithmetic only, instead of both.
    #[arg(long)]
    numerics: Option<Numerics>,
    /// Fewer cells and less in each.
    #[arg(long)]
    quick: bool,
    /// Also compute a tiny cell on this emulated processor, with qemu-x86_64 (Debian:
    /// qemu-user): a model of `qemu-x86_64 -cpu help`. May be repeated.
    #[arg(long, value_name = "MODEL")]
    emulate: Vec<String>,
    /// Write matrices, machine and commit to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Longest time of one process; an emulated one is slow.
const LIMIT: Duration = Duration::from_secs(600);

/// What `--json` writes.
#[derive(Debug, Serialize)]
struct Record {
    environment: BTreeMap<String, String>,
    experiment: String,
    size: String,
    matrices: Vec<Matrix>,
}

/// Runs the verb.
///
/// # Errors
/// An experiment or recipe that cannot be used; a process that cannot be started; a file that
/// cannot be written.
pub fn run(args: &Args) -> Result<ExitCode> {
    let experiment = extends::load(&args.experiment)?;
    let size = if args.quick { Size::Quick } else { Size::Full };
    let both = [Numerics::Exact, Numerics::Fast];
    let wanted = both.into_iter().filter(|it| args.numerics.is_none_or(|wanted| wanted == *it));
    let mut matrices = Vec::new();
    for numerics in wanted {
        let mut settings = Setting::all(args.quick);
        if numerics == Numerics::Exact {
            settings.push(Setting::orders());
        }
        matrices.push(matrix(args, numerics, size, &numerics.to_string(), &settings)?);
    }
    let mut agree = matrices.iter().all(|matrix| matrix.name != "exact" || matrix.agrees());
    if args.numerics != Some(Numerics::Fast) {
        let settings = Setting::slow(&args.emulate);
        let slow = matrix(args, Numerics::Exact, Size::Tiny, "exact, tiny", &settings)?;
        // What an emulated processor cannot run is told; what runs must agree.
        let (computed, differing) = slow.counts();
        agree &= computed > 1 && differing == 0;
        matrices.push(slow);
    }
    let environment = environment::describe(experiment.execution.threads).facts;
    let record =
        Record { environment, experiment: experiment.name, size: size.to_string(), matrices };
    if let Some(path) = &args.json {
        files::write_json(path, &record)?;
    }
    print(&record);
    Ok(ExitCode::from(if agree { exit::SUCCESS } else { exit::MISMATCH }))
}

fn matrix(
    args: &Args,
    numerics: Numerics,
    size: Size,
    name: &str,
    settings: &[Setting],
) -> Result<Matrix> {
    let common = Common {
        program: std::env::current_exe().context("cannot find this program")?,
        experiment: args.experiment.clone(),
        recipe: args.recipe.clone(),
        numerics,
        size,
        limit: LIMIT,
    };
    let mut bar = Progress::new(name, settings.len() as u64);
    let mut matrix = Matrix::new(name);
    for (done, setting) in settings.iter().enumerate() {
        bar.set(done as u64, &setting.name);
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let (outcome, seconds) = process::run(&common, setting, &folder.path().join("run"))
            .with_context(|| format!("cannot start the cell `{}`", setting.name))?;
        matrix.push(setting.name.clone(), outcome, seconds);
    }
    bar.finish();
    Ok(matrix)
}

fn print(record: &Record) {
    let fact = |name: &str| record.environment.get(name).map_or("unknown", String::as_str);
    println!(
        "{}, {} cores, {}, LibTorch {}, commit {}{}",
        fact("cpu"),
        fact("cores"),
        fact("cpu_capability"),
        fact("libtorch"),
        fact("git_commit"),
        if fact("git_dirty") == "true" { " with changes" } else { "" }
    );
    for matrix in &record.matrices {
        let (computed, differing) = matrix.counts();
        let seconds: f64 = matrix.rows.iter().map(|row| row.seconds).sum();
        println!(
            "\n{}: {computed} of {} cells computed, {differing} differ from the baseline, {seconds:.0} s\n",
            matrix.name,
            matrix.rows.len()
        );
        println!("{}", table(matrix));
    }
}

fn table(matrix: &Matrix) -> Table {
    // The head of a fast run binds its execution: it says nothing here.
    let shown = if matrix.name == "fast" { COLUMNS.len() - 1 } else { COLUMNS.len() };
    let mut table = Table::new();
    table.load_style(comfy_table::presets::ASCII_MARKDOWN);
    let header = ["setting"].into_iter().chain(COLUMNS[..shown].iter().copied());
    table.set_header(header.chain(["seconds", "note"]));
    for (index, row) in matrix.rows.iter().enumerate() {
        let cells = matrix.cells(index).into_iter().take(shown);
        let line = [row.setting.clone()].into_iter().chain(cells);
        table.add_row(line.chain([format!("{:.1}", row.seconds), note(index, row)]));
    }
    table
}

fn note(index: usize, row: &Row) -> String {
    match (&row.outcome, &row.first_difference) {
        (Outcome::Computed(_), Some(difference)) => format!("first: {difference}"),
        (Outcome::Computed(digests), None) => {
            let mut notes = Vec::new();
            if index == 0 {
                let (steps, rounds) = (digests.rollout_steps.len(), digests.generation_rounds);
                notes.push(format!("{steps} steps, {rounds} generation rounds"));
            }
            if digests.sums_compared > 0 {
                notes.push(format!("{} sums compared", digests.sums_compared));
            }
            if let Some(step) = digests.resumed_after {
                notes.push(format!("resumed after step {step}"));
            }
            if index == 0 || row.setting.starts_with("emulated") {
                notes.push(format!("{} loops", digests.instructions));
            }
            notes.join("; ")
        }
        (Outcome::Unsupported(why), _) => format!("not here: {}", visible::message(why)),
        (Outcome::Failed(how), _) => format!("failed: {}", visible::message(how)),
    }
}
