//! Parse, dispatch, exit code.

use dapo::commands::{self, exit, output};
use std::panic;
use std::process::ExitCode;

fn main() -> ExitCode {
    output::end_with_the_reader();
    let cli = commands::parse();
    // A panic was printed by its hook; it is a bug, and has a bug's exit code.
    match panic::catch_unwind(|| commands::run(&cli)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) if output::reader_left(&error) => ExitCode::from(exit::SUCCESS),
        Ok(Err(error)) => {
            output::tell(format!("error: {}", exit::message(&error)));
            ExitCode::from(exit::code(&error))
        }
        Err(_panic) => ExitCode::from(exit::BUG),
    }
}
