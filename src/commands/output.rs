//! Standard output that cannot be written to, and what a terminal may be asked to do.

use crate::commands::exit;
use std::{io, panic};

/// `println!` panics when standard output cannot be written to. A reader that left (`dapo
/// generate … | head`) has what it wanted: that is success, and silent. A full disk behind a
/// redirection is an error in one line.
pub fn end_with_the_reader() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<String>().map_or("", String::as_str);
        // Nobody is left to talk to. A run that ends here can be resumed.
        if text.starts_with("failed printing to stderr: ") {
            std::process::exit(i32::from(exit::NOBODY_LISTENS));
        }
        let Some(reason) = text.strip_prefix("failed printing to stdout: ") else {
            return print(info);
        };
        if reason.starts_with("Broken pipe") {
            std::process::exit(i32::from(exit::SUCCESS));
        }
        eprintln!("error: cannot write to standard output: {reason}");
        std::process::exit(i32::from(exit::BUG));
    }));
}

/// Whether an error says that the reader of standard output left.
pub fn reader_left(error: &anyhow::Error) -> bool {
    let broken = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(broken))
}

/// Whether standard error is a terminal on which a bar may be drawn: not with `TERM=dumb`. The
/// bar has no colour, so that `NO_COLOR` asks nothing of it.
pub fn may_draw() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::IsTerminal::is_terminal(&io::stderr()) && !dumb
}
