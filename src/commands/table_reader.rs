//! The hidden verb behind every parquet file that is read: see `src/apart.rs`.

use crate::apart;
use crate::tables::decode;
use anyhow::Context;
use std::process::ExitCode;

/// Its name.
pub const VERB: &str = "table-reader";

/// Read tables for another process of this program, from standard input to standard output
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Tables are read by this executable from now on, in a process apart.
pub fn register() {
    if let Ok(program) = std::env::current_exe() {
        apart::use_program(program, VERB);
    }
}

/// Runs the verb.
///
/// # Errors
/// When a limit cannot be set or an answer cannot be written.
pub fn run(_args: &Args) -> anyhow::Result<ExitCode> {
    apart::serve(decode::answer).context("reading tables for another process")?;
    Ok(ExitCode::SUCCESS)
}
