//! Parse, dispatch, exit code.

use clap::Parser;
use dapo::commands;
use dapo::commands::Cli;
use dapo::commands::exit;
use std::process::ExitCode;

fn main() -> ExitCode {
    match commands::run(&Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {}", exit::message(&error));
            ExitCode::from(exit::code(&error))
        }
    }
}
