//! Parse, dispatch, exit code.

use dapo::commands::{self, exit, output};
use std::panic;

fn main() {
    output::end_with_the_reader();
    output::end(status());
}

fn status() -> u8 {
    let cli = match commands::parse() {
        Ok(cli) => cli,
        Err(shown) => return output::help_or_usage(&shown),
    };
    // A panic was printed by its hook; it is a bug, and has a bug's exit code.
    match panic::catch_unwind(|| commands::run(&cli)) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) if output::reader_left(&error) => exit::SUCCESS,
        Ok(Err(error)) => {
            output::tell(format!("error: {}", exit::message(&error)));
            exit::code(&error)
        }
        Err(_panic) => exit::BUG,
    }
}
