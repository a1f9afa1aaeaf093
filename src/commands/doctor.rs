//! `dapo doctor`: this machine and build.

use crate::commands::output::{self, document, table};
use crate::commands::{bench, exit};
use crate::verification::{Examination, doctor};
use anyhow::Result;

/// Examine this machine: what it is, and whether its arithmetic holds.
///
/// Facts are those that a run records, with the environment variables that choose kernels where
/// they are set. Checks hold on any machine: the pinned bits of exact arithmetic, of exp, log and
/// sin and of the random streams.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/doctor.txt"))]
pub struct DoctorArgs {
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
    /// Then time a rollout step too, as `dapo bench` does.
    #[arg(long, conflicts_with = "json")]
    bench: bool,
}

/// Errors: what `bench` refuses; a check that fails is the exit code.
pub fn run(args: &DoctorArgs) -> Result<u8> {
    let here = doctor::examine();
    document(args.json, &here, || text(&here));
    for check in here.checks.iter().filter(|check| !check.held) {
        output::tell(format!("not so: {} ({})", check.name, check.detail));
    }
    if args.bench {
        println!();
        bench::run_default()?;
    }
    Ok(exit::agreed(here.checks.iter().all(|check| check.held)))
}

fn text(here: &Examination) -> String {
    let facts = here.facts.iter().map(|(name, value)| [name.as_str(), value.as_str()]);
    let facts = table("fact | value", facts);
    let word = |held: bool| if held { "holds" } else { "FAILS" };
    let checks = here.checks.iter().map(|it| [it.name.as_str(), word(it.held), &it.detail]);
    let checks = table("check | | seen", checks);
    format!("{facts}\n{checks}")
}
