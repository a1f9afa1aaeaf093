//! `dapo completions`: a script for a shell.

use crate::commands;
use crate::commands::exit;
use anyhow::{Context, Result};
use clap_complete::Shell;
use std::io::{self, Write};

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help/completions.txt"))]
pub struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Errors: a standard output that cannot be written to.
pub fn run(args: &CompletionsArgs) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut commands::command(), "dapo", &mut script);
    io::stdout().lock().write_all(&script).context("cannot write to standard output")?;
    Ok(exit::SUCCESS)
}
