//! `dapo completions`: a script for a shell.

use crate::commands;
use anyhow::Result;
use clap_complete::Shell;
use std::io::{self, Write};
use std::process::ExitCode;

/// Print a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  source <(dapo completions bash)
  dapo completions zsh > ~/.zfunc/_dapo
  dapo completions fish > ~/.config/fish/completions/dapo.fish")]
pub struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// # Errors
/// When standard output cannot be written to.
pub fn run(args: &CompletionsArgs) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut commands::command(), "dapo", &mut script);
    io::stdout().lock().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
