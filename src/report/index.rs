//! The page of a folder of runs and studies: a row each, with a link to its report.

use crate::base::files;
use crate::records::{RunFolder, RunSummary, environment, housekeeping};
use crate::report::page::{Block, Column, Look, Page, Section, Table, TableCell, row};
use crate::report::{ReportError, html, text};
use crate::study::collection;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub const FILE: &str = "index.html";
const KIND: &str = "index";

/// `None` for a folder without runs and studies. Runs of a study stand in its own report.
///
/// # Errors
/// When the folder, or one below it, cannot be listed.
pub fn page(root: &Path) -> Result<Option<Page>, ReportError> {
    let studies = studies(root)?;
    let is_of_a_study =
        |run: &RunFolder| studies.iter().any(|study| run.root().starts_with(root.join(study)));
    let runs = housekeeping::runs(root)?.into_iter().filter(|run| !is_of_a_study(run));
    let runs: Vec<(RunFolder, RunSummary)> = runs
        .map(|run| Ok((run.clone(), housekeeping::summary(&run)?)))
        .collect::<Result<_, files::FileError>>()?;
    if runs.is_empty() && studies.is_empty() {
        return Ok(None);
    }
    let (whole, damaged): (Vec<_>, Vec<_>) =
        runs.iter().partition(|(_, summary)| summary.damage.is_none());
    let mut unreadable: Vec<Vec<TableCell>> = damaged
        .into_iter()
        .map(|(_, it)| unread(root, &it.folder, it.damage.as_deref().unwrap_or_default()))
        .collect();
    let mut study_rows = Vec::new();
    for name in &studies {
        match study_row(root, name) {
            Ok(row) => study_rows.push(row),
            Err(error) => unreadable.push(unread(root, &root.join(name), &error.to_string())),
        }
    }
    let counts = [
        text::counted(whole.len(), "run", "runs"),
        text::counted(study_rows.len(), "study", "studies"),
        format!("{} that cannot be read", unreadable.len()),
    ];
    let mut blocks = Vec::new();
    if !whole.is_empty() {
        blocks.push(Block::Table(run_table(root, &whole)));
    }
    if !study_rows.is_empty() {
        let columns = "study | question | arms # | runs that count # | status";
        blocks.push(Block::Table(Table::new("Studies.", columns, study_rows)));
    }
    if !unreadable.is_empty() {
        let caption = "What cannot be read.";
        blocks.push(Block::Table(Table::new(caption, "folder | reason", unreadable)));
    }
    Ok(Some(Page {
        kind: KIND,
        title: text::visible(&root.display().to_string()),
        state: "index",
        headline: format!("{}.", counts.join(", ")),
        sections: vec![Section::new("all", "Runs and studies", blocks)],
        script: include_str!("templates/sort.js"),
        ..Page::default()
    }))
}

/// # Errors
/// As [`page`], when `index.html` is another's, and when it cannot be written.
pub fn write(root: &Path, page: &Page) -> Result<PathBuf, ReportError> {
    let path = root.join(FILE);
    let is_ours = |text: String| text.contains(&format!("<body class=\"{KIND}\">"));
    if files::kind(&path)?.is_some() && !is_ours(files::read_text(&path)?) {
        let reason = "is no list of runs of `dapo report`: move it away first".to_owned();
        return Err(ReportError::NoFigure { folder: path, reason });
    }
    files::write_atomic(&path, html::render(page).as_bytes())?;
    Ok(path)
}

/// A name in an address: what could end it or mean something else there is percent-encoded.
fn encoded(name: &str) -> String {
    let shown = |byte: u8| match byte {
        b'-' | b'_' | b'.' | b'/' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(shown).collect()
}

/// Names of folders directly below.
fn studies(root: &Path) -> Result<Vec<String>, ReportError> {
    let mut names = files::list(root)?;
    names.retain(|name| collection::is_study(&root.join(name)));
    Ok(names)
}

fn run_table(root: &Path, runs: &[&(RunFolder, RunSummary)]) -> Table {
    let sets: BTreeSet<&String> = runs.iter().flat_map(|(_, it)| it.accuracy.keys()).collect();
    let rows = runs.iter().map(|(run, summary)| {
        let steps = summary.steps_planned.map_or("?".to_owned(), |steps| steps.to_string());
        let scores = sets
            .iter()
            .map(|set| TableCell::shown(summary.accuracy.get(*set).copied(), text::points));
        row![
            linked(root, &summary.folder),
            text::visible(summary.name.as_deref().unwrap_or("?")),
            summary.seed.map_or("?".to_owned(), |seed| seed.to_string()),
            state(summary.state.name()),
            format!("{}/{steps}", summary.steps_done),
            began(run)
        ]
        .into_iter()
        .chain(scores)
        .collect()
    });
    let caption =
        "Runs; scores are avg@k of the last evaluation, %. A head of a column sorts by it.";
    let columns = "run | arm | seed # | state | steps # | began (UTC)";
    let mut table = Table::new(caption, columns, rows);
    let column = |set: &&String| Column::new(&format!("{} #", text::visible(set)));
    table.columns.extend(sets.iter().map(column));
    table
}

fn state(name: &str) -> TableCell {
    let look = match name {
        "finished" => Look::Good,
        "diverged" | "stalled" => Look::Bad,
        _ => Look::Open,
    };
    look.of(name)
}

fn began(run: &RunFolder) -> TableCell {
    let first = run.sessions().ok().and_then(|all| all.first()?.started_ms);
    let time = first.and_then(environment::rfc3339);
    time.map_or_else(|| TableCell::missing("–"), |time| time[..16].replace('T', " ").into())
}

fn study_row(root: &Path, name: &str) -> Result<Vec<TableCell>, ReportError> {
    let study = collection::load(&root.join(name), None)?;
    let arms = study.grids.iter().map(|grid| grid.arms.len()).sum();
    Ok(row![
        linked(root, &root.join(name)),
        text::visible(&study.declaration.question),
        TableCell::count(arms),
        TableCell::count(study.cells.len()),
        if study.declaration.registered { "registered" } else { "exploratory" }
    ])
}

fn unread(root: &Path, folder: &Path, reason: &str) -> Vec<TableCell> {
    let name = folder.strip_prefix(root).unwrap_or(folder);
    row![text::visible(&name.display().to_string()), text::visible(reason)]
}

/// The folder's name, linked where it has a report.
fn linked(root: &Path, folder: &Path) -> TableCell {
    let name = folder.strip_prefix(root).unwrap_or(folder).display().to_string();
    let cell = TableCell::from(text::visible(&name));
    if folder.join("report.html").is_file() {
        TableCell { link: format!("./{}/report.html", encoded(&name)), ..cell }
    } else {
        TableCell { text: format!("{} (no report)", cell.text), ..cell }
    }
}
