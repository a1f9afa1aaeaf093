//! `dapo doctor`: this machine and build, for a reader and for another machine.

use crate::base::{files, visible::visible};
use crate::commands::{exit, output::document, output::table};
use crate::verification::{DoctorComparison, Examination, doctor};
use anyhow::Result;
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
    match &comparison {
        Some(comparison) => document(args.json, comparison, || comparison_text(comparison)),
        None => document(args.json, &here, || text(&here)),
    }
    let mut agrees = comparison.is_none_or(|comparison| comparison.agrees());
    for check in here.checks.iter().filter(|check| !check.held) {
        eprintln!("not so: {} ({})", check.name, check.detail);
        agrees = false;
    }
    Ok(exit::agreed(agrees))
}

fn text(here: &Examination) -> String {
    let has = |(name, has): (&String, &bool)| format!("{}{name}", if *has { "" } else { "no " });
    let flags = here.cpu_flags.iter().map(has).collect::<Vec<_>>().join(", ");
    let facts = here.facts.iter().map(|(name, value)| [name.as_str(), value.as_str()]);
    let facts = table(["fact", "value"], [], facts.chain([["instruction sets", &flags]]));
    let pins = here.pins.iter().map(|pin| {
        let changes = match pin.changes_under_fast.as_str() {
            "" => "nothing known",
            changes => changes,
        };
        [pin.name.as_str(), pin.value.as_deref().unwrap_or("not set"), changes, "nothing"]
    });
    let header = ["variable", "value", "can change under fast", "under exact"];
    let pins = table(header, [], pins);
    let checks = here.checks.iter().map(|check| {
        let word = if check.held { "holds" } else { "FAILS" };
        [check.name.as_str(), word, &check.detail]
    });
    let checks = table(["check", "", "seen"], [], checks);
    let (digest, count) = (&here.fingerprint.digest, here.fingerprint.operations.len());
    format!("{facts}\n\n{pins}\n\n{checks}\n\nnumeric fingerprint: {digest} ({count} operations)\n")
}

fn comparison_text(comparison: &DoctorComparison) -> String {
    let compared = comparison.compared;
    let mut text = match comparison.operations.len() {
        _ if comparison.agrees() => {
            format!("all {compared} operations give the same bits here and there\n")
        }
        _ if compared == 0 => "there is no operation to compare\n".to_string(),
        count => {
            let names: Vec<String> = comparison.operations.iter().map(|it| visible(it)).collect();
            format!(
                "{count} of {compared} operations differ: {}\n\
                 runs under fast arithmetic cannot be expected to agree bit for bit\n",
                names.join(", ")
            )
        }
    };
    if !comparison.facts.is_empty() {
        let facts = comparison.facts.iter();
        let facts = facts.map(|(name, [here, there])| [name, here, there]);
        text += &format!("\n{}\n", table(["differs", "here", "there"], [], facts));
    }
    text
}
