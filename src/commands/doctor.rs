//! `dapo doctor`: this machine and build, for a reader and for another machine.

use crate::base::files;
use crate::base::visible::{self, visible};
use crate::commands::exit;
use crate::verification::{DoctorComparison, Examination, doctor};
use anyhow::Result;
use comfy_table::{Table, presets};
use std::path::PathBuf;
use std::process::ExitCode;

/// Examine this machine: what it is, what can change its numbers, and whether its arithmetic holds.
///
/// The numeric fingerprint is the digest of a fixed set of LibTorch operations. Machines with the
/// same fingerprint may be expected to agree bit for bit under fast arithmetic; with --compare the
/// operations that differ are named.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  dapo doctor\n  dapo doctor --json > here.json\n  dapo doctor --compare there.json\n\nExit codes:\n  3  the file of --compare is no examination\n  4  a self-check failed, or the two fingerprints differ"
)]
pub struct DoctorArgs {
    /// Print everything as JSON, each operation's digest too.
    #[arg(long)]
    json: bool,
    /// Compare with what `dapo doctor --json` printed elsewhere.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
}

/// Runs the verb.
///
/// # Errors
/// A file to compare with that cannot be read.
pub fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let other: Option<Examination> = args.compare.as_deref().map(files::read_json).transpose()?;
    let here = doctor::examine();
    let comparison = other.map(|other| doctor::compare(&here, &other));
    match (&comparison, args.json) {
        (Some(comparison), true) => {
            print!("{}", visible::json(&files::canonical_json(comparison)));
        }
        (Some(comparison), false) => show_comparison(comparison),
        (None, true) => print!("{}", visible::json(&files::canonical_json(&here))),
        (None, false) => show(&here),
    }
    let mut agrees = comparison.is_none_or(|comparison| comparison.agrees());
    for check in here.checks.iter().filter(|check| !check.held) {
        eprintln!("not so: {} ({})", check.name, check.detail);
        agrees = false;
    }
    Ok(match agrees {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(exit::MISMATCH),
    })
}

fn show(here: &Examination) {
    let mut facts = table(&["fact", "value"]);
    for (name, value) in &here.facts {
        facts.add_row([visible(name), visible(value)]);
    }
    let flags: Vec<String> = here
        .cpu_flags
        .iter()
        .map(|(name, has)| format!("{}{name}", if *has { "" } else { "no " }))
        .collect();
    facts.add_row(["instruction sets".to_string(), flags.join(", ")]);
    println!("{facts}\n");
    let mut pins = table(&["variable", "value", "can change under fast", "under exact"]);
    for pin in &here.pins {
        let value = pin.value.as_deref().map_or("not set".to_string(), visible);
        let changes = match pin.changes_under_fast.as_str() {
            "" => "nothing known",
            changes => changes,
        };
        pins.add_row([pin.name.as_str(), &value, changes, "nothing"]);
    }
    println!("{pins}\n");
    let mut checks = table(&["check", "", "seen"]);
    for check in &here.checks {
        let word = if check.held { "holds" } else { "FAILS" };
        checks.add_row([check.name.as_str(), word, &check.detail]);
    }
    println!("{checks}\n");
    println!(
        "numeric fingerprint: {} ({} operations)",
        here.fingerprint.digest,
        here.fingerprint.operations.len()
    );
}

fn show_comparison(comparison: &DoctorComparison) {
    if comparison.agrees() {
        println!("all {} operations give the same bits here and there", comparison.compared);
    } else if comparison.compared == 0 {
        println!("there is no operation to compare");
    } else {
        let operations: Vec<String> = comparison.operations.iter().map(|it| visible(it)).collect();
        println!(
            "{} of {} operations differ: {}",
            operations.len(),
            comparison.compared,
            operations.join(", ")
        );
        println!("runs under fast arithmetic cannot be expected to agree bit for bit");
    }
    if !comparison.facts.is_empty() {
        let mut facts = table(&["differs", "here", "there"]);
        for (name, [here, there]) in &comparison.facts {
            facts.add_row([visible(name), visible(here), visible(there)]);
        }
        println!("\n{facts}");
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header.to_vec());
    table
}
