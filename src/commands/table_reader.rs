//! The hidden verb that reads parquet files and renders chat templates apart: see [`apart`].

use crate::base::{apart, program};
use crate::commands::exit;
use crate::records::tables::{decode, problem_rows};
use crate::task::chat_template;
use anyhow::Context;

pub const VERB: &str = "table-reader";

/// Read tables for another process of this program, from standard input to standard output
#[derive(Debug, clap::Args)]
pub struct TableReaderArgs {
    /// Send the rows of a problem file that is standard input, within this memory (bytes beyond
    /// what the process has) and processor time (seconds); the keys that are wanted, as JSON
    #[arg(long = &problem_rows::ARGUMENT[2..], num_args = 3, value_names = ["BYTES", "SECONDS", "KEYS"])]
    problem_rows: Option<Vec<String>>,
}

/// This executable now reads tables, in a second process.
pub fn register() {
    if let Ok(program) = program::path() {
        apart::use_program(program, VERB);
    }
}

/// Errors: a limit that cannot be set, or an answer that cannot be written.
pub fn run(args: &TableReaderArgs) -> anyhow::Result<u8> {
    match args.problem_rows.as_deref() {
        Some(arguments) => problem_rows::answer(arguments),
        None => apart::serve(|request| match chat_template::answer(request) {
            Some(answer) => answer,
            None => decode::answer(request),
        }),
    }
    .context("reading tables for another process")?;
    Ok(exit::SUCCESS)
}
