//! Output of verbs: JSON or text, tables, durations; failures of standard output; terminals.

use crate::base::{files, visible};
use crate::commands::exit;
use comfy_table::{CellAlignment, ColumnConstraint, Table, presets};
use serde::Serialize;
use serde_json::Value;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, panic};

pub fn document(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) {
    if json {
        print!("{}", visible::json(&files::canonical_json(value)))
    } else {
        print!("{}", text())
    }
}

pub fn json_line(value: &impl Serialize) {
    println!("{}", visible::json(&files::canonical_json_line(value)));
}

/// Foreign text in the message is made visible.
pub fn tell(message: impl ToString) {
    eprintln!("{}", visible::message(&message.to_string()));
}

pub fn path(path: &Path) {
    println!("{}", visible::visible(&path.display().to_string()));
}

/// `--wide`: tables keep all columns on a narrow terminal.
pub static WIDE: AtomicBool = AtomicBool::new(false);

/// `None` without a terminal.
fn terminal_width() -> Option<usize> {
    let columns = rustix::termios::tcgetwinsize(io::stdout()).ok()?.ws_col;
    (columns > 0 && !WIDE.load(Ordering::Relaxed)).then_some(columns.into())
}

/// Removes columns from the right; the first and the last one stay.
fn fit(table: &mut Table, width: usize) {
    let last = table.column_count().saturating_sub(1);
    for index in (1..last).rev() {
        if table.lines().all(|line| line.chars().count() <= width) {
            return;
        }
        if let Some(column) = table.column_mut(index) {
            column.set_constraint(ColumnConstraint::Hidden);
        }
    }
}

/// Markdown. Cells may hold foreign text; the columns `right` are right-aligned. A terminal gets
/// the columns that fit.
pub fn table<H, R>(
    header: H,
    right: impl IntoIterator<Item = usize>,
    rows: impl IntoIterator<Item = R>,
) -> Table
where
    H: IntoIterator<Item: AsRef<str>>,
    R: IntoIterator<Item: AsRef<str>>,
{
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header.into_iter().map(|cell| visible::visible(cell.as_ref())));
    for row in rows {
        table.add_row(row.into_iter().map(|cell| visible::visible(cell.as_ref())));
    }
    for index in right {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    if let Some(width) = terminal_width() {
        fit(&mut table, width);
    }
    table
}

/// As in an experiment file, or `absent`.
pub fn literal(value: Option<&Value>) -> String {
    value.map_or("absent".to_string(), Value::to_string)
}

/// `2 ms`, `59.0 s`, `2.5 min`, `2.8 h`, `10.0 days`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        _ if seconds >= 172_800.0 => format!("{:.1} days", seconds / 86_400.0),
        _ if seconds >= 7_200.0 => format!("{:.1} h", seconds / 3_600.0),
        _ if seconds >= 120.0 => format!("{:.1} min", seconds / 60.0),
        _ if seconds >= 1.0 => format!("{seconds:.1} s"),
        _ => format!("{:.0} ms", 1000.0 * seconds),
    }
}

/// `println!` panics on a closed or full standard output. A reader that left (`dapo generate … |
/// head`) is a silent success, a full disk behind a redirection an error in one line.
pub fn end_with_the_reader() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        let text = info.payload().downcast_ref::<String>().map_or("", String::as_str);
        // Nobody reads this. The run can be resumed.
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

pub fn reader_left(error: &anyhow::Error) -> bool {
    let broken = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref().is_some_and(broken))
}

/// Standard error must be a terminal, and `NO_COLOR` empty.
pub fn colour() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::IsTerminal::is_terminal(&io::stderr()) && !no_color
}

/// Standard error must be a terminal, not `TERM=dumb`. Bars have no colour, so `NO_COLOR` does not
/// matter.
pub fn may_draw() -> bool {
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::IsTerminal::is_terminal(&io::stderr()) && !dumb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_readable_at_every_size() {
        let texts = [0.0021, 59.0, 150.0, 10_000.0, 864_000.0].map(duration);
        assert_eq!(texts, ["2 ms", "59.0 s", "2.5 min", "2.8 h", "10.0 days"]);
    }
}
