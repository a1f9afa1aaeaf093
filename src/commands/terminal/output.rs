//! Output of verbs: JSON or text, tables, durations; failures of standard output; terminals.

use crate::base::{files, visible};
use crate::commands::exit;
use crate::report::page::{Section, Table, TableCell};
use crate::report::{markdown, terminal, terminal::prose};
use regex::{Captures, Regex};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::panic;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Text of a page, or anything else whose foreign text is visible.
pub fn document(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) {
    if json {
        print!("{}", visible::json(&files::canonical_json(value)))
    } else {
        print!("{}", text())
    }
}

/// As [`document`]; the lines of the text are as wide as the terminal, or as its tables with `--wide`.
pub fn lines(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) {
    document(json, value, || prose(&text(), table_width()));
}

/// As [`document`], with the sections of a page as text or Markdown.
pub fn sections((json, markdown): (bool, bool), value: &impl Serialize, sections: &[Section]) {
    document(
        json,
        value,
        || {
            if markdown { markdown::sections(sections) } else { rendered(sections) }
        },
    );
}

pub fn rendered(sections: &[Section]) -> String {
    terminal::render(sections, table_width())
}

pub fn json_line(value: &impl Serialize) {
    println!("{}", visible::json(&files::canonical_json_line(value)));
}

/// A sentence of the result, on standard output; foreign text in it is made visible. A terminal gets lines
/// that end between words.
pub fn say(message: impl ToString) {
    print!("{}", sentence(&message.to_string(), width(io::stdout())));
}

/// As [`say`], on standard error: what is no part of the result.
pub fn tell(message: impl ToString) {
    tell_lines(&sentence(&message.to_string(), width(io::stderr())));
}

/// Text as it is. A standard error that nobody reads ends no process.
pub fn tell_lines(text: &str) {
    if io::stderr().write_all(text.as_bytes()).is_err_and(|it| it.kind() == ErrorKind::BrokenPipe) {
        NOBODY_LISTENS.store(true, Ordering::Relaxed);
    }
}

pub static NOBODY_LISTENS: AtomicBool = AtomicBool::new(false);

fn sentence(message: &str, width: Option<usize>) -> String {
    if message.is_empty() { "\n".to_string() } else { prose(&visible::message(message), width) }
}

pub fn path(path: &Path) {
    println!("{}", visible::visible(&path.display().to_string()));
}

/// `--wide`: tables keep all columns on a narrow terminal.
pub static WIDE: AtomicBool = AtomicBool::new(false);

/// Columns of a terminal, or what the variable COLUMNS says where there is none; `None`: any.
pub fn width(stream: impl AsFd) -> Option<usize> {
    let terminal = rustix::termios::tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_col));
    let stated = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal.or_else(stated).filter(|columns| *columns >= NARROWEST)
}

/// A narrower terminal is taken for one whose width is not known.
const NARROWEST: usize = 20;

/// Columns as in [`Table::new`]; cells may hold foreign text.
pub fn table<R>(columns: &str, rows: impl IntoIterator<Item = R>) -> String
where
    R: IntoIterator<Item: AsRef<str>>,
{
    let cell = |cell: R::Item| TableCell::from(visible::visible(cell.as_ref()));
    let rows = rows.into_iter().map(|row| row.into_iter().map(cell).collect());
    page_table(&Table::new("", columns, rows))
}

pub fn page_table(table: &Table) -> String {
    terminal::table(table, table_width())
}

fn table_width() -> Option<usize> {
    width(io::stdout()).filter(|_| !WIDE.load(Ordering::Relaxed))
}

/// `println!` panics on a closed or full standard output. A reader that left (`dapo generate … |
/// head`) is a silent success, a full disk behind a redirection an error in one line.
pub fn end_with_the_reader() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<String>().map_or("", String::as_str);
        let Some(reason) = text.strip_prefix("failed printing to stdout: ") else {
            return print(info);
        };
        if reason.starts_with("Broken pipe") {
            std::process::exit(i32::from(exit::SUCCESS));
        }
        tell_lines(&format!("error: cannot write to standard output: {reason}\n"));
        std::process::exit(i32::from(exit::BUG));
    }));
}

/// Ends the process without C++'s destructors: LibTorch takes 0.1 s to take its operators out of its
/// tables again.
pub fn end(status: u8) -> ! {
    // A reader that left, or a full disk, at the last line changes no exit code.
    let _ = io::stdout().flush();
    signal_hook::low_level::exit(i32::from(status))
}

/// Prints what clap shows instead of executing a command.
pub fn help_or_usage(shown: &clap::Error) -> u8 {
    let rendered = shown.render();
    let text = |is_styled: bool| {
        let text = if is_styled { rendered.ansi().to_string() } else { rendered.to_string() };
        text.replace(KEPT_SPACE, " ")
    };
    if shown.use_stderr() {
        let text = text(colour())
            .replace("invalid digit found in string", "expected a whole number from 0")
            .replace("invalid float literal", "expected a number");
        let _ = io::stderr().write_all(plain_range(&text).as_bytes());
    } else {
        let text = text(is_coloured(&io::stdout()));
        if let Err(error) =
            io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush())
            && error.kind() != ErrorKind::BrokenPipe
        {
            tell(format!("error: cannot write to standard output: {error}"));
            return exit::BUG;
        }
    }
    u8::try_from(shown.exit_code()).unwrap_or(exit::BUG)
}

fn plain_range(text: &str) -> Cow<'_, str> {
    static RANGE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(-?\d+) is not in (\d+)\.\.(=?)(\d+)").expect("a regular expression")
    });
    RANGE.replace(text, |range: &Captures| match &range[3] {
        "" => format!("must be at least {}, got {}", &range[2], &range[1]),
        _ => format!("must be from {} to {}, got {}", &range[2], &range[4], &range[1]),
    })
}

pub fn reader_left(error: &anyhow::Error) -> bool {
    let broken = |cause: &io::Error| cause.kind() == ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(broken))
}

pub const KEPT_SPACE: &str = "\u{a0}";

pub fn colour() -> bool {
    is_coloured(&io::stderr())
}

fn is_coloured(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Standard error must be a terminal, not `TERM=dumb`. Bars have no colour, so `NO_COLOR` does not
/// matter.
pub fn may_draw() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
